// The CPU of a thread, as sched events tell it.
#include "analysis/running.hpp"

#include <gtest/gtest.h>

#include "cli/hand_made.hpp"

namespace ringside::running_test {
namespace {

using test::Payload;

struct Running : testing::Test {
  Formats formats;
  Tasks tasks;
  RunningThreads running{formats, tasks};
  RingName mine{7, 4711, 4711, "cc1plus", "cc1plus"};
  Running() {
    formats.add(1, "libc", "malloc", test::malloc_format());
    formats.add(
        kernel_ids + 2, "sched", "sched_switch",
        test::format(
            2, "sched_switch",
            "\tfield:pid_t prev_pid;\toffset:8;\tsize:4;\tsigned:1;\n\tfield:long prev_state;\toffset:16;\tsize:8;\tsigned:1;\n"
            "\tfield:pid_t next_pid;\toffset:24;\tsize:4;\tsigned:1;\n",
            R"("%d", REC->next_pid)"));
    formats.add(kernel_ids + 3, "sched", "sched_migrate_task",
                test::format(
                    3, "sched_migrate_task",
                    "\tfield:pid_t pid;\toffset:8;\tsize:4;\tsigned:1;\n\tfield:int orig_cpu;\toffset:12;\tsize:4;\tsigned:1;\n"
                    "\tfield:int dest_cpu;\toffset:16;\tsize:4;\tsigned:1;\n",
                    R"("%d", REC->pid)"));
  }
  void of_kernel(u32 cpu, const Payload& p, u64 lost = 0) {
    TraceRecord r{1, lost, p, 0, kernel_ids};
    running.see(r, RingName{cpu, 0, 0, "", "", true});
    EXPECT_EQ(r.cpu_in(RingName{cpu, 0, 0, "", "", true}), static_cast<i32>(cpu));
  }
  void switched(u32 cpu, i32 from, i32 to) {
    of_kernel(cpu, Payload(2, from).put(from).put(u32{0}).put(u64{0}).put(to).put(u32{0}));
  }
  void migrated(u32 cpu, i32 tid, i32 to) { of_kernel(cpu, Payload(3, 1).put(tid).put(i32{0}).put(to)); }
  void lost(u32 cpu) { of_kernel(cpu, Payload(2, 0), 5); }
  i32 cpu(i32 tid = 4711) {
    const Payload p = Payload(1, tid).put(u64{1}).put(u64{2});
    TraceRecord r{1, 0, p, 0, 0};
    running.see(r, mine);
    return r.cpu_in(mine);
  }
};

TEST_F(Running, FromASwitchToTheNext) {
  EXPECT_EQ(cpu(), -1);
  switched(3, 0, 4711);
  EXPECT_EQ(cpu(), 3);
  EXPECT_EQ(cpu(4712), -1);
  switched(1, 0, 4712);
  EXPECT_EQ(cpu(), 3);
  EXPECT_EQ(cpu(4712), 1);
  switched(3, 4711, 0);
  EXPECT_EQ(cpu(), -1);
  switched(1, 4712, 4711);
  EXPECT_EQ(cpu(), 1);
  EXPECT_EQ(cpu(4712), -1);
  EXPECT_EQ(cpu(0), -1);
}

TEST_F(Running, ASwitchThatWasNotRecordedEndsIt) {
  switched(3, 0, 4711);
  switched(3, 5, 6);
  EXPECT_EQ(cpu(), -1);
}

TEST_F(Running, ALossHidesASwitch) {
  switched(3, 0, 4711);
  lost(2);
  EXPECT_EQ(cpu(), 3);
  lost(3);
  EXPECT_EQ(cpu(), -1);
}

TEST_F(Running, MigrationsAlone) {
  migrated(0, 4711, 2);
  EXPECT_EQ(cpu(), 2);
  migrated(2, 4711, 1);
  EXPECT_EQ(cpu(), 1);
  lost(0);  // any CPU may have moved it
  EXPECT_EQ(cpu(), -1);
}

// A thread of another PID namespace has a number that means another thread here.
TEST_F(Running, ThreadsElsewhere) {
  Elsewhere away;
  away.tid = away.pid = 12;
  Task task{12, 12, "inner", "inner", away};
  tasks.add(task);
  switched(3, 0, 12);
  EXPECT_EQ(cpu(12), -1);
  task.elsewhere.here_tid = task.elsewhere.here_pid = 900;
  tasks.add(task);
  switched(2, 0, 900);
  EXPECT_EQ(cpu(12), 2);
}

}  // namespace
}  // namespace ringside::running_test
