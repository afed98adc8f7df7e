// Each event is shown under the name that its thread had at that time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <map>
#include <vector>

#include "binary.hpp"
#include "kernel/tracefs_instance.hpp"

namespace ringside::names_over_time_test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

const std::string program = RINGSIDE_BUILD_DIR "/tests/names_writer";

struct NamesOverTime : test::BinaryTest, testing::WithParamInterface<const char*> {
  std::string record() const {
    return std::string(RINGSIDE_BUILD_DIR "/ringside record -q ") +
           (*GetParam() == 0 ? "" : std::string("--rings ") + GetParam());
  }
  // The tasks of the events of libc:malloc, by size.
  std::map<u64, std::string> tasks(const std::string& where = "") const {
    std::map<u64, std::string> all;
    for (const json& e : events("-e libc:malloc " + where)) all[e.at("fields").at("size")] = e.at("task");
    return all;
  }
};

TEST_P(NamesOverTime, AThreadThatNamesItself) {
  ASSERT_EQ(run(record() + " --libc malloc " + program + " rename").code, 0);
  EXPECT_EQ(tasks()[5001], "names_writer");
  EXPECT_EQ(tasks()[5002], "worker");
  const std::string hist = ringside("hist libc:malloc/task -f 'size == 5001'").out;
  EXPECT_THAT(hist, HasSubstr("names_writer"));
  EXPECT_EQ(hist.find("worker"), std::string::npos);
  EXPECT_EQ(events("-e libc:malloc -f 'task == worker'").size(), 1u);
  const std::string csv = ringside("export --format csv -o -").out;
  EXPECT_THAT(csv, HasSubstr(",worker,"));
  EXPECT_THAT(csv, HasSubstr(",names_writer,"));
}

// Each of the slowest pairs has the names of its own time, also in what led to it.
TEST_P(NamesOverTime, TheSlowestPairs) {
  ASSERT_EQ(run(record() + " --libc malloc " + program + " rename").code, 0);
  const json all = json::parse(
      ringside("latency 'libc:malloc if size == 5001' 'libc:malloc if size == 5002' -k process --context 3 --json").out);
  const json& slow = all.at("slowest").at(0);
  EXPECT_EQ(slow.at("start").at("task"), "names_writer");
  EXPECT_EQ(slow.at("end").at("task"), "worker");
  std::map<std::string, u64> before;
  for (const json& e : slow.at("context")) ++before[e.at("task")];
  EXPECT_GT(before["names_writer"], 0u) << slow;
  EXPECT_THAT(ringside("latency 'libc:malloc if size == 5001' 'libc:malloc if size == 5002' -k process").out,
              HasSubstr(" names_writer-"));
}

TEST_P(NamesOverTime, AProcessThatExecutesAnotherProgram) {
  ASSERT_EQ(run("cp " + program + " first; " + record() + " --libc malloc --stack env A=1 ./first 6001").code, 0);
  std::map<std::string, u64> of;
  for (const json& e : events("-e libc:malloc")) ++of[e.at("task")];
  EXPECT_GT(of["env"], 0u);
  EXPECT_GT(of["first"], 0u);
  EXPECT_EQ(of.size(), 2u);
  EXPECT_EQ(tasks()[6001], "first");
  // As tables count them.
  for (const std::string column : {"thread", "process"}) {
    std::map<std::string, u64> rows;
    const json table = json::parse(ringside("hist --json libc:malloc/" + column).out);
    for (const json& row : table.at("rows")) {
      const std::string name = row.at("libc:malloc/" + column);
      rows[name.substr(0, name.rfind('-'))] += row.at("count").get<u64>();
    }
    EXPECT_EQ(rows, of) << table;
  }
  const std::string folded = ringside("flame --folded -e libc:malloc").out;
  EXPECT_THAT(folded, HasSubstr("env;"));
  EXPECT_THAT(folded, HasSubstr("first;"));
}

TEST_P(NamesOverTime, ANumberThatIsUsedAgain) {
  if (geteuid() != 0) GTEST_SKIP() << "wants root, for unshare";
  if (run("unshare -pf --mount-proc true").code != 0) GTEST_SKIP() << "unshare does not work here";
  const auto recorded = run("cp " + program + " first; cp " + program + " second; unshare -pf --mount-proc " + record() +
                            " --libc malloc " + program + " ./first ./second");
  if (recorded.code == 1) GTEST_SKIP() << "ns_last_pid cannot be written here";
  ASSERT_EQ(recorded.code, 0) << recorded.err;
  EXPECT_EQ(tasks()[6001], "first");
  EXPECT_EQ(tasks()[6002], "second");
}

TEST_P(NamesOverTime, AnInstanceTellsThem) {
  ASSERT_EQ(run(record() + " -i it -o r0 true").code, 0);
  ASSERT_EQ(run("cp " + program +
                " first; RINGSIDE_INSTANCE=it RINGSIDE_LIBC=malloc LD_PRELOAD=" RINGSIDE_BUILD_DIR
                "/libringside-libc.so env A=1 ./first 6001")
                .code,
            0);
  std::map<std::string, u64> of;
  for (const json& e : events("-e libc:malloc it")) ++of[e.at("task")];
  EXPECT_GT(of["env"], 0u);
  EXPECT_EQ(tasks("it")[6001], "first");
}

INSTANTIATE_TEST_SUITE_P(Rings, NamesOverTime, testing::Values("cpu", "thread"),
                         [](const auto& of) { return std::string(of.param); });

struct KernelNames : test::BinaryTest {
  void SetUp() override {
    test::BinaryTest::SetUp();
    if (auto found = tracefs_dir(); !found) GTEST_SKIP() << found.error().sentence;
  }
};

// No recorded event has a name.
TEST_F(KernelNames, AreThoseOfTheTime) {
  ASSERT_EQ(ringside("record -q -e syscalls:sys_enter_prctl,syscalls:sys_enter_brk,syscalls:sys_enter_munmap env A=1 " +
                     program + " rename")
                .code,
            0);
  std::map<std::string, u64> prctl, all;
  for (const json& e : events()) {
    ++all[e.at("task")];
    if (e.at("event") == "syscalls:sys_enter_prctl") ++prctl[e.at("task")];
  }
  EXPECT_EQ(prctl, (std::map<std::string, u64>{{"names_writer", 1}}));
  EXPECT_GT(all["env"], 0u);
  EXPECT_GT(all["names_writer"], 1u);
  // Whose events these are is the recorder's own knowledge: none of it is among the events.
  for (const json& e : events()) EXPECT_EQ(e.at("event").get<std::string>().rfind("syscalls:", 0), 0u);
}

// The thread takes the number of the first one, whose events before keep their name.
TEST_F(KernelNames, AThreadThatExecutesAnotherProgram) {
  ASSERT_EQ(run("cp " + program + " other").code, 0);
  ASSERT_EQ(
      ringside("record -q -e syscalls:sys_enter_brk,syscalls:sys_enter_execve " + program + " execute ./other").code, 0);
  std::vector<std::string> tasks;
  for (const json& e : events())
    if (tasks.empty() || tasks.back() != e.at("task")) tasks.push_back(e.at("task"));
  EXPECT_EQ(tasks, (std::vector<std::string>{"names_writer", "executor", "other"}));
}

}  // namespace
}  // namespace ringside::names_over_time_test
