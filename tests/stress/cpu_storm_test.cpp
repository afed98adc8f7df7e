// Many processes and threads on the rings of all CPUs: handlers that write, hops from CPU to CPU, SIGKILL, a busy reader for
// each ring, an iterator that looks on, and a check of all counts at the end.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <random>
#include <ringside/base/sanitizers.hpp>
#include <ringside/ring/iterate.hpp>
#include <thread>

#include "cpu_rings.hpp"

#if RS_TEST_RSEQ

namespace ringside::test::cpu_storm_test {
namespace {

#if RINGSIDE_SANITIZED
constexpr u32 processes = 3, threads = 3;
#else
constexpr u32 processes = 8, threads = 8;
#endif
constexpr u32 contexts = 2;  // the thread, and its handler
constexpr u32 most_lives = 1 << 16;
constexpr long handler_every_ns = 50'000;  // in all threads together: a thread's timer pauses while the thread does

struct Tries {
  u64 usual, append, enter, not_usual, moved, aborted, late;  // usual: also those that are given their time
};

// One thread's counts, in memory that outlives it.
struct Life {
  u64 done[contexts];     // writes that have returned, each with an event
  u64 refused[contexts];  // with Refused::full
  u64 why[16];            // other answers
  u64 handlers, hops;
  Tries tries;
  bool killed;
};
struct Looked {
  u64 events, bad;
};
struct Stage {
  std::atomic<bool> stop, done;
  Looked looked;
  Life lives[most_lives];
};
Stage* stage;
const CpuRings* rings;
thread_local Life* mine;

void add(u64& word) { Hardware::add_local(&word, 1); }

struct Counted : Rseq {
  template <u32 known>
  RINGSIDE_INLINE static Sequence append_usual(i64 area, const CpuRings& r, const Shape& shape, const void* payload) noexcept {
    return usual(Rseq::append_usual<known>(area, r, shape, payload));
  }
  template <class C>
  RINGSIDE_INLINE static Sequence append_timed(i64 area, const CpuRings& r, const Shape& shape, const void* payload,
                                               C& clock, bool watch) noexcept {
    return usual(Rseq::append_timed(area, r, shape, payload, clock, watch));
  }
  RINGSIDE_INLINE static Sequence append(i64 area, const Append& a, const Guard& guard) noexcept {
    return count(Rseq::append(area, a, guard), mine->tries.append);
  }
  RINGSIDE_INLINE static Sequence enter(i64 area, const Enter& a) noexcept {
    return count(Rseq::enter(area, a), mine->tries.enter);
  }

