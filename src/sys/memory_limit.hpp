// The memory cgroup of this process. Memory beyond its limit is not an error that a call returns: the kernel kills the process.
// So memory is requested only where there is room. Signal-safe: system calls only.
#pragma once
#include <ringside/base/types.hpp>

namespace ringside::sys {

// Whether a visible cgroup around this process had a limit when it first asked; true also where that cannot be found out. Takes
// little stack.
bool memory_is_limited() noexcept;

// Whether all visible cgroups around this process have room for `size` more bytes, and a sixteenth of their limit to spare.
// Page cache that the kernel would reclaim counts as room; swap does not. Only cgroups that had a limit when this process first
// asked count; their limit and use are read each time. True where there is none. Takes 6 KiB of stack.
bool memory_left(u64 size) noexcept;

// A child of vfork on this thread has ended, perhaps killed while it asked for the first time: the next thread asks.
void look_again_after_vfork() noexcept;

// Whether the effective user is the one that first asked.
bool same_user() noexcept;

// The number after `name` in lines "NAME NUMBER"; 0: there is none.
u64 number_behind(const char* text, const char* name) noexcept;

}  // namespace ringside::sys
