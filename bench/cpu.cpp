// The rings of CPUs: the same figures as those of a thread's ring, and those that only these have.
#include <pthread.h>
#include <ringside/ring/cpu_writer.hpp>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <thread>

#include "bench.hpp"
#include "rival.hpp"
#include "threads.hpp"
#include "writer/cpu_rings.hpp"
#include "sys/sys.hpp"

namespace bench {
namespace {

struct Clock {
  bool in_sequence() const noexcept { return RingClockNow{ClockKind::tsc, nullptr}.in_sequence(); }
  u64 now() noexcept { return RingClockNow{ClockKind::tsc, nullptr}.now(); }
};
using Direct = CpuWriter<Clock, Rseq>;
// A clock that a call reads.
struct Mono {
  bool in_sequence() const noexcept { return false; }
  u64 now() noexcept { return RingClockNow{ClockKind::mono, nullptr}.now(); }
};

// Rings of all CPUs in memory that children share, as a process has them mapped.
class LocalRings {
 public:
  // usual: by a clock that an instruction reads.
  LocalRings(u32 subbuf_size, u32 nr, bool discard = false, bool usual = true) : nr_(possible_cpus()) {
    const size_t bytes = sizeof(CpuRings) + nr_ * (sizeof(CpuPlace*) + sizeof(CpuPlace));
    rings_ = static_cast<CpuRings*>(std::calloc(1, bytes));
    auto* const places = reinterpret_cast<CpuPlace*>(rings_->place + nr_ + 1);
    for (u32 cpu = 0; cpu < nr_; ++cpu) {
      auto& local = local_.emplace_back(std::make_unique<LocalRing>(subbuf_size, nr, discard));
      local->ring.kind = RingKind::cpu;
      local->ring.control->gate = gate_cpu_open;
      const Ring& r = local->ring;
      places[cpu] = {r.control, r.subbuf(0), subbuf_size, r.geometry.nr_subbufs(), r.geometry.capacity(), r};
    }
    new (rings_) CpuRings{{}, usual ? nr_ : 0, nr_, {}};
    for (u32 cpu = 0; cpu < nr_; ++cpu) rings_->place[cpu] = &places[cpu];
  }
  ~LocalRings() { std::free(rings_); }
  const CpuRings& all() const { return *rings_; }
  const Ring& operator[](u32 cpu) const { return local_[cpu]->ring; }
  u32 size() const { return nr_; }