 private:
  RINGSIDE_INLINE static Sequence usual(Sequence s) noexcept {
    add(s == Sequence::done ? mine->tries.usual : s == Sequence::moved ? mine->tries.not_usual : mine->tries.aborted);
    return s;
  }
  static Sequence count(Sequence s, u64& done) noexcept {
    add(s == Sequence::done    ? done
        : s == Sequence::moved ? mine->tries.moved
        : s == Sequence::late  ? mine->tries.late
                               : mine->tries.aborted);
    return s;
  }
};
EitherClock the_clock;
const CpuWriter<EitherClock, Counted> writer{{true}}, timed_writer{{false}}, watched_writer{{false}, true};
bool watched;

bool write_one(u32 context) {
  u8 payload[numbered_most];
  const u64 sequence = mine->done[context];
  const u32 who = static_cast<u32>(mine - stage->lives) * contexts + context;
  const u32 size = make_numbered(payload, who, sequence);
  const Refused why = write_numbered(the_clock.inside ? writer : watched ? watched_writer : timed_writer, *rings, payload, size);
  if (why == Refused::no)
    __atomic_store_n(&mine->done[context], sequence + 1, __ATOMIC_RELAXED);
  else
    add(why == Refused::full ? mine->refused[context] : mine->why[static_cast<u32>(why)]);
  return why == Refused::no;
}

void on_timer(int) {
  const int saved = errno;
  add(mine->handlers);
  for (u64 n = 1 + mine->handlers % 3; n != 0; --n) write_one(1);
  errno = saved;
}

void live(Life& life, const std::vector<u32>& cpus) {
  mine = &life;
  sigevent event{};
  event.sigev_notify = SIGEV_THREAD_ID;
  event.sigev_signo = SIGRTMIN;
  event._sigev_un._tid = static_cast<pid_t>(syscall(SYS_gettid));
  timer_t timer;
  if (timer_create(CLOCK_MONOTONIC, &event, &timer) != 0) std::abort();
  std::mt19937 random(static_cast<u32>(&life - stage->lives));
  const long period = handler_every_ns * static_cast<long>(cpus.size());
  const itimerspec often{{0, period}, {0, 1 + static_cast<long>(random()) % period}};
  timer_settime(timer, 0, &often, nullptr);
  while (!stage->stop.load(std::memory_order_relaxed)) {
    u32 refused = 0;
    for (u32 n = random() % 400; n != 0 && refused < 5; --n) refused += !write_one(0);
    if (refused == 5) usleep(random() % 1000);  // leaves time for the reader
    const u32 what = random() % 64;
    if (what < 8) {
      cpu_set_t set;
      CPU_ZERO(&set);
      for (u32 cpu : cpus)
        if (random() % 2 != 0) CPU_SET(cpu, &set);
      if (CPU_COUNT(&set) == 0) CPU_SET(cpus[random() % cpus.size()], &set);
      sched_setaffinity(0, sizeof set, &set);
      ++life.hops;
    } else if (what < 12) {
      sched_yield();
    } else if (what < 16) {
      usleep(random() % 300);
    }
  }
  timer_delete(timer);
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
}

[[noreturn]] void work(u32 first_life, const std::vector<u32>& cpus) {
  std::vector<std::thread> all;
  for (u32 i = 0; i < threads; ++i) all.emplace_back([&, i] { live(stage->lives[first_life + i], cpus); });
  for (std::thread& t : all) t.join();
  _exit(0);
}

// Checks each event of the copies that an iterator returns as good.
[[noreturn]] void look_on(const CpuRingSet& set, const std::vector<u32>& cpus) {
  std::vector<u64> buffer(set[0].geometry.subbuf_size() / 8);
  u8* const bytes = reinterpret_cast<u8*>(buffer.data());
  while (!stage->done) {
    for (u32 cpu : cpus) {
      Iterator<> it(set[cpu], bytes);
      for (int i = 0; i < 30; ++i) {
        const Got got = it.next();
        if (got == Got::corrupt) ++stage->looked.bad;
        if (got != Got::data) break;
        abi::EventCursor c(bytes + abi::header_size, it.view().begin, it.view().end, 0);
        u64 events = 0;
        while (c.next()) {
          Numbered n;
          ++events;
          if (!is_numbered(c.payload().data, c.payload().size, n)) ++stage->looked.bad;
        }
        if (events != it.view().events || c.malformed() != abi::Malformed::no) ++stage->looked.bad;
        stage->looked.events += events;
      }
    }
    usleep(500);
  }
  _exit(0);
}

template <class T>
T* shared(size_t count) {
  void* const at = mmap(nullptr, sizeof(T) * count, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) std::abort();
  return static_cast<T*>(at);
}

void run_storm(bool discard, EitherClock clock, double seconds) {
  the_clock = clock;
  if (!rseq_registered()) GTEST_SKIP() << "this thread has no rseq area";
  const CpuRingSet set(4096, 9, discard, clock.inside);
  const std::vector<u32> cpus = allowed_cpus();
  rings = &set.rings();
  stage = new (shared<Stage>(1)) Stage{};
  auto* const books = shared<BookReader::Books>(set.nr());
  auto* const tallies = shared<Tally>(size_t{most_lives} * contexts * cpus.size());
  struct sigaction action{};
  action.sa_handler = on_timer;
  action.sa_flags = SA_RESTART;
  sigaction(SIGRTMIN, &action, nullptr);

  std::vector<pid_t> watchers;
  for (size_t i = 0; i < cpus.size(); ++i) {
    const pid_t reader = fork();
    ASSERT_GE(reader, 0);
    if (reader == 0) {
      BookReader r(set[cpus[i]], most_lives * contexts, tallies + size_t{most_lives} * contexts * i, books[cpus[i]], clock);
      for (;;) {
        const bool last = stage->done;
        const Got got = r.read();
        if (books[cpus[i]].bad != 0 || (last && got != Got::data)) _exit(0);
        if (got == Got::data) continue;
        sched_yield();
      }
    }
    watchers.push_back(reader);
  }
  watchers.push_back(fork());
  ASSERT_GE(watchers.back(), 0);
  if (watchers.back() == 0) look_on(set, cpus);

  struct Worker {
    pid_t pid;
    u32 life;
  };
  std::array<Worker, processes> workers{};
  u32 lives = 0, kills = 0;
  const auto start = [&](Worker& w) {
    w = {fork(), lives};
    ASSERT_GE(w.pid, 0);
    if (w.pid == 0) work(lives, cpus);
    lives += threads;
  };
  std::mt19937 random(20261122);
  const u64 begin_ns = MonoClock{}.now(), begin_ticks = clock.now();
  for (Worker& w : workers) start(w);
  while (MonoClock{}.now() - begin_ns < static_cast<u64>(seconds * 1e9)) {
    usleep(random() % 40000);
    if (lives + threads > most_lives) continue;
    Worker& w = workers[random() % processes];
    kill(w.pid, SIGKILL);
    waitpid(w.pid, nullptr, 0);
    for (u32 i = 0; i < threads; ++i) stage->lives[w.life + i].killed = true;
    ++kills;
    start(w);
  }
  stage->stop = true;
  for (const Worker& w : workers) {
    int status = 0;
    waitpid(w.pid, &status, 0);
    EXPECT_EQ(status, 0);
  }
  const u64 ticks_per_us = std::max<u64>(1, (clock.now() - begin_ticks) * 1000 / (MonoClock{}.now() - begin_ns));
  stage->done = true;
  for (const pid_t pid : watchers) {
    int status = 0;
    waitpid(pid, &status, 0);
    EXPECT_EQ(status, 0);
  }

  // The rings, and their readers' counts.
  u64 written = 0, overrun = 0, dropped = 0, latest = 0;
  for (u32 cpu = 0; cpu < set.nr(); ++cpu) {
    SCOPED_TRACE(testing::Message() << "CPU " << cpu);
    const RingCounters n = counters<>(set[cpu]);
    EXPECT_EQ(broken<>(set[cpu]), nullptr);
    EXPECT_EQ(set[cpu].control->corrupt, 0u);
    EXPECT_EQ(set[cpu].control->gate, gate_cpu_open);
    EXPECT_EQ(n.written, n.read + n.overrun);
    EXPECT_EQ(n.unread, 0u);
    EXPECT_EQ(n.read, books[cpu].events);
    EXPECT_EQ(n.overrun, books[cpu].lost);
    EXPECT_EQ(books[cpu].bad, 0u) << books[cpu].what;
    EXPECT_EQ(books[cpu].backwards, 0u);
    if (discard) {
      EXPECT_EQ(n.overrun, 0u);
    } else {
      EXPECT_EQ(n.dropped, 0u);
    }
    written += n.written, overrun += n.overrun, dropped += n.dropped;
    latest = std::max(latest, books[cpu].latest);
  }
  // And the writers' counts. Death may come between an event, or a refusal, and its count: once for each context.
  u64 done = 0, refused = 0, handlers = 0, hops = 0, most_more = 0, why[16] = {};
  Tries t{};
  for (u32 i = 0; i < lives; ++i) {
    const Life& life = stage->lives[i];
    for (u32 c = 0; c < contexts; ++c) {
      done += life.done[c], refused += life.refused[c], most_more += life.killed;
      Tally all{};
      for (size_t r = 0; r < cpus.size(); ++r) {
        const Tally& one = tallies[(most_lives * r + i) * contexts + c];
        all.count += one.count, all.sum += one.sum;
      }
      const u64 most = life.done[c] + life.killed;
      EXPECT_LE(all.count, most) << "life " << i << " context " << c;
      if (discard) {
        EXPECT_GE(all.count, life.done[c]) << "life " << i << " context " << c;
        EXPECT_TRUE(all.whole()) << "life " << i << " context " << c;
      }
    }
    handlers += life.handlers, hops += life.hops;
    for (u32 w = 0; w < 16; ++w) why[w] += life.why[w];
    const u64 *from = &life.tries.usual, *end = from + sizeof(Tries) / 8;
    for (u64* to = &t.usual; from != end; ++from, ++to) *to += *from;
  }
  EXPECT_GE(written, done);
  EXPECT_LE(written, done + most_more);
  EXPECT_GE(dropped, refused);
  EXPECT_LE(dropped, refused + most_more);
  for (u32 w = 0; w < 16; ++w) EXPECT_EQ(why[w], 0u) << "answer " << w;
  EXPECT_GT(handlers, 0u);
  EXPECT_EQ(stage->looked.bad, 0u);
  std::printf(
      "%llu events (%llu more than counted), %llu lost, %llu refused; %llu handlers at %.0f/s, %llu hops, %u processes "
      "killed\n",
      static_cast<unsigned long long>(written), static_cast<unsigned long long>(written - done),
      static_cast<unsigned long long>(overrun), static_cast<unsigned long long>(dropped),
      static_cast<unsigned long long>(handlers), static_cast<double>(handlers) / seconds, static_cast<unsigned long long>(hops),
      kills);
  const auto share = [&](u64 n) { return static_cast<double>(n) * 1e6 / static_cast<double>(done + 1); };
  std::printf("of a million events: %.0f tries aborted, %.0f moved, %.0f late, %.0f not the usual, %.0f entered a sub-buffer\n",
              share(t.aborted), share(t.moved), share(t.late), share(t.not_usual), share(t.enter));
  std::printf("an event came at most %llu us after \"nothing\" was said; %llu events looked at in passing\n",
              static_cast<unsigned long long>(latest / ticks_per_us), static_cast<unsigned long long>(stage->looked.events));
  testing::Test::RecordProperty("aborted_per_million", static_cast<int>(share(t.aborted)));
  testing::Test::RecordProperty("latest_us", static_cast<int>(latest / ticks_per_us));
  munmap(stage, sizeof *stage);
  munmap(books, sizeof *books * set.nr());
  munmap(tallies, sizeof(Tally) * most_lives * contexts * cpus.size());
}

TEST(CpuStorm, Overwrite) { run_storm(false, {true}, test_seconds(60) / 2); }
TEST(CpuStorm, Discard) { run_storm(true, {true}, test_seconds(60) / 2); }
// By a clock that a call reads.
TEST(CpuStorm, OverwriteGivenTheTime) {
  watched = false;
  run_storm(false, {false}, test_seconds(60) / 2);
}
TEST(CpuStorm, DiscardByTheStopwatch) {
  watched = true;
  run_storm(true, {false}, test_seconds(60) / 2);
}

}  // namespace
}  // namespace ringside::test::cpu_storm_test

#endif  // RS_TEST_RSEQ
