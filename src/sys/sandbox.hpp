// A program that forbids itself system calls (seccomp: strict mode, or a filter) must not be killed by one of the library's.
// From when it says so on, the library makes none in this process.
#pragma once
#include <ringside/base/types.hpp>

namespace ringside {

// ready: events go on, into memory that is there. shut: all events are refused.
enum class Sandbox : u32 { none, ready, shut };
extern constinit u32 sandbox;  // a Sandbox

inline Sandbox sandbox_now() noexcept { return static_cast<Sandbox>(__atomic_load_n(&sandbox, __ATOMIC_ACQUIRE)); }
inline void set_sandbox(Sandbox now) noexcept { __atomic_store_n(&sandbox, static_cast<u32>(now), __ATOMIC_SEQ_CST); }
inline bool no_system_calls() noexcept { return sandbox_now() != Sandbox::none; }

}  // namespace ringside
