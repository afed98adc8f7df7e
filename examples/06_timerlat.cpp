// How late timers wake threads, on each CPU, live: in the spirit of rtla's timerlat, from the kernel's ring.
//
//   06_timerlat [SECONDS [load]]      as root
//
// A thread on each CPU sleeps a millisecond at a time. The kernel's events tell of every sleep when its timer was to expire
// (hrtimer_start), when its interrupt looked at it (hrtimer_expire_entry: "irq"), and when the thread ran (sched_switch:
// "thread"). load: as many system calls as the CPUs can make, all of them traced through the same ring, millions of events a
// second.
// Exit code 0: every sleep was seen, no event was lost. (A sleep that is disturbed starts its timer again, and that counts
// again.)
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <ringside/consumer.hpp>
#include <thread>
#include <unordered_map>

using ringside::Consumer, ringside::Event, ringside::Histogram, ringside::i64, ringside::u64;

namespace {

struct Cpu {
  std::atomic<int> tid{0};
  u64 sleeps = 0;               // by the thread's own count
  i64 due = 0, late = 0;        // of the timer that runs, and how late its interrupt was
  bool fired = false;           // it came, and the thread has not run since
  u64 expired = 0;              // when that came
  Histogram irq, awake;         // ns
};
std::atomic<bool> over{false};

void pin(unsigned cpu) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(cpu, &one);
  pthread_setaffinity_np(pthread_self(), sizeof one, &one);
}

void sleep_and_count(unsigned number, Cpu& cpu) {
  pin(number);
  const sched_param urgent{.sched_priority = 95};
  pthread_setschedparam(pthread_self(), SCHED_FIFO, &urgent);
  cpu.tid = static_cast<int>(gettid());
  timespec next{};
  clock_gettime(CLOCK_MONOTONIC, &next);
  for (; !over; ++cpu.sleeps) {
    if ((next.tv_nsec += 1'000'000) >= 1'000'000'000) next.tv_nsec -= 1'000'000'000, ++next.tv_sec;
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, nullptr);
  }
}

int timerlat(int seconds, bool load) {
  Consumer::Options options;
  options.kernel = {"timer:hrtimer_start", "timer:hrtimer_expire_entry", "sched:sched_switch"};
  if (load) options.kernel.insert(options.kernel.end(), {"raw_syscalls:sys_enter", "raw_syscalls:sys_exit"});
  options.kernel_buffer_size = 32 << 20;
  options.own_events = true;
  auto consumer = must(Consumer::open(options));
  const auto start_timer = must(consumer.field<u64>("timer:hrtimer_start", "hrtimer"));
  const auto start_due = must(consumer.field<i64>("timer:hrtimer_start", "softexpires"));
  const auto expire_timer = must(consumer.field<u64>("timer:hrtimer_expire_entry", "hrtimer"));
  const auto expire_now = must(consumer.field<i64>("timer:hrtimer_expire_entry", "now"));
  const auto next_pid = must(consumer.field<int>("sched:sched_switch", "next_pid"));

  std::vector<Cpu> cpus(std::thread::hardware_concurrency());
  std::vector<std::thread> threads;
  for (unsigned n = 0; n < cpus.size(); ++n) threads.emplace_back([n, &cpus] { sleep_and_count(n, cpus[n]); });
  for (unsigned n = 0; n < cpus.size() && load; ++n)
    threads.emplace_back([n] {
      pin(n);
      while (!over) syscall(SYS_getppid);
    });
  std::thread clock([&] {
    std::this_thread::sleep_for(std::chrono::seconds(seconds));
    over = true;
    for (auto& thread : threads) thread.join();
    consumer.stop();
  });

  std::unordered_map<u64, Cpu*> timers;  // ours, by address
  const auto done = [](Cpu& cpu, u64 ran) {
    cpu.irq.add(cpu.late);
    cpu.awake.add(cpu.late + static_cast<i64>(ran - cpu.expired));
    cpu.fired = false;
  };
  consumer.run([&](const Event& e) {
    if (next_pid.in(e)) {
      for (Cpu& cpu : cpus)
        if (cpu.fired && cpu.tid == next_pid(e)) done(cpu, e.time);
    } else if (start_timer.in(e)) {
      const int tid = consumer.tid(e);
      for (Cpu& cpu : cpus) {
        if (cpu.tid != tid) continue;
        if (cpu.fired) done(cpu, cpu.expired);  // it had not yet gone to sleep
        timers[start_timer(e)] = &cpu;
        cpu.due = start_due(e);
      }
    } else if (expire_timer.in(e)) {
      const auto found = timers.find(expire_timer(e));
      if (found == timers.end()) return;
      Cpu& cpu = *found->second;
      cpu.late = expire_now(e) - cpu.due;
      cpu.fired = true;
      cpu.expired = e.time;
      timers.erase(found);
    }
  });
  clock.join();

  bool all_seen = consumer.lost() == 0;
  std::printf("cpu    sleeps      seen   irq p50     p99     max   thread p50     p99     max  (us)\n");
  for (size_t n = 0; n < cpus.size(); ++n) {
    const Cpu& cpu = cpus[n];
    const auto us = [](double ns) { return ns / 1e3; };
    std::printf("%3zu %9llu %9llu %9.1f %7.1f %7.1f %12.1f %7.1f %7.1f\n", n, static_cast<unsigned long long>(cpu.sleeps),
                static_cast<unsigned long long>(cpu.irq.count()), us(cpu.irq.quantile(.5)), us(cpu.irq.quantile(.99)),
                us(static_cast<double>(cpu.irq.max())), us(cpu.awake.quantile(.5)), us(cpu.awake.quantile(.99)),
                us(static_cast<double>(cpu.awake.max())));
    all_seen = all_seen && cpu.irq.count() + cpu.fired >= cpu.sleeps;
  }
  std::printf("%.2f million events/s, %llu lost, %llu out of order\n", static_cast<double>(consumer.events()) / seconds / 1e6,
              static_cast<unsigned long long>(consumer.lost()), static_cast<unsigned long long>(consumer.late()));
  return all_seen ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) try {
  return timerlat(argc > 1 ? std::atoi(argv[1]) : 2, argc > 2);
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
