// How often a property with a loop of its own is tried.
#pragma once
#include <rapidcheck.h>
#include <rapidcheck/detail/Configuration.h>

#include <algorithm>
#include <ringside/base/types.hpp>

namespace ringside::test {

// In proportion to the cases that RapidCheck has of each property: RC_PARAMS=max_success=N; `usually` for 10,000. At least a
// tenth.
inline u64 rounds(u64 usually) {
  const auto cases = static_cast<u64>(rc::detail::configuration().testParams.maxSuccess);
  return std::max<u64>(usually * cases / 10'000, (usually + 9) / 10);
}

}  // namespace ringside::test
