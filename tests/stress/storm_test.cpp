// A writer under a storm of signals whose handlers write too, a reader in another process, and a check of all counts at the
// end.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

#include "ring_memory.hpp"

namespace ringside::test::storm_test {
namespace {

constexpr int contexts = 3;  // the thread, and handlers of two signals, which nest in each other

struct Event {
  u64 context, sequence, check;
};

// The writer's counts, in memory that the reader's process sees.
struct Shared {
  u64 committed[contexts], refused[contexts], handlers, deepest;
  u64 read, lost, bad, backwards;
  std::atomic<bool> done;
};

struct Storm {
  Writer<MonoClock>* writer;
  Shared* shared;
  volatile sig_atomic_t depth;
} storm;

void write_one(u64 context) {
  Shared& s = *storm.shared;
  const u64 sequence = s.committed[context];
  const u32 size = sizeof(Event) + static_cast<u32>(sequence % 5) * 24;
  Reservation slot = storm.writer->reserve(size);
  if (!slot) {
    ++s.refused[context];
    return;
  }
  if (sequence % 7 == 3 && context == 0) {  // a discarded one now and then, refused by its owner
    storm.writer->discard(slot);
    slot = storm.writer->reserve(sizeof(Event));
    if (!slot) {
      ++s.refused[context];
      return;
    }
  }
  const Event event{context, sequence, context * 1000003 + sequence * 7919};
  std::memcpy(slot.payload, &event, sizeof event);
  storm.writer->commit(slot);
  s.committed[context] = sequence + 1;
}

void on_signal(int signal) {
  const int saved = errno;
  Shared& s = *storm.shared;
  ++s.handlers;
  storm.depth = storm.depth + 1;
  const auto depth = static_cast<u64>(storm.depth);
  if (depth > s.deepest) s.deepest = depth;
  write_one(signal == SIGRTMIN ? 1 : 2);
  storm.depth = storm.depth - 1;
  errno = saved;
}

timer_t start_timer(int signal, long period_ns) {
  sigevent event{};
  event.sigev_notify = SIGEV_THREAD_ID;
  event.sigev_signo = signal;
  event._sigev_un._tid = static_cast<pid_t>(syscall(SYS_gettid));
  timer_t timer;
  EXPECT_EQ(timer_create(CLOCK_MONOTONIC, &event, &timer), 0);
  const itimerspec period{{0, period_ns}, {0, period_ns}};
  EXPECT_EQ(timer_settime(timer, 0, &period, nullptr), 0);
  return timer;
}

// Reads until the writer is done and nothing is left; counts inconsistencies.
void read_all(const Ring& ring, Shared& s, bool overwrite) {
  Reader<> reader(ring);
  u64 next[contexts] = {};
  u64 last_time = 0;
  for (;;) {
    const bool done = s.done.load();
    const Got got = reader.get_reader();
    if (got == Got::corrupt) {
      ++s.bad;
      return;
    }
    if (got == Got::nothing) {
      if (done) return;
      continue;
    }
    const ReaderView& v = reader.view();
    s.lost += v.lost_before;
    u64 time = ring.header(v.id).time_stamp;
    abi::EventCursor before(reader.data(), 0, v.begin, time);
    while (before.next()) {
    }
    abi::EventCursor c(reader.data(), v.begin, v.end, v.begin != 0 ? before.time() : time);
    u64 events = 0;
    while (c.next()) {
      ++events;
      Event e;
      std::memcpy(&e, c.payload().data, sizeof e);
      if (e.context >= contexts || e.check != e.context * 1000003 + e.sequence * 7919) {
        ++s.bad;
        continue;
      }
      // Each context's numbers go up; without losses, by one.
      if (e.sequence < next[e.context] || (!overwrite && e.sequence != next[e.context])) ++s.bad;
      next[e.context] = e.sequence + 1;
      if (c.time() < last_time) ++s.backwards;
      last_time = c.time();
    }
    if (c.malformed() != abi::Malformed::no || events != v.events) ++s.bad;
    s.read += events;
  }
}

void run_storm(bool discard, double seconds) {
  const Ring ring = shared_ring(4096, 9, discard);
  auto* shared = static_cast<Shared*>(mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  new (shared) Shared{};
  const pid_t reader = fork();
  ASSERT_GE(reader, 0);
  if (reader == 0) {
    read_all(ring, *shared, !discard);
    _exit(0);
  }
  Writer<MonoClock> writer(ring, MonoClock{});
  storm.writer = &writer;
  storm.shared = shared;
  storm.depth = 0;
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigaction(SIGRTMIN, &action, nullptr);
  sigaction(SIGRTMIN + 1, &action, nullptr);
  timer_t timers[] = {start_timer(SIGRTMIN, 30'000), start_timer(SIGRTMIN + 1, 37'000), start_timer(SIGRTMIN, 41'000)};
  const u64 end = MonoClock{}.now() + static_cast<u64>(seconds * 1e9);
  while (MonoClock{}.now() < end)
    for (int i = 0; i < 1000; ++i) write_one(0);
  for (timer_t t : timers) timer_delete(t);
  signal(SIGRTMIN, SIG_IGN);
  signal(SIGRTMIN + 1, SIG_IGN);
  shared->done = true;
  int status = 0;
  waitpid(reader, &status, 0);

  const RingCounters n = counters<>(ring);
  u64 committed = 0, refused = 0;
  for (int i = 0; i < contexts; ++i) committed += shared->committed[i], refused += shared->refused[i];
  EXPECT_EQ(shared->bad, 0u);
  EXPECT_EQ(shared->backwards, 0u);
  EXPECT_EQ(n.written, committed);
  EXPECT_EQ(n.read, shared->read);
  EXPECT_EQ(n.overrun, shared->lost);
  EXPECT_EQ(n.written, n.read + n.overrun + n.unread);
  EXPECT_EQ(n.unread, 0u);
  EXPECT_EQ(n.dropped + n.commit_overrun, refused);
  if (!discard) {
    EXPECT_EQ(n.dropped, 0u);
  }
  EXPECT_GT(shared->handlers, 0u);
  std::printf("%llu events, %llu handlers at %.0f/s, nested %llu deep, lost %llu, refused %llu\n",
              static_cast<unsigned long long>(committed), static_cast<unsigned long long>(shared->handlers),
              static_cast<double>(shared->handlers) / seconds, static_cast<unsigned long long>(shared->deepest),
              static_cast<unsigned long long>(shared->lost), static_cast<unsigned long long>(refused));
  unmap(ring);
  munmap(shared, sizeof *shared);
}

TEST(Storm, Overwrite) { run_storm(false, test_seconds(60) / 2); }
TEST(Storm, Discard) { run_storm(true, test_seconds(60) / 2); }

}  // namespace
}  // namespace ringside::test::storm_test