 private:
  u32 nr_;
  CpuRings* rings_;
  std::vector<std::unique_ptr<LocalRing>> local_;
};

i64 area() { return detail::cpu_side->area; }

[[gnu::noinline]] bool write16(const LocalRings& rings, u64 a, u64 b) {
  const u64 payload[] = {a, b};
  return Direct(Clock{}).write<sizeof payload>(rings.all(), area(), payload, sizeof payload) == Refused::no;
}

[[gnu::noinline]] bool write16_by_mono(const LocalRings& rings, u64 a, u64 b) {
  const u64 payload[] = {a, b};
  return CpuWriter<Mono, Rseq>(Mono{}).write<sizeof payload>(rings.all(), area(), payload, sizeof payload) == Refused::no;
}

// ns a turn of each body, their rounds in turn: the median of the fastest quarter of them, as other work only ever slows them.
std::vector<double> in_turn(const std::vector<std::function<void(u64)>>& bodies) {
  std::vector<std::vector<double>> ns(bodies.size());
  const u64 turns = 300'000;
  for (int round = 0; round < (quick ? 9 : 41); ++round)
    for (size_t b = 0; b < bodies.size(); ++b) {
      const u64 start = sys::now_ns();
      bodies[b](turns);
      ns[b].push_back(static_cast<double>(sys::now_ns() - start) / static_cast<double>(turns));
    }
  std::vector<double> out;
  for (auto& one : ns) out.push_back(quantile(one, 0.125));
  return out;
}

void time_part(const LocalRings& rings) {
  ringside_event& event = ::bench::ringside_pair::Call::event;
  const auto rival = Rival::start();
  const auto ns = in_turn({[](u64 n) {
                             u64 sum = 0;
                             for (u64 k = 0; k < n; ++k) {
                               sum += Tsc{}.now();
                               asm volatile("" : "+r"(sum));
                             }
                           },
                           [&](u64 n) {
                             for (u64 k = 0; k < n; ++k) write16(rings, k, 1);
                           },
                           [](u64 n) {
                             for (u64 k = 0; k < n; ++k) ::bench::pair(k, 1);
                           },
                           [&](u64 n) {
                             for (u64 k = 0; k < n; ++k) {
                               u64 payload[] = {0, k, 1};
                               ringside_write(&event, payload, sizeof payload);
                             }
                           },
                           [](u64 n) {
                             for (u64 k = 0; k < n; ++k) ::bench::never(k);
                           },
                           write_probed, never_write_probed,
                           [&](u64 n) {
                             if (rival) (void)rival->run(static_cast<long>(n));
                           }});
  row("cpu.event16_over_rdtsc", ns[1] / ns[0], "x", text("%.2f ns against %.2f ns", ns[1], ns[0]));
  row("cpu.call_over_rdtsc", ns[2] / ns[0], "x",
      text("%.2f ns: a typed event's call, in an instance; C's ringside_write: %.2f ns", ns[2], ns[3]));
  row("cpu.lttng_over_event", rival ? std::optional(ns[7] / ns[2]) : std::nullopt, "x",
      rival
          ? text("LTTng-UST %.1f ns against %.1f ns, the same payload, both overwriting, both with rings of CPUs", ns[7], ns[2])
          : no_rival);
  row("cpu.disabled_ns", ns[4], "ns", "the loop around it included");
  row("cpu.usdt_over_plain", ns[5] / ns[2], "x",
      text("%.2f ns: the same call as a USDT probe that nobody is attached to; disabled: %.3f ns against %.3f ns", ns[5], ns[6],
           ns[4]));
}

void mono_part() {
  const LocalRings rings(16384, 65, false, false);
  const auto ns = in_turn({[](u64 n) {
                             for (u64 k = 0; k < n; ++k) {
                               u64 now = Mono{}.now();
                               asm volatile("" : "+r"(now));
                             }
                           },
                           [&](u64 n) {
                             for (u64 k = 0; k < n; ++k) write16_by_mono(rings, k, 1);
                           }});
  row("cpu.event16_over_clock", ns[1] / ns[0], "x",
      text("%.2f ns against %.2f ns: the clock mono, read by a call; %.2f ns more", ns[1], ns[0], ns[1] - ns[0]));
}

void scale_part(const LocalRings& rings) {
  scale_row("cpu.scale2", "two threads on two CPUs / one thread",
            [&](const auto& run) { run([&](u64 n) { write16(rings, n, n); }); });
}

struct Shared {
  std::atomic<bool> go, stop;
  std::atomic<u32> ready;
  std::atomic<u64> events, tried, aborted;
};
Shared* make_shared() {
  return new (mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) Shared{};
}

void processes_part(const LocalRings& rings) {
  const auto rate = [&](u32 processes) {
    Shared* const shared = make_shared();
    for (u32 p = 0; p < processes; ++p)
      if (fork() == 0) {
        pin(0);
        ++shared->ready;
        while (!shared->go) usleep(100);
        u64 n = 0;
        for (; !shared->stop.load(std::memory_order_relaxed); ++n) write16(rings, n, n);
        shared->events += n;
        _exit(0);
      }
    while (shared->ready < processes) usleep(100);
    const u64 start = sys::now_ns();
    shared->go = true;
    usleep(quick ? 100'000 : 400'000);
    shared->stop = true;
    while (wait(nullptr) > 0) {
    }
    const double events = static_cast<double>(shared->events) / static_cast<double>(sys::now_ns() - start);
    munmap(shared, sizeof *shared);
    return events;
  };
  std::vector<double> ratio;
  for (int i = 0; i < (quick ? 3 : 9); ++i) ratio.push_back(rate(4) / rate(1));
  row("cpu.four_processes_over_one", median(ratio), "x", "events per second of four processes on one CPU / of one");
}

// As the stress test does: threads of several processes, moved about, with signal handlers at 20 kHz that write, too.
std::atomic<u64>* tried_here;
std::atomic<u64>* aborted_here;
struct Counting : Rseq {
  static Sequence note(Sequence s) noexcept {
    tried_here->fetch_add(1, std::memory_order_relaxed);
    if (s == Sequence::aborted) aborted_here->fetch_add(1, std::memory_order_relaxed);
    return s;
  }
  template <u32 known>
  static Sequence append_usual(i64 a, const CpuRings& r, const Shape& s, const void* p) noexcept {
    return note(Rseq::append_usual<known>(a, r, s, p));
  }
  template <class C>
  static Sequence append_timed(i64 a, const CpuRings& r, const Shape& s, const void* p, C& clock, bool watch) noexcept {
    return note(Rseq::append_timed(a, r, s, p, clock, watch));
  }
  static Sequence append(i64 a, const Append& e, const Guard& g) noexcept { return note(Rseq::append(a, e, g)); }
  static Sequence refuse(i64 a, const Refuse& r) noexcept { return note(Rseq::refuse(a, r)); }
  static Sequence enter(i64 a, const Enter& e) noexcept { return note(Rseq::enter(a, e)); }
};
const LocalRings* storm_rings;
void storm_write(u64 k) {
  const u64 payload[] = {k, k};
  (void)CpuWriter<Clock, Counting>(Clock{}).write(storm_rings->all(), area(), payload, sizeof payload);
}

void storm_part(const LocalRings& rings) {
  Shared* const shared = make_shared();
  tried_here = &shared->tried;
  aborted_here = &shared->aborted;
  storm_rings = &rings;
  for (u32 p = 0; p < 4; ++p)
    if (fork() == 0) {
      struct sigaction action {};
      action.sa_handler = [](int) { storm_write(0); };
      action.sa_flags = SA_RESTART;
      sigaction(SIGALRM, &action, nullptr);
      const itimerval often{{0, 50}, {0, 50}};
      setitimer(ITIMER_REAL, &often, nullptr);
      std::vector<std::thread> all;
      for (int t = 0; t < 4; ++t)
        all.emplace_back([&, t] {
          for (u64 k = 0; !shared->stop.load(std::memory_order_relaxed); ++k) {
            storm_write(k);
            if (k % 100'000 == 0)
              pin(static_cast<int>((k / 100'000 + static_cast<u64>(t)) % std::thread::hardware_concurrency()));
          }
        });
      for (auto& t : all) t.join();
      _exit(0);
    }
  sleep(quick ? 1 : 5);
  shared->stop = true;
  while (wait(nullptr) > 0) {
  }
  const auto tried = static_cast<double>(shared->tried), aborted = static_cast<double>(shared->aborted);
  row("cpu.storm_abort_share", aborted / tried, "share",
      text("%.0f of %.0f M sequences: 4 processes of 4 threads, handlers each 50 us", aborted, tried / 1e6));
  munmap(shared, sizeof *shared);
}

void threads_part(Instance& instance) {
  const auto resident = [&] {
    u64 bytes = 0;
    for (const RingInfo& r : instance.rings()) {
      if (r.counters.unread != 0) {
        auto source = must(instance.source(r.name.ring));
        while (must(source->next())) {
        }
      }
      bytes += r.counters.resident_bytes;
    }
    struct stat st {};
    return bytes + (stat((instance.path() + "/threads").c_str(), &st) == 0 ? static_cast<u64>(st.st_blocks) * 512 : 0);
  };
  const auto after = [&](int threads) {
    std::vector<pthread_t> all;
    std::atomic<bool> go{false};
    std::atomic<int> ready{0};
    struct Arguments {
      std::atomic<bool>* go;
      std::atomic<int>* ready;
    } arguments{&go, &ready};
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 65536);
    for (int t = 0; t < threads; ++t) {
      pthread_t id;
      const auto body = [](void* p) -> void* {
        const auto* const a = static_cast<Arguments*>(p);
        for (u64 k = 0; k < 10; ++k) ::bench::pair(k, k);
        a->ready->fetch_add(1);
        a->go->wait(false);
        return nullptr;
      };
      if (pthread_create(&id, &attributes, body, &arguments) != 0) break;
      all.push_back(id);
    }
    pthread_attr_destroy(&attributes);
    while (ready < static_cast<int>(all.size())) usleep(1000);
    instance.trim();
    (void)resident();
    instance.trim();
    const u64 bytes = resident();
    go = true;
    go.notify_all();
    for (pthread_t id : all) pthread_join(id, nullptr);
    return std::pair<u64, size_t>(bytes, all.size());
  };
  const auto few = after(2);
  const auto many = after(quick ? 500 : 10000);
  row("cpu.threads_10000", (static_cast<double>(many.first) - static_cast<double>(few.first)) / 1024, "KiB",
      text("memory of %zu threads that wrote, beyond that of 2: %.0f KiB", many.second, static_cast<double>(few.first) / 1024));
}

void live_part() {
  if (std::thread::hardware_concurrency() < 2) return row("cpu.live_refused", std::nullopt, "share", "one processor only");
  LocalRings rings(65536, 4097, true);
  live_rows_of(rings[0], "cpu.live_", [&](const auto& run) { run([&](u64 n) { return write16(rings, n, n); }); });
}

}  // namespace

void cpu_rows() {
  if (why_not_cpu_rings() != RingsBecause::can)
    return row("cpu.event16_over_rdtsc", std::nullopt, "x", to_string(why_not_cpu_rings()));
  cpu_set_t before;
  sched_getaffinity(0, sizeof before, &before);
  ringside_close();
  InstanceOptions options;
  options.name = "bench-cpu";
  options.buffer_size = 8 << 20;
  options.rings = Rings::cpu;
  {
    const auto instance = must(Instance::create(options));
    if (ringside_open("bench-cpu") != 0) return;
    must(instance->enable("bench:never", false));
    ::bench::pair(0, 0);
    pin(0);
    {
      const LocalRings rings(16384, 65);
      time_part(rings);
      mono_part();
      scale_part(rings);
      processes_part(rings);
      storm_part(rings);
    }
    sched_setaffinity(0, sizeof before, &before);
    threads_part(*instance);
    live_part();
    ringside_close();
  }
  (void)Instance::remove("bench-cpu", true);
  (void)ringside_open("bench");
  ::bench::pair(0, 0);
}

}  // namespace bench
