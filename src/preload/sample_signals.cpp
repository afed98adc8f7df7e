// The program's use of the signal that takes samples.
//
// Its action is kept, and asked by the handler. Many programs block all signals, without a thought of this one, and wait for
// them in one thread. So it is left out of masks and of what is waited for, if these have most of the signals and the program
// does not want the signal: it has no handler, and has not waited for this signal by a smaller set. A mask that the program
// reads is the kernel's, with the signal if it is equal to one that it was left out of. A smaller set with the signal is meant:
// the thread blocks it and has no samples. Masks that pselect, ppoll and their relatives set for the time of a wait need no
// care: a thread that waits uses no CPU time.
#include <pthread.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>
#include <utility>

#include "preload/sample.hpp"

using namespace ringside::preload;
using ringside::u32;
using ringside::u64;

// They are not in all versions of the headers.
extern "C" {
sighandler_t bsd_signal(int number, sighandler_t handler) noexcept;
sighandler_t ssignal(int number, sighandler_t handler) noexcept;
sighandler_t __sysv_signal(int number, sighandler_t handler) noexcept;
}

namespace {

// A child of vfork shares memory with its parent, but not handlers, and has no timer.
bool samples() noexcept {
  return interval_ns != 0 && !ringside::no_system_calls() && ringside::detail::this_thread.borrowed == 0;
}
bool is_ours(int number) noexcept { return number == sample_signal && samples(); }

bool has(const sigset_t* set) noexcept { return sigismember(set, sample_signal) == 1; }

sigset_t only_ours() noexcept {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, sample_signal);
  return set;
}

u64 bits(const sigset_t& set) noexcept {
  u64 all;
  std::memcpy(&all, &set, sizeof all);
  const auto bit = [](int number) { return u64{1} << (number - 1); };
  return all & ~(bit(SIGKILL) | bit(SIGSTOP) | bit(32) | bit(33));  // the kernel or the C library leaves these out
}

bool is_most(const sigset_t& set) noexcept { return std::popcount(bits(set)) >= 32; }

// The last masks of this thread that the signal was left out of. Some: a mask may come back by siglongjmp, setcontext, or the
// end of a handler. 0: none. A handler that stores another one meanwhile may take one away.
[[gnu::tls_model("initial-exec")]] constinit thread_local u64 left_out[4]{};

void note(const sigset_t& mask, bool hidden) noexcept {
  const u64 now = bits(mask);
  u64* const end = std::end(left_out);
  u64* at = std::find(left_out, end, now);
  if (!hidden && at != end) *at = 0;
  if (!hidden) return;
  if (at == end) at = end - 1;
  std::copy_backward(left_out, at, at + 1);
  left_out[0] = now;
}

u32 set_mask(const sigset_t& set) noexcept {
  return static_cast<u32>(syscall(SYS_rt_sigprocmask, SIG_SETMASK, &set, nullptr, _NSIG / 8));
}

// What a thread with the mask `now` has after such a call.
sigset_t after(int how, const sigset_t& now, const sigset_t& set) noexcept {
  sigset_t all = set, rest = now;
  if (how == SIG_SETMASK) return set;
  if (how == SIG_BLOCK) return sigorset(&all, &now, &set), all;
  for (int number = 1; number < _NSIG; ++number)
    if (sigismember(&set, number) == 1) sigdelset(&rest, number);
  return rest;
}

template <class Real>
int mask(Real real, int how, const sigset_t* set, sigset_t* old) noexcept {
  if (!samples()) return real(how, set, old);
  if (set == nullptr || (how != SIG_BLOCK && how != SIG_UNBLOCK && how != SIG_SETMASK)) {
    const int done = real(how, set, old);
    if (done == 0 && old != nullptr && hides(*old)) sigaddset(old, sample_signal);
    return done;
  }
  sigset_t now;
  real(SIG_BLOCK, nullptr, &now);
  sigset_t shown = now;
  if (hides(now)) sigaddset(&shown, sample_signal);
  sigset_t next = after(how, shown, *set);  // both sets may be one
  const bool hide = has(&next) && !has(&now) && is_most(next) && !the_programs.is_wanted();
  if (hide) sigdelset(&next, sample_signal);
  if (!has(&next)) note(next, hide);
  const int done = real(SIG_SETMASK, &next, old);
  if (done != 0) return done;
  if (old != nullptr) *old = shown;
  if (!timer_fits(next)) {
    const HoldBack off;
    fit_timer(next);
  }
  return 0;
}

