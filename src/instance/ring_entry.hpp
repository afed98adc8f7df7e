// Who has a ring, judged from outside. Signal-safe.
#pragma once
#include "instance/layout.hpp"

namespace ringside {

// The thread that writes to the ring is gone. Where that cannot be judged (no /proc, another PID namespace): false.
bool surely_dead(const InstanceControl& control, const RingEntry& entry) noexcept;

// Retires a ring whose writer is dead, or whose claimer died before it was done. Answers the state as it is then.
RingState settle(const InstanceControl& control, RingEntry& entry) noexcept;

}  // namespace ringside
