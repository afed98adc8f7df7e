// What a process's CLOCK_MONOTONIC is ahead of the kernel's: not 0 in some time namespaces.
#pragma once
#include <ringside/base/types.hpp>

namespace ringside {

// pid: 0 is this process. ns; 0 as well where /proc does not say. After unshare() it is the one of the process's children.
// Signal-safe.
i64 ahead_in_time_namespace(i32 pid) noexcept;

}  // namespace ringside
