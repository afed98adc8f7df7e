// The figures of the README: ratios against a floor in the same run, rounds of floor and subject interleaved, medians.
//   ringside_bench OUTPUT.json [--quick]
#include <fcntl.h>
#include <pthread.h>
#include <ringside/abi/event_cursor.hpp>
#include <ringside/ring/recover.hpp>
#include <ringside/ring/writer.hpp>
#include <ringside/trace.hpp>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "instance/instance.hpp"

using namespace ringside;

RINGSIDE_EVENT(bench, pair, (u64, a), (u64, b));
RINGSIDE_EVENT(bench, never, (u64, a));

namespace {

bool quick = false;
nlohmann::json rows = nlohmann::json::array();

void row(const std::string& name, std::optional<double> value, const std::string& unit, const std::string& detail) {
  nlohmann::json r{{"name", name}, {"unit", unit}, {"detail", detail}};
  r["value"] = value ? nlohmann::json(*value) : nlohmann::json(nullptr);
  rows.push_back(r);
  if (value)
    std::printf("%-30s %14.4g %-9s %s\n", name.c_str(), *value, unit.c_str(), detail.c_str());
  else
    std::printf("%-30s %14s %-9s %s\n", name.c_str(), "-", unit.c_str(), detail.c_str());
  std::fflush(stdout);
}

u64 ns() noexcept { return sys::now_ns(); }
std::string text(const char* format, double a, double b = 0) {
  char out[200];
  std::snprintf(out, sizeof out, format, a, b);
  return out;
}
double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}
double quantile(std::vector<double> v, double q) {
  std::sort(v.begin(), v.end());
  return v[std::min(v.size() - 1, static_cast<size_t>(q * static_cast<double>(v.size())))];
}
void pin(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  sched_setaffinity(0, sizeof set, &set);
}

// ns per call of `body`, which runs n times.
template <class F>
double per_call(long n, F body) {
  const u64 from = ns();
  for (long i = 0; i < n; ++i) body(static_cast<u64>(i));
  return static_cast<double>(ns() - from) / static_cast<double>(n);
}

struct Tsc {
  u64 now() noexcept { return RingClockNow{ClockKind::tsc, nullptr}.now(); }
};
struct Count {
  u64 n = 0;
  u64 now() noexcept { return ++n; }
};

struct LocalRing {
  Ring ring;
  LocalRing(u32 subbuf_size, u32 nr, bool discard = false) : ring{Geometry(subbuf_size, nr)} {
    const auto map = [](u64 size) {
      return mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    };
    ring.control = static_cast<Control*>(map(control_size(ring.geometry)));
    ring.data = static_cast<u8*>(map(ring.geometry.data_size()));
    ring.control->mode = discard;
  }
  ~LocalRing() {
    munmap(ring.control, control_size(ring.geometry));
    munmap(ring.data, ring.geometry.data_size());
  }
};

struct Pair {
  u64 a, b;
};
// Field by field, as an event's call site does.
template <class W>
RS_INLINE void write_pair(W& writer, u64 a, u64 b) {
  writer.write(sizeof(Pair), [&](u8* payload) {
    std::memcpy(payload, &a, sizeof a);
    std::memcpy(payload + 8, &b, sizeof b);
  });
}

void writer_rows() {
  const int rounds = quick ? 31 : 101;
  const long n = 100000;
  LocalRing with_tsc(16384, 65), with_count(16384, 65);
  Writer<Tsc> tsc(with_tsc.ring, Tsc{});
  Writer<Count> count(with_count.ring, Count{});
  std::vector<double> ratio, floor, event, only, disabled;
  for (int i = 0; i < rounds; ++i) {
    u64 sum = 0;
    floor.push_back(per_call(n, [&](u64) { sum += Tsc{}.now(); }));
    event.push_back(per_call(n, [&](u64 k) { write_pair(tsc, k, sum); }));
    only.push_back(per_call(n, [&](u64 k) { write_pair(count, k, k); }));
    disabled.push_back(per_call(n, [&](u64 k) { bench::never(k); }));
    ratio.push_back(event.back() / floor.back());
  }
  row("writer.event16_over_rdtsc", median(ratio), "x", text("%.2f ns against %.2f ns", median(event), median(floor)));
  row("writer.ring_only_ns", median(only), "ns", "the same with the counter clock");
  row("writer.disabled_ns", median(disabled), "ns", "the loop around it included");
}

