// A program that forbids itself system calls (seccomp, syscall user dispatch), or to read the processor's counter, must not be
// killed by the library. From when it says so on, the library makes no call in this process, on any thread: a filter may be for
// all of them (TSYNC). A single thread refuses its events, and makes no call either, where it shares its words with another
// process: a child of vfork that has confined itself, and clone(CLONE_VM) (ThisThread::refuses).
//
// Invariant: `sandbox` is set before the library waits until `calling` is 0, and a thread adds itself to `calling` before it
// reads `sandbox`, all of it sequentially consistent. So a thread either reads that there is a sandbox, and makes no call, or
// is waited for.
#pragma once
#include <ringside/base/sanitizers.hpp>
#include <ringside/base/types.hpp>
#include <ringside/thread.hpp>

namespace ringside {

// ready: events go on, into memory that is there. shut: all events are refused.
enum class Sandbox : u32 { none, ready, shut };
extern constinit u32 sandbox;  // a Sandbox
extern constinit u32 calling;  // how many threads are in SystemCalls; a handler that leaves it by longjmp leaves a 1

inline Sandbox sandbox_of_process() noexcept { return static_cast<Sandbox>(__atomic_load_n(&sandbox, __ATOMIC_SEQ_CST)); }
// That of this thread.
inline Sandbox sandbox_now() noexcept { return detail::this_thread.refuses ? Sandbox::shut : sandbox_of_process(); }
// This thread's events are refused and counted from now on.
inline void refuse_events_of_thread() noexcept {
  detail::this_thread.refuses = true;
  __atomic_store_n(&detail::this_thread.on_cpus_at, detail::not_attached, __ATOMIC_SEQ_CST);
}
inline void set_sandbox(Sandbox now) noexcept { __atomic_store_n(&sandbox, static_cast<u32>(now), __ATOMIC_SEQ_CST); }
inline bool no_system_calls() noexcept { return sandbox_now() != Sandbox::none; }

// ThreadSanitizer does not support its atomics at the very end of a thread, where destructors still come.
#if RINGSIDE_TSAN
#define RINGSIDE_AT_THREAD_END [[gnu::no_sanitize_thread]]
#else
#define RINGSIDE_AT_THREAD_END
#endif

// True: this thread may make system calls until it ends them. Not inline: callers run on small stacks.
RINGSIDE_AT_THREAD_END [[gnu::noinline]] bool begin_system_calls() noexcept;
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
