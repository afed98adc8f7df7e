// `record --sample`: a timer on each thread's CPU time interrupts the thread, and the handler writes an event with its stack.
//
// The signal is SIGURG: by default it is ignored, so one that is pending when the thread executes another program does no harm,
// and few programs use it. sample_signals.cpp keeps what the program itself wants of it.
#include "preload/sample.hpp"

#include <errno.h>
#include <pthread.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <threads.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <utility>

#include "writer/stack.hpp"

using namespace ringside::preload;
using ringside::u32;
using ringside::u64;
using ringside::u8;

namespace ringside::preload {

constinit u64 interval_ns = 0;
constinit SignalUse the_programs{};

}  // namespace ringside::preload

namespace {

// Below the kernel's frame; a sample takes less than 3.8 KiB there, also one that makes a ring.
constexpr size_t room_for_sample = 4352;
constexpr size_t room_for_handler = 1024;  // until it knows that there is no more
constinit bool uncounted = false;
constinit char tag = 0;  // its address marks the timers' signals

constinit ringside_event sample_event{
    "ringside", "sample", ringside::sample_fields, ringside::sample_print, nullptr, 0, nullptr, nullptr};
constexpr u32 sample_gate = ringside_gate_of("ringside", "sample");

constinit pthread_key_t timer_key = 0;

bool count(u64 ringside::InstanceControl::*what) noexcept {
  const ringside::Opened* const in = ringside::opened_now();
  if (in == nullptr) return false;
  __atomic_fetch_add(&(in->words.control->*what), u64{1}, __ATOMIC_RELAXED);
  return true;
}

// The alternate stack may be small, and nothing may come before it.
bool has_room(const void* context) noexcept {
  const stack_t& alternate = static_cast<const ucontext_t*>(context)->uc_stack;
  const u64 left = reinterpret_cast<u64>(__builtin_frame_address(0)) - reinterpret_cast<u64>(alternate.ss_sp);
  return left >= alternate.ss_size || left >= room_for_sample;
}

// One of the program's. A thread whose mask only hides the signal blocks it from now on, and it is pending, as without samples.
void on_programs_signal(int number, siginfo_t* info, void* context) {
  sigset_t& mask = static_cast<ucontext_t*>(context)->uc_sigmask;
  if (!hides(mask)) return the_programs.handle(number, info, context);
  const HoldBack off;
  stop_hiding(mask);
  send_again(*info);
}

void on_signal(int number, siginfo_t* info, void* context) {
  if (!is_of_timer(*info)) return on_programs_signal(number, info, context);
  const int left = errno;
  if (!has_room(context)) {
    count(&ringside::InstanceControl::samples_without_room);
  } else if (ringside_gate_open(sample_gate) && ringside_wanted(&sample_event)) {
    struct alignas(8) {
      u64 common, stack;
      u32 count, padding;
    } payload{0, ringside::stack_of(ringside::interrupted(context)), 1 + static_cast<u32>(info->si_overrun), 0};
    (void)ringside_write(&sample_event, &payload, 20);
  }
  errno = left;
}

// An event that no instance knows is not written, but attaches its thread. A handler that made a ring of the thread's own would
// need more of the alternate stack than a sample.
void attach_thread() noexcept {
  static constinit ringside_event none{};
  u64 common = 0;
  (void)ringside_write(&none, &common, sizeof common);
}

// The kernel puts its frame on the alternate stack, and ends a program where that has no room for it.
bool alternate_stack_is_too_small() noexcept {
  stack_t now;
  return NEXT(sigaltstack)(nullptr, &now) == 0 && (now.ss_flags & SS_DISABLE) == 0 &&
         now.ss_size < getauxval(AT_MINSIGSTKSZ) + room_for_handler;
}

[[gnu::tls_model("initial-exec")]] constinit thread_local struct {
  int number;  // -1: there is none
  bool runs, small;  // small: the alternate stack was too small once, and that is counted
  u64 left_ns;       // while it is stopped
} mine{-1, false, false, 0};

// False: the kernel gives none.
bool make_timer() noexcept {
  sigevent event{};
  event.sigev_notify = SIGEV_THREAD_ID;
  event.sigev_signo = sample_signal;
  event.sigev_value.sival_ptr = &tag;
  event._sigev_un._tid = static_cast<pid_t>(syscall(SYS_gettid));
  int timer = 0;
  if (syscall(SYS_timer_create, CLOCK_THREAD_CPUTIME_ID, &event, &timer) != 0) return false;
  pthread_setspecific(timer_key, reinterpret_cast<void*>(static_cast<uintptr_t>(timer) + 1));
  mine = {timer, false, false, interval_ns};
  return true;
}

void end_timer(void* number) noexcept {
  const ringside::SystemCalls calls;
  if (!calls) return;
  syscall(SYS_timer_delete, static_cast<int>(reinterpret_cast<uintptr_t>(number) - 1));
  mine.number = -1;
}

timespec time_of(u64 ns) noexcept { return {static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)}; }

