// A clock for writers in tests: each reading is `step` ticks later than the one before, and the test can move it on.
#pragma once
#include <ringside/base/types.hpp>

namespace ringside::test {

template <u64 step = 1>
struct Ticks {
  u64* at;
  u64 now() noexcept { return *at += step; }
};

}  // namespace ringside::test
