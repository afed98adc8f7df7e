// `record --sample`: a timer on each thread's CPU time interrupts the thread, and the handler writes an event with its stack.
//
// The signal is SIGURG: by default it is ignored, so one that is pending when the thread executes another program does no harm,
// and few programs use it. Those that do have their own handler called for all signals that are not a timer's of this library.
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "preload/hook.hpp"
#include "writer/stack.hpp"

using namespace ringside::preload;
using ringside::u32;
using ringside::u64;
using ringside::u8;

namespace {

constexpr int the_signal = SIGURG;
constinit u64 interval_ns = 0;  // 0: no samples are wanted
constinit char tag = 0;         // its address marks the timers' signals

constinit ringside_event sample_event{
    "ringside", "sample", ringside::sample_fields, ringside::sample_print, ringside_gate_of("ringside", "sample"), 0,
    nullptr,    nullptr};

// What the program wants for this signal.
struct sigaction theirs {};

constinit pthread_key_t timer_key = 0;

void on_signal(int number, siginfo_t* info, void* context) {
  if (info->si_code != SI_TIMER || info->si_value.sival_ptr != &tag) {
    struct sigaction action;
    std::memcpy(&action, &theirs, sizeof action);
    if ((action.sa_flags & SA_SIGINFO) != 0) {
      if (action.sa_sigaction != nullptr) action.sa_sigaction(number, info, context);
    } else if (action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN) {
      action.sa_handler(number);
    }
    return;
  }
  const int left = errno;
  if (ringside_gate_open(sample_event.gate) && ringside_wanted(&sample_event)) {
    struct alignas(8) {
      u64 common, stack;
      u32 count, padding;
    } payload{0, ringside::stack_of(ringside::interrupted(context)), 1 + static_cast<u32>(info->si_overrun), 0};
    (void)ringside_write(&sample_event, &payload, 20);
  }
  errno = left;
}

void start_timer() noexcept {
  const int left = errno;
  sigevent event{};
  event.sigev_notify = SIGEV_THREAD_ID;
  event.sigev_signo = the_signal;
  event.sigev_value.sival_ptr = &tag;
  event._sigev_un._tid = static_cast<pid_t>(syscall(SYS_gettid));
  int timer = 0;
  const timespec each{static_cast<time_t>(interval_ns / 1'000'000'000), static_cast<long>(interval_ns % 1'000'000'000)};
  const itimerspec when{each, each};
  if (syscall(SYS_timer_create, CLOCK_THREAD_CPUTIME_ID, &event, &timer) == 0 &&
      syscall(SYS_timer_settime, timer, 0, &when, nullptr) == 0)
    pthread_setspecific(timer_key, reinterpret_cast<void*>(static_cast<uintptr_t>(timer) + 1));
  errno = left;
}

void end_timer(void* number) noexcept { syscall(SYS_timer_delete, static_cast<int>(reinterpret_cast<uintptr_t>(number) - 1)); }

// A child has none of its parent's timers.
void after_fork() { start_timer(); }

// Before the library's own constructors open the instance: the event is registered there.
[[gnu::constructor(102)]] void start() {
  const char* const rate = std::getenv("RINGSIDE_SAMPLE");
  const u64 hz = rate != nullptr ? std::strtoull(rate, nullptr, 10) : 0;
  if (hz == 0 || hz > 1'000'000 || pthread_key_create(&timer_key, end_timer) != 0) return;
  ringside_register(&sample_event);
}

// Behind them.
[[gnu::constructor]] void begin() {
  const char* const rate = std::getenv("RINGSIDE_SAMPLE");
  const u64 hz = rate != nullptr ? std::strtoull(rate, nullptr, 10) : 0;
  if (hz == 0 || hz > 1'000'000) return;
  interval_ns = 1'000'000'000 / hz;
  struct sigaction action {};
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  if (NEXT(sigaction)(the_signal, &action, &theirs) != 0) {
    interval_ns = 0;
    return;
  }
  pthread_atfork(nullptr, nullptr, after_fork);
  start_timer();
}

struct Started {
  void* (*routine)(void*);
  void* argument;
};

void* run_sampled(void* from) {
  const Started started = *static_cast<Started*>(from);
  NEXT(free)(from);
  start_timer();
  return started.routine(started.argument);
}

}  // namespace

HOOK int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*routine)(void*), void* argument) noexcept {
  const auto real = NEXT(pthread_create);
  if (interval_ns == 0) return real(thread, attributes, routine, argument);
  auto* const started = static_cast<Started*>(std::malloc(sizeof(Started)));
  if (started == nullptr) return EAGAIN;
  *started = {routine, argument};
  const int done = real(thread, attributes, run_sampled, started);
  if (done != 0) NEXT(free)(started);
  return done;
}

// The program's own wishes for the signal are kept, and asked by the handler.
HOOK int sigaction(int number, const struct sigaction* action, struct sigaction* old) noexcept {
  const auto real = NEXT(sigaction);
  // A child of vfork shares memory with its parent, but not handlers, and has no timer.
  if (number != the_signal || interval_ns == 0 || ringside::detail::this_thread.borrowed != 0) return real(number, action, old);
  sigset_t blocked, before;
  sigemptyset(&blocked);
  sigaddset(&blocked, the_signal);
  pthread_sigmask(SIG_BLOCK, &blocked, &before);
  struct sigaction was;
  std::memcpy(&was, &theirs, sizeof was);
  if (action != nullptr) std::memcpy(&theirs, action, sizeof theirs);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (old != nullptr) std::memcpy(old, &was, sizeof was);
  return 0;
}

HOOK sighandler_t signal(int number, sighandler_t handler) noexcept {
  if (number != the_signal || interval_ns == 0 || ringside::detail::this_thread.borrowed != 0)
    return NEXT(signal)(number, handler);
  struct sigaction action {}, old;
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  if (sigaction(number, &action, &old) != 0) return SIG_ERR;
  return old.sa_handler;  // a handler of three arguments stands at the same place
}
