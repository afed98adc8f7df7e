// Benchmarks of several threads, the same for rings of threads and of CPUs.
#pragma once
#include <ringside/abi/event_cursor.hpp>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "bench.hpp"
#include "sys/sys.hpp"

namespace bench {

// The number of events that `threads` threads write in a fixed time, each on its own CPU. `body` makes in its thread what it
// writes into, and calls its argument with write(n).
template <class Body>
double together(int threads, const Body& body) {
  std::vector<std::thread> all;
  std::atomic<int> ready{0};
  std::atomic<u64> events{0};
  std::atomic<bool> stop{false};
  for (int t = 0; t < threads; ++t)
    all.emplace_back([&, t] {
      pin(t);
      body([&](const auto& write) {
        ++ready;
        while (ready < threads) {
        }
        u64 n = 0;
        for (; !stop.load(std::memory_order_relaxed); ++n) write(n);
        events += n;
      });
    });
  while (ready < threads) usleep(100);
  usleep(quick ? 50000 : 200000);
  stop = true;
  for (auto& t : all) t.join();
  return static_cast<double>(events);
}

template <class Body>
void scale_row(const char* name, const char* detail, const Body& body) {
  if (std::thread::hardware_concurrency() < 2) return row(name, std::nullopt, "x", "one processor only");
  std::vector<double> ratio;
  for (int i = 0; i < (quick ? 3 : 9); ++i) ratio.push_back(together(2, body) / together(1, body));
  row(name, median(ratio), "x", detail);
}

// A writer at full speed, and its consumer on the other core. `body` makes in the writer's thread what writes, and calls its
// argument with write(n), which says whether event n was stored.
template <class Body>
void live_rows_of(const Ring& ring, const std::string& prefix, const Body& body) {
  std::atomic<bool> done{false};
  u64 tried = 0, written = 0, read = 0;
  const u64 duration = quick ? 2'000'000'000 : 10'000'000'000;
  std::thread consumer([&] {
    pin(1);
    Reader<> reader(ring);
    for (;;) {
      const bool last = done;
      const Got got = reader.get_reader(false);
      if (got == Got::data) {
        const ReaderView& v = reader.view();
        abi::EventCursor c(reader.data(), v.begin, v.end, 0);
        while (c.next()) ++read;
        if (v.left) continue;
      } else if (last) {
        return;
      }
      // Caught up. Each read of the writer's own sub-buffer takes its cache lines away, so wait before the next one.
      usleep(200);
    }
  });
  std::thread producer([&] {
    pin(0);
    body([&](const auto& write) {
      for (const u64 end = sys::now_ns() + duration; sys::now_ns() < end;)
        for (int k = 0; k < 1000; ++k, ++tried) written += write(tried);
    });
    done = true;
  });
  producer.join();
  consumer.join();
  row(prefix + "refused", static_cast<double>(tried - written) / static_cast<double>(tried), "share",
      read == written ? text("%.0f M events written, every one was read", static_cast<double>(written) / 1e6)
                      : "THE BOOKS DO NOT BALANCE");
  row(prefix + "events_per_s", static_cast<double>(read) * 1e9 / static_cast<double>(duration), "1/s",
      "writer and consumer, a core each");
}

}  // namespace bench
