// Inside a PID namespace, as in a container: the kernel's events have numbers of the first one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <map>
#include <set>

#include "binary.hpp"
#include "kernel/tracefs_instance.hpp"

namespace ringside::pid_namespace_test {
namespace {

using nlohmann::json;
using test::Outcome;
using testing::HasSubstr;

struct PidNamespace : test::BinaryTest {
  void SetUp() override {
    test::BinaryTest::SetUp();
    if (geteuid() != 0) GTEST_SKIP() << "wants root, for unshare";
    if (auto found = tracefs_dir(); !found) GTEST_SKIP() << found.error().sentence;
    if (run(inside + "true").code != 0) GTEST_SKIP() << "unshare does not work here";
  }
  const std::string inside = "unshare -pf --mount-proc ";
  const std::string command = RINGSIDE_BUILD_DIR "/ringside ";
  bool has_perf() const { return run("test $(cat /proc/sys/kernel/perf_event_paranoid) -lt 4").code == 0; }
  // The TIDs of each task.
  std::map<std::string, std::set<i32>> tids(const std::string& arguments) const {
    std::map<std::string, std::set<i32>> all;
    for (const json& e : events(arguments)) all[e.at("task")].insert(e.at("tid").get<i32>());
    return all;
  }
};

TEST_F(PidNamespace, ACommandsEventsAreThoseOfItAlone) {
  ASSERT_EQ(run(inside + command + "record -q -e syscalls:sys_enter_openat sh -c 'cat /dev/null; cat /dev/null'").code, 0);
  const auto of = tids("");
  ASSERT_EQ(of.size(), 2u);  // sh and cat
  EXPECT_EQ(of.at("cat").size(), 2u);
  EXPECT_EQ(of.at("sh").size(), 1u);
  for (const auto& [task, numbers] : of) EXPECT_LT(*numbers.rbegin(), 100) << task;
  // Nested, and where /proc shows the namespace around.
  for (const std::string& how : {inside + inside, std::string("unshare -pf ")}) {
    ASSERT_EQ(run(how + command + "record -q -e syscalls:sys_enter_openat cat /dev/null").code, 0);
    const auto all = tids("");
    ASSERT_EQ(all.size(), 1u) << how;
    EXPECT_EQ(all.count("cat"), 1u) << how;
  }
}

TEST_F(PidNamespace, RecordersBesideEachOtherFollowTheirOwn) {
  std::string all;
  for (int n = 0; n < 6; ++n)
    all += inside + command + "record -q -o r" + std::to_string(n) + " -e syscalls:sys_enter_openat cat /dev/null & ";
  ASSERT_EQ(run(all + "wait").code, 0);
  for (int n = 0; n < 6; ++n) {
    const auto of = tids("r" + std::to_string(n));
    EXPECT_EQ(of.size(), 1u) << n;
    EXPECT_EQ(of.count("cat"), 1u) << n;
  }
}

TEST_F(PidNamespace, ItsSystemCallsAreCounted) {
  const Outcome o = run(inside + command + "syscalls --json cat /dev/null");
  ASSERT_EQ(o.code, 0) << o.err;
  u64 opened = 0;
  const json table = json::parse(o.out);
  for (const json& row : table.at("rows"))
    if (row.at("syscall") == "openat") opened = row.at("calls");
  EXPECT_GT(opened, 0u);
}

TEST_F(PidNamespace, AProcessIsChosenByItsNumberThere) {
  // $P makes calls, and $Q does not: with the kernel's numbers another process would have had these.
  const Outcome o = run(inside + "sh -c 'while :; do read x < /dev/null; done & P=$!; sleep 60 & Q=$!; " + command +
                        "record -q -e syscalls:sys_enter_openat -p $P -o p --duration 300ms; " + command +
                        "record -q -e syscalls:sys_enter_openat -p $Q -o q --duration 300ms; echo $P; kill $P $Q'");
  ASSERT_EQ(o.code, 0) << o.err;
  const auto of = tids("p");
  ASSERT_EQ(of.size(), 1u);
  EXPECT_EQ(of.at("sh"), std::set<i32>{std::stoi(o.out)});
  EXPECT_TRUE(events("q").empty());
}

// Both have recorded a number of the thread, in two PID namespaces.
TEST_F(PidNamespace, APairOfTheKernelsEventAndAProgramsIsOfOneThread) {
  ASSERT_EQ(
      run(inside + command + "record -q -e syscalls:sys_enter_write,syscalls:sys_exit_write --libc io cat /proc/self/stat")
          .code,
      0);
  const json mixed = json::parse(ringside("latency syscalls:sys_enter_write libc:write ringside.data --json").out);
  ASSERT_GT(mixed.at("pairs"), 0) << mixed;
  const json& slow = mixed.at("slowest").at(0);
  EXPECT_EQ(slow.at("start").at("tid"), slow.at("end").at("tid"));
  EXPECT_EQ(slow.at("key"), "thread=cat-" + slow.at("end").at("tid").dump());
  // People know the number that the thread has there.
  const json calls = json::parse(ringside("latency syscalls:sys_enter_write syscalls:sys_exit_write ringside.data --json").out);
  ASSERT_GT(calls.at("pairs"), 0) << calls;
  EXPECT_EQ(calls.at("slowest").at(0).at("key"), "tid=" + calls.at("slowest").at(0).at("end").at("tid").dump());
}

TEST_F(PidNamespace, WhoIsThereIsSaidWhereProcShowsAnother) {
  const Outcome o = run("unshare -pf " + command + "record -q -e sched:sched_switch -p 1 --duration 10ms");
  EXPECT_NE(o.code, 0);
  EXPECT_THAT(o.err, HasSubstr("/proc shows another PID namespace"));
}

TEST_F(PidNamespace, AThreadHasOneNumber) {
  if (!has_perf()) GTEST_SKIP() << "perf_event_open is refused here, which tells the numbers of threads that end";
  ASSERT_EQ(
      run(inside + command + "record -q -a -e syscalls:sys_enter_openat -e sched:sched_process_exit --libc malloc sh -c " +
          "'for i in 1 2 3 4; do " RINGSIDE_BUILD_DIR "/tests/names_writer 7001; done'")
          .code,
      0);
  std::map<std::string, std::set<i32>> of;
  for (const json& e : events("-f 'task == names_writer'")) {
    of[e.at("event")].insert(e.at("tid").get<i32>());
    EXPECT_EQ(e.at("pid"), e.at("tid"));
  }
  EXPECT_EQ(of.at("libc:malloc").size(), 4u);
  EXPECT_EQ(of.at("sched:sched_process_exit"), of.at("libc:malloc"));
  EXPECT_EQ(of.at("syscalls:sys_enter_openat"), of.at("libc:malloc"));
  EXPECT_LT(*of.at("libc:malloc").rbegin(), 1000);
}

TEST_F(PidNamespace, OthersAreShownInTheFirst) {
  ASSERT_EQ(run(inside + command + "record -q -a -e sched:sched_switch sleep 0.2").code, 0);
  u64 outside = 0;
  for (const json& e : events("-f 'tid != 0'")) {
    if (e.value("pid_namespace", u64{0}) == 0xEFFFFFFC)
      ++outside;
    else
      EXPECT_LT(e.at("tid").get<i32>(), 1000) << e;
  }
  EXPECT_GT(outside, 0u);  // at least the kernel's own threads
  EXPECT_THAT(ringside("report").out, HasSubstr("@4026531836"));
}

TEST_F(PidNamespace, SamplesOfOthersAreCounted) {
  const std::string busy = "sh -c 'while :; do :; done' & BUSY=$!; ";
  const Outcome o = run(busy + inside + command + "record -a --sample 199 --duration 500ms; kill $BUSY");
  if (o.err.find("perf_event_open") != std::string::npos) GTEST_SKIP() << o.err;
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.err, HasSubstr("<outside>"));
  EXPECT_THAT(ringside("hist ringside:sample/task").out, HasSubstr("<outside>"));
}

// Fields have the kernel's numbers: a filter by one of them finds nothing, and not without a word.
TEST_F(PidNamespace, FieldsHaveTheKernelsNumbers) {
  ASSERT_EQ(run(inside + command + "record -q -e sched:sched_switch sleep 0.01").code, 0);
  for (const char* of : {"prev_pid == 3", "next_pid == 3 && prev_prio > 0"}) {
    const std::string filter = " -f '" + std::string(of) + "'";
    EXPECT_THAT(ringside("hist event" + filter).err, HasSubstr("has numbers of the first PID namespace")) << of;
    EXPECT_THAT(run(inside + command + "top -e sched:sched_switch --once" + filter).err,
                HasSubstr("_pid of the kernel's events has"));
    EXPECT_THAT(run(inside + command + "latency sleep --duration 10ms" + filter).err,
                HasSubstr("_pid of the kernel's events has"));
  }
  EXPECT_EQ(ringside("hist event -f 'tid == 3'").err.find("first PID namespace"), std::string::npos);
}

TEST_F(PidNamespace, LiveViewsHaveItsNumbers) {
  const Outcome o =
      run(inside + "sh -c 'while :; do read x < /dev/null; done & P=$!; " + command +
          "hist -e syscalls:sys_enter_openat --json --duration 500ms -f \"tid == $P\" tid; echo; echo $P; kill $P'");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("\"tid\""));
  EXPECT_EQ(o.out.find("\"rows\":[]"), std::string::npos) << o.out;
}

}  // namespace
}  // namespace ringside::pid_namespace_test
