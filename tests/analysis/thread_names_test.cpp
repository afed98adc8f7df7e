// Names, processes and parents of threads, as the kernel's events tell them.
#include "analysis/thread_names.hpp"

#include <gtest/gtest.h>

#include "cli/hand_made.hpp"

namespace ringside::thread_names_test {
namespace {

using test::Payload;

struct NamesOfThreads : testing::Test {
  Formats formats;
  Tasks tasks;
  ThreadNames names{formats, tasks};
  RingName cpu{0, 0, 0, "", "", true};
  NamesOfThreads() {
    formats.add(
        kernel_ids + 1, "task", "task_newtask",
        test::format(
            1, "task_newtask",
            "\tfield:pid_t pid;\toffset:8;\tsize:4;\tsigned:1;\n\tfield:char comm[16];\toffset:12;\tsize:16;\tsigned:0;\n"
            "\tfield:unsigned long clone_flags;\toffset:32;\tsize:8;\tsigned:0;\n",
            R"("%d", REC->pid)"));
    formats.add(kernel_ids + 2, "sched", "sched_process_fork",
                test::format(2, "sched_process_fork",
                             "\tfield:char parent_comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\tfield:pid_t "
                             "parent_pid;\toffset:24;\tsize:4;\tsigned:1;\n"
                             "\tfield:char child_comm[16];\toffset:28;\tsize:16;\tsigned:0;\n\tfield:pid_t "
                             "child_pid;\toffset:44;\tsize:4;\tsigned:1;\n",
                             R"("%d", REC->child_pid)"));
  }
  static std::string padded(std::string name) {
    name.resize(16);
    return name;
  }
  void see(const Payload& p) { names.see({1, 0, p, 0, kernel_ids}, cpu); }
  void newtask(i32 maker, i32 tid, const std::string& name, u64 flags) {
    see(Payload(1, maker).put(tid).text(padded(name)).put(u32{0}).put(flags));
  }
  void fork(i32 maker, i32 tid, const std::string& name) {
    see(Payload(2, maker).text(padded(name)).put(maker).text(padded(name)).put(tid));
  }
  // "name of process, parent"
  std::string of(i32 tid) const {
    const Task* const task = tasks.find(tid, cpu);
    if (task == nullptr) return "unknown";
    return task->name + " of " + std::to_string(task->pid) + ", " + std::to_string(tasks.parent(tid, cpu));
  }
};

constexpr u64 thread = 0x10000;

TEST_F(NamesOfThreads, ANewTaskIsAThreadOrAProcess) {
  newtask(100, 200, "sh", 0x1200000);
  EXPECT_EQ(of(200), "sh of 200, 100");
  newtask(200, 201, "sh", thread | 0x100);
  EXPECT_EQ(of(201), "sh of 200, 100");
  newtask(201, 300, "sh", 0);  // made by a thread: the parent is its process
  EXPECT_EQ(of(300), "sh of 300, 200");
  newtask(300, 301, "sh", thread);
  EXPECT_EQ(of(301), "sh of 300, 200");
}

TEST_F(NamesOfThreads, ATidIsUsedAgain) {
  newtask(100, 200, "one", 0);
  newtask(200, 201, "two", thread);
  newtask(500, 201, "three", 0);
  EXPECT_EQ(of(201), "three of 201, 500");
}

TEST_F(NamesOfThreads, AForkNamesTheParentAlone) {
  fork(100, 200, "make");
  EXPECT_EQ(of(200), "make of 200, 100");
  tasks.add(RingName{0, 200, 202, "worker", "make"});
  fork(200, 202, "make");  // known as a thread
  EXPECT_EQ(of(202), "worker of 200, 100");
}

TEST_F(NamesOfThreads, ANewTaskIsKnownBeforeTheForkTellsIt) {
  newtask(100, 200, "make", thread);
  fork(100, 200, "make");
  EXPECT_EQ(of(200), "make of 100, 0");
}

TEST_F(NamesOfThreads, NumbersThatMakeNoSense) {
  newtask(0, 5, "x", 0);
  newtask(-4, 6, "x", thread);
  newtask(7, 7, "x", 0);
  newtask(7, -1, "x", 0);
  fork(-1, 8, "x");
  for (const i32 tid : {5, 6, 7, 8}) EXPECT_EQ(tasks.parent(tid, cpu), 0) << tid;
  EXPECT_EQ(of(-1), "unknown");
}

}  // namespace
}  // namespace ringside::thread_names_test
