// How a writer wakes whoever waits for events.
#pragma once
#include <ringside/base/types.hpp>

namespace ringside {

// Rung by a commit while somebody waits: `any` is looked at on each outermost commit; `percent`, the fullness that is waited for plus
// 1, when a sub-buffer is finished.
inline constexpr u64 nobody_waits = 0;
struct Doorbell {
  const u64* any = &nobody_waits;
  const u64* percent = &nobody_waits;
  void (*ring)(void* context) noexcept = nullptr;
  void* context = nullptr;
};

}  // namespace ringside