// The kernel reads the set first, and then refuses the call.
bool is_readable(const sigset_t* set) noexcept {
  const int saved = errno;
  return syscall(SYS_rt_sigprocmask, -1, set, nullptr, _NSIG / 8) == 0 || std::exchange(errno, saved) != EFAULT;
}

// A set without the signal, if the program does not mean it.
class Awaited {
 public:
  explicit Awaited(const sigset_t* set) noexcept : set_(set) {
    if (set == nullptr || !is_readable(set) || !has(set)) return;
    if (!is_most(*set)) __atomic_store_n(&the_programs.taken, true, __ATOMIC_RELAXED);
    if (the_programs.is_wanted()) {
      HoldBack off;
      stop_hiding(off.before);
      return;
    }
    copy_ = *set;
    sigdelset(&copy_, sample_signal);
    set_ = &copy_;
  }
  const sigset_t* get() const noexcept { return set_; }

 private:
  sigset_t copy_;
  const sigset_t* set_;
};

// Waits again after a timer's signal.
template <class Real>
int await(Real real, const sigset_t* set, siginfo_t* info) {
  siginfo_t own;
  siginfo_t* const told = info != nullptr ? info : &own;
  const Awaited wanted(set);
  int got;
  do got = real(wanted.get(), told);
  while (got == sample_signal && is_of_timer(*told));
  return got;
}

constexpr int once = static_cast<int>(SA_RESETHAND | SA_NODEFER);  // the actions of System V

sighandler_t install(int number, sighandler_t handler, int flags) noexcept {
  struct sigaction action {}, old;
  action.sa_handler = handler;
  action.sa_flags = flags;
  if (sigaction(number, &action, &old) != 0) return SIG_ERR;
  return old.sa_handler;  // a handler of three arguments is at the same place
}

}  // namespace

void SignalUse::handle(int number, siginfo_t* info, void* context) {
  struct sigaction now;
  std::memcpy(&now, &action, sizeof now);
  if (now.sa_handler == SIG_DFL || now.sa_handler == SIG_IGN) return;
  if ((now.sa_flags & static_cast<int>(SA_RESETHAND)) != 0) action.sa_handler = SIG_DFL;
  if ((now.sa_flags & SA_SIGINFO) != 0) now.sa_sigaction(number, info, context);
  else now.sa_handler(number);
}

HoldBack::HoldBack() noexcept {
  if (!calls_) return;
  const sigset_t ours = only_ours();
  syscall(SYS_rt_sigprocmask, SIG_BLOCK, &ours, &before, _NSIG / 8);
}
HoldBack::~HoldBack() {
  if (calls_) set_mask(before);
}

bool ringside::preload::hides(const sigset_t& mask) noexcept {
  const u64 now = bits(mask);
  return now != 0 && std::find(left_out, std::end(left_out), now) != std::end(left_out);
}

void ringside::preload::send_again(const siginfo_t& info) noexcept {
  const int saved = errno;
  const auto pid = static_cast<int>(syscall(SYS_getpid)), tid = static_cast<int>(syscall(SYS_gettid));
  siginfo_t copy = info;
  if (info.si_code == SI_TKILL) {
    syscall(SYS_rt_tgsigqueueinfo, pid, tid, info.si_signo, &copy);
  } else if (syscall(SYS_rt_sigqueueinfo, pid, info.si_signo, &copy) != 0) {
    syscall(SYS_kill, pid, info.si_signo);  // the kernel lets only the first thread name another sender
  }
  errno = saved;
}

void ringside::preload::take_over_mask(bool hidden) noexcept {
  HoldBack off;
  sigset_t& mask = off.before;
  if (hidden || (has(&mask) && is_most(mask))) {
    sigdelset(&mask, sample_signal);
    note(mask, true);
    if (the_programs.is_wanted()) stop_hiding(mask);
  }
}

void ringside::preload::stop_hiding(sigset_t& mask) noexcept {
  if (!hides(mask)) return;
  sigaddset(&mask, sample_signal);
  fit_timer(mask);
}

HOOK int sigaction(int number, const struct sigaction* action, struct sigaction* old) noexcept {
  if (!is_ours(number)) return NEXT(sigaction)(number, action, old);
  HoldBack off;
  struct sigaction was;
  std::memcpy(&was, &the_programs.action, sizeof was);
  if (action != nullptr) std::memcpy(&the_programs.action, action, sizeof was);
  if (the_programs.has_handler()) stop_hiding(off.before);
  if (old != nullptr) std::memcpy(old, &was, sizeof was);
  return 0;
}

