// The common part of the hooks. Preloaded into an unmodified program by `ringside record --libc LIST -- CMD`, they call the C
// library and write an event about the call.
//
// The program must not notice: errno is kept, no descriptor stays open, a call that is left by longjmp or cancellation leaves
// no state, and an event that cannot be written is dropped. Safe in signal handlers, before main, after a thread's
// destructors. The library's own calls are not recorded; all others are, also those of a handler that interrupts a hook.
#pragma once
#include <errno.h>
#include <threads.h>
#include <time.h>

#include <ringside/thread.hpp>

#include "preload/events.hpp"
#include "writer/process.hpp"

#define HOOK extern "C" [[gnu::visibility("default")]]

namespace ringside::preload {

struct Groups {
  bool malloc, io, mutex, lock;
};
extern constinit Groups groups;  // none until the library is loaded

// The next definition of a function. A section of its own gathers them all: they are looked up when the library is loaded,
// because a signal handler must not look them up.
// The alignment is the compiler's greatest for such an object: between two of them nothing lies.
struct alignas(32) Next {
  const char* name;
  void* found;
  const char* version = nullptr;  // null: the one that programs are linked with today
};
static_assert(sizeof(Next) == 32);
// Null only while this thread is looking one up, which may allocate.
void* look_up(Next& next) noexcept;

// Or is it another preloaded library's?
bool is_the_c_librarys(const void* function) noexcept;
void find_other_vfork() noexcept;  // when the library is loaded

#define NEXT_VERSION(name, version)                                                                           \
  reinterpret_cast<decltype(&::name)>([]() noexcept {                                                         \
    [[gnu::section("ringside_next")]] static constinit ringside::preload::Next next{#name, nullptr, version}; \
    return ringside::preload::look_up(next);                                                                  \
  }())
#define NEXT(name) NEXT_VERSION(name, nullptr)

inline bool wanted(bool group) noexcept { return group && !detail::this_thread.inside; }

inline u64 now_ns() noexcept {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<u64>(t.tv_sec) * 1000000000 + static_cast<u64>(t.tv_nsec);
}

// Time that passes, by the processor's counter where the instance's clock is one: two calls of clock_gettime cost as much as an
// event.
class Stopwatch {
 public:
  Stopwatch() noexcept : ticks_(in_ticks(at_)) {
    if (!ticks_) at_ = now_ns();
  }
  u64 ns() const noexcept {
    u64 now = 0;
    if (!ticks_) return now_ns() - at_;
    if (!in_ticks(now) || now < at_) return 0;  // another instance's clock
    const ClockInfo& clock = opened_now()->clock;
    return clock.to_ns(clock.base_ticks + (now - at_)) - clock.base_ns;
  }

 private:
  static bool in_ticks(u64& now) noexcept {
    const Opened* const in = opened_now();
    return in != nullptr && ticks_of(in->clock.kind, now);
  }
  u64 at_ = 0;
  bool ticks_;
};

// Calls `real`, then tell(its result, its duration in ns), and restores the errno of `real`. May be unwound (cancellation).
template <class Real, class Tell>
auto hooked(bool group, Real real, Tell tell) {
  if (!wanted(group)) return real();
  if (sandbox_now() == Sandbox::shut) {  // no clock may be read
    const auto result = real();
    const int left = errno;
    tell(result, 0);
    errno = left;
    return result;
  }
  const Stopwatch took;
  const auto result = real();
  const int left = errno;
  tell(result, took.ns());
  errno = left;
  return result;
}

// C11's results, reported as those of pthread.
inline int number_of(int result) noexcept {
  return result == thrd_success ? 0 : result == thrd_busy ? EBUSY : result == thrd_timedout ? ETIMEDOUT : EINVAL;
}

}  // namespace ringside::preload
