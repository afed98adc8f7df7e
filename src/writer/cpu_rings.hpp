// The rings of CPUs: whether this machine can have them, and where this process has those of the instance that is open.
#pragma once
#include <ringside/thread.hpp>

#include "writer/layout.hpp"

namespace ringside {

struct Opened;

// Are restartable sequences registered for this thread, by the C library? Signal-safe.
bool has_rseq() noexcept;

// Does the kernel abort a sequence whose thread it preempts, when the next one runs on the same CPU? Asks it, by a process that wakes up beside
// a long sequence: 1 ms or more. Some kernels for arm64 (6.19 to 7.0.13) do not. False also if it did not come to it within a second.
bool kernel_aborts() noexcept;

// Possible CPUs: their numbers are below this.
u32 possible_cpus() noexcept;

// What speaks against rings of CPUs here and now: can, if nothing does.
RingsBecause why_not_cpu_rings(ClockKind clock) noexcept;
const char* to_string(RingsBecause because) noexcept;  // a clause: "as ..."

// The other side of detail::cpu_side: for ringside_open, which holds the lock. Null: the instance has none, or they are not for this
// process (another boot, no rseq).
const detail::CpuSide* open_cpu_side(const Opened& in) noexcept;

// Maps the ring of this CPU, or maps it anew after it was moved; of several threads that do, the first one's
// mapping stays. Signal-safe. False: it cannot be had.
bool map_cpu_ring(const detail::CpuSide& side, u32 cpu) noexcept;

}  // namespace ringside
