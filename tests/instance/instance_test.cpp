// The instance: made, opened, written by this process and its children, read by others, damaged, cleaned.
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <semaphore>
#include <set>
#include <thread>

#include "clock/tsc.hpp"
#include "instance/instance_fixture.hpp"
#include "writer/process.hpp"

namespace ringside::test::instance_test {
namespace {

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
    EXPECT_NE(instance->untraced().find("2 processes are not traced"), std::string::npos);
    EXPECT_NE(instance->untraced(1).find("1 process is not traced"), std::string::npos);
    EXPECT_EQ(instance->untraced(2), "");
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
  if (!is_readable_here(static_cast<u32>(o.clock)) || (o.clock == ClockKind::tsc && !tsc_evidence().usable()))
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

// Threads that come while a snapshot is taken have no ring in it: "cannot open the folder of ring 14", though nothing was
// missing.
TEST_F(InstanceTest, SnapshotsWhileThreadsComeAndGoAreWhole) {
  auto instance = make("a", 64 << 10);
  ASSERT_EQ(ringside_open("a"), 0);
  std::atomic<bool> stop{false};
  std::atomic<u64> next{0};
  std::counting_semaphore<> room{0};  // a ring is not used again before its event is read
  std::vector<std::thread> makers;
  for (int n = 0; n < 4; ++n) {
    makers.emplace_back([&] {
      for (room.acquire(); !stop; room.acquire()) std::thread([&] { unit::number(next++); }).join();
    });
  }
  std::set<u64> seen;
  u64 read = 0;
  const auto take = [&](Instance& from) {
    for (const RingInfo& r : from.rings()) EXPECT_EQ(r.problem, "");
    const Seen all = read_all(from);
    EXPECT_EQ(all.lost, 0u);
    read += all.numbers.size();
    seen.insert(all.numbers.begin(), all.numbers.end());
  };
  for (int round = 0; round < 10; ++round) {
    room.release(20);
    const auto path = instance->snapshot();
    if (!path) {  // a thread stands in the middle of its event
      EXPECT_EQ(path.error().code, std::errc::device_or_resource_busy) << path.error().sentence;
      if (!instance->has_snapshot()) continue;
    }
    take(*must(Instance::open(instance->path() + "/snapshot")));
  }
  stop = true;
  room.release(4);
  for (std::thread& maker : makers) maker.join();
  take(*instance);
  EXPECT_EQ(seen.size(), read) << "an event is in two of them";
  EXPECT_LE(seen.size(), next);
  EXPECT_GT(seen.size(), 0u);
}

// It came behind the outer event's publication and before its end, and then the snapshot closed the gate.
TEST_F(InstanceTest, SnapshotTakesWhatAHandlerHasLeft) {
  auto instance = make("a");
  ASSERT_EQ(ringside_open("a"), 0);
  unit::number(1);
  const sys::Fd fd(open((instance->path() + "/per_cpu/cpu0/ring").c_str(), O_RDWR | O_CLOEXEC));
  auto words = must(sys::Region::map(fd.get(), sizeof(Control), true, "the ring's words"));
  u64& nest = reinterpret_cast<Control*>(words.data())->nest;
  nest = 1;
  unit::number(2);
  nest = 0;
  auto snapshot = must(Instance::open(must(instance->snapshot())));
  EXPECT_EQ(read_all(*snapshot).numbers, (std::vector<u64>{1, 2}));
  unit::number(3);
  EXPECT_EQ(read_all(*instance).numbers, std::vector<u64>{3});
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
