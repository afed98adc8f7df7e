// A program that forbids itself system calls (seccomp: strict mode, or a filter) must not be killed by one of the library's.
// From when it says so on, the library makes none in this process.
#pragma once
#include <ringside/base/types.hpp>

namespace ringside {

// ready: events go on, into memory that is there. shut: all events are refused.
enum class Sandbox : u32 { none, ready, shut };
extern constinit Sandbox sandbox;

inline Sandbox sandbox_now() noexcept { return __atomic_load_n(&sandbox, __ATOMIC_ACQUIRE); }
inline bool no_system_calls() noexcept { return sandbox_now() != Sandbox::none; }

}  // namespace ringside
