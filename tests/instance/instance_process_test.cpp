// An instance of a process that forks, dies, leaves an event by longjmp, opens and closes: no event but the interrupted one is
// lost.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csetjmp>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <ringside/abi/event_cursor.hpp>
#include <ringside/base/sanitizers.hpp>
#include <thread>

#include "instance/instance_fixture.hpp"
#include "writer/process.hpp"

namespace ringside::test::instance_test {
namespace {

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

TEST_F(InstanceTest, AnEventOfAWrongSizeIsRefusedAndCounted) {
  const auto instance = make("sizes");
  ASSERT_EQ(ringside_open("sizes"), 0);
  alignas(8) static u8 payload[RINGSIDE_PAYLOAD_MAX];
  ringside_event* const event = &unit::ringside_number::Call::event;
  u64 refused = 0;
  for (const u32 size : {0u, 1u, 7u, 4001u, 4096u, ~0u}) {
    EXPECT_FALSE(ringside_write(event, payload, size)) << size;
    EXPECT_EQ(instance->refused(), ++refused) << size;
  }
  for (const u32 size : {8u, 9u, 50u, 4000u}) EXPECT_TRUE(ringside_write(event, payload, size)) << size;
  EXPECT_EQ(instance->refused(), refused);
}

#if !RINGSIDE_TSAN
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

#if !RINGSIDE_TSAN
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

#if !RINGSIDE_TSAN
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

// An instance is renamed before its files go one by one: what a process registers meanwhile would make new ones.
TEST_F(InstanceTest, NothingIsMadeInAnInstanceThatIsToBeRemoved) {
  const auto instance = make("a");
  ASSERT_EQ(ringside_open("a"), 0);
  static ringside_event in_time{
      "unit", "in_time", "\tfield:u32 n;\toffset:8;\tsize:4;\tsigned:0;\n", "\"%u\", REC->n", nullptr, 0, nullptr, nullptr},
      late{"unit", "late", "\tfield:u32 n;\toffset:8;\tsize:4;\tsigned:0;\n", "\"%u\", REC->n", nullptr, 0, nullptr, nullptr};
  EXPECT_EQ(ringside_register(&in_time), 0);
  std::filesystem::rename(dir + "/a", dir + "/away");
  EXPECT_EQ(ringside_register(&late), -ENOENT);
  EXPECT_TRUE(std::filesystem::exists(dir + "/away/events/unit/in_time/format"));
  EXPECT_FALSE(std::filesystem::exists(dir + "/away/events/unit/late"));
  ringside_close();
}

}  // namespace
}  // namespace ringside::test::instance_test
