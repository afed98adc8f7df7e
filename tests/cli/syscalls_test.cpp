// ringside syscalls, and the names of system calls and errors in report.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <regex>

#include "binary.hpp"
#include "kernel/tracefs_instance.hpp"

namespace ringside::syscalls_test {
namespace {

using nlohmann::json;
using test::Outcome;

struct Syscalls : test::BinaryTest {
  void SetUp() override {
    if (auto found = tracefs_dir(); !found) GTEST_SKIP() << found.error().sentence;
    BinaryTest::SetUp();
  }
  struct Call {
    u64 calls = 0, errors = 0;
    bool operator==(const Call&) const = default;
  };
  using Calls = std::map<std::string, Call>;
  static Calls calls(const json& j) {
    Calls all;
    for (const json& row : j.at("rows")) all[row.at("syscall")] = {row.at("calls"), row.at("errors")};
    return all;
  }
};

// 30 reads of 7 bytes, a file that is not there.
const std::string job =
    "sh -c \"dd if=/dev/zero of=/dev/null bs=7 count=30; cat /nonexistent; ls /etc\" >/dev/null 2>/dev/null";

TEST_F(Syscalls, AsStraceCounts) {
  if (run("strace -V").code == 127) GTEST_SKIP() << "strace is not installed";
  if (run("strace -f -c -o theirs " + job).code > 1) GTEST_SKIP() << "strace may trace nothing here";
  const Outcome o = ringside("syscalls --json -n 1000 -- sh -c '" + job + "'");
  ASSERT_EQ(o.code, run(job).code) << o.err;
  const json j = json::parse(o.out);
  EXPECT_EQ(j.at("exact"), true) << o.out;
  EXPECT_EQ(run("strace -f -c -o theirs sh -c '" + job + "'").code, o.code);
  Calls theirs;
  std::istringstream lines(test::slurp(dir + "/theirs"));
  const std::regex row(R"(^ *[\d.]+ +[\d.]+ +\d+ +(\d+)(?: +(\d+))? +([a-z0-9_]+)$)");
  for (std::string line; std::getline(lines, line);) {
    std::smatch found;
    if (std::regex_match(line, found, row) && found[3] != "total")
      theirs[found[3]] = {std::stoull(found[1]), found[2].matched ? std::stoull(found[2]) : 0};
  }
  Calls ours = calls(j);
  // A child that ends while its parent waits makes a signal, now and then at another place.
  for (const char* unsteady : {"wait4", "rt_sigreturn", "restart_syscall", "vfork", "clone", "clone3"}) {
    theirs.erase(unsteady);
    ours.erase(unsteady);
  }
  EXPECT_GT(theirs.size(), 10u);
  for (const auto& [name, call] : theirs) {
    EXPECT_EQ(ours[name].calls, call.calls) << name;
    EXPECT_EQ(ours[name].errors, call.errors) << name;
  }
  EXPECT_EQ(ours.size(), theirs.size());
}

TEST_F(Syscalls, ACommandsCodeItsTableAndTheNamesOfItsErrors) {
  const Outcome o = ringside("syscalls -- sh -c 'cat /nonexistent; exit 7'");
  EXPECT_EQ(o.code, 7) << o.err;
  EXPECT_TRUE(std::regex_search(o.err, std::regex(R"(\nopenat +\d+ +\d+ .* ENOENT \d+)"))) << o.err;
  EXPECT_NE(o.err.find("nothing was lost: the numbers are exact"), std::string::npos) << o.err;
  EXPECT_NE(o.err.find("calls that have not returned: 2 (exit_group never does)"), std::string::npos) << o.err;
  EXPECT_EQ(ringside("syscalls -- ./nothing").code, 127);
  EXPECT_EQ(ringside("syscalls -a -- true").code, 2);
  EXPECT_EQ(ringside("syscalls -p 1 nowhere").code, 2);
  const Outcome gone = ringside("syscalls -p 4194304");
  EXPECT_EQ(gone.code, 1);
  EXPECT_NE(gone.err.find("there is no process 4194304"), std::string::npos) << gone.err;
}

// The same numbers from a recording of raw_syscalls, of syscalls, and of both.
TEST_F(Syscalls, FromRecordings) {
  for (const char* events : {"raw_syscalls", "syscalls", "syscalls,raw_syscalls"}) {
    ASSERT_EQ(ringside(std::string("record -q -b 16M -e ") + events + " -- dd if=/dev/zero of=/dev/null bs=7 count=30").code,
              0);
    const json j = json::parse(ringside("syscalls --json -n 1000").out);
    EXPECT_EQ(j.at("exact"), true);
    const Calls all = calls(j);
    EXPECT_GE(all.at("read").calls, 30u) << events;
    EXPECT_LE(all.at("read").calls, 40u) << events;
    EXPECT_EQ(all.at("execve"), (Call{1, 0})) << events;
    u64 total = 0;
    for (const json& row : j.at("rows")) {
      EXPECT_LE(row.at("min_ns"), row.at("max_ns"));
      EXPECT_LE(row.at("max_ns"), row.at("total_ns"));
      total += row.at("total_ns").get<u64>();
    }
    EXPECT_EQ(j.at("all").at("total_ns"), total);
    EXPECT_TRUE(std::is_sorted(j.at("rows").begin(), j.at("rows").end(),
                               [](const json& a, const json& b) { return a.at("total_ns") > b.at("total_ns"); }));
    const json by = json::parse(ringside("syscalls --json --by task -n 1000").out);
    EXPECT_EQ(by.at("rows").at(0).at("key"), "dd");
  }
  ASSERT_EQ(ringside("record -q -o half -e raw_syscalls:sys_exit -- true").code, 0);
  const Outcome o = ringside("syscalls half");
  EXPECT_EQ(o.code, 1);
  EXPECT_NE(
      o.err.find(
          "half has no events of system calls, or only their beginnings or ends; record both: ringside record -e raw_syscalls"),
      std::string::npos)
      << o.err;
}

// Names in the tables of other commands, from both kinds of events.
TEST_F(Syscalls, NamesInLatencyAndHist) {
  for (const char* events : {"raw_syscalls", "syscalls"}) {
    ASSERT_EQ(ringside(std::string("record -q -b 16M -e ") + events + " -- dd if=/dev/zero of=/dev/null bs=7 count=30").code,
              0);
    const json j = json::parse(ringside("latency syscalls ringside.data --json -n 1000").out);
    std::map<std::string, u64> counts;
    for (const json& group : j.at("groups")) counts[group.at("key")] = group.at("count");
    EXPECT_GE(counts["read"], 30u) << events;
    EXPECT_GE(counts["write"], 30u) << events;
    EXPECT_EQ(j.at("start"), events == std::string("syscalls") ? "syscalls:sys_enter_*" : "raw_syscalls:sys_enter");
    EXPECT_TRUE(std::regex_search(ringside("latency syscalls ringside.data -n 1000").out, std::regex(R"(\nread +\d+ )")))
        << events;
    EXPECT_TRUE(std::regex_search(ringside("hist syscall -n 1000").out, std::regex(R"(\n +read +\d+ )"))) << events;
    EXPECT_EQ(ringside("plot --latency syscalls").code, 0) << events;
  }
  for (const char* by : {"event", "start/event", "end/event"}) {
    const std::string wanted = std::string("syscalls:sys_") + (by[0] == 's' ? "enter" : "exit") + "_read";
    const json j = json::parse(
        ringside(std::string("latency 'syscalls:sys_enter_*' 'syscalls:sys_exit_*' ringside.data --json -n 1000 --by ") + by)
            .out);
    EXPECT_TRUE(std::any_of(j.at("groups").begin(), j.at("groups").end(),
                            [&](const json& g) { return g.at("key") == wanted && g.at("count") >= 30; }))
        << by << j.at("groups");
  }
}

TEST_F(Syscalls, NotExactAfterALoss) {
  ASSERT_EQ(ringside("record -q -b 8k --subbuf-size 4k -e raw_syscalls -- dd if=/dev/zero of=/dev/null bs=1 count=200000").code,
            0);
  const json stat = json::parse(ringside("stat ringside.data --json").out);
  const json j = json::parse(ringside("syscalls --json").out);
  const u64 overrun = stat.at("total").at("overrun");
  if (overrun == 0) GTEST_SKIP() << "the recorder was fast enough to lose nothing";
  EXPECT_EQ(j.at("exact"), false);
  EXPECT_EQ(j.at("lost"), overrun);
  EXPECT_NE(ringside("syscalls").out.find("NOT exact: "), std::string::npos);
}

TEST_F(Syscalls, AProcessThatRuns) {
  u64 errors = 0;
  for (int seconds = 1; seconds <= 64 && errors == 0; seconds *= 2) {  // a slow machine starts few programs in one
    const Outcome o = run("sh -c 'while :; do cat /nonexistent; done' 2>/dev/null & P=$!; " RINGSIDE_BUILD_DIR
                          "/ringside syscalls --json -n 1000 -p $P --duration " +
                          std::to_string(seconds) + "s; kill $P");
    const Calls all = calls(json::parse(o.out));
    if (!all.contains("openat") || !all.contains("execve")) continue;
    errors = all.at("openat").errors;
  }
  EXPECT_GE(errors, 1u);
}

// It ends when its command does, and with the command's code.
TEST_F(Syscalls, AStopIsPassedOn) {
  const Outcome o =
      run(RINGSIDE_BUILD_DIR
          "/ringside syscalls -- sh -c 'trap \"sleep 0.2; exit 9\" TERM; touch ready; while :; do sleep 0.02; done' & "
          "P=$!; until [ -e ready ]; do sleep 0.02; done; kill -TERM $P; wait $P");
  EXPECT_EQ(o.code, 9) << o.err;
  EXPECT_EQ(o.err.find("still running"), std::string::npos) << o.err;
}

TEST_F(Syscalls, NamesInReport) {
  ASSERT_EQ(ringside("record -q -e raw_syscalls -e syscalls:sys_exit_openat -- cat /nonexistent").code, 1);
  const std::string text = ringside("report").out;
  EXPECT_TRUE(std::regex_search(text, std::regex(R"(sys_enter: NR \d+ \([0-9a-f, ]+\) # openat\n)"))) << text.substr(0, 400);
  EXPECT_TRUE(std::regex_search(text, std::regex(R"(sys_exit: NR \d+ = -2 # openat ENOENT\n)")));
  EXPECT_TRUE(std::regex_search(text, std::regex(R"(sys_exit: NR \d+ = 0 # close\n)")));
  EXPECT_TRUE(std::regex_search(text, std::regex(R"(sys_exit_openat: 0xfffffffffffffffe # ENOENT\n)")));
  EXPECT_TRUE(std::regex_search(text, std::regex(R"(sys_exit_openat: 0x[0-9]\n)")));
  u64 failed = 0;
  for (const json& e : events("-e raw_syscalls:sys_exit")) {
    EXPECT_TRUE(e.at("syscall").is_string()) << e;
    EXPECT_EQ(e.contains("error"), e.at("fields").at("ret").get<i64>() < 0 && e.at("fields").at("ret").get<i64>() >= -4095)
        << e;
    failed += e.at("syscall") == "openat" && e.value("error", "") == "ENOENT";
  }
  EXPECT_GE(failed, 1u);
}

}  // namespace
}  // namespace ringside::syscalls_test