// It goes on where it stopped.
void arm() noexcept {
  const itimerspec when{time_of(interval_ns), time_of(mine.left_ns)};
  mine.runs = syscall(SYS_timer_settime, mine.number, 0, &when, nullptr) == 0;
}
void disarm() noexcept {
  const itimerspec never{};
  itimerspec left{};
  if (syscall(SYS_timer_settime, mine.number, 0, &never, &left) != 0) return;
  mine.runs = false;
  const u64 ns = static_cast<u64>(left.it_value.tv_sec) * 1'000'000'000 + static_cast<u64>(left.it_value.tv_nsec);
  mine.left_ns = ns != 0 && ns < interval_ns ? ns : interval_ns;
  // Its last signal may be pending, and one of the program's after it.
  sigset_t ours;
  sigemptyset(&ours);
  sigaddset(&ours, sample_signal);
  const timespec at_once{};
  siginfo_t info, programs;
  bool found = false;
  for (int tries = 0; tries < 3; ++tries) {
    if (syscall(SYS_rt_sigtimedwait, &ours, &info, &at_once, _NSIG / 8) != sample_signal) break;
    if (!is_of_timer(info)) programs = info, found = true;
  }
  if (found) send_again(programs);
}

// The kernel's mask of this thread.
sigset_t mask_now() noexcept {
  sigset_t mask;
  sigemptyset(&mask);
  syscall(SYS_rt_sigprocmask, SIG_BLOCK, nullptr, &mask, _NSIG / 8);
  return mask;
}

void start_timer() noexcept {
  const ringside::SystemCalls calls;
  if (!calls) return;
  const int left = errno;
  const sigset_t mask = mask_now();
  attach_thread();
  mine.number = -1;
  if (make_timer()) {
    const HoldBack off;
    fit_timer(mask);
  } else if (!count(&ringside::InstanceControl::threads_without_samples)) {
    uncounted = true;
  }
  errno = left;
}

// The first thread may have had none before the instance was open.
[[gnu::destructor]] void end() {
  if (uncounted) count(&ringside::InstanceControl::threads_without_samples);
}

// A child has none of its parent's timers.
void after_fork() { start_timer(); }

// 0: no samples.
u64 wanted_hz() noexcept {
  const char* const rate = ringside::sys::environment("RINGSIDE_SAMPLE");
  const u64 hz = rate != nullptr ? std::strtoull(rate, nullptr, 10) : 0;
  return hz <= 1'000'000 ? hz : 0;
}

// Before the library's own constructors open the instance: the event is registered there.
[[gnu::constructor(102)]] void start() {
  const u64 hz = wanted_hz();
  if (hz == 0 || pthread_key_create(&timer_key, end_timer) != 0) return;
  ringside_register(&sample_event);
}

bool handle_samples(struct sigaction* before) noexcept {
  struct sigaction action {};
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK;  // a coroutine's stack may be small
  return NEXT(sigaction)(sample_signal, &action, before) == 0;
}