void scale_row() {
  if (std::thread::hardware_concurrency() < 2) return row("writer.scale2", std::nullopt, "x", "one processor only");
  std::vector<double> ratio;
  const auto run = [](int threads) {
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
        for (; !stop.load(std::memory_order_relaxed); ++n) {
          const Pair p{n, n};
          writer.write(&p, sizeof p);
        }
        events += n;
      });
    while (ready < threads) usleep(100);
    usleep(quick ? 50000 : 200000);
    stop = true;
    for (auto& t : all) t.join();
    return static_cast<double>(events);
  };
  for (int i = 0; i < (quick ? 3 : 7); ++i) ratio.push_back(run(2) / run(1));
  row("writer.scale2", median(ratio), "x", "two threads / one thread");
}

void reader_row() {
  std::vector<double> rate;
  for (int i = 0; i < (quick ? 5 : 15); ++i) {
    LocalRing local(65536, 257);
    Writer<Tsc> writer(local.ring, Tsc{});
    const Pair p{1, 2};
    for (int k = 0; k < 700000; ++k) writer.write(&p, sizeof p);
    Reader<> reader(local.ring);
    u64 events = 0, sum = 0;
    const u64 from = ns();
    while (reader.get_reader(false) == Got::data) {
      const ReaderView& v = reader.view();
      abi::EventCursor c(reader.data(), v.begin, v.end, local.ring.header(v.id).time_stamp);
      while (c.next()) {
        ++events;
        sum += c.payload().data[0];
      }
    }
    rate.push_back(static_cast<double>(events) * 1e9 / static_cast<double>(ns() - from));
    if (sum == 1) std::abort();
  }
  row("reader.events_per_s", median(rate), "1/s", "swap and walk in place, one byte of each payload read");
}

void live_rows() {
  if (std::thread::hardware_concurrency() < 2) return row("live.refused", std::nullopt, "share", "one processor only");
  LocalRing local(65536, 4097, true);
  std::atomic<bool> done{false};
  u64 tried = 0, written = 0, read = 0;
  const double seconds = quick ? 2 : 10;
  std::thread consumer([&] {
    pin(1);
    Reader<> reader(local.ring);
    for (;;) {
      const bool last = done;
      const Got got = reader.get_reader(false);
      if (got == Got::nothing && last) return;
      if (got != Got::data) continue;
      const ReaderView& v = reader.view();
      abi::EventCursor c(reader.data(), v.begin, v.end, 0);
      while (c.next()) ++read;
      // On the writer's own sub-buffer each look takes its cache lines away: not more often than every few microseconds.
      if (!v.left)
        for (int k = 0; k < 100; ++k) Hardware::pause();
    }
  });
  std::thread producer([&] {
    pin(0);
    Writer<Tsc> writer(local.ring, Tsc{});
    const u64 end = ns() + static_cast<u64>(seconds * 1e9);
    while (ns() < end)
      for (int k = 0; k < 1000; ++k, ++tried) {
        const Pair p{tried, tried};
        written += writer.write(&p, sizeof p);
      }
    done = true;
  });
  producer.join();
  consumer.join();
  row("live.refused", static_cast<double>(tried - written) / static_cast<double>(tried), "share",
      read == written ? "every written event was read" : "THE BOOKS DO NOT BALANCE");
  row("live.events_per_s", static_cast<double>(read) / seconds, "1/s", "writer and consumer, a core each");
}

