// The rings of CPUs: whether this machine can have them, and where this process maps those of the open instance.
#pragma once
#include <ringside/thread.hpp>

#include "writer/layout.hpp"

namespace ringside {

struct Opened;

// Are restartable sequences registered for this thread, by the C library? Signal-safe.
bool has_rseq() noexcept;

// Does the kernel abort a sequence whose thread it preempts, when the next one runs on the same CPU? Tests it with a process
// that wakes up beside a long sequence: 1 ms or more. Some kernels for arm64 (6.19 to 7.0.13) do not. False also if no
// preemption happened within a second.
bool kernel_aborts() noexcept;

// All numbers of possible CPUs are below this.
u32 possible_cpus() noexcept;

// The reason against rings of CPUs here and now; can: there is none.
RingsBecause why_not_cpu_rings() noexcept;
const char* to_string(RingsBecause because) noexcept;  // a clause: "as ..."

// The source of detail::cpu_side: for ringside_open, which holds the lock. Null: the instance has none, or this process cannot
// use them (another boot, no rseq).
const detail::CpuSide* open_cpu_side(const Opened& in) noexcept;

bool is_mapped(const detail::CpuSide& side, u32 cpu) noexcept;  // and not moved aside
// Maps the ring of this CPU, or maps it anew after it was moved. If several threads do it, the first one's mapping stays.
// Signal-safe. False: the ring is not available.
bool map_cpu_ring(const detail::CpuSide& side, u32 cpu) noexcept;

// Maps the rings of all CPUs and takes their memory. 0, or an errno; ENOSPC: it is more than `most` bytes.
int back_cpu_rings(const detail::CpuSide& side, u64 most) noexcept;

}  // namespace ringside
