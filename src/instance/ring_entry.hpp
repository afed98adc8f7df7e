// Who has a ring, judged from outside. Signal-safe.
#pragma once
#include "instance/layout.hpp"

namespace ringside {

// Is the ring a CPU's, by the state of a ring that is live or retired? No thread has such a number.
constexpr bool names_cpu(u64 state) noexcept { return state >> 63 != 0; }

// The thread that writes to the ring is gone. Where that cannot be judged (no /proc, another PID namespace): false.
// A CPU's ring has no writer that could be.
bool surely_dead(const InstanceControl& control, const RingEntry& entry) noexcept;
// The same of a process, by its start time.
bool surely_dead(const InstanceControl& control, i32 pid, u64 start) noexcept;

// Retires a ring whose writer is dead, or whose claimer died before it was done. Answers the state as it is then.
RingState settle(const InstanceControl& control, RingEntry& entry) noexcept;

}  // namespace ringside
