// The memory cgroup that this process is in. Memory beyond its limit is no error that a call could answer: the kernel kills. So it is asked for only
// where there is room. Signal-safe: system calls only.
#pragma once
#include <ringside/base/types.hpp>

namespace ringside::sys {

// Have all cgroups around this process, as far as it sees them, room for so many bytes more, and a sixteenth of their limit to spare? What the
// kernel would take back from the page cache counts as room; swap does not. A cgroup counts that had a limit when this process first asked; its
// limit and use are read each time. True where there is none.
bool memory_left(u64 size) noexcept;

// Is the effective user the one that first asked?
bool same_user() noexcept;

// The number behind `name` in lines "NAME NUMBER"; 0: there is none.
u64 number_behind(const char* text, const char* name) noexcept;

}  // namespace ringside::sys
