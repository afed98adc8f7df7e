// A writer at full speed, and its consumer on the other core.
#include <ringside/abi/event_cursor.hpp>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "bench.hpp"
#include "sys/sys.hpp"

namespace bench {

void live_rows() {
  if (std::thread::hardware_concurrency() < 2) return row("live.refused", std::nullopt, "share", "one processor only");
  LocalRing local(65536, 4097, true);
  std::atomic<bool> done{false};
  u64 tried = 0, written = 0, read = 0;
  const u64 duration = quick ? 2'000'000'000 : 10'000'000'000;
  std::thread consumer([&] {
    pin(1);
    Reader<> reader(local.ring);
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
    Writer<Tsc> writer(local.ring, Tsc{});
    for (const u64 end = sys::now_ns() + duration; sys::now_ns() < end;)
      for (int k = 0; k < 1000; ++k, ++tried) written += write_pair(writer, tried, tried);
    done = true;
  });
  producer.join();
  consumer.join();
  row("live.refused", static_cast<double>(tried - written) / static_cast<double>(tried), "share",
      read == written ? text("%.0f M events written, every one was read", static_cast<double>(written) / 1e6)
                      : "THE BOOKS DO NOT BALANCE");
  row("live.events_per_s", static_cast<double>(read) * 1e9 / static_cast<double>(duration), "1/s",
      "writer and consumer, a core each");
}

}  // namespace bench
