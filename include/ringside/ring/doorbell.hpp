// How a writer wakes those who wait for events.
#pragma once
#include <ringside/base/types.hpp>

namespace ringside {

// A commit rings it while somebody waits. `any`: not 0 if somebody waits for any event; each outermost commit looks. `percent`:
// 1 more than the fullness that somebody waits for, or 0; looked at when a sub-buffer is finished.
inline constexpr u64 nobody_waits = 0;
struct Doorbell {
  const u64* any = &nobody_waits;
  const u64* percent = &nobody_waits;
  void (*ring)(void* context) noexcept = nullptr;
  void* context = nullptr;
};

}  // namespace ringside
