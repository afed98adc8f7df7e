// A program that forbids itself system calls (seccomp: strict mode, or a filter) must not be killed by one of the library's.
// From when it says so on, the library makes none in this process, on any thread: a filter may be for all of them (TSYNC).
//
// Invariant: `sandbox` is set before the library waits until `calling` is 0, and a thread adds itself to `calling` before it
// reads `sandbox`, all of it sequentially consistent. So a thread either reads that there is a sandbox, and makes no call, or is
// waited for.
#pragma once
#include <ringside/base/sanitizers.hpp>
#include <ringside/base/types.hpp>

namespace ringside {

// ready: events go on, into memory that is there. shut: all events are refused.
enum class Sandbox : u32 { none, ready, shut };
extern constinit u32 sandbox;  // a Sandbox
extern constinit u32 calling;  // how many threads are in SystemCalls; a handler that leaves it by longjmp leaves a 1 behind

inline Sandbox sandbox_now() noexcept { return static_cast<Sandbox>(__atomic_load_n(&sandbox, __ATOMIC_SEQ_CST)); }
inline void set_sandbox(Sandbox now) noexcept { __atomic_store_n(&sandbox, static_cast<u32>(now), __ATOMIC_SEQ_CST); }
inline bool no_system_calls() noexcept { return sandbox_now() != Sandbox::none; }

// ThreadSanitizer does not stand its atomics at the very end of a thread, where destructors still come.
#if RINGSIDE_TSAN
#define RINGSIDE_AT_THREAD_END [[gnu::no_sanitize_thread]]
#else
#define RINGSIDE_AT_THREAD_END
#endif

// True: this thread may make system calls until it ends them.
RINGSIDE_AT_THREAD_END inline bool begin_system_calls() noexcept {
  __atomic_fetch_add(&calling, 1u, __ATOMIC_SEQ_CST);
  if (!no_system_calls()) return true;
  __atomic_fetch_sub(&calling, 1u, __ATOMIC_RELEASE);
  return false;
}
RINGSIDE_AT_THREAD_END inline void end_system_calls() noexcept { __atomic_fetch_sub(&calling, 1u, __ATOMIC_RELEASE); }

// The same for a block.
class SystemCalls {
 public:
  SystemCalls() noexcept : may_(begin_system_calls()) {}
  ~SystemCalls() {
    if (may_) end_system_calls();
  }
  SystemCalls(const SystemCalls&) = delete;
  SystemCalls& operator=(const SystemCalls&) = delete;
  explicit operator bool() const noexcept { return may_; }

 private:
  const bool may_;
};

// After set_sandbox: waits until no thread is in SystemCalls; a second at most, because one may have been stopped, or have left
// by longjmp.
void wait_for_system_calls() noexcept;

}  // namespace ringside
