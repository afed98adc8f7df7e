// Threads do not meet: each has a ring of its own.
#include <unistd.h>

#include <atomic>
#include <thread>

#include "bench.hpp"

namespace bench {
namespace {

// The number of events that `threads` threads write in a fixed time, each on its own processor.
double run(int threads) {
  std::vector<std::thread> all;
  std::atomic<int> ready{0};
  std::atomic<u64> events{0};
  std::atomic<bool> stop{false};
  for (int t = 0; t < threads; ++t)
    all.emplace_back([&, t] {
      pin(t);
      LocalRing local(16384, 65);
      Writer<Tsc> writer(local.ring, Tsc{});
      ++ready;
      while (ready < threads) {
      }
      u64 n = 0;
      for (; !stop.load(std::memory_order_relaxed); ++n) write_pair(writer, n, n);
      events += n;
    });
  while (ready < threads) usleep(100);
  usleep(quick ? 50000 : 200000);
  stop = true;
  for (auto& t : all) t.join();
  return static_cast<double>(events);
}

}  // namespace

void scale_row() {
  if (std::thread::hardware_concurrency() < 2) return row("writer.scale2", std::nullopt, "x", "one processor only");
  std::vector<double> ratio;
  for (int i = 0; i < (quick ? 3 : 9); ++i) ratio.push_back(run(2) / run(1));
  row("writer.scale2", median(ratio), "x", "two threads / one thread");
}

}  // namespace bench
