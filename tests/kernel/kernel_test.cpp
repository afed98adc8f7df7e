// The kernel's rings as sources, over an instance of the test's own that is fed through trace_marker_raw.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <ringside/abi/event_cursor.hpp>
#include <ringside/abi/sub_buffer.hpp>

#include "clock/tsc.hpp"
#include "kernel/clock_check.hpp"
#include "kernel/kernel_source.hpp"
#include "kernel/tracefs_instance.hpp"
#include "kernel_can.hpp"
#include "seen.hpp"
#include "sys/sys.hpp"

namespace ringside::test::kernel_test {
namespace {

constexpr u32 marker_id = 0x5A5A;

class KernelTest : public testing::Test {
 protected:
  void SetUp() override {
    TracefsOptions options;
    options.prefix = "ringside-test-";
    make(options);
  }
  void make(TracefsOptions options) {
    marker_ = sys::Fd();
    mine_.reset();
    options.prefix = "ringside-test-";
    options.clock = ClockKind::mono;
    auto made = TracefsInstance::create(options);
    if (!made) GTEST_SKIP() << made.error().sentence;
    mine_.emplace(std::move(*made));
    must(mine_->tracing(true));
    marker_ = sys::Fd(open((mine_->dir() + "/trace_marker_raw").c_str(), O_WRONLY | O_CLOEXEC));
    ASSERT_TRUE(marker_);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(0, &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);  // one ring, so one order
  }

  // One event of 8 + 4 + size bytes that carries `value`.
  void write(u64 value, u32 size = 8) {
    struct {
      u32 id = marker_id;
      u8 bytes[2048] = {};
    } raw;
    std::memcpy(raw.bytes, &value, sizeof value);
    ASSERT_EQ(::write(marker_.get(), &raw, 4 + size), static_cast<ssize_t>(4 + size));
  }
  std::unique_ptr<KernelSource> open_ring(KernelWay way) { return must(open_kernel_ring({mine_->dir(), 0}, ClockInfo{}, way)); }

