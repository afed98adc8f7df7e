// An instance with a ring for each CPU: written by threads, children and handlers, read, resized, corrupted.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <ringside/abi/event_cursor.hpp>
#include <ringside/base/sanitizers.hpp>
#include <ringside/trace.hpp>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>

#include "writer/cpu_rings.hpp"
#include "instance/instance.hpp"
#include "writer/ring_file.hpp"
#include "own_root.hpp"

RINGSIDE_EVENT(percpu, number, (u64, n));

extern "C" {
[[gnu::weak]] extern const ptrdiff_t __rseq_offset;
}

namespace ringside::cpu_instance_test {
namespace {

struct CpuInstance : testing::Test {
  test::OwnRoot root{true};
  const std::string& dir = root.path();
  void SetUp() override {
    if (why_not_cpu_rings() != RingsBecause::can)
      GTEST_SKIP() << "no rings of CPUs here, " << to_string(why_not_cpu_rings());
  }
  static std::unique_ptr<Instance> make(u64 size = 1 << 20, bool overwrite = true) {
    InstanceOptions o;
    o.name = "a";
    o.buffer_size = size;
    o.subbuf_size = 4096;
    o.overwrite = overwrite;
    o.rings = Rings::cpu;
    auto instance = must(Instance::create(o));
    EXPECT_EQ(ringside_open("a"), 0);
    return instance;
  }
};

struct Seen {
  u64 events = 0, lost = 0;
  std::map<u64, u64> numbers;  // how often each occurs
  std::map<i32, u64> tids;
};

void read_ring(Source& source, Seen& seen) {
  while (auto view = must(source.next())) {
    seen.lost += view->lost_before;
    abi::EventCursor c(view->sub_buffer + abi::header_size, view->begin, view->end, view->time);
    while (c.next()) {
      u64 n;
      i32 tid;
      std::memcpy(&n, c.payload().data + 8, 8);
      std::memcpy(&tid, c.payload().data + 4, 4);
      ++seen.numbers[n];
      ++seen.tids[tid];
      ++seen.events;
    }
    EXPECT_EQ(c.malformed(), abi::Malformed::no);
  }
}

Seen read_all(Instance& instance) {
  Seen seen;
  for (const RingInfo& r : instance.rings()) {
    auto source = must(instance.source(r.name.ring));
    read_ring(*source, seen);
  }
  return seen;
}

void pin_to(u32 cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  ASSERT_EQ(sched_setaffinity(0, sizeof set, &set), 0);
}
struct KeepAffinity {
  cpu_set_t before;
  KeepAffinity() { sched_getaffinity(0, sizeof before, &before); }
  ~KeepAffinity() { sched_setaffinity(0, sizeof before, &before); }
};

template <class Child>
int wait_for(pid_t child, Child run) {
  if (child == 0) {
    run();
    _exit(0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return status;
}

TEST_F(CpuInstance, HasARingForEachPossibleCpuFromTheStart) {
  auto instance = make();
  const auto rings = instance->rings();
  ASSERT_EQ(rings.size(), possible_cpus());
  for (u32 cpu = 0; cpu < rings.size(); ++cpu) {
    EXPECT_EQ(rings[cpu].name.ring, cpu);
    EXPECT_EQ(rings[cpu].name.cpu, static_cast<i32>(cpu));
    EXPECT_EQ(rings[cpu].name.task, "cpu" + std::to_string(cpu));
    EXPECT_TRUE(rings[cpu].live);
    EXPECT_EQ(rings[cpu].counters.written, 0u);
  }
  EXPECT_EQ(instance->rings_because(), RingsBecause::can);
}

TEST_F(CpuInstance, AnEventIsInTheRingOfTheCpuThatItsThreadRanOn) {
  const KeepAffinity keep;
  auto instance = make();
  cpu_set_t mine = keep.before;
  for (u32 cpu = 0; cpu < possible_cpus(); ++cpu) {
    if (!CPU_ISSET(cpu, &mine)) continue;
    pin_to(cpu);
    percpu::number(cpu);
    Seen seen;
    auto source = must(instance->source(cpu));
    read_ring(*source, seen);
    EXPECT_EQ(seen.numbers[cpu], 1u) << cpu;
  }
}

TEST_F(CpuInstance, ThreadsAndChildrenShareTheRings) {
  auto instance = make(8 << 20);
  std::vector<std::thread> threads;
  for (u64 t = 0; t < 8; ++t)
    threads.emplace_back([] {
      for (u64 i = 0; i < 1000; ++i) percpu::number(1);
    });
  for (auto& t : threads) t.join();
  EXPECT_EQ(wait_for(fork(), [] { for (u64 i = 0; i < 500; ++i) percpu::number(2); }), 0);
  EXPECT_EQ(wait_for(static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0)),
                     [] {
                       for (u64 i = 0; i < 500; ++i) percpu::number(3);
                     }),
            0);
  EXPECT_EQ(wait_for(_Fork(), [] { for (u64 i = 0; i < 500; ++i) percpu::number(4); }), 0);
  EXPECT_EQ(instance->rings().size(), possible_cpus());
  Seen seen = read_all(*instance);
  EXPECT_EQ(seen.numbers[1], 8000u);
  EXPECT_EQ(seen.numbers[2], 500u);
  EXPECT_EQ(seen.numbers[3], 500u);
  EXPECT_EQ(seen.numbers[4], 500u);
  EXPECT_EQ(seen.tids.size(), 11u) << "each has its own thread's number";
  EXPECT_EQ(instance->refused(), 0u);
  EXPECT_EQ(instance->threads().size(), 11u);
  for (const RingName& thread : instance->threads()) EXPECT_EQ(seen.tids.count(thread.tid), 1u) << thread.task;
}

// adversary.md, 2: fork while the parent goes on writing; 17 to 18 % of such children lost all.
TEST_F(CpuInstance, ChildrenOfABusyParentLoseNothing) {
  auto instance = make(8 << 20);
  std::atomic<bool> stop{false};
  std::atomic<u64> written{0}, most{0};  // all of them fit, however long the children take
  std::thread busy([&] {
    while (!stop) {
      if (written == most || written % 64 == 0) usleep(50);
      if (written == most) continue;
      percpu::number(1);
      ++written;
    }
  });
  for (int child = 0; child < 100; ++child) {
    most += 2000;
    percpu::number(2);
    ASSERT_EQ(wait_for(fork(), [] { for (u64 i = 0; i < 50; ++i) percpu::number(3); }), 0);
  }
  stop = true;
  busy.join();
  Seen seen = read_all(*instance);
  EXPECT_EQ(seen.lost, 0u);
  EXPECT_EQ(seen.numbers[1], written.load());
  EXPECT_EQ(seen.numbers[2], 100u);
  EXPECT_EQ(seen.numbers[3], 5000u);
  EXPECT_EQ(instance->refused(), 0u);
}

#if !RINGSIDE_SANITIZED  // there the process is copied
// A program with a large heap opened its instance 3 ms later for each 100 MB: a copy of its page tables, and a fault for each
// page that it wrote then.
TEST_F(CpuInstance, AskingTheKernelCopiesNoMemory) {
  constexpr size_t size = 32 << 20;
  auto* const heap = static_cast<volatile u8*>(mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  const auto touch_all = [&] {
    for (size_t at = 0; at < size; at += 4096) heap[at] = 1;
  };
  const auto faults = [] {
    rusage used{};
    getrusage(RUSAGE_THREAD, &used);
    return used.ru_minflt;
  };
  madvise(const_cast<u8*>(heap), size, MADV_NOHUGEPAGE);
  touch_all();
  const long before = faults();
  EXPECT_EQ(why_not_cpu_rings(), RingsBecause::can);
  touch_all();
  EXPECT_LT(faults() - before, 1000);
  munmap(const_cast<u8*>(heap), size);
}
#endif

#if !RINGSIDE_SANITIZED  // sanitizers have a vfork of their own
// The child runs on its parent's thread, and the kernel would never abort its sequences.
TEST_F(CpuInstance, AChildOfVforkHasARingOfItsOwn) {
  auto instance = make();
  percpu::number(1);
  const pid_t child = vfork();
  if (child == 0) {
    for (int i = 0; i < 3; ++i) percpu::number(2);
    _exit(0);
  }
  ASSERT_GT(child, 0);
  waitpid(child, nullptr, 0);
  percpu::number(3);
  Seen seen = read_all(*instance);
  EXPECT_EQ(seen.numbers[1], 1u);
  EXPECT_EQ(seen.numbers[2], 3u);
  EXPECT_EQ(seen.numbers[3], 1u);
  EXPECT_EQ(seen.tids[child], 3u);
  EXPECT_EQ(instance->refused(), 0u);
  const auto rings = instance->rings();
  ASSERT_EQ(rings.size(), possible_cpus() + 1);
  EXPECT_FALSE(rings.back().live) << "its parent has given it back";
  EXPECT_EQ(rings.back().counters.written, 3u);
}

// Signals are off while the rings change hands, and no longer.
TEST_F(CpuInstance, AVforkLeavesTheSignalMaskAsItIs) {
  auto instance = make();
  static const auto mask_is = [](std::initializer_list<int> blocked) {
    sigset_t now;
    sigprocmask(SIG_BLOCK, nullptr, &now);
    for (int signal = 1; signal <= SIGRTMAX; ++signal)
      if (sigismember(&now, signal) != (std::find(blocked.begin(), blocked.end(), signal) != blocked.end() ? 1 : 0))
        return false;
    return true;
  };
  static bool same;  // no local variable, which vfork might change
  sigset_t some, before;
  sigemptyset(&some);
  for (const int signal : {SIGUSR2, SIGRTMAX}) sigaddset(&some, signal);
  sigprocmask(SIG_SETMASK, &some, &before);
  const pid_t child = vfork();
  if (child == 0) {
    same = mask_is({SIGUSR2, SIGRTMAX});
    sigaddset(&some, SIGHUP);
    sigprocmask(SIG_SETMASK, &some, nullptr);
    const pid_t grandchild = vfork();
    if (grandchild == 0) _exit(mask_is({SIGUSR2, SIGRTMAX, SIGHUP}) ? 0 : 1);
    int status = 1;
    waitpid(grandchild, &status, 0);
    _exit(same && status == 0 && mask_is({SIGUSR2, SIGRTMAX, SIGHUP}) ? 0 : 1);
  }
  EXPECT_TRUE(mask_is({SIGUSR2, SIGRTMAX}));
  sigprocmask(SIG_SETMASK, &before, nullptr);
  EXPECT_EQ(wait_for(child, [] {}), 0);
}

TEST_F(CpuInstance, AFailedVforkKeepsItsErrno) {
  auto instance = make();
  ASSERT_EQ(wait_for(fork(), [] {
              if (setuid(65534) != 0) _exit(0);
              const rlimit none{0, 0};
              setrlimit(RLIMIT_NPROC, &none);
              errno = 0;
              const pid_t child = vfork();
              if (child == 0) _exit(0);
              if (child != -1 || errno != EAGAIN) _exit(2);
              percpu::number(5);
            }),
            0);
  EXPECT_EQ(read_all(*instance).numbers[5], geteuid() == 0 ? 1u : 0u);
}

#endif

// adversary.md, 11: a handler that leaves by siglongjmp costs no other event.
TEST_F(CpuInstance, HandlersThatLeaveByLongjmpCostNothing) {
  auto instance = make(16 << 20);
  static sigjmp_buf back;
  static volatile sig_atomic_t inside;
  static u64 tried, handled;
  tried = handled = 0;
  struct sigaction action {}, before {};
  action.sa_handler = [](int) {
    percpu::number(2);
    ++handled;
    if (inside != 0) siglongjmp(back, 1);
  };
  sigaction(SIGALRM, &action, &before);
  const itimerval often{{0, 200}, {0, 200}}, never{};
  setitimer(ITIMER_REAL, &often, nullptr);
  static u64 left;
  left = 0;
  static int i;
  for (i = 0; i < 2000; ++i) {
    if (sigsetjmp(back, 1) != 0) {
      inside = 0;
      ++left;
      continue;
    }
    inside = 1;
    for (int k = 0; k < 100; ++k) {
      ++tried;
      percpu::number(1);
    }
    inside = 0;
  }
  setitimer(ITIMER_REAL, &never, nullptr);
  sigaction(SIGALRM, &before, nullptr);
  Seen seen = read_all(*instance);
  EXPECT_LE(seen.numbers[1], tried);
  EXPECT_GE(seen.numbers[1] + left, tried) << "at most the interrupted event is lost";
  EXPECT_EQ(seen.numbers[2], handled);
}

TEST_F(CpuInstance, ResizeKeepsWrittenEvents) {
  auto instance = make(1 << 20);
  for (u64 i = 0; i < 1000; ++i) percpu::number(i);
  must(instance->resize(256 << 10, 8192));
  for (u64 i = 1000; i < 2000; ++i) percpu::number(i);
  const auto rings = instance->rings();
  ASSERT_GT(rings.size(), possible_cpus()) << "the old rings are still there";
  EXPECT_EQ(rings[0].counters.subbuf_size, 8192u);
  EXPECT_FALSE(rings.back().live);
  EXPECT_EQ(rings.back().name.cpu, static_cast<i32>(possible_cpus()) - 1);
  Seen seen = read_all(*instance);
  EXPECT_EQ(seen.events, 2000u);
  EXPECT_EQ(seen.numbers.size(), 2000u);
  EXPECT_EQ(instance->refused(), 0u);
  EXPECT_GT(instance->trim(), 0u);
  EXPECT_EQ(instance->rings().size(), possible_cpus());
  EXPECT_EQ(instance->past().written, 1000u);
}

TEST_F(CpuInstance, AConsumerFollowsARingThatIsMovedAside) {
  auto instance = make();
  const KeepAffinity keep;
  pin_to(static_cast<u32>(sched_getcpu()));
  const auto cpu = static_cast<u32>(sched_getcpu());
  percpu::number(1);
  auto source = must(instance->source(cpu));
  EXPECT_FALSE(source->ended());
  must(instance->resize(256 << 10, 4096));
  percpu::number(2);
  EXPECT_TRUE(source->ended()) << "it reads the old ring";
  Seen old, fresh;
  read_ring(*source, old);
  EXPECT_EQ(old.numbers[1], 1u);
  EXPECT_EQ(old.events, 1u);
  source = nullptr;
  read_ring(*must(instance->source(cpu)), fresh);
  EXPECT_EQ(fresh.numbers[2], 1u);
}

TEST_F(CpuInstance, ASnapshotTakesEverythingAndLosesNothing) {
  auto instance = make(4 << 20);
  std::atomic<bool> stop{false};
  std::atomic<u64> written{0};
  std::thread busy([&] {
    while (!stop) {
      percpu::number(written++);
      if (written % 16 == 0) usleep(20);
    }
  });
  Seen all;
  for (int round = 0; round < 20; ++round) {
    usleep(2000);
    auto taken = must(Instance::open(must(instance->snapshot())));
    for (const u64 then = written; written < then + 2;) usleep(100);  // the event in progress is over
    const Seen one = read_all(*taken);
    all.events += one.events, all.lost += one.lost;
  }
  stop = true;
  busy.join();
  const Seen rest = read_all(*instance);
  EXPECT_EQ(all.events + all.lost + rest.events + rest.lost + instance->refused(), written.load());
}

TEST_F(CpuInstance, CountersStartAnewAtAReset) {
  auto instance = make(64 << 10);
  for (u64 i = 0; i < 10000; ++i) percpu::number(i);
  must(instance->reset());
  for (const RingInfo& r : instance->rings()) {
    EXPECT_EQ(r.counters.written, 0u);
    EXPECT_EQ(r.counters.read, 0u);
    EXPECT_EQ(r.counters.overrun, 0u);
    EXPECT_EQ(r.counters.unread, 0u);
  }
  for (u64 i = 0; i < 10; ++i) percpu::number(7);
  u64 unread = 0;
  for (const RingInfo& r : instance->rings()) unread += r.counters.unread;
  EXPECT_EQ(unread, 10u);
  Seen seen = read_all(*instance);
  EXPECT_EQ(seen.numbers[7], 10u);
  EXPECT_EQ(seen.events, 10u);
  EXPECT_EQ(seen.lost, 0u);
}

TEST_F(CpuInstance, OffAndDiscardAreCounted) {
  auto instance = make(16 << 10, false);
  must(instance->tracing(false));
  percpu::number(1);
  must(instance->tracing(true));
  const u64 tried = 10000;
  for (u64 i = 0; i < tried; ++i) percpu::number(2);
  u64 written = 0, dropped = 0;
  for (const RingInfo& r : instance->rings()) written += r.counters.written, dropped += r.counters.dropped;
  EXPECT_EQ(written + dropped, tried);
  EXPECT_GT(dropped, 0u);
  EXPECT_EQ(read_all(*instance).numbers[1], 0u);
}

TEST_F(CpuInstance, ReadEventsGiveTheirMemoryBack) {
  const KeepAffinity keep;
  auto instance = make(4 << 20);
  pin_to(static_cast<u32>(sched_getcpu()));
  const auto cpu = static_cast<u32>(sched_getcpu());
  const auto resident = [&] { return instance->rings()[cpu].counters.resident_bytes; };
  for (int round = 0; round < 3; ++round) {
    for (u64 i = 0; i < 100'000; ++i) percpu::number(i);
    EXPECT_GT(resident(), u64{1} << 20);
    Seen seen;
    read_ring(*must(instance->source(cpu)), seen);
    EXPECT_EQ(seen.events, 100'000u);
    EXPECT_GT(instance->trim(), u64{1} << 20);
    EXPECT_LT(resident(), u64{128} << 10) << "control words, the tail's sub-buffer";
    for (u64 i = 0; i < 1000; ++i) percpu::number(i);
    Seen more;
    read_ring(*must(instance->source(cpu)), more);
    EXPECT_EQ(more.events, 1000u);
    EXPECT_EQ(more.lost, 0u);
  }
}

TEST_F(CpuInstance, ASpoiltRingIsGivenUpAndCounted) {
  const KeepAffinity keep;
  auto instance = make();
  pin_to(static_cast<u32>(sched_getcpu()));
  const auto cpu = static_cast<u32>(sched_getcpu());
  percpu::number(1);
  {
    const sys::Fd at(::open(instance->path().c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    MappedRing ring = map_ring(at.get(), cpu, ring_geometry(at.get(), cpu, {}), Files::there);
    ASSERT_TRUE(ring);
    ring.ring.control->commit = ~u64{0} >> 1;
    unmap_ring(ring);
  }
  for (int i = 0; i < 10; ++i) percpu::number(2);
  EXPECT_TRUE(instance->rings()[cpu].corrupt);
  EXPECT_EQ(instance->refused(), 10u);
  must(instance->resize(256 << 10, 4096));
  percpu::number(3);
  Seen seen;
  read_ring(*must(instance->source(cpu)), seen);
  EXPECT_EQ(seen.numbers[3], 1u);
}

// A thread whose registration was revoked, or never existed, gets a ring of its own.
TEST_F(CpuInstance, AThreadWithoutRseqGetsARingOfItsOwn) {
  auto instance = make();
  percpu::number(1);
  bool unregistered = false;
  std::thread([&] {
    auto* const area = static_cast<u8*>(__builtin_thread_pointer()) + __rseq_offset;
    for (const unsigned size : {32u, 20u, 28u})
      unregistered = unregistered || syscall(SYS_rseq, area, size, 1, 0x53053053) == 0;
    for (u64 i = 0; i < 100; ++i) percpu::number(2);
  }).join();
  if (!unregistered) GTEST_SKIP() << "the kernel does not unregister it";
  percpu::number(3);
  EXPECT_EQ(instance->rings().size(), possible_cpus() + 1);
  Seen seen = read_all(*instance);
  EXPECT_EQ(seen.numbers[1], 1u);
  EXPECT_EQ(seen.numbers[2], 100u);
  EXPECT_EQ(seen.numbers[3], 1u);
  EXPECT_EQ(instance->refused(), 0u);
}

// An instance made under another kernel: its CPU numbers are not this kernel's.
TEST_F(CpuInstance, ThreadsGetRingsOfTheirOwnInAnInstanceOfAnotherBoot) {
  ringside_close();
  InstanceOptions o;
  o.name = "a";
  o.rings = Rings::cpu;
  auto instance = must(Instance::create(o));
  const_cast<InstanceControl&>(instance->control()).boot ^= 2;
  ASSERT_EQ(ringside_open("a"), 0);
  percpu::number(1);
  EXPECT_EQ(instance->rings().size(), possible_cpus() + 1);
  EXPECT_EQ(read_all(*instance).numbers[1], 1u);
}

// Each event of four threads and a handler in each, by a clock that no instruction reads.
TEST_F(CpuInstance, AnyClockCanBeThatOfRingsOfCpus) {
  for (const ClockKind kind : {ClockKind::mono, ClockKind::counter}) {
    SCOPED_TRACE(to_string(kind));
    InstanceOptions o;
    o.name = to_string(kind);
    o.clock = kind;
    auto instance = must(Instance::create(o));
    EXPECT_EQ(instance->rings_because(), RingsBecause::can);
    ASSERT_EQ(ringside_open(o.name.c_str()), 0);
    std::vector<std::thread> threads;
    for (u64 t = 0; t < 4; ++t)
      threads.emplace_back([t] {
        for (u64 n = 0; n < 1000; ++n) percpu::number(t * 1000 + n);
      });
    for (std::thread& t : threads) t.join();
    EXPECT_EQ(instance->rings().size(), possible_cpus());
    const auto read = read_all(*instance);
    EXPECT_EQ(read.numbers.size(), 4000u);
    for (const auto& [number, times] : read.numbers) EXPECT_EQ(times, 1u) << number;
    ringside_close();
  }
}

TEST_F(CpuInstance, TheMakerChoosesTheKindOfRings) {
  InstanceOptions o;
  o.name = "threads";
  o.rings = Rings::thread;
  EXPECT_EQ(must(Instance::create(o))->cpu_rings(), 0u);
  EXPECT_EQ(must(Instance::open("threads"))->rings_because(), RingsBecause::asked);
  o.name = "budget";
  o.rings = Rings::automatic;
  o.budget = 1 << 20;
  o.buffer_size = 64 << 20;
  EXPECT_EQ(must(Instance::create(o))->rings_because(), RingsBecause::budget);
  o.rings = Rings::cpu;
  o.name = "impossible";
  const auto refused = Instance::create(o);
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().sentence.find("as rings of all CPUs are more than its memory allows"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(instances_root() + "/impossible"));
}

TEST_F(CpuInstance, AnOlderLayoutIsRefusedWithASentence) {
  auto instance = make();
  ringside_close();
  const_cast<InstanceControl&>(instance->control()).version = 1;
  const auto opened = Instance::open("a");
  ASSERT_FALSE(opened.has_value());
  EXPECT_NE(opened.error().sentence.find("version 1"), std::string::npos) << opened.error().sentence;
}

TEST_F(CpuInstance, AWriterHoldsTheInstance) {
  auto instance = make();
  EXPECT_FALSE(instance->has_writers()) << "open, but not written to";
  EXPECT_EQ(instance->users(), Presence::some);
  EXPECT_FALSE(Instance::remove("a").has_value()) << "it may write at any moment";
  percpu::number(1);
  EXPECT_TRUE(instance->has_writers());
  EXPECT_FALSE(Instance::remove("a").has_value());
  ringside_close();
  EXPECT_FALSE(instance->has_writers());
  EXPECT_EQ(instance->users(), Presence::none);
}

}  // namespace
}  // namespace ringside::cpu_instance_test
