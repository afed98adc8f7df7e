// How long threads run, wait and sleep, and CPUs are busy, from switches made by hand.
#include "analysis/states.hpp"

#include <gtest/gtest.h>

#include <map>

#include "cli/hand_made.hpp"

namespace ringside::states_test {
namespace {

using test::Payload;

struct StatesOfThreads : testing::Test {
  using Of = States::Of;
  Formats formats;
  Tasks tasks;
  std::optional<States> states;
  u64 last = 0;
  StatesOfThreads() {
    formats.add(kernel_ids + 2, "sched", "sched_switch",
                test::format(2, "sched_switch",
                             "\tfield:pid_t prev_pid;\toffset:8;\tsize:4;\tsigned:1;\n\tfield:long "
                             "prev_state;\toffset:16;\tsize:8;\tsigned:1;\n"
                             "\tfield:pid_t next_pid;\toffset:24;\tsize:4;\tsigned:1;\n",
                             R"("%d", REC->next_pid)"));
    for (const auto& [id, name] : {std::pair{u16{3}, "sched_waking"}, {u16{4}, "sched_wakeup"}})
      formats.add(kernel_ids + id, "sched", name,
                  test::format(id, name, "\tfield:pid_t pid;\toffset:8;\tsize:4;\tsigned:1;\n", R"("%d", REC->pid)"));
    for (const auto& [id, name] : {std::pair{u16{5}, "irq_handler_entry"}, {u16{6}, "irq_handler_exit"}})
      formats.add(kernel_ids + id, "irq", name,
                  test::format(id, name, "\tfield:int irq;\toffset:8;\tsize:4;\tsigned:1;\n", R"("%d", REC->irq)"));
    of(States::of_threads);
  }
  void of(Of what, size_t most = 1000) {
    auto made = States::make(what, most, formats, tasks);
    ASSERT_TRUE(made) << made.error().sentence;
    states.emplace(std::move(*made));
  }
  void take(u64 time, u32 cpu, const Payload& p, u64 lost = 0) {
    last = std::max(last, time);
    states->take(TraceRecord{time, lost, p, cpu, kernel_ids}, RingName{cpu, 0, 0, "", "", true});
  }
  void switched(u64 time, u32 cpu, i32 from, u64 state, i32 to) {
    take(time, cpu, Payload(2, from).put(from).put(u32{0}).put(state).put(to).put(u32{0}));
  }
  void wakes(u64 time, u32 cpu, i32 tid, u16 id = 3) { take(time, cpu, Payload(id, 1).put(tid)); }
  void interrupt(u64 time, u32 cpu, bool begins) { take(time, cpu, Payload(begins ? 5 : 6, 1).put(i32{7})); }
  void lose(u64 time, u32 cpu) { take(time, cpu, Payload(2, 0), 5); }

