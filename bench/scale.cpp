// Threads do not meet: each has a ring of its own.
#include "threads.hpp"

namespace bench {

void scale_row() {
  scale_row("writer.scale2", "two threads / one thread", [](const auto& run) {
    LocalRing local(16384, 65);
    Writer<Tsc> writer(local.ring, Tsc{});
    run([&](u64 n) { write_pair(writer, n, n); });
  });
}

}  // namespace bench
