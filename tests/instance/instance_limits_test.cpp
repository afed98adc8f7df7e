// An instance whose memory ends: file systems, cgroups, its own budget; and memory that is given back.
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <ringside/abi/event_cursor.hpp>
#include <ringside/base/sanitizers.hpp>
#include <thread>

#include "memory_cgroup.hpp"
#include "instance/instance_fixture.hpp"

namespace ringside::test::instance_test {
namespace {

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

// Found by the storm of edges: SIGBUS in a program whose events were the first ones of the instance and found no room. The entry
// behind the last event was looked at, on a page that nobody had asked for.
TEST_F(InstanceTest, EventsThatFindNoRoomAreRefusedAndKillNoWriter) {
  const int status = in_child([&] {
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("tmpfs", dir.c_str(), "tmpfs", 0, "size=6m,mode=0700") != 0)
      _exit(77);
    const auto instance = make("a");
    {
      std::ofstream file(dir + "/full");
      const std::string some(4096, 'x');
      while (file.write(some.data(), 4096).flush()) {
      }
    }
    (void)ringside_open("a");
    if (!instance->events().empty()) _exit(1);
    ringside_event late{"full", "late", "", "\"\"", nullptr, 0, nullptr, nullptr};
    if (ringside_register(&late) != -ENOSPC) _exit(2);
    unit::number(1);
    std::filesystem::remove(dir + "/full");
    if (ringside_register(&late) != 0 || instance->events().size() != 1) _exit(3);
    _exit(0);
  });
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) GTEST_SKIP() << "no mount namespace here (not root?)";
  EXPECT_EQ(status, 0);
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

#if !RINGSIDE_SANITIZED  // a sanitizer's run-time would take the memory that the test leaves to the program
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

}  // namespace
}  // namespace ringside::test::instance_test
