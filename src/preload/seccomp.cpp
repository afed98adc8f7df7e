// A program that forbids itself system calls, or the processor's counter: from then on the library makes and reads none in it
// (writer/sandbox.hpp). Programs do that by prctl, or by syscall, as the C library has no call for seccomp. A filter is not
// read: any may end a program for any call. Syscall user dispatch turns each call from outside a range into a signal.
#include <linux/seccomp.h>
#include <stdarg.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "preload/hook.hpp"
#include "preload/name.hpp"
#include "preload/sample.hpp"
#include "writer/sandbox.hpp"

using namespace ringside;

extern "C" [[gnu::visibility("hidden")]] preload::Next ringside_next_syscall;

namespace {

// calls: system calls. clock: the processor's counter, too, and with it any clock: no event has a time.
enum class Forbids { nothing, calls, clock };

constexpr Forbids strict_forbids =
#if defined(__x86_64__)
    Forbids::clock;
#else
    Forbids::calls;
#endif

// Without a filter's address it is a question whether the kernel has filters.
Forbids forbidden_by(long number, long what, long mode, long filter) noexcept {
  constexpr long user_dispatch = 59;  // PR_SET_SYSCALL_USER_DISPATCH, of newer headers
  const auto by_filter = [&](bool is_one) { return is_one && filter != 0 ? Forbids::calls : Forbids::nothing; };
  if (number != SYS_prctl) return what == SECCOMP_SET_MODE_STRICT ? strict_forbids : by_filter(what == SECCOMP_SET_MODE_FILTER);
  switch (what) {
    case PR_SET_SECCOMP:
      return mode == SECCOMP_MODE_STRICT ? strict_forbids : by_filter(mode == SECCOMP_MODE_FILTER);
    case user_dispatch:
      return mode != 0 ? Forbids::calls : Forbids::nothing;
    case PR_SET_TSC:
      return mode == PR_TSC_SIGSEGV ? Forbids::clock : Forbids::nothing;
    default:
      return Forbids::nothing;
  }
}

// A filter with a listener answers its descriptor; one for all threads, the number of a thread that could not take it.
bool is_refused(long number, long flags, long answer) noexcept {
  const bool has_listener = number == SYS_seccomp && (flags & SECCOMP_FILTER_FLAG_NEW_LISTENER) != 0;
  return answer < 0 || (answer > 0 && !has_listener);
}

// Of the library. This one is the first.
constexpr u32 most_copies = 16;
constinit const Confined* copies[most_copies] = {&confined};
u32 nr_copies() noexcept {
  u32 nr = 1;
  while (nr < most_copies && __atomic_load_n(&copies[nr], __ATOMIC_ACQUIRE) != nullptr) ++nr;
  return nr;
}

template <class Call>
long confine(Call call, long number, long a, long b, long c) noexcept {
  const Forbids what = forbidden_by(number, a, b, c);
  if (what == Forbids::nothing) return call();
  detail::ThisThread& t = detail::this_thread;
  if (t.borrowed != 0) {  // a child of vfork: its parent goes on
    const bool before = t.refuses;
    refuse_events_of_thread();
    const long answer = call();
    if (is_refused(number, b, answer)) t.refuses = before;
    return answer;
  }
  const bool samples = sandbox_of_process() == Sandbox::none;
  if (samples) preload::pause_samples();
  Sandbox before[most_copies];
  const u32 nr = nr_copies();
  for (u32 n = 0; n < nr; ++n) before[n] = copies[n]->enter(what == Forbids::clock);
  const long answer = call();
  if (is_refused(number, b, answer)) {
    for (u32 n = 0; n < nr; ++n) copies[n]->leave(before[n]);
    if (samples) preload::resume_samples();
  }
  return answer;
}

}  // namespace

extern "C" [[gnu::visibility("hidden"), gnu::used]] long ringside_confining_call(long number, long a, long b, long c, long d,
                                                                                 long e, long f) noexcept {
  const auto real = reinterpret_cast<decltype(&::syscall)>(ringside_next_syscall.found);
  return confine([=] { return real != nullptr ? real(number, a, b, c, d, e, f) : syscall(number, a, b, c, d, e, f); }, number,
                 a, b, c);
}

HOOK void ringside_confine_together_1(const Confined* copy) noexcept {
  for (const Confined*& place : copies) {
    const Confined* there = nullptr;
    if (__atomic_compare_exchange_n(&place, &there, copy, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE) || there == copy) return;
  }
}

HOOK int prctl(int option, ...) noexcept {
  va_list arguments;
  va_start(arguments, option);
  long more[4];
  for (long& one : more) one = va_arg(arguments, long);
  va_end(arguments);
  const auto real = NEXT(prctl);
  const auto call = [&]() -> long {
    if (real != nullptr) return real(option, more[0], more[1], more[2], more[3]);
    return syscall(SYS_prctl, option, more[0], more[1], more[2], more[3]);
  };
  const long done = confine(call, SYS_prctl, option, more[0], more[1]);
  if (option == PR_SET_NAME && done == 0) preload::thread_was_named(reinterpret_cast<const char*>(more[0]));
  return static_cast<int>(done);
}
