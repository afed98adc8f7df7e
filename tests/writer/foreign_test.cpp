// Threads of another PID namespace than the creator's, in one process: the instance claims another creator's namespace.
#include <gtest/gtest.h>
#include <ringside/abi/event_cursor.hpp>
#include <ringside/base/sanitizers.hpp>
#include <ringside/trace.hpp>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <map>
#include <set>
#include <thread>

#include "clock/clock.hpp"
#include "writer/cpu_rings.hpp"
#include "instance/instance.hpp"
#include "own_root.hpp"

RINGSIDE_EVENT(foreign, number, (u64, n));

namespace ringside::foreign_test {
namespace {

struct Foreign : testing::TestWithParam<Rings> {
  test::OwnRoot root{true};
  std::unique_ptr<Instance> instance;
  void SetUp() override {
    if (GetParam() == Rings::cpu && why_not_cpu_rings() != RingsBecause::can)
      GTEST_SKIP() << "no rings of CPUs here, " << to_string(why_not_cpu_rings());
    InstanceOptions o;
    o.name = "unit";
    o.buffer_size = 8 << 20;
    o.rings = GetParam();
    instance = must(Instance::create(o));
  }
  void become_foreign() {
    const_cast<InstanceControl&>(instance->control()).pid_namespace = 1;  // no namespace has this inode
    ASSERT_EQ(ringside_open("unit"), 0);
  }
  // The common_pid of each event.
  std::map<u64, std::set<i32>> numbers() {
    std::map<u64, std::set<i32>> all;
    for (const RingInfo& r : instance->rings()) {
      auto source = must(instance->peek(r.name.ring));
      for (;;) {
        const auto view = must(source->next());
        if (!view) break;
        abi::EventCursor c(view->sub_buffer + 16, view->begin, view->end, view->time);
        while (c.next()) {
          u64 n;
          i32 pid;
          std::memcpy(&pid, c.payload().data + 4, sizeof pid);
          std::memcpy(&n, c.payload().data + 8, sizeof n);
          all[n].insert(pid);
        }
      }
    }
    return all;
  }
};

int wait_for(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

TEST_P(Foreign, ThreadsAndChildrenGetNumbersOfTheInstance) {
  become_foreign();
  foreign::number(1);
  std::thread([] { foreign::number(2); }).join();
  for (u64 n = 3; n < 5; ++n) {
    const pid_t child = n == 3 ? fork() : _Fork();
    if (child == 0) {
      foreign::number(n);
      _exit(0);
    }
    EXPECT_EQ(wait_for(child), 0);
  }
  foreign::number(1);
  const auto all = numbers();
  ASSERT_EQ(all.size(), 4u);
  std::set<i32> each;
  for (const auto& [n, pids] : all) {
    ASSERT_EQ(pids.size(), 1u) << n;
    EXPECT_TRUE(is_foreign(*pids.begin())) << n;
    each.insert(*pids.begin());
  }
  EXPECT_EQ(each.size(), 4u);
  std::map<i32, RingName> names;
  for (const RingName& thread : instance->threads()) names[thread.tid] = thread;
  ASSERT_EQ(names.size(), 4u);
  const RingName &first = names[*all.at(1).begin()], &second = names[*all.at(2).begin()], &child = names[*all.at(3).begin()];
  EXPECT_EQ(first.pid, first.tid);
  EXPECT_EQ(second.pid, first.tid);
  EXPECT_EQ(child.pid, child.tid);
  EXPECT_EQ(first.elsewhere.pid, getpid());
  EXPECT_EQ(first.elsewhere.pid_namespace, sys::pid_namespace());
  // They are in this reader's namespace.
  EXPECT_EQ(first.show_tid(), std::to_string(getpid()));
}

TEST_P(Foreign, ThreadsOfTheCreatorsNamespaceKeepTheirTids) {
  ASSERT_EQ(ringside_open("unit"), 0);
  foreign::number(1);
  EXPECT_EQ(numbers().at(1), std::set<i32>{getpid()});
  for (const RingName& thread : instance->threads()) {
    EXPECT_EQ(thread.tid, getpid());
    EXPECT_EQ(thread.elsewhere.tid, 0);
  }
  EXPECT_EQ(instance->control().nr_foreign, 0u);
}

TEST_P(Foreign, AThreadKeepsItsNumberAcrossAResize) {
  become_foreign();
  foreign::number(1);
  ASSERT_TRUE(instance->resize(16 << 20, 16384));
  foreign::number(1);
  EXPECT_EQ(numbers().at(1).size(), 1u);
  EXPECT_EQ(instance->control().nr_foreign, 1u);
}

TEST_P(Foreign, AProcessIsKnownBeforeItsFirstThreadWrites) {
  become_foreign();
  std::thread([] { foreign::number(2); }).join();
  const i32 thread = *numbers().at(2).begin();
  RingName name{0, 0, thread, "", ""};
  instance->locate(name);
  const auto before = instance->threads();
  ASSERT_EQ(before.size(), 2u);
  EXPECT_EQ(before[0].tid, before[1].pid);
  EXPECT_EQ(before[0].elsewhere.tid, getpid());
  EXPECT_EQ(name.elsewhere.pid, getpid());
  foreign::number(1);
  EXPECT_EQ(*numbers().at(1).begin(), before[0].tid);
  EXPECT_EQ(instance->threads().size(), 2u);
}

// A full table evicts the oldest entries, and no number is reused.
#if !RINGSIDE_SANITIZED  // which slows the 65,546 threads down, and sees nothing of them that it does not see of a few
TEST_P(Foreign, AFullTableEvictsTheOldestThreads) {
  if (GetParam() == Rings::thread) return;  // the same table
  become_foreign();
  foreign::number(0);
  constexpr u64 most = most_foreign + 10;
  std::atomic<u64> next{1};
  std::vector<std::thread> makers;
  for (int i = 0; i < 4; ++i)
    makers.emplace_back([&] {
      for (u64 n; (n = next++) < most;) std::thread([n] { foreign::number(n); }).join();
    });
  for (auto& m : makers) m.join();
  const auto all = numbers();
  EXPECT_EQ(all.size(), most);
  std::set<i32> each;
  for (const auto& [n, pids] : all) each.insert(pids.begin(), pids.end());
  EXPECT_EQ(each.size(), most);
  EXPECT_EQ(*each.rbegin(), static_cast<i32>(most_threads + most - 1));
  const auto threads = instance->threads();
  EXPECT_EQ(threads.size(), most_foreign);
  std::set<i32> known;
  for (const RingName& thread : threads) known.insert(thread.tid);
  EXPECT_EQ(known.count(static_cast<i32>(most_threads)), 0u) << "the oldest";
  EXPECT_EQ(known.count(*each.rbegin()), 1u) << "the newest";
  RingName gone{0, 0, static_cast<i32>(most_threads), "", ""};
  instance->locate(gone);
  EXPECT_EQ(gone.elsewhere.tid, 0);
}
#endif

// Another kernel's namespaces have the same inodes.
TEST_P(Foreign, AnotherKernelsNamespaceIsUnknown) {
  const_cast<InstanceControl&>(instance->control()).boot ^= 2;
  ASSERT_EQ(ringside_open("unit"), 0);
  foreign::number(1);
  const i32 number = *numbers().at(1).begin();
  ASSERT_TRUE(is_foreign(number));
  for (const RingName& thread : instance->threads()) EXPECT_EQ(thread.show_tid(), std::to_string(getpid()) + "@?");
}

INSTANTIATE_TEST_SUITE_P(Rings, Foreign, testing::Values(Rings::cpu, Rings::thread),
                         [](const auto& of) { return of.param == Rings::cpu ? "cpu" : "thread"; });

TEST(Elsewhere, NumbersAreShownWithTheirNamespace) {
  Elsewhere e;
  EXPECT_EQ(e.show_tid(4711), "4711");
  e = {7, 7, 4026532278, 81234, 81234};
  EXPECT_EQ(e.show_tid(4194304), "81234(7)");
  EXPECT_EQ(e.seen_tid(4194304), 81234);
  e.here_tid = 7;
  EXPECT_EQ(e.show_tid(4194304), "7");
  e.here_tid = 0;
  EXPECT_EQ(e.show_tid(4194304), "7@4026532278");
  EXPECT_EQ(e.seen_tid(4194304), 4194304);
  e.pid_namespace = 0;
  EXPECT_EQ(e.show_tid(4194304), "7@?");
}

}  // namespace
}  // namespace ringside::foreign_test
