// Names of threads over time, and the numbers of the kernel's events in a container.
#include "decode/tasks.hpp"

#include <gtest/gtest.h>

namespace ringside::tasks_test {
namespace {

RingName ring_of(bool kernel) {
  RingName ring;
  ring.kernel = kernel;
  return ring;
}

TEST(Tasks, ANameHoldsFromItsChangeOn) {
  Tasks tasks;
  tasks.add(Task{7, 7, "third", "third"});
  tasks.add_change({0, 7, 7, 7, false, "second", "second", "first", "first"}, 100, 0);
  tasks.add_change({0, 7, 7, 7, false, "third", "third", "second", "second"}, 200, 0);
  const RingName ring = ring_of(false);
  const auto at = [&](u64 ns) {
    tasks.go_to(ns);
    return std::string(tasks.name(7, ring));
  };
  EXPECT_EQ(at(0), "first");
  tasks.add(Task{7, 7, "third", "third"});  // the writers' table is read again, and has the last name
  EXPECT_EQ(at(99), "first");
  EXPECT_EQ(at(100), "second");
  EXPECT_EQ(at(199), "second");
  EXPECT_EQ(at(250), "third");
  tasks.add_change({0, 7, 7, 7, false, "late", "late", "third", "third"}, 240, 0);  // it comes late, and holds at once
  EXPECT_EQ(at(250), "late");
}

TEST(Tasks, NamesOfAMomentInThePast) {
  Tasks tasks, part;
  const RingName ring = ring_of(true);
  for (Tasks* of : {&tasks, &part}) {
    of->keep_past();
    of->add(Task{7, 7, "first", "first"});
    of->add_change({0, 7, 7, 7, true, "second", "second", "first", "first"}, 100, 0);
  }
  const auto at = [&](u64 ns, i32 tid = 7) {
    std::string name;
    tasks.as_of(ns, [&] { name = tasks.name(tid, ring); });
    return name;
  };
  EXPECT_EQ(at(50), "first");
  tasks.go_to(150);
  tasks.rename(8, "new", true);  // nothing is known of it before
  tasks.go_to(200);
  tasks.rename(7, "third", true);
  tasks.rename(8, "other", true);
  const u64 changes = tasks.renamed();
  EXPECT_EQ(at(50), "first");
  EXPECT_EQ(at(100), "second");
  EXPECT_EQ(at(199), "second");
  EXPECT_EQ(at(200), "third");
  EXPECT_EQ(at(100, 8), "new");
  EXPECT_EQ(at(300, 8), "other");
  EXPECT_EQ(tasks.name(7, ring), "third");
  EXPECT_GT(tasks.renamed(), changes);  // kept names are looked up again
  // Another one has read what is between.
  part.begin_part();
  part.go_to(160);
  part.rename(7, "between", true);
  part.begin_part();
  part.go_to(180);
  part.rename(7, "between", true);
  tasks.add_past(part);
  EXPECT_EQ(at(159), "second");
  EXPECT_EQ(at(160), "between");
  EXPECT_EQ(at(199), "between");
  EXPECT_EQ(at(200), "third");
  // The oldest are forgotten: from there on back a thread has the oldest name that is left.
  for (u64 n = 0; n < 70'000; ++n) {
    tasks.go_to(1000 + n);
    tasks.rename(7, "name " + std::to_string(n), true);
  }
  EXPECT_EQ(at(70'999), "name 69999");
  EXPECT_EQ(at(69'999), "name 68999");
  EXPECT_NE(at(50), "first");
}

TEST(Tasks, AThreadOfAProcessKeepsIt) {
  Tasks tasks;
  tasks.add(Task{7, 8, "worker", "app"});
  tasks.add_change({0, 8, 0, 0, true, "worker", "", "app", ""}, 100, 0);
  const RingName ring = ring_of(true);
  EXPECT_EQ(tasks.name(8, ring), "app");
  tasks.go_to(100);
  EXPECT_EQ(tasks.name(8, ring), "worker");
  EXPECT_EQ(tasks.find(8, ring)->process, "app");
  EXPECT_EQ(tasks.seen_process(8, ring), 7);
}

// As in a trace.dat, whose threads are all the kernel's.
TEST(Tasks, OutsideOfContainersTheKernelsNumbersAreTids) {
  Tasks tasks;
  RingName thread = ring_of(true);
  thread.pid = 4711;
  thread.tid = 4712;
  thread.task = "worker";
  thread.process = "app";
  tasks.add(thread, u32{0});
  EXPECT_EQ(tasks.name(4712, ring_of(true)), "worker");
  EXPECT_EQ(tasks.key(4712, ring_of(true)), 4712);
  EXPECT_EQ(tasks.show(4712), "4712");
}

TEST(Tasks, AProcessHasTheNumberingOfItsThreads) {
  Tasks tasks;
  RingName thread = ring_of(false);
  thread.pid = 4194304;
  thread.tid = 4194305;
  thread.task = "worker";
  thread.process = "app";
  thread.elsewhere = {8, 7, 1234, 108, 107};
  tasks.add(thread, u32{0});
  const Tasks::Key process = tasks.process(4194305, ring_of(false));
  ASSERT_NE(tasks.find(process), nullptr);
  EXPECT_EQ(tasks.find(process)->name, "app");
  EXPECT_EQ(tasks.show(process), "107(7)");
}

TEST(Tasks, InAContainerTheKernelsNumbersAreOthers) {
  Tasks tasks;
  tasks.kernel_counts_apart(0);
  RingName thread = ring_of(true);
  thread.pid = thread.tid = 4711;
  thread.task = thread.process = "app";
  thread.elsewhere = {7, 7, 1234, 7, 7};
  tasks.add(thread, u32{0});
  RingName other = ring_of(true);
  other.pid = other.tid = 7;  // outside: the number of this one in the container
  other.task = other.process = "kthreadd";
  tasks.add(other, u32{0});
  const RingName kernel = ring_of(true), program = ring_of(false);
  EXPECT_EQ(tasks.key(4711, kernel), tasks.key(7, program));
  EXPECT_NE(tasks.key(7, kernel), tasks.key(7, program));
  EXPECT_EQ(tasks.name(4711, kernel), "app");
  EXPECT_EQ(tasks.name(7, kernel), "kthreadd");
  EXPECT_EQ(tasks.seen(4711, kernel), 7);
  EXPECT_EQ(tasks.seen_process(4711, kernel), 7);
  EXPECT_EQ(tasks.show(tasks.key(4711, kernel)), "7");
  EXPECT_EQ(tasks.show(tasks.key(7, kernel)), "7@4026531836");
  EXPECT_EQ(tasks.show(tasks.key(99, kernel)), "99@4026531836");  // nothing is known of it
  EXPECT_EQ(tasks.name(0, kernel), "<idle>");
  EXPECT_TRUE(tasks.is_outside(99, kernel));
  EXPECT_FALSE(tasks.is_outside(4711, kernel));
  EXPECT_FALSE(tasks.is_outside(7, program));
  // Its process's number is translated, too.
  tasks.add_change({0, 4711, 4711, 0, true, "other", "other", "app", ""}, 100, 0);
  tasks.go_to(100);
  EXPECT_EQ(tasks.seen_process(4711, kernel), 7);
  EXPECT_EQ(tasks.name(7, program), "other");
}

}  // namespace
}  // namespace ringside::tasks_test
