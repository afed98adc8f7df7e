// ringside states: times of threads and CPUs, beside a computation from the lines of report.
#include <gtest/gtest.h>

#include <map>

#include "binary.hpp"
#include "kernel/tracefs_instance.hpp"

namespace ringside::states_cli_test {
namespace {

using nlohmann::json;
using test::Outcome;

struct StatesCommand : test::BinaryTest {
  void SetUp() override {
    if (auto found = tracefs_dir(); !found) GTEST_SKIP() << found.error().sentence;
    BinaryTest::SetUp();
  }
  // Some kernels do not trace each switch away from an idle thread: `busy` leaves the command's CPU none.
  void record(bool busy = false) {
    const std::string words = "for i in 1 2 3 4 5; do sleep 0.01; ls / >/dev/null; done";
    const std::string cpu = run("taskset -cp $$ | sed 's/.*: *//; s/[-,].*//' | tr -d '\\n'").out;
    ASSERT_EQ(ringside("record -q -a -b 16M -e sched -o rec -- " +
                       (busy ? "taskset -c " + cpu + " sh -c 'while :; do :; done & " + words + "; kill $!'"
                             : "sh -c '" + words + "'"))
                  .code,
              0);
  }
  static std::string tid_of(const std::string& key) { return key.substr(key.rfind('-') + 1); }
};

// Run times by thread from nothing but the switches of each CPU, as text.
TEST_F(StatesCommand, RunTimesAreThoseOfTheLines) {
  record();
  struct Ran {
    u64 count = 0, ns = 0, longest = 0;
    bool operator==(const Ran&) const = default;
  };
  std::map<std::string, Ran> theirs;
  std::map<u32, std::pair<u64, std::string>> on;  // by CPU
  std::istringstream lines(ringside("report --json rec -e sched:sched_switch").out);
  for (std::string line; std::getline(lines, line);) {
    const json e = json::parse(line);
    if (!e.contains("fields")) continue;
    const auto of = [&](const char* name) { return std::to_string(e.at("fields").at(name).get<i64>()); };
    const u64 ts = e.at("ts");
    const u32 cpu = e.at("cpu");
    if (const auto at = on.find(cpu); at != on.end() && at->second.second == of("prev_pid")) {
      Ran& ran = theirs[of("prev_pid")];
      ++ran.count;
      ran.ns += ts - at->second.first;
      ran.longest = std::max(ran.longest, ts - at->second.first);
    }
    on[cpu] = {ts, of("next_pid")};
  }
  const Outcome o = ringside("states --json -n 100000 rec");
  ASSERT_EQ(o.code, 0) << o.err;
  const json j = json::parse(o.out);
  if (j.at("lost") != 0 || j.at("backward") != 0) GTEST_SKIP() << "the machine lost events, or its clocks differ";
  EXPECT_GT(j.at("rows").size(), 5u);
  u64 total = 0;
  for (const json& row : j.at("rows")) {
    const json& r = row.at("states").at("running");
    const u64 longest = r.at("longest_ns").is_null() ? 0 : r.at("longest_ns").get<u64>();
    EXPECT_EQ((Ran{r.at("count"), r.at("total_ns"), longest}), theirs[tid_of(row.at("key"))]) << row;
    total += r.at("total_ns").get<u64>();
    double share = 0;
    for (const json& state : row.at("states")) share += state.at("share").get<double>();
    EXPECT_NEAR(share, 100, .1) << row;
  }
  EXPECT_EQ(j.at("all").at("running").at("total_ns"), total);
}

TEST_F(StatesCommand, AddedUpByProcessCgroupAndCpu) {
  record();
  const auto total = [&](const std::string& by, const char* state) {
    const Outcome o = ringside("states --json rec --by " + by);
    EXPECT_EQ(o.code, 0) << o.err;
    const json j = json::parse(o.out);
    EXPECT_EQ(j.at("by"), by);
    const json& all = j.at("all").at(state);
    // A CPU of a busy machine is never idle: what it does has no end in the recording.
    return all.at("total_ns").get<u64>() + (by == "cpu" ? all.at("cut_ns").get<u64>() : 0);
  };
  const u64 running = total("thread", "running");
  EXPECT_GT(running, 0u);
  EXPECT_EQ(total("process", "running"), running);
  EXPECT_EQ(total("cgroup", "running"), running);
  EXPECT_GT(total("cpu", "busy"), 0u);
  const Outcome table = ringside("states rec --task sleep --sort sleeping");
  EXPECT_NE(table.out.find("sleep-"), std::string::npos) << table.out;
  EXPECT_EQ(table.out.find("ls-"), std::string::npos) << table.out;
  EXPECT_NE(ringside("states rec").out.find("cut: "), std::string::npos);
  EXPECT_NE(ringside("states rec --by cpu").out.find("no interrupt was recorded"), std::string::npos);
}

// Below the shell that started them; all time is on some line.
TEST_F(StatesCommand, ProcessesBelowThoseThatStartedThem) {
  record(true);
  const Outcome o = ringside("states --tree --json -n 100000 rec");
  ASSERT_EQ(o.code, 0) << o.err;
  const json tree = json::parse(o.out);
  std::map<std::string, u64> below_sh;
  u64 running = 0;
  for (const json& row : tree.at("rows")) {
    running += row.at("running_ns").get<u64>();
    EXPECT_GE(row.at("all_running_ns"), row.at("running_ns"));
    const std::vector<std::string> path = row.at("path");
    if (path.size() > 1 && path[path.size() - 2] == "sh") below_sh[path.back()] += row.at("processes").get<u64>();
  }
  EXPECT_GE(below_sh["sleep"], 5u) << o.out;
  EXPECT_GE(below_sh["ls"], 5u) << o.out;
  EXPECT_EQ(running, tree.at("all_running_ns"));
  const json threads = json::parse(ringside("states --json -n 100000 rec").out).at("all").at("running");
  EXPECT_EQ(running, threads.at("total_ns").get<u64>() + threads.at("cut_ns").get<u64>());
  const Outcome text = ringside("states --tree -n 1000 rec");
  EXPECT_NE(text.out.find("  ls "), std::string::npos) << text.out;
  EXPECT_EQ(ringside("states --tree --sort running rec").code, 2);
}

TEST_F(StatesCommand, Live) {
  for (const char* words : {"states -a --duration 200ms --json", "states -a --by cpu --duration 200ms --json"}) {
    // An idle machine has no thread whose switches are all seen.
    const Outcome o = run("timeout 60 sh -c 'while :; do sleep 0.005; done' & " RINGSIDE_BUILD_DIR "/ringside " +
                          std::string(words) + "; code=$?; kill $!; exit $code");
    ASSERT_EQ(o.code, 0) << o.err;
    const json j = json::parse(o.out);
    EXPECT_GT(j.at("switches"), 0u) << o.out;
    EXPECT_GE(j.at("rows").size(), 1u) << o.out;
  }
  EXPECT_EQ(ringside("states -p 1 --duration 50ms").code, 0);
  // Its switches name the threads before and after it, too: none of them has a row.
  const Outcome o =
      run("timeout 60 sh -c 'while :; do sleep 0.005; done' & P=$!; sleep 0.1; C=$(pgrep -P $P -x sh); " RINGSIDE_BUILD_DIR
          "/ringside states -p $C --by process --duration 300ms --json; code=$?; kill $P; exit $code");
  ASSERT_EQ(o.code, 0) << o.err;
  for (const json& row : json::parse(o.out).at("rows")) {
    const std::string name = row.at("key");
    EXPECT_TRUE(name.starts_with("sh-") || name.starts_with("sleep-")) << o.out;
  }
}

// Between two recordings nobody recorded; between two parts of one, nothing is missing.
TEST_F(StatesCommand, NothingLastsFromOneRecordingIntoAnother) {
  ASSERT_EQ(
      run("for w in a b; do " RINGSIDE_BUILD_DIR "/ringside record -q -a -b 16M -e sched -o $w sleep 0.1 || exit; done").code,
      0);
  ASSERT_EQ(ringside("record -q -a -b 16M -e sched --rotate 100ms -o parts sleep 0.5").code, 0);
  const auto pairs = [&](const std::string& where) {
    const json j = json::parse(ringside("latency sleep --json " + where).out);
    return j.at("pairs").get<u64>() + j.at("doubtful").get<u64>();
  };
  // No state lasts longer than its recording. Counts do not add up: a thread that was seen in part is in no table.
  u64 longest = 0, duration = 0;
  const json table = json::parse(ringside("states --json -n 100000 a b").out);
  for (const json& row : table.at("rows"))
    for (const json& state : row.at("states")) if (!state.at("longest_ns").is_null()) longest = std::max(longest, state.at("longest_ns").get<u64>());
  for (const char* name : {"/a", "/b"})
    duration = std::max(duration, json::parse(test::slurp(dir + name + "/meta.json")).at("duration_ns").get<u64>());
  EXPECT_EQ(pairs("a b"), pairs("a") + pairs("b"));
  EXPECT_GT(longest, 0u);
  EXPECT_LE(longest, duration);
  const std::string names = run("echo parts.0* parts").out;
  std::istringstream each(names);
  u64 of_each = 0;
  for (std::string part; each >> part;) of_each += pairs(part);
  EXPECT_GT(pairs(names.substr(0, names.find('\n'))), of_each) << "the sleep of the command lasts over several parts";
}

TEST_F(StatesCommand, RefusesWhatWouldBeWrong) {
  for (const auto& [words, sentence] :
       {std::pair<const char*, const char*>{"-f 'prev_pid == 1'", "states needs every switch and takes no -f"},
        {"-C 0", "threads go from CPU to CPU: --cpu needs --by cpu"},
        {"--by cpu -p 1", "--by cpu needs the switches of all threads"},
        {"-a -p 1", "--all and --pid contradict each other"},
        {"-a rec", "take one of them"},
        {"--sort busy", "--sort takes running, runnable, preempted"}}) {
    const Outcome o = ringside(std::string("states ") + words);
    EXPECT_EQ(o.code, 2) << words;
    EXPECT_NE(o.err.find(sentence), std::string::npos) << o.err;
  }
  ASSERT_EQ(ringside("record -q -o none -e sched:sched_waking -- true").code, 0);
  const Outcome none = ringside("states none");
  EXPECT_EQ(none.code, 1);
  EXPECT_NE(none.err.find("none: there is no sched:sched_switch, which has the states of threads and CPUs; record it"),
            std::string::npos)
      << none.err;
}

}  // namespace
}  // namespace ringside::states_cli_test
