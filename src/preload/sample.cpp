// `record --sample`: a timer on each thread's CPU time interrupts the thread, and the handler writes an event with its stack.
//
// The signal is SIGURG: by default it is ignored, so one that is pending when the thread executes another program does no harm,
// and few programs use it. sample_signals.cpp keeps what the program itself wants of it.
#include "preload/sample.hpp"

#include <errno.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <threads.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "writer/stack.hpp"

using namespace ringside::preload;
using ringside::u32;
using ringside::u64;
using ringside::u8;

namespace ringside::preload {

constinit u64 interval_ns = 0;
constinit SignalUse the_programs{};
constinit thread_local bool they_block = false;

}  // namespace ringside::preload

namespace {

// Below the kernel's frame; a sample takes less than 3.8 KiB there.
constexpr size_t room_for_sample = 4096;
constinit bool uncounted = false;
constinit char tag = 0;  // its address marks the timers' signals

constinit ringside_event sample_event{
    "ringside", "sample", ringside::sample_fields, ringside::sample_print, ringside_gate_of("ringside", "sample"), 0,
    nullptr,    nullptr};

constinit pthread_key_t timer_key = 0;

bool count(u64 ringside::InstanceControl::*what) noexcept {
  const ringside::Opened* const in = ringside::opened_now();
  if (in == nullptr) return false;
  __atomic_fetch_add(&(in->words.control->*what), u64{1}, __ATOMIC_RELAXED);
  return true;
}

// The alternate stack may be small, and nothing may stand in front of it.
bool has_room(const void* context) noexcept {
  const stack_t& alternate = static_cast<const ucontext_t*>(context)->uc_stack;
  const u64 left = reinterpret_cast<u64>(__builtin_frame_address(0)) - reinterpret_cast<u64>(alternate.ss_sp);
  return left >= alternate.ss_size || left >= room_for_sample;
}

void on_signal(int number, siginfo_t* info, void* context) {
  if (!is_of_timer(*info)) return the_programs.handle(number, info, context);
  const int left = errno;
  if (!has_room(context)) {
    count(&ringside::InstanceControl::samples_without_room);
  } else if (ringside_gate_open(sample_event.gate) && ringside_wanted(&sample_event)) {
    struct alignas(8) {
      u64 common, stack;
      u32 count, padding;
    } payload{0, ringside::stack_of(ringside::interrupted(context)), 1 + static_cast<u32>(info->si_overrun), 0};
    (void)ringside_write(&sample_event, &payload, 20);
  }
  errno = left;
}

// False: the kernel gives none.
bool make_timer() noexcept {
  sigevent event{};
  event.sigev_notify = SIGEV_THREAD_ID;
  event.sigev_signo = sample_signal;
  event.sigev_value.sival_ptr = &tag;
  event._sigev_un._tid = static_cast<pid_t>(syscall(SYS_gettid));
  int timer = 0;
  const timespec each{static_cast<time_t>(interval_ns / 1'000'000'000), static_cast<long>(interval_ns % 1'000'000'000)};
  const itimerspec when{each, each};
  if (syscall(SYS_timer_create, CLOCK_THREAD_CPUTIME_ID, &event, &timer) != 0) return false;
  if (syscall(SYS_timer_settime, timer, 0, &when, nullptr) != 0) return syscall(SYS_timer_delete, timer), false;
  pthread_setspecific(timer_key, reinterpret_cast<void*>(static_cast<uintptr_t>(timer) + 1));
  return true;
}

void start_timer() noexcept {
  const int left = errno;
  if (!make_timer() && !count(&ringside::InstanceControl::threads_without_samples)) uncounted = true;
  errno = left;
}

// The first thread may have had none before the instance was open.
[[gnu::destructor]] void end() {
  if (uncounted) count(&ringside::InstanceControl::threads_without_samples);
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
  action.sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK;  // a coroutine's stack may be small
  if (NEXT(sigaction)(sample_signal, &action, &the_programs.action) != 0) {
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
  bool blocks;  // the one that made the thread blocks the signal; so does the thread

  // Null: no memory.
  static Started* make(void* (*routine)(void*), int (*c11_routine)(void*), void* argument) noexcept {
    auto* const started = static_cast<Started*>(std::malloc(sizeof(Started)));
    if (started != nullptr) *started = {routine, c11_routine, argument, they_block};
    return started;
  }
};

Started begin_thread(void* from) noexcept {
  const Started started = *static_cast<Started*>(from);
  NEXT(free)(from);
  take_over_mask(started.blocks);
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

bool ringside::preload::is_of_timer(const siginfo_t& info) noexcept {
  return info.si_code == SI_TIMER && info.si_value.sival_ptr == &tag;
}

HOOK int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*routine)(void*), void* argument) noexcept {
  const auto real = NEXT(pthread_create);
  if (interval_ns == 0) return real(thread, attributes, routine, argument);
  Started* const started = Started::make(routine, nullptr, argument);
  if (started == nullptr) return EAGAIN;
  const int done = real(thread, attributes, run_sampled, started);
  if (done != 0) NEXT(free)(started);
  return done;
}

HOOK int thrd_create(thrd_t* thread, thrd_start_t routine, void* argument) {
  const auto real = NEXT(thrd_create);
  if (interval_ns == 0) return real(thread, routine, argument);
  Started* const started = Started::make(nullptr, routine, argument);
  if (started == nullptr) return thrd_nomem;
  const int done = real(thread, run_sampled_c11, started);
  if (done != thrd_success) NEXT(free)(started);
  return done;
}