// The rows of an instance: in a directory of our own.
void instance_rows() {
  InstanceOptions o;
  o.name = "bench";
  auto instance = must(Instance::create(o));
  if (ringside_open("bench") != 0) return;
  must(instance->enable("bench:never", false));

  // A waiter in another process, at buffer_percent 50: it is woken when half the ring is full, and takes what is there.
  const long n = 200000;
  std::vector<double> idle, waited, ratio;
  for (int i = 0; i < (quick ? 5 : 15); ++i) {
    idle.push_back(per_call(n, [](u64 k) { bench::pair(k, k); }));
    const pid_t child = fork();
    if (child == 0) {
      auto own = must(Instance::open("bench"));
      auto source = must(own->source(0));
      for (;;) {
        must(own->wait(50, std::chrono::seconds(5)));
        while (must(source->next())) {
        }
      }
    }
    usleep(20000);
    waited.push_back(per_call(n, [](u64 k) { bench::pair(k, k); }));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    ratio.push_back(waited.back() / idle.back());
  }
  row("writer.waiter_over_idle", median(ratio), "x", text("%.1f ns with a waiter, %.1f without, through the instance", median(waited), median(idle)));

  // Commit to a waiting reader in another process running, against a bare futex wake.
  struct Words {
    std::atomic<u64> woken, asleep;
    u32 word;
  };
  auto* words = static_cast<Words*>(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  const int rounds = quick ? 200 : 1000;
  const auto latency = [&](auto wait_once, auto wake) {
    words->woken = 0;
    words->asleep = 0;
    std::vector<double> us;
    const pid_t child = fork();
    if (child == 0) {
      wait_once(true);
      _exit(0);
    }
    for (int i = 0; i < rounds; ++i) {
      while (words->asleep == 0) usleep(50);
      usleep(300);
      words->asleep = 0;
      words->woken = 0;
      const u64 from = ns();
      wake();
      while (words->woken == 0) {
        if (ns() - from > 1000000000) break;
      }
      us.push_back(static_cast<double>(words->woken - from) / 1000);
    }
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    return us;
  };
  const auto futex = latency(
      [&](bool) {
        for (;;) {
          const u32 value = __atomic_load_n(&words->word, __ATOMIC_ACQUIRE);
          words->asleep = 1;
          sys::futex_wait(&words->word, value, -1);
          words->woken = ns();
        }
      },
      [&] {
        __atomic_fetch_add(&words->word, 1u, __ATOMIC_SEQ_CST);
        sys::futex_wake_all(&words->word);
      });
  const auto ring = latency(
      [&](bool) {
        auto own = must(Instance::open("bench"));
        for (;;) {
          for (const RingInfo& r : own->rings())
            if (r.counters.unread != 0) {
              auto source = own->source(r.name.ring);
              while (source && must((*source)->next())) {
              }
            }
          words->asleep = 1;
          must(own->wait(0, std::chrono::seconds(5)));
          words->woken = ns();
        }
      },
      [] { bench::pair(1, 1); });
  row("wake.p50_over_futex", quantile(ring, 0.5) / quantile(futex, 0.5), "x",
      text("%.1f us against %.1f us; the wait looks at every ring before it says so", quantile(ring, 0.5), quantile(futex, 0.5)));
  row("wake.p50_us", quantile(ring, 0.5), "us", "commit to the reader's process running");
  row("wake.p99_us", quantile(ring, 0.99), "us", "");

  // Memory: what a ring costs beyond its written sub-buffers, and what idle threads keep.
  const Counters c = instance->rings()[0].counters;
  const double pages = static_cast<double>(c.resident_bytes) / page_size;
  const double written = static_cast<double>(c.nr_subbufs - 1) * static_cast<double>(c.subbuf_size) / page_size;
  row("memory.ring_overhead_pages", pages - written < 0 ? 0 : pages - written, "pages", text("%.0f resident, %.0f of them written sub-buffers", pages, written));

  const int threads = quick ? 500 : 10000;
  std::atomic<int> ready{0};
  std::atomic<bool> go{false};
  std::vector<pthread_t> ids;
  struct Shared {
    std::atomic<int>* ready;
    std::atomic<bool>* go;
  } shared{&ready, &go};
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 65536);
  must(instance->resize(64 << 10, 4096));
  for (int i = 0; i < threads; ++i) {
    pthread_t id;
    const auto body = [](void* p) -> void* {
      auto* s = static_cast<Shared*>(p);
      for (u64 k = 0; k < 10; ++k) bench::pair(k, k);
      ++*s->ready;
      while (!s->go->load()) usleep(20000);
      return nullptr;
    };
    if (pthread_create(&id, &attributes, body, &shared) != 0) break;
    ids.push_back(id);
  }
  while (ready < static_cast<int>(ids.size())) usleep(1000);
  const auto drain = [&] {
    for (const RingInfo& r : instance->rings()) {
      if (r.counters.unread == 0) continue;
      auto source = instance->source(r.name.ring);
      while (source && must((*source)->next())) {
      }
    }
    instance->trim();
    u64 bytes = 0;
    for (const RingInfo& r : instance->rings()) bytes += r.counters.resident_bytes;
    return bytes;
  };
  const double live = static_cast<double>(drain()) / 1024 / static_cast<double>(ids.size());
  go = true;
  for (pthread_t id : ids) pthread_join(id, nullptr);
  const double ended = static_cast<double>(drain()) / 1024 / static_cast<double>(ids.size());
  row("memory.idle_threads", live, "KiB", text("a live thread of %.0f; ended: %.2f KiB each", static_cast<double>(ids.size()), ended));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: ringside_bench OUTPUT.json [--quick]\n");
    return 2;
  }
  quick = argc > 2 && std::strcmp(argv[2], "--quick") == 0;
  char dir[] = "/dev/shm/ringside-bench-XXXXXX";
  if (mkdtemp(dir) == nullptr) return 1;
  setenv("RINGSIDE_ROOT", dir, 1);
  writer_rows();
  scale_row();
  reader_row();
  live_rows();
  instance_rows();
  ringside_close();
  std::filesystem::remove_all(dir);
  std::ofstream(argv[1]) << nlohmann::json{{"rows", rows}}.dump(1) << "\n";
}
