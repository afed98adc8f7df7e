// The program's use of the signal that takes samples.
//
// Its action is kept, and asked by the handler. Many programs block all signals, without a thought of this one, and wait for
// them in one thread: while the program has no handler for the signal, it is left out of masks and of what is waited for, and
// masks that the program reads show it where the program put it. A program that takes SIGURG by sigwait or signalfd alone does
// not get it. Masks that pselect, ppoll and their relatives set for the time of a wait need no care: a thread that waits uses
// no CPU time.
#include <pthread.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>
#include <utility>

#include "preload/sample.hpp"

using namespace ringside::preload;

// They are not in all versions of the headers.
extern "C" {
sighandler_t bsd_signal(int number, sighandler_t handler) noexcept;
sighandler_t ssignal(int number, sighandler_t handler) noexcept;
sighandler_t __sysv_signal(int number, sighandler_t handler) noexcept;
}

namespace {

// A child of vfork shares memory with its parent, but not handlers, and has no timer.
bool samples() noexcept { return interval_ns != 0 && ringside::detail::this_thread.borrowed == 0; }
bool is_ours(int number) noexcept { return number == sample_signal && samples(); }

bool has(const sigset_t* set) noexcept { return sigismember(set, sample_signal) == 1; }

sigset_t only_ours() noexcept {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, sample_signal);
  return set;
}

// A set without the signal; null stays so.
class Without {
 public:
  explicit Without(const sigset_t* set, bool leave_out = true) noexcept : set_(set) {
    if (set == nullptr || !leave_out || !has(set)) return;
    copy_ = *set;
    sigdelset(&copy_, sample_signal);
    set_ = &copy_;
  }
  const sigset_t* get() const noexcept { return set_; }

 private:
  sigset_t copy_;
  const sigset_t* set_;
};

template <class Real>
int mask(Real real, int how, const sigset_t* set, sigset_t* old) noexcept {
  if (!samples()) return real(how, set, old);
  const bool was = they_block, named = set != nullptr && has(set);  // both sets may be one
  const int done = real(how, Without(set, how != SIG_UNBLOCK && !the_programs.has_handler()).get(), old);
  if (done != 0) return done;
  if (old != nullptr && was) sigaddset(old, sample_signal);
  if (set == nullptr) return 0;
  they_block = how == SIG_SETMASK ? named : how == SIG_BLOCK ? was || named : was && !named;
  return 0;
}

// Waits again after a timer's signal. The timers stand still meanwhile, so that is at most one that was pending.
template <class Real>
int await(Real real, const sigset_t* set, siginfo_t* info) {
  siginfo_t own;
  siginfo_t* const told = info != nullptr ? info : &own;
  const Without wanted(set, !the_programs.has_handler());
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
  return old.sa_handler;  // a handler of three arguments stands at the same place
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

void ringside::preload::take_over_mask(bool inherited) noexcept {
  const sigset_t ours = only_ours();
  const bool handled = the_programs.has_handler();
  sigset_t before;
  if (NEXT(pthread_sigmask)(handled ? SIG_BLOCK : SIG_UNBLOCK, handled ? nullptr : &ours, &before) != 0) return;
  they_block = inherited || has(&before);
}

HOOK int sigaction(int number, const struct sigaction* action, struct sigaction* old) noexcept {
  if (!is_ours(number)) return NEXT(sigaction)(number, action, old);
  const sigset_t ours = only_ours();
  sigset_t before;
  NEXT(pthread_sigmask)(SIG_BLOCK, &ours, &before);
  struct sigaction was;
  std::memcpy(&was, &the_programs.action, sizeof was);
  if (action != nullptr) std::memcpy(&the_programs.action, action, sizeof was);
  (they_block && the_programs.has_handler() ? sigaddset : sigdelset)(&before, sample_signal);
  NEXT(pthread_sigmask)(SIG_SETMASK, &before, nullptr);
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
  const bool holds = handler == SIG_HOLD, was = they_block;
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
  return await([=](const sigset_t* wanted, siginfo_t* told) { return real(wanted, told, timeout); }, set, info);
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
  return NEXT(signalfd)(fd, samples() ? Without(set).get() : set, flags);
}
