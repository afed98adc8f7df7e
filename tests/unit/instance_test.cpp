// The instance: made, opened, written by this process and its children, read by others, damaged, cleaned.
#include "instance/instance.hpp"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <ringside/abi/event_cursor.hpp>
#include <ringside/trace.hpp>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

RINGSIDE_EVENT(unit, number, (u64, n));
RINGSIDE_EVENT(unit, quiet, (u64, n));

namespace ringside {
namespace {

struct InstanceTest : testing::Test {
  std::string dir, old_root;
  void SetUp() override {
    char path[] = "/tmp/ringside-unit-XXXXXX";
    dir = mkdtemp(path);
    if (const char* root = getenv("RINGSIDE_ROOT")) old_root = root;
    setenv("RINGSIDE_ROOT", dir.c_str(), 1);
  }
  void TearDown() override {
    ringside_close();
    if (!old_root.empty()) setenv("RINGSIDE_ROOT", old_root.c_str(), 1);
    std::filesystem::remove_all(dir);
  }
  static std::unique_ptr<Instance> make(const std::string& name, u64 size = 1 << 20, bool overwrite = true) {
    InstanceOptions o;
    o.name = name;
    o.buffer_size = size;
    o.overwrite = overwrite;
    o.rings = Rings::thread;
    return must(Instance::create(o));
  }
};

struct Seen {
  u64 events = 0, lost = 0;
  std::vector<u64> numbers;
};

Seen read_ring(Source& source) {
  Seen seen;
  for (;;) {
    auto view = must(source.next());
    if (!view) return seen;
    seen.lost += view->lost_before;
    abi::EventCursor c(view->sub_buffer + abi::header_size, view->begin, view->end, view->time);
    while (c.next()) {
      u64 n;
      std::memcpy(&n, c.payload().data + 8, 8);
      seen.numbers.push_back(n);
      ++seen.events;
    }
  }
}

Seen read_all(Instance& instance) {
  Seen all;
  for (const RingInfo& r : instance.rings()) {
    auto source = must(instance.source(r.name.ring));
    const Seen one = read_ring(*source);
    all.events += one.events;
    all.lost += one.lost;
    all.numbers.insert(all.numbers.end(), one.numbers.begin(), one.numbers.end());
    const Counters n = source->counters();
    EXPECT_EQ(n.written, n.read + n.overrun + n.unread);
  }
  return all;
}

// Runs `work` in a child that leaves by _exit; answers its status.
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

TEST_F(InstanceTest, WrittenHereReadHere) {
  auto instance = make("a");
  ASSERT_EQ(ringside_open("a"), 0);
  for (u64 i = 0; i < 100; ++i) unit::number(i);
  const Seen seen = read_all(*instance);
  ASSERT_EQ(seen.events, 100u);
  for (u64 i = 0; i < 100; ++i) EXPECT_EQ(seen.numbers[i], i);
  EXPECT_EQ(Instance::list(), std::vector<std::string>{"a"});
  struct stat st {};
  ASSERT_EQ(stat(instance->path().c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0700u);
}

TEST_F(InstanceTest, RefusalsAreSentences) {
  make("a");
  const auto sentence = [](InstanceOptions o) {
    auto made = Instance::create(o);
    EXPECT_FALSE(made.has_value());
    return made ? std::string() : made.error().sentence;
  };
  InstanceOptions o;
  o.name = "a";
  EXPECT_NE(sentence(o).find("exists"), std::string::npos);
  o.name = "no spaces";
  EXPECT_NE(sentence(o).find("no name"), std::string::npos);
  o.name = "b";
  o.subbuf_size = 5000;
  EXPECT_NE(sentence(o).find("power of two"), std::string::npos);
  o.subbuf_size = 4096;
  o.buffer_size = u64{8} << 30;
  EXPECT_NE(sentence(o).find("more than"), std::string::npos);
  EXPECT_NE(Instance::open("missing").error().sentence.find("no instance"), std::string::npos);
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
    EXPECT_EQ(read_all(*instance).events, 40u);
    instance->trim();
  }
  EXPECT_LE(mappings(), before + 8);
  EXPECT_LE(instance->control().nr_rings, 8u);
  u64 counted = instance->past().written;
  for (const RingInfo& r : instance->rings()) counted += r.counters.written;
  EXPECT_EQ(counted, written);
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
  ASSERT_EQ(instance->rings().size(), 2u);
  EXPECT_EQ(read_ring(*must(instance->source(0))).numbers, (std::vector<u64>{1, 3}));
  EXPECT_EQ(read_ring(*must(instance->source(1))).numbers, std::vector<u64>{2});
}

TEST_F(InstanceTest, KilledWriterLeavesWhatItCommitted) {
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
  EXPECT_EQ(read_all(*instance).events, 1000u);
  // The next process reuses the ring.
  EXPECT_EQ(in_child([] {
              ringside_open("a");
              unit::number(5);
            }),
            0);
  EXPECT_EQ(instance->rings().size(), 1u);
  EXPECT_EQ(read_all(*instance).numbers, std::vector<u64>{5});
}

TEST_F(InstanceTest, EventsAreSwitchedFromElsewhere) {
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
  EXPECT_EQ(read_all(*instance).events, 0u);
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
  EXPECT_EQ(seen.events, 29999u);
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
  EXPECT_EQ(read_all(*snapshot).events, 5000u);
  EXPECT_FALSE(snapshot->events().empty());
}

TEST_F(InstanceTest, PeekConsumesNothing) {
  auto instance = make("a");
  ASSERT_EQ(ringside_open("a"), 0);
  for (u64 i = 0; i < 3000; ++i) unit::number(i);
  for (int twice = 0; twice < 2; ++twice) EXPECT_EQ(read_ring(*must(instance->peek(0))).events, 3000u);
  EXPECT_EQ(read_all(*instance).events, 3000u);
}

// The ring of the first sizes is there again, read and given up: whoever takes it must open it.
TEST_F(InstanceTest, ResizedAndBack) {
  auto instance = make("a");
  ASSERT_EQ(ringside_open("a"), 0);
  u64 next = 0;
  for (int round = 0; round < 6; ++round) {
    std::thread([&] {
      for (int i = 0; i < 100; ++i) unit::number(next++);
      must(instance->resize(round % 2 == 0 ? 64 << 10 : 1 << 20, 4096));
      for (int i = 0; i < 100; ++i) unit::number(next++);
    }).join();
    const Seen seen = read_all(*instance);
    EXPECT_EQ(seen.events, 200u) << round;
  }
  EXPECT_EQ(instance->refused(), 0u);
  EXPECT_LE(instance->control().nr_rings, 5u) << "rings are not used again";
}

// A thread that is killed while it claims a ring must not hide it.
TEST_F(InstanceTest, KilledClaimersHideNothing) {
  auto instance = make("a", 64 << 10);
  for (unsigned round = 0; round < 60; ++round) {
    const pid_t child = fork();
    if (child == 0) {
      ringside_open("a");
      for (u64 n = 0;; ++n) std::thread([n] { unit::number(n); }).join();
    }
    usleep(2000 + round * 211 % 3000);
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    for (const RingInfo& r : instance->rings()) {
      EXPECT_FALSE(r.live);
      if (r.counters.unread != 0) read_ring(*must(instance->source(r.name.ring)));
    }
    instance->trim();
  }
  EXPECT_LT(instance->control().nr_rings, 30u);
}

// While somebody walks what he was handed, others must not give its memory back.
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

// A handler may fork while the thread it interrupted is in the middle of an event.
TEST_F(InstanceTest, ForkInTheMiddleOfAnEvent) {
  auto instance = make("a");
  ASSERT_EQ(ringside_open("a"), 0);
  unit::number(0);
  const ringside_event& event = unit::ringside_number::Call::event;
  const auto finish = [](const Slot& slot, u64 n) {
    std::memcpy(slot.payload + 8, &n, sizeof n);
    detail::this_thread.writer->commit(slot);
  };
  for (u64 round = 0; round < 100; ++round) {
    Slot outer;
    ASSERT_TRUE(detail::this_thread.writer->reserve(16, outer));
    detail::put_common(event, detail::this_thread.tid, outer.payload);
    const int status = in_child([&] {
      unit::number(7777);  // the ring is its parent's: refused
      finish(outer, 6666);
      for (u64 i = 0; i < 3; ++i) unit::number(1000 + i);  // into a ring of its own
    });
    EXPECT_EQ(status, 0);
    finish(outer, 2 * round + 1);
    unit::number(2 * round + 2);
  }
  const Seen parents = read_ring(*must(instance->source(0)));
  ASSERT_EQ(parents.events, 201u);
  for (u64 i = 0; i < 201; ++i) EXPECT_EQ(parents.numbers[i], i);
  const Seen children = read_all(*instance);
  ASSERT_EQ(children.events, 300u);
  for (u64 i = 0; i < 300; ++i) EXPECT_EQ(children.numbers[i], 1000 + i % 3);
}

// No fork handler runs in such a child: the kernel wipes the page that says who is attached.
TEST_F(InstanceTest, RawForkGetsARingOfItsOwn) {
  auto instance = make("a");
  ASSERT_EQ(ringside_open("a"), 0);
  unit::number(1);
  const auto child = static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));
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

TEST_F(InstanceTest, ARawForkThatDiesWithTheReadersLockIsFollowed) {
  auto instance = make("a");
  ASSERT_EQ(ringside_open("a"), 0);
  unit::number(1);
  must(instance->source(0));  // this process has looked up what it locks with
  const auto child = static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));
  if (child == 0) {
    const auto source = instance->source(0);
    _exit(source ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(instance->source(0).has_value());
}

TEST_F(InstanceTest, OneConsumerAtATimeAndADeadOneIsFollowed) {
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
  EXPECT_EQ(read_ring(*must(instance->source(0))).events, 1u);
  close(ready[0]);
  close(ready[1]);
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
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (events < 300 && std::chrono::steady_clock::now() < end) {
    EXPECT_TRUE(must(instance->wait(0, std::chrono::seconds(5))));  // each event wakes; none is slept through
    events += read_all(*instance).events;
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
    EXPECT_EQ(read_all(*instance).events, 10u);
    const u64 before = instance->rings()[0].counters.resident_bytes;
    EXPECT_GT(instance->trim(), 0u) << round;
    EXPECT_LT(instance->rings()[0].counters.resident_bytes, before);
  }
  const Counters n = instance->rings()[0].counters;
  EXPECT_EQ(n.written, next);
  EXPECT_EQ(n.read, next);
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
  o.budget = 200 << 10;  // two rings, if they are full
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
    while (written <= t) usleep(100);  // full before the next one asks
  }
  u64 resident = 0;
  for (const RingInfo& r : instance->rings()) resident += r.counters.resident_bytes;
  EXPECT_LT(resident, o.budget + (80 << 10));  // full, plus one that was begun when there was room
  go = true;
  for (auto& t : threads) t.join();
  const Seen seen = read_all(*instance);
  EXPECT_EQ(seen.events + seen.lost + instance->refused(), 6u * 5000);
  EXPECT_GT(instance->refused(), 0u);
}

// What is not written takes no memory, and is not counted.
TEST_F(InstanceTest, BudgetCountsWhatIsResident) {
  InstanceOptions o;
  o.name = "a";
  o.buffer_size = 8 << 20;
  o.budget = 32 << 20;  // four of the full ones
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
  EXPECT_EQ(read_all(*instance).events, 50u);
  EXPECT_EQ(instance->refused(), 0u);
}

// A plug-in with events of its own may be closed: what the library knows of it stays.
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
    EXPECT_EQ(read_all(*instance).events, 2u);
  }
  unsetenv("RINGSIDE_INSTANCE");
}

TEST_F(InstanceTest, RemoveWantsNoWriters) {
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
}  // namespace ringside