  struct T {
    u64 count = 0, total = 0, longest = 0, cuts = 0, cut = 0;
    bool operator==(const T&) const = default;
    friend std::ostream& operator<<(std::ostream& o, const T& t) {
      return o << t.count << "x " << t.total << " longest " << t.longest << " cut " << t.cuts << "x " << t.cut;
    }
  };
  T at(u64 key, u32 state) const {
    T t;
    states->each(last, [&](u64 k, const States::All& all, const States::Life&) {
      if (k != key) return;
      const States::Times& of = all[state];
      t = {of.count(), of.total(), of.longest(), of.cuts(), of.cut_ns()};
    });
    return t;
  }
};

TEST_F(StatesOfThreads, EachStateFromTheEventThatBeginsItToTheOneThatEndsIt) {
  switched(100, 0, 0, 0, 7);
  switched(150, 0, 7, 1, 0);  // sleeps
  wakes(250, 1, 7);
  wakes(260, 1, 7, 4);  // tells nothing new
  switched(300, 0, 0, 0, 7);
  switched(320, 0, 7, 2, 0);  // blocked
  wakes(350, 1, 7);
  switched(352, 0, 0, 0, 7);
  wakes(353, 1, 7);              // before it sleeps
  switched(360, 0, 7, 0, 8);     // preempted
  switched(400, 0, 8, 4, 7);     // 8 stopped
  switched(500, 0, 7, 0x20, 0);  // ended
  take(1000, 1, Payload(9, 1));
  EXPECT_EQ(at(7, States::running), (T{4, 178, 100}));
  EXPECT_EQ(at(7, States::sleeping), (T{1, 100, 100}));
  EXPECT_EQ(at(7, States::runnable), (T{2, 52, 50}));
  EXPECT_EQ(at(7, States::blocked), (T{1, 30, 30}));
  EXPECT_EQ(at(7, States::preempted), (T{1, 40, 40}));
  EXPECT_EQ(at(8, States::running), (T{1, 40, 40}));
  EXPECT_EQ(at(8, States::stopped), (T{0, 0, 0, 1, 600}));
  EXPECT_EQ(states->switches(), 8u);
  EXPECT_EQ(states->unseen(), 0u);
  EXPECT_EQ(states->backward(), 0u);
}

TEST_F(StatesOfThreads, WhatTheTraceCutsIsApart) {
  take(50, 0, Payload(9, 1));
  switched(100, 0, 7, 1, 8);  // 7 ran since 50 at least
  switched(150, 1, 0, 0, 9);
  take(200, 1, Payload(9, 1));
  EXPECT_EQ(at(7, States::running), (T{0, 0, 0, 1, 50}));
  EXPECT_EQ(at(7, States::sleeping), (T{0, 0, 0, 1, 100}));
  EXPECT_EQ(at(8, States::running), (T{0, 0, 0, 1, 100}));
  EXPECT_EQ(at(9, States::running), (T{0, 0, 0, 1, 50}));
}

TEST_F(StatesOfThreads, ALossHidesStates) {
  switched(100, 0, 0, 0, 7);
  switched(100, 1, 0, 0, 8);
  switched(110, 1, 8, 1, 9);
  lose(200, 1);
  // 8 may have run from 110 on; 7's end would be on CPU 0; 9 may have gone.
  switched(300, 0, 7, 1, 0);
  switched(400, 1, 9, 1, 8);
  switched(450, 1, 8, 1, 0);
  EXPECT_EQ(at(7, States::running), (T{1, 200, 200}));
  EXPECT_EQ(at(8, States::sleeping), (T{0, 0, 0, 0, 0}));
  EXPECT_EQ(at(8, States::running), (T{2, 60, 50}));
  EXPECT_EQ(at(9, States::running), (T{0, 0, 0, 1, 200}));  // again since 200
  EXPECT_EQ(states->losses(), 1u);
}

TEST_F(StatesOfThreads, ASwitchThatIsMissingIsNoState) {
  for (u64 i = 0; i < 20; ++i) {
    switched(100 + 20 * i, 0, 0, 0, 7);
    switched(110 + 20 * i, 0, 7, 1, 0);
  }
  switched(1000, 0, 0, 0, 7);
  switched(1100, 0, 5, 1, 0);  // from 7 to 5: not told
  EXPECT_EQ(states->unseen(), 1u);
  EXPECT_EQ(states->threads_in_part(), 1u);
  EXPECT_EQ(at(5, States::sleeping), T{});
  EXPECT_EQ(at(7, States::running), (T{20, 200, 10}));
  switched(1200, 0, 0, 0, 7);
  switched(1210, 0, 7, 1, 0);
  EXPECT_EQ(at(7, States::running), (T{21, 210, 10}));
}

TEST_F(StatesOfThreads, AThreadThatRunsOnAnotherCpuAlready) {
  switched(100, 0, 0, 0, 7);
  switched(119, 1, 0, 0, 7);  // by a clock that is ahead
  switched(120, 0, 7, 0, 0);
  switched(150, 1, 7, 1, 0);
  EXPECT_GT(states->backward(), 0u);
  EXPECT_EQ(at(7, States::running), (T{1, 31, 31}));
}

TEST_F(StatesOfThreads, ManyDurationsHaveAQuantile) {
  u64 time = 100;
  for (u64 i = 1; i <= 1000; ++i) {
    switched(time, 0, 0, 0, 7);
    switched(time += i, 0, 7, 1, 0);
    ++time;
  }
  EXPECT_EQ(at(7, States::running), (T{1000, 500500, 1000}));
  states->each(last, [&](u64, const States::All& all, const States::Life&) {
    EXPECT_NEAR(all[States::running].p99(), 990, 990 * .016);
  });
}

TEST_F(StatesOfThreads, AFullTableGivesUpThreadsThatSwitchLeast) {
  of(States::of_threads, 10);
  for (i32 tid = 1; tid <= 100; ++tid) {
    switched(static_cast<u64>(tid) * 10, 0, 0, 0, tid);
    switched(static_cast<u64>(tid) * 10 + 5, 0, tid, 1, 0);
  }
  EXPECT_GT(states->evicted().keys, 80u);
}

TEST_F(StatesOfThreads, ANumberThatIsUsedAgainIsAnotherThread) {
  tasks.rename(7, "first", true);
  switched(100, 0, 0, 0, 7);
  switched(110, 0, 7, 0x10, 0);
  tasks.rename(7, "second", true);
  wakes(190, 0, 7);
  switched(200, 0, 0, 0, 7);
  switched(215, 0, 7, 1, 0);
  std::map<std::string, u64> ran;
  states->each(last, [&](u64 key, const States::All& all, const States::Life& life) {
    EXPECT_EQ(key, 7u);
    ran[(life.was != nullptr ? life.was->name : "") + " " + std::to_string(life.n)] = all[States::running].total();
  });
  EXPECT_EQ(ran, (std::map<std::string, u64>{{"first 1", 10}, {" 0", 15}}));
}

TEST_F(StatesOfThreads, OfCpus) {
  of(States::of_cpus);
  take(50, 0, Payload(9, 1));
  switched(100, 0, 7, 1, 0);
  interrupt(130, 0, true);
  interrupt(135, 0, true);  // in it, another one
  interrupt(138, 0, false);
  interrupt(140, 0, false);
  switched(150, 0, 0, 0, 7);
  switched(160, 0, 7, 0, 8);
  interrupt(170, 0, true);
  interrupt(171, 0, false);
  switched(200, 0, 8, 1, 0);
  take(260, 0, Payload(9, 1));
  EXPECT_EQ(at(0, States::busy), (T{2, 49, 29, 1, 50}));
  EXPECT_EQ(at(0, States::idle), (T{2, 40, 30, 1, 60}));
  EXPECT_EQ(at(0, States::interrupts), (T{2, 11, 10}));
  EXPECT_EQ(states->interrupts_seen(), 3u);
}

TEST_F(StatesOfThreads, WithoutSwitchesThereAreNone) {
  Formats none;
  EXPECT_FALSE(States::make(States::of_threads, 10, none, tasks));
}

}  // namespace
}  // namespace ringside::states_test