[[gnu::constructor]] void begin() {
  const u64 hz = wanted_hz();
  if (hz == 0) return;
  // The constructor that opens it runs later, and says why it cannot.
  if (ringside::sys::environment("RINGSIDE_INSTANCE") != nullptr) (void)ringside_open(nullptr);
  interval_ns = 1'000'000'000 / hz;
  if (!handle_samples(&the_programs.action)) {
    interval_ns = 0;
    return;
  }
  take_over_mask(false);
  pthread_atfork(nullptr, nullptr, after_fork);
  start_timer();
}

struct Started {
  void* (*routine)(void*);
  int (*c11_routine)(void*);
  void* argument;
  bool hidden;  // the mask hides the signal

  // Null: no memory.
  static Started* make(void* (*routine)(void*), int (*c11_routine)(void*), void* argument) noexcept {
    auto* const started = static_cast<Started*>(std::malloc(sizeof(Started)));
    if (started != nullptr) *started = {routine, c11_routine, argument, hides(mask_now())};
    return started;
  }
};

Started begin_thread(void* from) noexcept {
  const Started started = *static_cast<Started*>(from);
  NEXT(free)(from);
  take_over_mask(started.hidden);
  start_timer();
  return started;
}

void* run_sampled(void* from) {
  const Started started = begin_thread(from);
  return started.routine(started.argument);
}

int run_sampled_c11(void* from) {
  const Started started = begin_thread(from);
  return started.c11_routine(started.argument);
}

}  // namespace

// Of other threads, too, unless the program has a handler of its own, which must not get the timers' signals.
void ringside::preload::pause_samples() noexcept {
  if (interval_ns == 0) return;
  if (mine.number >= 0 && mine.runs) disarm();
  if (!the_programs.is_wanted()) NEXT(sigaction)(sample_signal, &the_programs.action, nullptr);
}
void ringside::preload::resume_samples() noexcept {
  if (interval_ns == 0) return;
  (void)handle_samples(nullptr);
  fit_timer(mask_now());
}

void ringside::preload::fit_timer(const sigset_t& mask) noexcept {
  const SystemCalls calls;
  if (mine.number < 0 || !calls) return;
  const int left = errno;
  const bool small = alternate_stack_is_too_small(), runs = !small && sigismember(&mask, sample_signal) == 0;
  if (small && !std::exchange(mine.small, true)) count(&ringside::InstanceControl::threads_without_room);
  if (!runs && mine.runs) disarm();
  if (runs && !mine.runs) arm();
  errno = left;
}

bool ringside::preload::timer_fits(const sigset_t& mask) noexcept {
  return mine.number < 0 || mine.runs == (sigismember(&mask, sample_signal) == 0);
}

bool ringside::preload::is_of_timer(const siginfo_t& info) noexcept {
  return info.si_code == SI_TIMER && info.si_value.sival_ptr == &tag;
}

HOOK int sigaltstack(const stack_t* stack, stack_t* old) noexcept {
  const auto real = NEXT(sigaltstack);
  if (stack == nullptr || interval_ns == 0 || ringside::no_system_calls() || ringside::detail::this_thread.borrowed != 0)
    return real(stack, old);
  const HoldBack off;  // no signal comes to the new stack before it is known to have room
  const int done = real(stack, old);
  fit_timer(off.before);
  return done;
}

HOOK int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*routine)(void*), void* argument) noexcept {
  const auto real = NEXT(pthread_create);
  if (interval_ns == 0 || ringside::no_system_calls()) return real(thread, attributes, routine, argument);
  Started* const started = Started::make(routine, nullptr, argument);
  if (started == nullptr) return EAGAIN;
  const int done = real(thread, attributes, run_sampled, started);
  if (done != 0) NEXT(free)(started);
  return done;
}

HOOK int thrd_create(thrd_t* thread, thrd_start_t routine, void* argument) {
  const auto real = NEXT(thrd_create);
  if (interval_ns == 0 || ringside::no_system_calls()) return real(thread, routine, argument);
  Started* const started = Started::make(nullptr, routine, argument);
  if (started == nullptr) return thrd_nomem;
  const int done = real(thread, run_sampled_c11, started);
  if (done != thrd_success) NEXT(free)(started);
  return done;
}