HOOK sighandler_t signal(int number, sighandler_t handler) noexcept {
  return is_ours(number) ? install(number, handler, SA_RESTART) : NEXT(signal)(number, handler);
}
HOOK sighandler_t bsd_signal(int number, sighandler_t handler) noexcept {
  return is_ours(number) ? install(number, handler, SA_RESTART) : NEXT(bsd_signal)(number, handler);
}
HOOK sighandler_t ssignal(int number, sighandler_t handler) noexcept {
  return is_ours(number) ? install(number, handler, SA_RESTART) : NEXT(ssignal)(number, handler);
}
HOOK sighandler_t sysv_signal(int number, sighandler_t handler) noexcept {
  return is_ours(number) ? install(number, handler, once) : NEXT(sysv_signal)(number, handler);
}
HOOK sighandler_t __sysv_signal(int number, sighandler_t handler) noexcept {
  return is_ours(number) ? install(number, handler, once) : NEXT(__sysv_signal)(number, handler);
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
HOOK int sigignore(int number) noexcept {
  if (!is_ours(number)) return NEXT(sigignore)(number);
  return install(number, SIG_IGN, 0) == SIG_ERR ? -1 : 0;
}
HOOK sighandler_t sigset(int number, sighandler_t handler) noexcept {
  if (!is_ours(number)) return NEXT(sigset)(number, handler);
  sigset_t before;
  pthread_sigmask(SIG_BLOCK, nullptr, &before);
  const bool holds = handler == SIG_HOLD, was = has(&before);
  const sighandler_t old = holds ? the_programs.action.sa_handler : install(number, handler, 0);
  const sigset_t ours = only_ours();
  if (old == SIG_ERR || pthread_sigmask(holds ? SIG_BLOCK : SIG_UNBLOCK, &ours, nullptr) != 0) return SIG_ERR;
  return was ? SIG_HOLD : old;
}
#pragma GCC diagnostic pop

// The library's own calls (--wrap): no sample may come where it holds signals back.
extern "C" int __wrap_pthread_sigmask(int how, const sigset_t* set, sigset_t* old) {
  const int saved = errno;
  const bool done = syscall(SYS_rt_sigprocmask, how, set, old, _NSIG / 8) == 0;
  return done ? 0 : std::exchange(errno, saved);
}

HOOK int pthread_sigmask(int how, const sigset_t* set, sigset_t* old) noexcept {
  return mask(NEXT(pthread_sigmask), how, set, old);
}
HOOK int sigprocmask(int how, const sigset_t* set, sigset_t* old) noexcept {
  return mask(NEXT(sigprocmask), how, set, old);
}

HOOK int sigwaitinfo(const sigset_t* set, siginfo_t* info) {
  const auto real = NEXT(sigwaitinfo);
  return samples() ? await(real, set, info) : real(set, info);
}
HOOK int sigtimedwait(const sigset_t* set, siginfo_t* info, const timespec* timeout) {
  const auto real = NEXT(sigtimedwait);
  if (!samples()) return real(set, info, timeout);
  if (timeout == nullptr) return await(NEXT(sigwaitinfo), set, info);
  const u64 begin = now_ns();
  bool again = false;
  const auto wait = [&](const sigset_t* wanted, siginfo_t* told) {
    if (!std::exchange(again, true)) return real(wanted, told, timeout);
    const u64 whole = static_cast<u64>(timeout->tv_sec) * 1'000'000'000 + static_cast<u64>(timeout->tv_nsec);
    const u64 passed = now_ns() - begin, rest = whole > passed ? whole - passed : 0;
    const timespec until{static_cast<time_t>(rest / 1'000'000'000), static_cast<long>(rest % 1'000'000'000)};
    return real(wanted, told, &until);
  };
  return await(wait, set, info);
}
HOOK int sigwait(const sigset_t* set, int* number) {
  if (!samples()) return NEXT(sigwait)(set, number);
  const int saved = errno;
  int got;
  do got = await(NEXT(sigwaitinfo), set, nullptr);
  while (got < 0 && errno == EINTR);
  const int error = got < 0 ? errno : 0;
  errno = saved;
  if (got >= 0) *number = got;
  return error;
}
HOOK int signalfd(int fd, const sigset_t* set, int flags) noexcept {
  return NEXT(signalfd)(fd, samples() ? Awaited(set).get() : set, flags);
}