  std::optional<TracefsInstance> mine_;
  sys::Fd marker_;
};

// Where the number stands in a raw_data event: behind the common fields and the id.
constexpr u32 number_at = 12;

void expect_run(const std::vector<u64>& values, u64 first, u64 count) {
  ASSERT_EQ(values.size(), count);
  for (u64 i = 0; i < count; ++i) ASSERT_EQ(values[i], first + i);
}

class KernelWays : public KernelTest, public testing::WithParamInterface<KernelWay> {
 protected:
  void SetUp() override {
    KernelTest::SetUp();
    if (mine_ && GetParam() == KernelWay::map && !kernel_maps(mine_->dir())) GTEST_SKIP() << no_mapping;
  }
  void small_ring(u32 size);
};
INSTANTIATE_TEST_SUITE_P(Kernel, KernelWays, testing::Values(KernelWay::read, KernelWay::map),
                         [](const auto& way) { return to_string(way.param); });

TEST_P(KernelWays, EveryEventOnceAndInOrder) {
  auto source = open_ring(GetParam());
  Seen seen;
  for (u64 i = 0; i < 5000; ++i) {
    write(i, 8 + i % 40 * 4);
    if (i % 777 == 0) read_all(*source, seen, number_at);  // in the middle of sub-buffers, too
  }
  read_all(*source, seen, number_at);
  expect_run(seen.numbers, 0, 5000);
  EXPECT_EQ(seen.lost, 0u);
  EXPECT_TRUE(std::is_sorted(seen.times.begin(), seen.times.end()));
  const Counters c = source->counters();
  EXPECT_EQ(c.written, 5000u);
  EXPECT_EQ(c.read, 5000u);
  EXPECT_EQ(c.unread, 0u);
  EXPECT_EQ(c.overrun, 0u);
}

TEST_P(KernelWays, SingleEventsAreSeenAtOnce) {
  auto source = open_ring(GetParam());
  Seen seen;
  for (u64 i = 0; i < 300; ++i) {
    write(i);
    read_all(*source, seen, number_at);
    ASSERT_EQ(seen.numbers.size(), i + 1);
  }
  expect_run(seen.numbers, 0, 300);
}

// 8 bytes: sub-buffers fill up exactly, without room for the number of missed events. 16: there is room.
void KernelWays::small_ring(u32 size) {
  TracefsOptions options;
  options.buffer_size = 16 * 1024;
  make(options);
  auto source = open_ring(GetParam());
  Seen seen;
  u64 written = 0;
  for (const u64 burst : {10, 2000, 3, 5000, 7000, 1}) {
    for (u64 i = 0; i < burst; ++i) write(written++, size);
    read_all(*source, seen, number_at);
  }
  EXPECT_GT(seen.lost, 10000u);
  EXPECT_EQ(seen.numbers.size() + seen.lost, written);
  EXPECT_EQ(seen.numbers.back(), written - 1);
  EXPECT_EQ(source->counters().overrun, seen.lost);
}

TEST_P(KernelWays, AnOverwrittenRingCountsItsLosses) { small_ring(16); }
TEST_P(KernelWays, LossesAreCountedWithoutRoomForTheNumber) { small_ring(8); }

TEST_P(KernelWays, LargerSubBuffers) {
  if (!kernel_has_larger_sub_buffers(mine_->dir())) GTEST_SKIP() << no_larger_sub_buffers;
  TracefsOptions options;
  options.subbuf_size = 16384;
  make(options);
  auto source = open_ring(GetParam());
  Seen seen;
  for (u64 i = 0; i < 3000; ++i) write(i, 100);
  read_all(*source, seen, number_at);
  expect_run(seen.numbers, 0, 3000);
  EXPECT_EQ(source->counters().subbuf_size, 16384u);
}

TEST_P(KernelWays, WaitsForAnEvent) {
  auto source = open_ring(GetParam());
  EXPECT_FALSE(must(source->wait(std::chrono::milliseconds(10))));
  write(1);
  EXPECT_TRUE(must(source->wait(std::chrono::seconds(5))));
}

TEST_F(KernelTest, BothWaysGiveEqualEvents) {
  if (!kernel_maps(mine_->dir())) GTEST_SKIP() << no_mapping;
  Seen by[2];
  for (const KernelWay way : {KernelWay::read, KernelWay::map}) {
    auto source = open_ring(way);
    for (u64 i = 0; i < 4000; ++i) write(i, 8 + i * 7 % 300);
    read_all(*source, by[way == KernelWay::map], number_at);
  }
  EXPECT_EQ(by[0].numbers, by[1].numbers);
}

TEST_F(KernelTest, EventsTakenByReadAreNotMappedAgain) {
  if (!kernel_maps(mine_->dir())) GTEST_SKIP() << no_mapping;
  auto read = open_ring(KernelWay::read);
  for (u64 i = 0; i < 10; ++i) write(i);
  Seen seen;
  read_all(*read, seen, number_at);
  for (u64 i = 10; i < 20; ++i) write(i);
  auto map = open_ring(KernelWay::map);
  read_all(*map, seen, number_at);
  expect_run(seen.numbers, 0, 20);
}

TEST_F(KernelTest, AMissingCpuIsNamed) {
  auto source = open_kernel_ring({mine_->dir(), 4711}, ClockInfo{}, KernelWay::read);
  ASSERT_FALSE(source);
  EXPECT_NE(source.error().sentence.find("cpu4711"), std::string::npos);
}

// A directory that looks like an instance's on a kernel that cannot map: a FIFO answers mmap() with the same ENODEV.
struct OldKernel : testing::Test {
  std::string dir = testing::TempDir() + "old-kernel-" + std::to_string(getpid());
  std::string raw = dir + "/per_cpu/cpu0/trace_pipe_raw";
  void SetUp() override {
    std::filesystem::create_directories(dir + "/per_cpu/cpu0");
    ASSERT_EQ(mkfifo(raw.c_str(), 0600), 0);
    std::ofstream(dir + "/per_cpu/cpu0/stats") << "entries: 0\n";
  }
  void TearDown() override { std::filesystem::remove_all(dir); }
  result<KernelRings> open_rings(const KernelChoice& choice) { return open_kernel_rings(dir, {0}, ClockInfo{}, choice); }
};

TEST_F(OldKernel, IsReadWithANotice) {
  auto rings = must(open_rings({KernelWay::map, {}}));
  ASSERT_EQ(rings.sources.size(), 1u);
  EXPECT_EQ(rings.sources[0]->way(), KernelWay::read);
  EXPECT_NE(rings.notice.find("6.10"), std::string::npos) << rings.notice;
  EXPECT_EQ(rings.notice.find('\n'), std::string::npos);
  const sys::Fd in(open(raw.c_str(), O_WRONLY | O_CLOEXEC));
  u64 image[512] = {77, 16, 0x0000000100000003, 2};  // one event of 12 bytes of payload
  ASSERT_EQ(::write(in.get(), image, sizeof image), static_cast<ssize_t>(sizeof image));
  const auto view = must(rings.sources[0]->next());
  ASSERT_TRUE(view);
  EXPECT_EQ(view->time, 77u);
  EXPECT_EQ(view->end, 16u);
}

TEST_F(OldKernel, IsNotMappedByForce) {
  const auto rings = open_rings({KernelWay::read, KernelWay::map});
  ASSERT_FALSE(rings);
  EXPECT_EQ(rings.error().code, std::errc::no_such_device);
  EXPECT_NE(rings.error().sentence.find(raw), std::string::npos) << rings.error().sentence;
  const auto read = must(open_rings({KernelWay::map, KernelWay::read}));
  EXPECT_EQ(read.sources[0]->way(), KernelWay::read);
  EXPECT_EQ(read.notice, "");
  EXPECT_EQ(must(open_rings({})).notice, "");
}

// poll() returns at once because such a descriptor will never be ready (POLLHUP here): waiting must wait all the same.
TEST_F(OldKernel, WaitingForAMissingRingTakesItsTime) {
  auto rings = must(open_rings({}));
  { const sys::Fd in(open(raw.c_str(), O_WRONLY | O_CLOEXEC)); }
  const u64 start = sys::now_ns();
  EXPECT_FALSE(must(rings.sources[0]->wait(std::chrono::milliseconds(30))));
  EXPECT_GE(sys::now_ns() - start, 30'000'000u);
}

TEST_F(KernelTest, TheChosenWayIsTaken) {
  const auto cpus = mine_->cpus();
  const bool maps = kernel_maps(mine_->dir());
  const KernelWay live_way = maps ? KernelWay::map : KernelWay::read;
  const auto take = [&](const KernelChoice& choice) {
    return must(open_kernel_rings(mine_->dir(), cpus, ClockInfo{}, choice));
  };
  {
    const auto live = take({KernelWay::map, {}});
    ASSERT_EQ(live.sources.size(), cpus.size());
    for (const auto& source : live.sources) EXPECT_EQ(source->way(), live_way);
    EXPECT_EQ(live.notice.empty(), maps) << live.notice;
    const auto consumers = kernel_consumers(mine_->dir());
    ASSERT_EQ(consumers.size(), cpus.size());
    for (const KernelConsumer& c : consumers) {
      EXPECT_EQ(c.pid, getpid());
      EXPECT_EQ(c.way, live_way);
    }
  }
  EXPECT_TRUE(kernel_consumers(mine_->dir()).empty());
  const auto bulk = take({});
  for (const auto& source : bulk.sources) EXPECT_EQ(source->way(), KernelWay::read);
  EXPECT_EQ(kernel_consumers(mine_->dir()).at(0).way, KernelWay::read);
  const auto forced = open_kernel_rings(mine_->dir(), cpus, ClockInfo{}, {KernelWay::read, KernelWay::map});
  ASSERT_EQ(forced.has_value(), maps);
  if (maps) {
    EXPECT_EQ(forced->sources[0]->way(), KernelWay::map);
  } else {
    EXPECT_EQ(forced.error().code, std::errc::no_such_device) << forced.error().sentence;
  }
}

TEST_F(KernelTest, KernelClocksAreMeasuredAgainstOurs) {
  cpu_set_t before, after;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  const auto checks = must(check_kernel_clocks());
  ASSERT_EQ(sched_getaffinity(0, sizeof after, &after), 0);
  EXPECT_TRUE(CPU_EQUAL(&before, &after));
  EXPECT_EQ(access((mine_->dir() + "/../ringside-doctor-" + std::to_string(getpid())).c_str(), F_OK), -1);
  const auto of = [&](const std::string& name) {
    const auto at = std::find_if(checks.begin(), checks.end(), [&](const ClockCheck& c) { return c.name == name; });
    return at == checks.end() ? ClockCheck{} : *at;
  };
  EXPECT_TRUE(of("mono").merges()) << of("mono").offset_ns << " +- " << of("mono").error_ns;
  EXPECT_LT(of("mono").error_ns, 1'000'000u);
  if (tsc_evidence().usable()) {
    EXPECT_TRUE(of("x86-tsc").merges()) << of("x86-tsc").offset_ns << " +- " << of("x86-tsc").error_ns;
  }
  EXPECT_FALSE(of("counter").constant);
  EXPECT_FALSE(of("counter").merges());
  if (!of("tai").name.empty()) {      // Linux 5.10 has none
    EXPECT_TRUE(of("tai").constant);  // the wall clock, which is not near zero
    EXPECT_FALSE(of("tai").merges());
    EXPECT_GT(of("tai").offset_ns, 1'000'000'000'000'000'000);
  }
  EXPECT_GE(of("mono").markers, 40 * of("mono").processors);
  EXPECT_EQ(kernel_clock_of(mine_->dir()), "mono");
}

// A process that has a file of an instance open holds it, whatever number is in its name; a held instance is not touched.
TEST_F(KernelTest, InstancesThatNoProcessHoldsAreRemoved) {
  const std::string root = must(tracefs_dir()) + "/instances/";
  const std::string dead = root + "ringside-sweep-999999999", twice = dead + ".1", held = dead + ".2";  // above every pid
  const std::string other = root + "ringside-sweep-x";
  if (mkdir(dead.c_str(), 0700) != 0) GTEST_SKIP() << "cannot make an instance";
  for (const std::string& one : {twice, held, other}) ASSERT_EQ(mkdir(one.c_str(), 0700), 0);
  sys::Fd hold(open((held + "/tracing_on").c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_TRUE(std::ofstream(held + "/events/sched/sched_switch/enable") << "1" << std::flush);
  remove_stale_instances("ringside-sweep-");
  for (const std::string& gone : {dead, twice}) EXPECT_NE(access(gone.c_str(), F_OK), 0) << gone;
  EXPECT_EQ(must(sys::read_file(held + "/tracing_on")), "1\n");
  EXPECT_EQ(must(sys::read_file(held + "/events/sched/sched_switch/enable")), "1\n");
  hold = sys::Fd();
  remove_stale_instances("ringside-sweep-");
  EXPECT_NE(access(held.c_str(), F_OK), 0);
  EXPECT_EQ(access(other.c_str(), F_OK), 0);
  EXPECT_EQ(access(mine_->dir().c_str(), F_OK), 0);
  rmdir(other.c_str());
}

// Each create() sweeps: its own instance is still there when it returns, whatever the others do at that moment.
TEST_F(KernelTest, InstancesSurviveSweepsWhileTheyAreMade) {
  std::vector<pid_t> makers;
  for (int n = 0; n < 6; ++n) {
    const pid_t pid = fork();
    if (pid != 0) {
      makers.push_back(pid);
      continue;
    }
    TracefsOptions options;
    options.prefix = "ringside-test-";
    for (int i = 0; i < 8; ++i) {
      auto made = TracefsInstance::create(options);
      remove_stale_instances(options.prefix);
      if (!made || !made->tracing(true)) _exit(1);
    }
    _exit(0);
  }
  for (const pid_t pid : makers) {
    int status = 0;
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    EXPECT_EQ(status, 0);
  }
}

// As if a process of another PID namespace had the same number.
TEST_F(KernelTest, ATakenNameIsNotTakenOver) {
  TracefsOptions options;
  options.prefix = "ringside-test-";
  auto second = must(TracefsInstance::create(options));
  EXPECT_NE(second.dir(), mine_->dir());
  EXPECT_EQ(access(mine_->dir().c_str(), F_OK), 0);
}

TEST_F(KernelTest, TheInstanceGoesWithItsObject) {
  const std::string dir = mine_->dir();
  marker_ = sys::Fd();
  mine_.reset();
  EXPECT_NE(access(dir.c_str(), F_OK), 0);
}

TEST_F(KernelTest, EventsByGlobAndFilter) {
  auto none = must(mine_->enable(EventPattern("sched:no_such_event")));
  EXPECT_TRUE(none.empty());
  auto one = must(mine_->enable(EventPattern("sched:sched_switch")));
  ASSERT_EQ(one.size(), 1u);
  auto some = must(mine_->enable(EventPattern("syscalls:sys_enter_*p*")));
  EXPECT_GT(some.size(), 10u);
  EXPECT_EQ(must(sys::read_file(mine_->dir() + "/events/sched/sched_switch/enable")), "1\n");
  EXPECT_EQ(must(sys::read_file(mine_->dir() + "/events/sched/sched_wakeup/enable")), "0\n");
  must(mine_->enable(EventPattern("sched:sched_wakeup"), "pid == 4711"));
  EXPECT_EQ(must(sys::read_file(mine_->dir() + "/events/sched/sched_wakeup/filter")), "pid == 4711\n");
  auto wrong = mine_->enable(EventPattern("sched:sched_wakeup"), "no_such_field == 1");
  ASSERT_FALSE(wrong);
  EXPECT_NE(wrong.error().sentence.find("no_such_field"), std::string::npos);
}

// By a call that no library makes by itself: sanitizers call getpid.
TEST_F(KernelTest, FollowsAProcess) {
  must(mine_->enable(EventPattern("syscalls:sys_enter_getsid")));
  must(mine_->follow(getppid()));
  for (int i = 0; i < 5; ++i) syscall(SYS_getsid, 0);
  auto source = open_ring(KernelWay::read);
  EXPECT_EQ(source->counters().written, 0u);
  must(mine_->follow(getpid()));
  for (int i = 0; i < 5; ++i) syscall(SYS_getsid, 0);
  EXPECT_EQ(source->counters().written, 5u);
}

}  // namespace
}  // namespace ringside::test::kernel_test
