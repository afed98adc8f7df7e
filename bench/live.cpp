// A writer at full speed, and its consumer on the other core.
#include "threads.hpp"

namespace bench {

void live_rows() {
  if (std::thread::hardware_concurrency() < 2) return row("live.refused", std::nullopt, "share", "one processor only");
  LocalRing local(65536, 4097, true);
  live_rows_of(local.ring, "live.", [&](const auto& run) {
    Writer<Tsc> writer(local.ring, Tsc{});
    run([&](u64 n) { return write_pair(writer, n, n); });
  });
}

}  // namespace bench
