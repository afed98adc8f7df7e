// The instance: made, opened, written by this process and its children, read by others, damaged, cleaned.
#include "instance/instance.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <ringside/abi/event_cursor.hpp>
#include <ringside/trace.hpp>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csetjmp>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <thread>

#include "writer/process.hpp"
#include "instance/ring_source.hpp"
#include "memory_cgroup.hpp"
#include "own_root.hpp"
#include "sanitized.hpp"
#include "seen.hpp"

RINGSIDE_EVENT(unit, number, (u64, n));
RINGSIDE_EVENT(unit, quiet, (u64, n));

namespace ringside::test::instance_test {
namespace {

struct InstanceTest : testing::Test {
  OwnRoot root;
  const std::string& dir = root.path();
  static std::unique_ptr<Instance> make(const std::string& name, u64 size = 1 << 20, bool overwrite = true) {
    InstanceOptions o;
    o.name = name;
    o.buffer_size = size;
    o.overwrite = overwrite;
    o.rings = Rings::thread;
    return must(Instance::create(o));
  }
};

constexpr u32 number_at = 8;  // behind the common fields

Seen read_ring(Source& source) {
  Seen seen;
  read_all(source, seen, number_at);
  EXPECT_EQ(seen.error, "");
  return seen;
}

Seen read_all(Instance& instance) {
  Seen all;
  for (const RingInfo& r : instance.rings()) {
    auto source = must(instance.source(r.name.ring));
    read_all(*source, all, number_at);
    const Counters n = source->counters();
    EXPECT_EQ(n.written, n.read + n.overrun + n.unread);
  }
  EXPECT_EQ(all.error, "");
  return all;
}

// Runs `work` in a child that ends by _exit; returns its status.
template <class F>
int in_child(F work) {
  const pid_t child = fork();
  if (child == 0) {
    work();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

TEST_F(InstanceTest, EventsWrittenHereAreReadHere) {
  auto instance = make("a");
  ASSERT_EQ(ringside_open("a"), 0);
  for (u64 i = 0; i < 100; ++i) unit::number(i);
  const Seen seen = read_all(*instance);
  ASSERT_EQ(seen.numbers.size(), 100u);
  for (u64 i = 0; i < 100; ++i) EXPECT_EQ(seen.numbers[i], i);
  EXPECT_EQ(Instance::list(), std::vector<std::string>{"a"});
  struct stat st {};
  ASSERT_EQ(stat(instance->path().c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0700u);
}

TEST_F(InstanceTest, RefusalsAreSentences) {
  make("a");
  const auto refused = [](const auto& made) {
    EXPECT_FALSE(made);
    return made ? std::pair<int, std::string>() : std::pair(made.error().code.value(), made.error().sentence);
  };
  using Refused = std::pair<int, std::string>;
  InstanceOptions o;
  o.name = "a";
  EXPECT_EQ(refused(Instance::create(o)), Refused(EEXIST, "the instance a exists (`ringside rm a` removes it): File exists"));
  for (const char* name : {"", ".hidden", "no spaces", "a\nb", "caf\xC3\xA9"}) {
    o.name = name;
    const Refused expected(
        EINVAL, "'" + o.name + "' is no name for an instance: use 1 to 63 letters, digits, '-', '_' and '.', the first no '.'");
    EXPECT_EQ(refused(Instance::create(o)), expected);
    EXPECT_EQ(refused(Instance::open(o.name)), expected);
  }
  o.name = "b";
  for (const u32 size : {0u, 2048u, 5000u, 512u << 10}) {
    o.subbuf_size = size;
    EXPECT_EQ(refused(Instance::create(o)), Refused(EINVAL, "a sub-buffer of " + std::to_string(size) +
                                                                " bytes is not possible: use a power of two from 4k to 256k"));
  }
  o.subbuf_size = 4096;
  for (const u64 size : {u64{0}, (u64{64} << 30) + 1}) {
    o.buffer_size = size;
    EXPECT_EQ(refused(Instance::create(o)),
              Refused(EINVAL, "a ring of " + std::to_string(size) + " bytes is not possible: use 1 byte to 64G"));
  }
  o.buffer_size = u64{8} << 30;
  EXPECT_EQ(refused(Instance::create(o)),
            Refused(EINVAL, "a ring of 8589934592 bytes has more than 1048575 sub-buffers of 4096: use larger ones"));
  EXPECT_EQ(refused(Instance::open("missing")),
            Refused(ENOENT, "there is no instance at " + dir + "/missing (`ringside list` shows the instances)"));
  EXPECT_EQ(Instance::list(), std::vector<std::string>{"a"}) << "what was refused left nothing";
}

// The instance as its own maker would leave it: its clock is another processor's, or of a later version.
TEST_F(InstanceTest, AWriterWithoutTheClockIsRefused) {
  constexpr u32 foreign = static_cast<u32>(is_instruction(ClockKind::tsc) ? ClockKind::cntvct : ClockKind::tsc);
  u32 refused = 0;
  for (const u32 kind : {foreign, last_clock_kind + 1}) {
    const std::string name = "a" + std::to_string(kind);
    auto instance = make(name);
    const sys::Fd file(open((instance->path() + "/instance").c_str(), O_RDWR | O_CLOEXEC));
    ASSERT_EQ(pwrite(file.get(), &kind, sizeof kind, offsetof(InstanceControl, clock_kind)), static_cast<ssize_t>(sizeof kind));
    for (u32 n = 1; n <= 2; ++n) {
      EXPECT_EQ(ringside_open(name.c_str()), -EOPNOTSUPP) << kind;
      unit::number(1);
      EXPECT_EQ(instance->without_clock(), n);
      ++refused;
    }
    EXPECT_TRUE(instance->rings().empty()) << "nobody wrote";
  }
  EXPECT_EQ(refused, 4u);
  InstanceOptions o;
  o.name = "b";
  o.clock = static_cast<ClockKind>(foreign);
  const auto made = Instance::create(o);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, std::errc::not_supported);
  auto instance = make("c");
  ASSERT_EQ(ringside_open("c"), 0) << "a refused process may open another instance";
  unit::number(7);
  EXPECT_EQ(read_all(*instance).numbers, std::vector<u64>{7});
}

// The times of the processor's own counter are those of CLOCK_MONOTONIC, after conversion.
TEST_F(InstanceTest, TheProcessorsCounterTellsTheTime) {
  InstanceOptions o;
  o.name = "a";
  o.clock = is_instruction(ClockKind::cntvct) ? ClockKind::cntvct : ClockKind::tsc;
  if (!is_readable_here(static_cast<u32>(o.clock)) || (o.clock == ClockKind::tsc && !tsc_is_invariant()))
    GTEST_SKIP() << "this processor has no counter to trust";
  o.rings = Rings::thread;
  auto instance = must(Instance::create(o));
  ASSERT_EQ(ringside_open("a"), 0);
  const u64 before = sys::now_ns();
  for (u64 i = 0; i < 100; ++i) unit::number(i);
  const u64 after = sys::now_ns(), margin = 10'000'000;  // far above the error of a young calibration
  std::vector<u64> times;
  for (const u64 time : read_all(*instance).times) times.push_back(instance->clock().to_ns(time));
  ASSERT_EQ(times.size(), 100u);
  EXPECT_TRUE(std::is_sorted(times.begin(), times.end()));
  EXPECT_GE(times.front() + margin, before);
  EXPECT_LE(times.back(), after + margin);
}

TEST_F(InstanceTest, ThreadsComeAndGoWithoutLeaks) {
  auto instance = make("a", 64 << 10);
  ASSERT_EQ(ringside_open("a"), 0);
  u64 written = 0;
  const auto mappings = [] {
    std::ifstream maps("/proc/self/maps");
    return std::count(std::istreambuf_iterator<char>(maps), {}, '\n');
  };
  long before = 0;
  for (int round = 0; round < 60; ++round) {
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([] {
        for (u64 i = 0; i < 10; ++i) unit::number(i);
      });
    for (auto& t : threads) t.join();
    written += 40;
    if (round == 10) before = mappings();
    EXPECT_EQ(read_all(*instance).numbers.size(), 40u);
    instance->trim();
  }
  EXPECT_LE(mappings(), before + 8);
  EXPECT_LE(instance->control().nr_rings, 8u + 8u);  // 8: those that are kept for coming threads
  u64 counted = instance->past().written;
  for (const RingInfo& r : instance->rings()) counted += r.counters.written;
  EXPECT_EQ(counted, written);
  EXPECT_EQ(instance->refused(), 0u);
}

// Rings that the process keeps mapped: fresh ones are taken in turn, retired ones once they are read, none after a fork or a
// resize.
TEST_F(InstanceTest, ThreadsTakeKeptRings) {
  auto instance = make("a", 64 << 10);
  ASSERT_EQ(ringside_open("a"), 0);
  u64 next = 0;
  const auto one_thread = [&] { std::thread([&] { unit::number(next++); }).join(); };
  for (int n = 0; n < 20; ++n) one_thread();  // nothing is read: each has a ring of its own
  EXPECT_EQ(instance->rings().size(), 20u);
  EXPECT_LE(instance->control().nr_rings, 20u + 8u);
  EXPECT_EQ(read_all(*instance).numbers.size(), 20u);
  const u64 made = instance->control().nr_rings;
  for (int n = 0; n < 20; ++n) {  // all is read: nothing is made
    one_thread();
    EXPECT_EQ(read_all(*instance).numbers, std::vector<u64>{next - 1});
  }
  EXPECT_EQ(instance->control().nr_rings, made);
  EXPECT_EQ(in_child([&] {
              for (int n = 0; n < 3; ++n) one_thread();
            }),
            0);
  EXPECT_EQ(read_all(*instance).numbers.size(), 3u);
  must(instance->resize(1 << 20, 4096));
  for (int n = 0; n < 12; ++n) one_thread();
  EXPECT_EQ(read_all(*instance).numbers.size(), 12u);
  u64 written = instance->past().written;
  for (const RingInfo& r : instance->rings()) {
    written += r.counters.written;
    if (r.counters.written != 0) {
      EXPECT_NE(r.name.task, "");
    }
  }
  EXPECT_EQ(written, 20u + 20u + 3u + 12u);
  EXPECT_EQ(instance->refused(), 0u);
}

TEST_F(InstanceTest, FirstEventInsideAHandler) {
  auto instance = make("a");
  ASSERT_EQ(ringside_open("a"), 0);
  signal(SIGUSR1, [](int) { unit::number(77); });
  std::thread([] { pthread_kill(pthread_self(), SIGUSR1); }).join();
  signal(SIGUSR1, SIG_DFL);
  EXPECT_EQ(read_all(*instance).numbers, std::vector<u64>{77});
}

TEST_F(InstanceTest, ForkGivesTheChildRingsOfItsOwn) {
  auto instance = make("a");
  ASSERT_EQ(ringside_open("a"), 0);
  unit::number(1);
  EXPECT_EQ(in_child([] { unit::number(2); }), 0);
  unit::number(3);
  const auto rings = instance->rings();  // the parent keeps one for its next thread in between
  ASSERT_EQ(rings.size(), 2u);
  EXPECT_EQ(read_ring(*must(instance->source(rings[0].name.ring))).numbers, (std::vector<u64>{1, 3}));
  EXPECT_EQ(read_ring(*must(instance->source(rings[1].name.ring))).numbers, std::vector<u64>{2});
}

TEST_F(InstanceTest, AKilledWriterLeavesItsCommittedEvents) {
  auto instance = make("a");
  const int status = in_child([] {
    ringside_open("a");
    for (u64 i = 0; i < 1000; ++i) unit::number(i);
    kill(getpid(), SIGKILL);
  });
  EXPECT_TRUE(WIFSIGNALED(status));
  const auto rings = instance->rings();
  ASSERT_EQ(rings.size(), 1u);
  EXPECT_FALSE(rings[0].live);
  EXPECT_FALSE(instance->has_writers());
  EXPECT_EQ(read_all(*instance).numbers.size(), 1000u);
  // The next process reuses the ring.
  EXPECT_EQ(in_child([] {
              ringside_open("a");
              unit::number(5);
            }),
            0);
  EXPECT_EQ(instance->rings().size(), 1u);
  EXPECT_EQ(read_all(*instance).numbers, std::vector<u64>{5});
}

TEST_F(InstanceTest, AnotherProcessSwitchesEvents) {
  auto instance = make("a");
  ASSERT_EQ(ringside_open("a"), 0);
  EXPECT_EQ(must(instance->enable("unit:quiet", false)), 1u);
  unit::quiet(1);
  unit::number(2);
  must(instance->enable("unit:*", false));
  EXPECT_FALSE(unit::number.enabled());
  unit::number(3);
  must(instance->enable("unit:quiet", true));
  unit::quiet(4);
  EXPECT_EQ(read_all(*instance).numbers, (std::vector<u64>{2, 4}));
  EXPECT_FALSE(instance->enable("", true).has_value());
}

TEST_F(InstanceTest, TracingOffAndReset) {
  auto instance = make("a");
  ASSERT_EQ(ringside_open("a"), 0);
  unit::number(1);
  must(instance->tracing(false));
  unit::number(2);
  must(instance->tracing(true));
  unit::number(3);
  EXPECT_EQ(read_all(*instance).numbers, (std::vector<u64>{1, 3}));
  unit::number(4);
  must(instance->reset());
  EXPECT_EQ(read_all(*instance).numbers.size(), 0u);
  unit::number(5);
  EXPECT_EQ(read_all(*instance).numbers, std::vector<u64>{5});
}

TEST_F(InstanceTest, ResizeWhileWritten) {
  auto instance = make("a", 32 << 10);
  ASSERT_EQ(ringside_open("a"), 0);
  unit::number(1);
  must(instance->resize(1 << 20, 4096));
  for (u64 i = 2; i < 30000; ++i) unit::number(i);  // more than the old ring held
  const Seen seen = read_all(*instance);
  EXPECT_EQ(seen.numbers.size(), 29999u);
  EXPECT_EQ(seen.lost, 0u);
  EXPECT_FALSE(instance->resize(0, 4096).has_value());
}

TEST_F(InstanceTest, SnapshotTakesTheContentOut) {
  auto instance = make("a");
  ASSERT_EQ(ringside_open("a"), 0);
  for (u64 i = 0; i < 5000; ++i) unit::number(i);
  const std::string path = must(instance->snapshot());
  unit::number(9);
  EXPECT_EQ(read_all(*instance).numbers, std::vector<u64>{9});
  auto snapshot = must(Instance::open(path));
  EXPECT_EQ(read_all(*snapshot).numbers.size(), 5000u);
  EXPECT_FALSE(snapshot->events().empty());
}

TEST_F(InstanceTest, PeekConsumesNothing) {
  auto instance = make("a");
  ASSERT_EQ(ringside_open("a"), 0);
  for (u64 i = 0; i < 3000; ++i) unit::number(i);
  for (int twice = 0; twice < 2; ++twice) EXPECT_EQ(read_ring(*must(instance->peek(0))).numbers.size(), 3000u);
  EXPECT_EQ(read_all(*instance).numbers.size(), 3000u);
}

// The ring of the first sizes still exists, read and released: a thread that takes it must open it.
TEST_F(InstanceTest, RingsAreReusedAfterResizesBackAndForth) {
  auto instance = make("a");
  ASSERT_EQ(ringside_open("a"), 0);
  u64 next = 0;
  for (int round = 0; round < 20; ++round) {
    std::thread([&] {
      for (int i = 0; i < 100; ++i) unit::number(next++);
      must(instance->resize(round % 2 == 0 ? 64 << 10 : 1 << 20, 4096));
      for (int i = 0; i < 100; ++i) unit::number(next++);
    }).join();
    const Seen seen = read_all(*instance);
    EXPECT_EQ(seen.numbers.size(), 200u) << round;
  }
  EXPECT_EQ(instance->refused(), 0u);
  EXPECT_LE(instance->control().nr_rings, 5u + 8u) << "rings are not used again";  // 8: those that are kept for coming threads
}

// A thread that is killed while it claims a ring must not hide it.
TEST_F(InstanceTest, KilledClaimersHideNoRing) {
  auto instance = make("a", 64 << 10);
  auto* const begun =
      static_cast<std::atomic<u32>*>(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  u32 most = 0;  // threads in a round: each leaves a ring that is not read yet
  for (unsigned round = 0; round < 60; ++round) {
    *begun = 0;
    const pid_t child = fork();
    if (child == 0) {
      ringside_open("a");
      for (;;) std::thread([&] { unit::number((*begun)++); }).join();
    }
    usleep(2000 + round * 211 % 3000);
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    for (const RingInfo& r : instance->rings()) {
      EXPECT_FALSE(r.live);
      if (r.counters.unread != 0) read_ring(*must(instance->source(r.name.ring)));
    }
    instance->trim();
    most = std::max<u32>(most, *begun);
  }
  EXPECT_LE(instance->control().nr_rings, most + 16) << "and those that a process keeps for its next threads";
  munmap(begun, 4096);
}

// While a consumer walks the events handed to it, others must not give their memory back.
TEST_F(InstanceTest, TrimLeavesConsumersAlone) {
  auto instance = make("a");
  ASSERT_EQ(ringside_open("a"), 0);
  for (u64 i = 0; i < 10; ++i) unit::number(i);
  auto source = must(instance->source(0));
  const auto view = must(source->next());
  ASSERT_TRUE(view);
  EXPECT_EQ(in_child([] { must(Instance::open("a"))->trim(); }), 0);
  instance->trim();
  abi::EventCursor c(view->sub_buffer + abi::header_size, view->begin, view->end, view->time);
  u64 events = 0;
  while (c.next()) ++events;
  EXPECT_EQ(events, 10u);
  EXPECT_FALSE(instance->reset().has_value()) << "a reset beside a consumer of the same process";
}

// Forks and jumps out of a handler of SIGSEGV are beyond the thread sanitizer.
#if !RS_TEST_THREADS
// An event that a handler interrupts: the page of its payload is not there yet.
class Interrupted {
 public:
  explicit Interrupted(std::function<void()> handler) : handler_(std::move(handler)) {
    pages_ = static_cast<char*>(mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    struct sigaction action {};
    action.sa_sigaction = [](int, siginfo_t*, void*) {
      mprotect(now_->pages_ + 4096, 4096, PROT_READ | PROT_WRITE);
      now_->handler_();
    };
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    now_ = this;
    sigaction(SIGSEGV, &action, &before_);
  }
  ~Interrupted() {
    sigaction(SIGSEGV, &before_, nullptr);
    munmap(pages_, 8192);
  }
  void write(u64 n) {
    char* const payload = pages_ + 4096 - 8;
    std::memcpy(payload + 8, &n, sizeof n);
    mprotect(pages_ + 4096, 4096, PROT_NONE);
    ringside_write(&unit::ringside_number::Call::event, payload, 16);
  }

 private:
  static inline Interrupted* now_ = nullptr;
  std::function<void()> handler_;
  char* pages_;
  struct sigaction before_ {};
};
#endif

pid_t raw_fork() { return static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0)); }
[[maybe_unused]] int status_of(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

#if !RS_TEST_THREADS
// A handler may fork while the thread it interrupted is in the middle of an event.
TEST_F(InstanceTest, ForkInTheMiddleOfAnEvent) {
  const std::pair<const char*, pid_t (*)()> ways[] = {{"fork", fork}, {"_Fork", _Fork}, {"clone", raw_fork}};
  for (const auto& [name, way] : ways) {
    const auto start = way;
    auto instance = make(name);
    ASSERT_EQ(ringside_open(name), 0);
    unit::number(0);
    static bool child;
    static int failed;
    child = false;
    failed = 0;
    Interrupted event([&] {
      const pid_t pid = start();
      child = pid == 0;
      if (child)
        unit::number(1000);  // into a ring of its own
      else
        failed += status_of(pid) != 0;
    });
    for (u64 round = 0; round < 100; ++round) {
      event.write(2 * round + 1);
      if (child) {
        unit::number(1001);
        _exit(0);
      }
      unit::number(2 * round + 2);
    }
    EXPECT_EQ(failed, 0);
    const Seen parents = read_ring(*must(instance->source(0)));
    ASSERT_EQ(parents.numbers.size(), 201u);
    for (u64 i = 0; i < 201; ++i) EXPECT_EQ(parents.numbers[i], i);
    Seen children = read_all(*instance);
    ASSERT_EQ(children.numbers.size(), 200u);
    std::sort(children.numbers.begin(), children.numbers.end());  // any ring that is free may be a child's second one
    for (u64 i = 0; i < 200; ++i) EXPECT_EQ(children.numbers[i], 1000 + i / 100);
    EXPECT_EQ(instance->refused(), 0u);
    ringside_close();
  }
}
#endif

// "17 to 18 % of 200 children lost all 50": the state of the parent's thread does not affect the child.
TEST_F(InstanceTest, ChildrenOfABusyParentLoseNothing) {
  auto instance = make("a", 64 << 10);
  ASSERT_EQ(ringside_open("a"), 0);
  for (u64 round = 0; round < 200; ++round) {
    unit::number(0);
    const pid_t child = round % 2 == 0 ? fork() : raw_fork();
    if (child == 0) {
      for (u64 i = 0; i < 50; ++i) unit::number(1);
      _exit(0);
    }
    int status = 0;
    while (waitpid(child, &status, WNOHANG) == 0) unit::number(0);
    ASSERT_EQ(status, 0);
    u64 ones = 0;
    for (const RingInfo& r : instance->rings())
      for (const u64 n : read_ring(*must(instance->source(r.name.ring))).numbers) ones += n;
    ASSERT_EQ(ones, 50u) << "child " << round;
  }
  EXPECT_EQ(instance->refused(), 0u);
}

#if !RS_TEST_THREADS
// A handler that leaves by siglongjmp costs the event that it interrupted, and no other; its own events stay.
TEST_F(InstanceTest, LongjmpOutOfAnEventCostsThatEvent) {
  auto instance = make("a");
  ASSERT_EQ(ringside_open("a"), 0);
  static sigjmp_buf back;
  static u64 round;
  Interrupted event([] {
    unit::number(1000 + round);
    siglongjmp(back, 1);
  });
  for (round = 0; round < 100; ++round) {
    unit::number(round);
    if (sigsetjmp(back, 1) == 0) event.write(7777);
  }
  ringside_close();
  std::vector<u64> all = read_all(*instance).numbers;
  std::sort(all.begin(), all.end());
  ASSERT_EQ(all.size(), 200u);
  for (u64 i = 0; i < 100; ++i) {
    EXPECT_EQ(all[i], i);
    EXPECT_EQ(all[100 + i], 1000 + i);
  }
  EXPECT_EQ(instance->refused(), 100u) << "each abandoned event is counted";
}

// The same from a deeper frame than that of the event that follows, and through two handlers.
TEST_F(InstanceTest, LongjmpThroughNestedEvents) {
  auto instance = make("a");
  ASSERT_EQ(ringside_open("a"), 0);
  static sigjmp_buf back;
  static Interrupted* again;
  static int depth;
  Interrupted event([] {
    if (++depth < 3) again->write(7777);
    siglongjmp(back, 1);
  });
  again = &event;
  const std::function<void(int)> deep = [&](int frames) {
    volatile char room[512];
    for (size_t at = 0; at < sizeof room; ++at) room[at] = static_cast<char>(at);
    if (frames == 0)
      event.write(7777);
    else
      deep(frames - 1 + room[0]);
  };
  static u64 i;
  for (i = 0; i < 30; ++i) {
    depth = 0;
    if (sigsetjmp(back, 1) == 0) deep(static_cast<int>(i) % 10);
    unit::number(i);
  }
  ringside_close();
  std::vector<u64> all = read_all(*instance).numbers;
  std::sort(all.begin(), all.end());
  ASSERT_EQ(all.size(), 30u);
  for (u64 k = 0; k < 30; ++k) EXPECT_EQ(all[k], k);
  EXPECT_EQ(instance->refused(), 90u);
}
#endif

// "tmpfs of 16 MiB, a writer, fill it with dd: SIGBUS." A page that the file system cannot give is refused beforehand, and
// counted.
TEST_F(InstanceTest, AFullFileSystemRefusesEventsAndKillsNoWriter) {
  for (const Rings rings : {Rings::thread, Rings::automatic}) {
    const int status = in_child([&] {
      if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
          mount("tmpfs", dir.c_str(), "tmpfs", 0, "size=6m,mode=0700") != 0)
        _exit(77);
      InstanceOptions o;
      o.name = "a";
      o.buffer_size = 1 << 20;
      o.rings = rings;
      auto instance = must(Instance::create(o));
      if (ringside_open("a") != 0) _exit(1);
      u64 tried = 0;
      const auto write = [&](u64 count) {
        for (u64 i = 0; i < count; ++i) unit::number(tried++);
      };
      write(100);
      const auto fill = [&] {
        std::ofstream file(dir + "/full", std::ios::app);
        const std::string some(4096, 'x');
        while (file.write(some.data(), 4096).flush()) {
        }
      };
      fill();
      write(200'000);  // more than a ring holds
      std::thread([&] { write(1000); }).join();
      if (in_child([&] { write(1000); }) != 0) _exit(2);
      tried += 1000;
      if (instance->refused() < 100'000) _exit(3);
      std::filesystem::remove(dir + "/full");
      const u64 before = instance->refused();
      write(200'000);
      if (instance->refused() > before + 1024) _exit(4);  // the writer looks for a ring again at each 1,024th event
      // Read events give their memory back: the writer asks again before it uses it.
      (void)read_all(*instance);
      instance->trim();
      fill();
      write(200'000);
      u64 counted = instance->refused();
      for (const RingInfo& r : instance->rings()) counted += r.counters.written + r.counters.dropped;
      _exit(counted + instance->past().written == tried ? 0 : 5);
    });
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) GTEST_SKIP() << "no mount namespace here (not root?)";
    EXPECT_EQ(status, 0) << (rings == Rings::thread ? "thread" : "cpu");
  }
}

// Found by the storm of edges: a ring that cannot be recovered from its dead owner while it is read is skipped for the next
// one, whose memory is not known to exist. There is room for its control words and for nothing else.
TEST_F(InstanceTest, MemoryIsCheckedAnewForEachRingThatIsTried) {
  const int status = in_child([&] {
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("tmpfs", dir.c_str(), "tmpfs", 0, "size=6m,mode=0700") != 0)
      _exit(77);
    auto instance = make("a");
    if (ringside_open("a") != 0) _exit(1);
    int go[2];
    if (pipe(go) != 0) _exit(2);
    const pid_t second = fork();
    if (second == 0) {
      unit::number(1);
      char c;
      (void)!::read(go[0], &c, 1);
      _exit(0);
    }
    while (instance->rings().empty()) usleep(1000);
    if (in_child([] { unit::number(2); }) != 0) _exit(3);  // its ring is the second one
    if (instance->rings().size() != 2) _exit(4);
    must(instance->source(1))->next();
    instance->trim();
    if (instance->rings().size() != 1) _exit(5);
    (void)!::write(go[1], "x", 1);
    waitpid(second, nullptr, 0);
    const auto reader = must(instance->source(0));
    for (int k = 0; k < 2; ++k) must(reader->next());
    auto ring = must(view_ring(sys::Fd(open(instance->path().c_str(), O_PATH)).get(), 0,
                               must(Members::open(sys::Fd(open(instance->path().c_str(), O_PATH)).get()))));
    ring.ring().control->nest = 1;  // as after a death inside an event
    if (instance->rings()[0].live) _exit(6);
    std::ofstream file(dir + "/full");
    const std::string some(4096, 'x');
    while (file.write(some.data(), 4096).flush()) {
    }
    u64 tried = 0;
    for (u64 size = std::filesystem::file_size(dir + "/full"), k = 0; k < 6;
         ++k, size -= 4096) {  // a page more each time: the first is for control words
      std::filesystem::resize_file(dir + "/full", size);
      for (int n = 0; n < 2048; ++n, ++tried) unit::number(3);  // the writer looks for a ring now and then
    }
    u64 counted = instance->refused();
    for (const RingInfo& r : instance->rings())
      if (r.live) counted += r.counters.written + r.counters.dropped;
    if (instance->refused() < 1000) _exit(7);
    _exit(counted == tried ? 0 : 8);
  });
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) GTEST_SKIP() << "no mount namespace here (not root?)";
  EXPECT_EQ(status, 0);
}

#if !RS_TEST_SANITIZED  // a sanitizer's run-time would take the memory that the test leaves to the program
// A process in a memory cgroup that is smaller than its ring: beyond the limit the kernel would kill it.
TEST_F(InstanceTest, AMemoryCgroupsLimitRefusesEventsAndKillsNoWriter) {
  char memory[] = "/dev/shm/ringside-unit-XXXXXX";  // the pages of another file system would be written to its disk
  if (mkdtemp(memory) == nullptr) GTEST_SKIP() << "there is no /dev/shm";
  const struct Remove {
    std::string path;
    ~Remove() { std::filesystem::remove_all(path); }
  } remove{memory};
  setenv("RINGSIDE_ROOT", memory, 1);
  for (const Rings rings : {Rings::thread, Rings::automatic}) {
    const test::MemoryCgroup group(24 << 20);
    if (group.path.empty()) GTEST_SKIP() << test::no_memory_cgroup;
    const std::string name = std::string("a") + (rings == Rings::thread ? "thread" : "cpu");
    InstanceOptions o;
    o.name = name;
    o.buffer_size = 256 << 20;
    o.rings = rings;
    auto instance = must(Instance::create(o));
    u64* const tried = static_cast<u64*>(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    const int status = in_child([&] {
      if (!group.enter()) _exit(77);
      if (ringside_open(name.c_str()) != 0) _exit(1);
      for (; *tried < 2'000'000; ++*tried) unit::number(*tried);
      const std::string own(512 << 10, 'x');  // leaves something for the program
      if (own.back() != 'x') _exit(2);
    });
    u64 counted = instance->refused(), written = 0;
    for (const RingInfo& r : instance->rings())
      counted += r.counters.written + r.counters.dropped, written += r.counters.written;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
      GTEST_SKIP() << "this user's processes may not be moved to another cgroup";
    EXPECT_EQ(status, 0) << name;
    EXPECT_EQ(counted, *tried) << name;
    EXPECT_GT(counted - written, 500'000u) << name << ": nothing was refused";
    munmap(tried, 4096);
    must(Instance::remove(name, true));
  }
}
#endif

// Threads go on writing while another one changes the instance: an event is stored correctly in one of them, or is refused.
template <class Count>
void switch_instances(Count count) {
  std::atomic<bool> over{false};
  std::vector<std::thread> writers;
  for (int t = 0; t < 4; ++t)
    writers.emplace_back([&over] {
      while (!over.load(std::memory_order_relaxed)) {
        unit::number(1);
        unit::quiet(2);
      }
    });
  for (int i = 0; i < 600; ++i) {
    ASSERT_EQ(ringside_open(i % 2 == 0 ? "a" : "b"), 0);
    if (i % 8 < 2) usleep(300);
    ringside_close();
  }
  over = true;
  for (auto& w : writers) w.join();
  count();
}

TEST_F(InstanceTest, OpenAndCloseWhileOthersWrite) {
  for (const Rings rings : {Rings::thread, Rings::automatic}) {
    InstanceOptions o;
    o.rings = rings;
    o.buffer_size = 256 << 10;
    std::vector<std::unique_ptr<Instance>> both;
    for (const char* name : {"a", "b"}) {
      o.name = name;
      both.push_back(must(Instance::create(o)));
    }
    // An event has another number in each.
    const auto register_first = [](const char* name, ringside_event& first) {
      return in_child([&] {
        forget_events();
        if (ringside_open(name) != 0 || ringside_register(&first) != 0) _exit(1);
      });
    };
    ASSERT_EQ(register_first("a", unit::ringside_quiet::Call::event), 0);
    ASSERT_EQ(register_first("b", unit::ringside_number::Call::event), 0);
    switch_instances([&] {
      for (auto& instance : both) {
        std::map<u32, u64> payload_of;
        for (const EventInfo& e : instance->events())
          if (e.system == "unit") payload_of[e.id] = e.name == "number" ? 1 : 2;
        for (const RingInfo& r : instance->rings()) {
          auto source = must(instance->source(r.name.ring));
          for (auto view = must(source->next()); view; view = must(source->next())) {
            abi::EventCursor c(view->sub_buffer + abi::header_size, view->begin, view->end, view->time);
            while (c.next()) {
              u16 id;
              u64 n;
              std::memcpy(&id, c.payload().data, sizeof id);
              std::memcpy(&n, c.payload().data + 8, sizeof n);
              ASSERT_EQ(payload_of.count(id), 1u) << id;
              ASSERT_EQ(n, payload_of[id]) << "of " << id;
            }
          }
        }
      }
    });
    both.clear();
    for (const char* name : {"a", "b"}) must(Instance::remove(name, true));
  }
}

// No fork handler runs in such a child: the kernel wipes the page that identifies the attached process.
TEST_F(InstanceTest, RawForkGetsARingOfItsOwn) {
  auto instance = make("a");
  ASSERT_EQ(ringside_open("a"), 0);
  unit::number(1);
  const pid_t child = raw_fork();
  if (child == 0) {
    unit::number(2);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  unit::number(3);
  EXPECT_EQ(read_ring(*must(instance->source(0))).numbers, (std::vector<u64>{1, 3}));
  const Seen childs = read_ring(*must(instance->source(1)));
  EXPECT_EQ(childs.numbers, std::vector<u64>{2});
  EXPECT_EQ(instance->rings()[1].name.pid, child);
}

TEST_F(InstanceTest, TheLockOfADeadRawForkIsTakenOver) {
  auto instance = make("a");
  ASSERT_EQ(ringside_open("a"), 0);
  unit::number(1);
  must(instance->source(0));  // this process has looked up its identity for the lock
  const pid_t child = raw_fork();
  if (child == 0) {
    const auto source = instance->source(0);
    _exit(source ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(instance->source(0).has_value());
}

TEST_F(InstanceTest, OneConsumerAtATimeAndADeadOneIsReplaced) {
  auto instance = make("a");
  ASSERT_EQ(ringside_open("a"), 0);
  unit::number(1);
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    auto own = must(Instance::open("a"));
    auto source = must(own->source(0));
    (void)!::write(ready[1], "x", 1);
    for (;;) pause();
  }
  char x;
  ASSERT_EQ(::read(ready[0], &x, 1), 1);
  auto second = instance->source(0);
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code, std::errc::device_or_resource_busy);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_EQ(read_ring(*must(instance->source(0))).numbers.size(), 1u);
  close(ready[0]);
  close(ready[1]);
}

// Writers that found one empty ring before and after a resize made its files longer and shorter under each other's mappings.
TEST_F(InstanceTest, ARingsFilesAreSizedByItsClaimerAndNeverShorter) {
  auto instance = make("a");
  const sys::Fd at(open(instance->path().c_str(), O_PATH));
  const Geometry large(8192, 10, 0), small(4096, 4, 0);
  const std::string file = instance->path() + "/per_cpu/cpu7/trace_pipe_raw";
  const auto map = [&](const Geometry& g, Files files) {
    MappedRing ring = map_ring(at.get(), 7, g, files);
    const bool mapped = static_cast<bool>(ring);
    unmap_ring(ring);
    return mapped;
  };
  EXPECT_FALSE(map(small, Files::there));
  EXPECT_TRUE(map(large, Files::ours));
  const auto size = std::filesystem::file_size(file);
  EXPECT_EQ(size, large.data_size());
  EXPECT_TRUE(map(small, Files::ours));
  EXPECT_TRUE(map(small, Files::there));
  EXPECT_EQ(std::filesystem::file_size(file), size);
  std::filesystem::resize_file(file, small.data_size());
  EXPECT_FALSE(map(large, Files::there));
  EXPECT_EQ(std::filesystem::file_size(file), small.data_size());
}

// Events that were handed to a reader but not consumed go to the next reader: a recorder may be killed, or its disk may be
// full, before they are stored.
TEST_F(InstanceTest, TheNextReaderGetsTheUnconsumedEventsOfAKilledOne) {
  for (const bool mapped : {false, true}) {
    SCOPED_TRACE(mapped ? "mapped" : "not mapped");
    const std::string name = mapped ? "b" : "a";
    auto instance = make(name);
    ASSERT_EQ(ringside_open(name.c_str()), 0);
    for (u64 n = 0; n < 4000; ++n) unit::number(n);
    auto looked = must(view_ring(sys::Fd(open(instance->path().c_str(), O_PATH)).get(), 0,
                                 must(Members::open(sys::Fd(open(instance->path().c_str(), O_PATH)).get()))));
    looked.ring().control->mapped = mapped ? 1 : 0;
    EXPECT_EQ(WTERMSIG(in_child([&] {
                auto source = must(must(Instance::open(name))->source(0));
                for (int k = 0; k < 2; ++k) must(source->next());
                raise(SIGKILL);
              })),
              SIGKILL);
    const u64 consumed = instance->rings()[0].counters.read;
    EXPECT_GT(consumed, 0u);
    {
      auto source = must(instance->source(0));
      must(source->next());
      source->put_back();
    }
    EXPECT_EQ(instance->rings()[0].counters.read, consumed);
    u64 two = 0;
    {
      auto source = must(instance->source(0));
      must(source->next());
      source->consume();
      two = source->counters().read;
      EXPECT_GT(two, consumed);
      must(source->next());
    }
    EXPECT_GT(instance->rings()[0].counters.read, two) << "closed: everything handed out is consumed";
    const u64 three = instance->rings()[0].counters.read;
    const Seen rest = read_all(*instance);
    EXPECT_EQ(rest.lost, 0u);
    ASSERT_FALSE(rest.numbers.empty());
    EXPECT_EQ(rest.numbers.front(), three);
    EXPECT_EQ(rest.numbers.back(), 3999u);
    EXPECT_EQ(rest.numbers.size(), 4000 - three);
    ringside_close();
  }
}

TEST_F(InstanceTest, WaitersWakeAndTimeOut) {
  auto instance = make("a");
  EXPECT_FALSE(must(instance->wait(0, std::chrono::milliseconds(20))));
  const pid_t child = fork();
  if (child == 0) {
    ringside_open("a");
    for (u64 i = 0; i < 300; ++i) {
      unit::number(i);
      usleep(500);
    }
    _exit(0);
  }
  u64 events = 0;
  while (events < 300 && !HasFailure()) {
    EXPECT_TRUE(must(instance->wait(0, std::chrono::seconds(60))));  // each event wakes; none is missed
    events += read_all(*instance).numbers.size();
  }
  EXPECT_EQ(events, 300u);
  waitpid(child, nullptr, 0);
}

TEST_F(InstanceTest, IdleRingsGiveTheirMemoryBackAndGoOn) {
  auto instance = make("a");
  ASSERT_EQ(ringside_open("a"), 0);
  u64 next = 0;
  for (int round = 0; round < 50; ++round) {
    for (int i = 0; i < 10; ++i) unit::number(next++);
    EXPECT_EQ(read_all(*instance).numbers.size(), 10u);
    const u64 before = instance->rings()[0].counters.resident_bytes;
    EXPECT_GT(instance->trim(), 0u) << round;
    EXPECT_LT(instance->rings()[0].counters.resident_bytes, before);
  }
  const Counters n = instance->rings()[0].counters;
  EXPECT_EQ(n.written, next);
  EXPECT_EQ(n.read, next);
}

// Killed between marking a ring and releasing its memory: the next trim goes on there, and the ring is taken again.
TEST_F(InstanceTest, TheNextTrimFinishesAKilledOne) {
  auto instance = make("a");
  const auto writes = [] {
    ringside_open("a");
    for (u64 i = 0; i < 1000; ++i) unit::number(i);
  };
  ASSERT_EQ(in_child(writes), 0);
  ASSERT_EQ(read_all(*instance).numbers.size(), 1000u);
  const sys::Fd control(open((instance->path() + "/per_cpu/cpu0/ring").c_str(), O_WRONLY | O_CLOEXEC));
  const u64 none = 0;
  ASSERT_EQ(pwrite(control.get(), &none, sizeof none, offsetof(Control, magic)), static_cast<ssize_t>(sizeof none));
  (void)instance->trim();
  EXPECT_TRUE(instance->rings().empty());
  ASSERT_EQ(in_child(writes), 0);
  EXPECT_EQ(instance->rings().size(), 1u);
  EXPECT_EQ(instance->rings()[0].name.ring, 0u);
  EXPECT_EQ(read_all(*instance).numbers.size(), 1000u);
}

TEST_F(InstanceTest, TruncatedFilesAreErrors) {
  auto instance = make("a");
  ASSERT_EQ(in_child([] {
              ringside_open("a");
              for (u64 i = 0; i < 20000; ++i) unit::number(i);
            }),
            0);
  const std::string ring = instance->path() + "/per_cpu/cpu0";
  auto source = must(instance->source(0));
  ASSERT_EQ(truncate((ring + "/trace_pipe_raw").c_str(), 16384), 0);
  bool refused = false;
  volatile u8 byte = 0;
  for (int i = 0; i < 1000 && !refused; ++i) {
    auto view = source->next();
    if (!view) {
      refused = true;
    } else if (!*view) {
      break;
    } else {
      byte = (*view)->sub_buffer[16 + (*view)->begin];  // no SIGBUS
    }
  }
  EXPECT_TRUE(refused);
  (void)byte;
  source.reset();
  EXPECT_FALSE(instance->source(0).has_value());
  ASSERT_EQ(truncate((ring + "/ring").c_str(), 100), 0);
  EXPECT_FALSE(instance->source(0).has_value());
  ASSERT_EQ(truncate((instance->path() + "/instance").c_str(), 100), 0);
  EXPECT_FALSE(Instance::open("a").has_value());
}

TEST_F(InstanceTest, BudgetIsKeptAndCounted) {
  InstanceOptions o;
  o.name = "a";
  o.buffer_size = 64 << 10;
  o.budget = 200 << 10;  // enough for two full rings
  o.rings = Rings::thread;
  auto instance = must(Instance::create(o));
  ASSERT_EQ(ringside_open("a"), 0);
  std::vector<std::thread> threads;
  std::atomic<int> written{0};
  std::atomic<bool> go{false};
  for (int t = 0; t < 6; ++t) {
    threads.emplace_back([&] {
      for (u64 i = 0; i < 5000; ++i) unit::number(i);
      ++written;
      while (!go) usleep(100);
    });
    while (written <= t) usleep(100);  // the ring is full before the next one asks
  }
  u64 resident = 0;
  for (const RingInfo& r : instance->rings()) resident += r.counters.resident_bytes;
  EXPECT_LT(resident, o.budget + (80 << 10));  // the full rings, plus one that was begun while there was room
  go = true;
  for (auto& t : threads) t.join();
  const Seen seen = read_all(*instance);
  EXPECT_EQ(seen.numbers.size() + seen.lost + instance->refused(), 6u * 5000);
  EXPECT_GT(instance->refused(), 0u);
}

// Unwritten parts take no memory, and are not counted.
TEST_F(InstanceTest, BudgetCountsResidentMemory) {
  InstanceOptions o;
  o.name = "a";
  o.buffer_size = 8 << 20;
  o.budget = 32 << 20;  // four full rings
  o.rings = Rings::thread;
  auto instance = must(Instance::create(o));
  ASSERT_EQ(ringside_open("a"), 0);
  std::atomic<int> written{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 50; ++t)
    threads.emplace_back([&] {
      unit::number(1);
      ++written;
      while (written < 50) usleep(100);
    });
  for (auto& t : threads) t.join();
  EXPECT_EQ(read_all(*instance).numbers.size(), 50u);
  EXPECT_EQ(instance->refused(), 0u);
}

// A plug-in with events of its own may be closed: the library keeps its copy of them.
TEST_F(InstanceTest, PluginsAreClosedAndOpenedAgain) {
  auto instance = make("a");
  setenv("RINGSIDE_INSTANCE", "a", 1);
  for (u64 round = 1; round <= 3; ++round) {
    void* const plugin = dlopen(RINGSIDE_BUILD_DIR "/tests/plugin.so", RTLD_NOW);
    ASSERT_NE(plugin, nullptr) << dlerror();
    const auto work = reinterpret_cast<void (*)(unsigned long)>(dlsym(plugin, "plugin_work"));
    ASSERT_NE(work, nullptr);
    work(2 * round);
    std::thread([&] { work(2 * round + 1); }).join();
    EXPECT_EQ(dlclose(plugin), 0);
    EXPECT_EQ(read_all(*instance).numbers.size(), 2u);
  }
  unsetenv("RINGSIDE_INSTANCE");
}

TEST_F(InstanceTest, RemoveIsRefusedWhileThereAreWriters) {
  make("a");
  ASSERT_EQ(ringside_open("a"), 0);
  unit::number(1);
  EXPECT_EQ(Instance::remove("a").error().code, std::errc::device_or_resource_busy);
  ringside_close();
  EXPECT_TRUE(Instance::remove("a").has_value());
  EXPECT_TRUE(Instance::list().empty());
  EXPECT_FALSE(Instance::remove("a").has_value());
}

}  // namespace
}  // namespace ringside::test::instance_test
