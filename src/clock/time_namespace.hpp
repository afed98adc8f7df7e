// What a process's CLOCK_MONOTONIC is ahead of the kernel's: not 0 in some time namespaces.
#pragma once
#include <ringside/base/types.hpp>

namespace ringside {

// pid: 0 is this process. ns; 0 as well where /proc does not tell. For a process that has left its namespace to its children: of theirs. Signal-safe.
i64 ahead_in_time_namespace(i32 pid) noexcept;

}  // namespace ringside
