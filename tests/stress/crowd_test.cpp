// An instance under threads that come and go, with handlers that write too, bursts and pauses; a consumer in another process
// that also gives memory back; and a check of all counts at the end.
#include <gtest/gtest.h>
#include <ringside/abi/event_cursor.hpp>
#include <ringside/base/sanitizers.hpp>
#include <ringside/trace.hpp>
#include <signal.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <random>
#include <thread>

#include "instance/instance.hpp"
#include "ring_memory.hpp"

RINGSIDE_EVENT(crowd, step, (u64, sequence), (u64, check), (cstring, text));

namespace ringside::test::crowd_test {
namespace {

constexpr unsigned writers = 6;  // threads at a time
constexpr const char* texts[] = {"", "a", "some text", "a text that is longer than the others, by far"};

struct Shared {
  std::atomic<u64> tried, threads, handlers;
  std::atomic<bool> done;
  u64 read, lost, bad, trimmed;
};
Shared* shared;

void try_one() {
  const u64 n = shared->tried.fetch_add(1, std::memory_order_relaxed);
  crowd::step(n, n * 7919, texts[n % 4]);
}

void on_signal(int) {
  const int saved = errno;
  shared->handlers.fetch_add(1, std::memory_order_relaxed);
  try_one();
  errno = saved;
}

struct AtThreadEnd {
  ~AtThreadEnd() { try_one(); }
};

// ThreadSanitizer has no state for a thread that begins or ends, and dies of a signal there.
void take_signals([[maybe_unused]] bool on) {
#if RINGSIDE_TSAN
  sigset_t alarm;
  sigemptyset(&alarm);
  sigaddset(&alarm, SIGALRM);
  pthread_sigmask(on ? SIG_UNBLOCK : SIG_BLOCK, &alarm, nullptr);
#endif
}

void one_life(unsigned seed) {
  take_signals(true);
  std::mt19937 random(seed);
  static thread_local AtThreadEnd last;
  (void)&last;
  for (u32 bursts = random() % 4; bursts-- > 0;) {
    for (u32 events = random() % 2 == 0 ? random() % 20 : random() % 3000; events-- > 0;) try_one();
    usleep(random() % 1500);
  }
  shared->threads.fetch_add(1, std::memory_order_relaxed);
  take_signals(false);
}

void write_for(double seconds) {
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigaction(SIGALRM, &action, nullptr);
  const itimerval period{{0, 50}, {0, 50}};
  setitimer(ITIMER_REAL, &period, nullptr);
  take_signals(false);
  const u64 end = sys::now_ns() + static_cast<u64>(seconds * 1e9);
  std::vector<std::thread> keepers;
  for (unsigned k = 0; k < writers; ++k)
    keepers.emplace_back([=] {
      take_signals(false);
      for (unsigned seed = k; sys::now_ns() < end; seed += writers) std::thread(one_life, seed).join();
    });
  for (auto& t : keepers) t.join();
  const itimerval never{};
  setitimer(ITIMER_REAL, &never, nullptr);
}

void consume(Instance& instance, u32 ring) {
  auto source = instance.source(ring);
  if (!source) return;  // given back, or taken anew, since it was listed
  for (;;) {
    auto view = (*source)->next();
    if (!view) {
      ++shared->bad;
      return;
    }
    if (!*view) return;
    const SubBufferView& v = **view;
    shared->lost += v.lost_before;
    abi::EventCursor c(v.sub_buffer + abi::header_size, v.begin, v.end, v.time);
    while (c.next()) {
      u64 sequence, check;
      std::memcpy(&sequence, c.payload().data + 8, 8);
      std::memcpy(&check, c.payload().data + 16, 8);
      u32 place;
      std::memcpy(&place, c.payload().data + 24, 4);
      if (check != sequence * 7919 ||
          std::strcmp(reinterpret_cast<const char*>(c.payload().data) + (place & 0xFFFF), texts[sequence % 4]) != 0)
        ++shared->bad;
      ++shared->read;
    }
    if (c.malformed() != abi::Malformed::no) ++shared->bad;
  }
}

void read_until_done() {
  auto instance = must(Instance::open("crowd"));
  std::mt19937 random(1);
  for (;;) {
    const bool last = shared->done;
    for (const RingInfo& r : instance->rings()) consume(*instance, r.name.ring);
    if (last || random() % 4 == 0) shared->trimmed += instance->trim();
    if (last) return;
    usleep(random() % 3000);
  }
}

void run_crowd(Rings rings_of, bool overwrite, double seconds) {
  char dir[] = "/dev/shm/ringside-crowd-XXXXXX";
  ASSERT_NE(mkdtemp(dir), nullptr);
  setenv("RINGSIDE_ROOT", dir, 1);
  shared = static_cast<Shared*>(mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  new (shared) Shared{};
  InstanceOptions options;
  options.name = "crowd";
  options.buffer_size = 32 << 10;
  options.subbuf_size = 4096;
  options.overwrite = overwrite;
  options.rings = rings_of;
  auto instance = must(Instance::create(options));
  const pid_t reader = fork();
  if (reader == 0) {
    read_until_done();
    _exit(0);
  }
  const pid_t writer = fork();
  if (writer == 0) {
    if (ringside_open("crowd") != 0) _exit(1);
    write_for(seconds);
    ringside_close();
    _exit(0);
  }
  int status = 1;
  for (u32 n = 0; waitpid(writer, &status, WNOHANG) == 0; ++n) {
    must(instance->resize(n % 3 == 0 ? 64 << 10 : 32 << 10, n % 2 == 0 ? 4096 : 8192));
    usleep(5000);
  }
  EXPECT_EQ(status, 0);
  shared->done = true;
  waitpid(reader, &status, 0);
  EXPECT_EQ(status, 0);

  const PastTotals past = instance->past();
  u64 written = past.written, read = past.read, overrun = past.overrun, unread = 0;
  u64 refused = instance->refused() + past.dropped + past.commit_overrun, unfinished = past.unfinished_bytes;
  const auto rings = instance->rings();
  for (const RingInfo& r : rings) {
    const Counters& n = r.counters;
    EXPECT_EQ(n.written, n.read + n.overrun + n.unread) << r.name.ring;
    written += n.written, read += n.read, overrun += n.overrun, unread += n.unread;
    refused += n.dropped + n.commit_overrun, unfinished += n.unfinished_bytes;
  }
  EXPECT_EQ(shared->bad, 0u);
  EXPECT_EQ(unread, 0u);
  EXPECT_EQ(unfinished, 0u);
  EXPECT_EQ(read, shared->read);
  EXPECT_EQ(overrun, shared->lost);
  EXPECT_EQ(shared->tried, written + refused);
  if (overwrite) {
    EXPECT_EQ(past.dropped, 0u);
  }
  std::printf("%llu events of %llu threads, %llu handlers, lost %llu, refused %llu, %zu rings, %llu MiB given back\n",
              static_cast<unsigned long long>(shared->tried), static_cast<unsigned long long>(shared->threads),
              static_cast<unsigned long long>(shared->handlers), static_cast<unsigned long long>(shared->lost),
              static_cast<unsigned long long>(refused), rings.size(), static_cast<unsigned long long>(shared->trimmed >> 20));
  munmap(shared, sizeof *shared);
  instance.reset();
  std::filesystem::remove_all(dir);
}

TEST(Crowd, Overwrite) { run_crowd(Rings::automatic, true, test_seconds(60) / 6); }
TEST(Crowd, Discard) { run_crowd(Rings::automatic, false, test_seconds(60) / 6); }
TEST(Crowd, OverwriteThreadRings) { run_crowd(Rings::thread, true, test_seconds(60) / 6); }
TEST(Crowd, DiscardThreadRings) { run_crowd(Rings::thread, false, test_seconds(60) / 6); }

}  // namespace
}  // namespace ringside::test::crowd_test
