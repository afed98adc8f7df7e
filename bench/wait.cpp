// Readers in other processes that sleep: what they cost the writer, and how soon they run.
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <thread>

#include "bench.hpp"
#include "sys/sys.hpp"

namespace bench {
namespace {

void drain(Instance& instance, u32 ring) {
  auto source = must(instance.source(ring));
  while (must(source->next())) {
  }
}

double ns_per_event(u64 n) {
  const u64 from = sys::now_ns();
  for (u64 k = 0; k < n; ++k) ::bench::pair(k, k);
  return static_cast<double>(sys::now_ns() - from) / static_cast<double>(n);
}

void waiter_row() {
  std::vector<double> idle, waited, ratio;
  for (int i = 0; i < (quick ? 5 : 15); ++i) {
    idle.push_back(ns_per_event(quick ? 500000 : 2000000));
    const pid_t child = fork();
    if (child == 0) {
      pin(1);
      auto own = must(Instance::open("bench"));
      auto source = must(own->source(0));
      for (;;) {
        must(own->wait(50, std::chrono::seconds(5)));
        while (must(source->next())) {
        }
      }
    }
    usleep(20000);
    waited.push_back(ns_per_event(quick ? 500000 : 2000000));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    ratio.push_back(waited.back() / idle.back());
  }
  row("writer.waiter_over_idle", median(ratio), "x",
      text("%.1f ns while a reader waits for half of 8 MiB, %.1f without", median(waited), median(idle)));
}

struct Words {
  std::atomic<u64> woken, asleep;
  u32 futex;
};

// One way to wait: in a process of its own, on processor 1; `wake` runs on processor 0.
struct Way {
  std::function<void(Words&)> loop;  // for ever: asleep = 1, wait, woken = now
  std::function<void(Words&)> wake;
  std::vector<double> us;

  void measure(Words& words, int times) {
    words.woken = words.asleep = 0;
    const pid_t child = fork();
    if (child == 0) {
      pin(1);
      loop(words);
    }
    for (int i = 0; i < times; ++i) {
      while (words.asleep == 0) usleep(50);
      usleep(300);
      words.asleep = words.woken = 0;
      const u64 from = sys::now_ns();
      wake(words);
      while (words.woken == 0 && sys::now_ns() - from < 1'000'000'000) Hardware::pause();
      us.push_back(static_cast<double>(words.woken - from) / 1000);
    }
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }
};

void wake_rows() {
  auto& words = *static_cast<Words*>(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  const auto event = [](Words&) { ::bench::pair(1, 1); };
  Way futex{[](Words& w) {
              for (;;) {
                const u32 value = __atomic_load_n(&w.futex, __ATOMIC_ACQUIRE);
                w.asleep = 1;
                sys::futex_wait(&w.futex, value, -1);
                w.woken = sys::now_ns();
              }
            },
            [](Words& w) {
              __atomic_fetch_add(&w.futex, 1u, __ATOMIC_SEQ_CST);
              sys::futex_wake_all(&w.futex);
            },
            {}};
  Way ring{[](Words& w) {
             auto own = must(Instance::open("bench"));
             for (;;) {
               drain(*own, 0);
               w.asleep = 1;
               must(own->wait(0, std::chrono::seconds(5)));
               w.woken = sys::now_ns();
             }
           },
           event,
           {}};
  Way spin{[](Words& w) {
             auto own = must(Instance::open("bench"));
             auto source = must(own->source(0));
             for (;;) {
               while (must(source->next())) {
               }
               w.asleep = 1;
               while (!must(source->next())) Hardware::pause();
               w.woken = sys::now_ns();
             }
           },
           event,
           {}};
  const int times = quick ? 40 : 100;
  for (int i = 0; i < 10; ++i)
    for (Way* way : {&futex, &ring, &spin}) way->measure(words, times);
  const double p50 = quantile(ring.us, 0.5), floor = quantile(futex.us, 0.5);
  row("wake.p50_over_futex", p50 / floor, "x", text("%.1f us against %.1f us for a bare futex", p50, floor));
  row("wake.p50_us", p50, "us", "commit to a sleeping reader's process running");
  row("wake.p99_us", quantile(ring.us, 0.99), "us", text("a bare futex: %.1f us", quantile(futex.us, 0.99)));
  row("wake.spin_p50_us", quantile(spin.us, 0.5), "us", "to a reader's process that spins");
  munmap(&words, 4096);
}

}  // namespace

void wait_rows(Instance& instance) {
  if (std::thread::hardware_concurrency() < 2) return row("wake.p50_over_futex", std::nullopt, "x", "one processor only");
  cpu_set_t before;
  sched_getaffinity(0, sizeof before, &before);
  pin(0);
  drain(instance, 0);
  waiter_row();
  wake_rows();
  sched_setaffinity(0, sizeof before, &before);
}

}  // namespace bench
