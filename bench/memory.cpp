// Resident memory: of a ring beyond its sub-buffers, and of many threads that wrote a little.
#include <pthread.h>
#include <unistd.h>

#include <atomic>

#include "bench.hpp"

namespace bench {
namespace {

constexpr double page = 4096;

struct Crowd {
  std::atomic<int> ready{0};
  std::atomic<bool> go{false};
  std::vector<pthread_t> threads;

  explicit Crowd(int n) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 65536);
    for (int i = 0; i < n; ++i) {
      pthread_t id;
      if (pthread_create(&id, &attributes, body, this) != 0) break;
      threads.push_back(id);
    }
    pthread_attr_destroy(&attributes);
    while (ready < static_cast<int>(threads.size())) usleep(1000);
  }
  void end() {
    go = true;
    go.notify_all();
    for (pthread_t id : threads) pthread_join(id, nullptr);
  }
  static void* body(void* p) {
    auto& crowd = *static_cast<Crowd*>(p);
    for (u64 k = 0; k < 10; ++k) ::bench::pair(k, k);
    ++crowd.ready;
    crowd.go.wait(false);
    return nullptr;
  }
};

// Reads all rings, gives back what that frees; KiB that the rings of other threads still hold.
double kib_after_reading(Instance& instance) {
  for (const RingInfo& r : instance.rings()) {
    if (r.counters.unread == 0) continue;
    auto source = must(instance.source(r.name.ring));
    while (must(source->next())) {
    }
  }
  instance.trim();
  u64 bytes = 0;
  for (const RingInfo& r : instance.rings())
    if (r.name.tid != gettid()) bytes += r.counters.resident_bytes;
  return static_cast<double>(bytes) / 1024;
}

}  // namespace

void memory_rows(Instance& instance) {
  must(instance.resize(1 << 20, 16384));
  for (u64 k = 0; k < 200000; ++k) ::bench::pair(k, k);  // this thread's new ring, all of it but the reader page
  const Counters c = instance.rings().back().counters;
  const double pages = static_cast<double>(c.resident_bytes) / page;
  const double written = static_cast<double>(c.nr_subbufs - 1) * static_cast<double>(c.subbuf_size) / page;
  row("memory.ring_overhead_pages", pages - written, "pages",
      text("%.0f resident, %.0f of them written sub-buffers", pages, written));

  Crowd crowd(quick ? 500 : 10000);
  const auto n = static_cast<double>(crowd.threads.size());
  const double live = kib_after_reading(instance) / n;
  crowd.end();
  const double ended = kib_after_reading(instance) / n;
  row("memory.idle_threads", live, "KiB", text("a live thread of %.0f that wrote 10 events; an ended one: %.2f KiB", n, ended));
}

}  // namespace bench
