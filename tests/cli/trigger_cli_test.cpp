// ringside trigger: a program's rare event, the kernel's, and a long time between two; what it saves, how often, and what it
// leaves behind.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "binary.hpp"
#include "kernel/tracefs_instance.hpp"
#include "sys/json.hpp"

namespace ringside::trigger_cli_test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::Outcome;

constexpr const char* binary = RINGSIDE_BUILD_DIR "/ringside";

struct TriggerCli : test::BinaryTest {
  // Starts it, waits until it is armed, runs `command`, and reports how it ended; its stderr is in the Outcome's. $trigger: its
  // pid.
  Outcome armed(const std::string& arguments, const std::string& command) const {
    return run(std::string(binary) + " trigger " + arguments +
               " 2>log & trigger=$!; until grep -qs armed log || ! kill -0 $trigger 2>/dev/null; do sleep 0.02; done; " +
               command + "; wait $trigger; code=$?; cat log >&2; exit $code");
  }
  static bool says(const Outcome& o, const char* what) { return o.err.find(what) != std::string::npos; }
};

TEST_F(TriggerCli, ARareValueOfAProgram) {
  Outcome o;
  for (int seconds = 2; seconds <= 64; seconds *= 2) {  // a slow machine may not reach it in two
    o = ringside("trigger 'unit:number if n == 777' --snapshot -- timeout " + std::to_string(seconds) +
                 " " RINGSIDE_BUILD_DIR "/tests/signalled_writer");
    if (o.code != 4) break;
  }
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_TRUE(says(o, "triggered by: ") && says(o, "n=777; frozen ") && says(o, "saved 777 events of the last ")) << o.err;
  const auto all = events("");
  ASSERT_GE(all.size(), 778u);
  for (u64 n = 0; n < all.size(); ++n) EXPECT_EQ(all[n].at("fields").at("n"), n);
  const json stat = json::parse(ringside("stat ringside.data --json").out);
  EXPECT_EQ(stat.at("adds_up"), true);
  EXPECT_EQ(stat.at("trigger").at("condition"), "unit:number if n == 777");
  EXPECT_EQ(stat.at("trigger").at("time_ns"), all[777].at("ts"));
  EXPECT_TRUE(says(ringside("stat ringside.data"), "triggered by: "));
  EXPECT_TRUE(fs::is_empty(dir + "/root"));
}

// A filter alone; the events are not known before the program runs.
TEST_F(TriggerCli, TheCLibrarysCalls) {
  const Outcome o = ringside(
      "trigger 'event == read && count == 777' --libc io --compress -o here --exec 'echo $RINGSIDE_SNAPSHOT > done' -- "
      "sh -c 'dd if=/dev/zero of=/dev/null bs=1 count=50; dd if=/dev/zero of=/dev/null bs=777 count=1; touch after'");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_TRUE(json::parse(test::slurp(dir + "/here/meta.json")).contains("compression"));
  const auto all = events("here -e libc:read");
  const auto of_size = [&](u64 size) {
    return std::count_if(all.begin(), all.end(), [&](const json& e) { return e.at("fields").at("count") == size; });
  };
  EXPECT_EQ(of_size(1), 50);
  EXPECT_EQ(of_size(777), 1);
  EXPECT_EQ(test::slurp(dir + "/done"), dir + "/here\n");
  EXPECT_TRUE(fs::exists(dir + "/after"));  // the command was not disturbed
}

// "*:*" names what the program has, also where the kernel could be asked: no event of the kernel meets it.
TEST_F(TriggerCli, APatternOfEveryProgramIsNotTheKernels) {
  ASSERT_EQ(ringside("record -q -i web -o made --duration 1ms").code, 0);
  ASSERT_EQ(run("RINGSIDE_INSTANCE=web " RINGSIDE_BUILD_DIR "/tests/many_threads 1 100").code, 0);
  const Outcome quiet = ringside("trigger '*:*' -i web --duration 300ms");
  EXPECT_EQ(quiet.code, 4) << quiet.err;
  EXPECT_FALSE(says(quiet, "triggered by: ")) << quiet.err;
  for (const char* command : {"top", "hist event", "watch --batch"}) {
    const Outcome o = ringside(std::string(command) + " -e '*:*' --duration 300ms");
    EXPECT_EQ(o.code, 2) << command << o.out << o.err;
    EXPECT_TRUE(says(o, "names events of every program, and of the kernel all")) << command << o.err;
  }
}

// Another party's instance goes on while --exec runs, and every place is looked at before the command begins.
TEST_F(TriggerCli, WhatItDoesNotOwn) {
  ASSERT_EQ(ringside("record -q -i web -o made -- true").code, 0);
  const Outcome o = armed("'libc:write' -i web -n 1 --exec '" + std::string(binary) + " stat web >during 2>&1'",
                          "RINGSIDE_INSTANCE=web RINGSIDE_LIBC=io LD_PRELOAD=" RINGSIDE_BUILD_DIR
                          "/libringside-libc.so dd if=/dev/zero of=/dev/null bs=1 count=1");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_NE(test::slurp(dir + "/during").find("tracing is on"), std::string::npos) << test::slurp(dir + "/during");
  fs::create_directories(dir + "/cap.2/file");
  const Outcome taken = ringside("trigger 'libc:write' --libc io -n 3 -o cap -- touch ran");
  EXPECT_EQ(taken.code, 1);
  EXPECT_TRUE(says(taken, "will not record into cap.2")) << taken.err;
  EXPECT_FALSE(fs::exists(dir + "/ran"));
  fs::rename(dir + "/made", dir + "/older");
  fs::create_directories(dir + "/older.old/file");
  EXPECT_EQ(ringside("trigger 'libc:write' --libc io -o older -- touch ran").code, 1);
  EXPECT_FALSE(fs::exists(dir + "/ran"));
}

// Events from before it was armed are no reason, though they are in the rings.
TEST_F(TriggerCli, BeginsWhenItIsArmed) {
  ASSERT_EQ(ringside("record -q -i web -o made --duration 1ms").code, 0);
  const std::string write = "RINGSIDE_INSTANCE=web " RINGSIDE_BUILD_DIR "/tests/many_threads 1 100";
  ASSERT_EQ(run(write).code, 0);
  const Outcome early = ringside("trigger 'unit:number' -i web --duration 100ms");
  EXPECT_EQ(early.code, 4) << early.err;
  EXPECT_FALSE(says(early, "the kernel has no such event")) << early.err;
  const Outcome o = armed("'unit:number' -i web", write);
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_TRUE(says(o, "saved 100 events of the last ")) << o.err;
}

TEST_F(TriggerCli, TheEndMayComeFirst) {
  Outcome o;
  for (int seconds = 2; seconds <= 64; seconds *= 2) {  // a slow machine may not even start the program in two
    o = ringside("trigger 'unit:number if n == 1000' --duration " + std::to_string(seconds) +
                 "s -- " RINGSIDE_BUILD_DIR "/tests/signalled_writer");
    if (!says(o, "there are none at all")) break;
  }
  EXPECT_EQ(o.code, 4) << o.err;
  EXPECT_TRUE(says(o, "not triggered")) << o.err;
  EXPECT_FALSE(fs::exists(dir + "/ringside.data"));
  EXPECT_TRUE(fs::is_empty(dir + "/root"));
  const Outcome never = ringside("trigger 'unit:numbr' -- true");
  EXPECT_EQ(never.code, 2) << never.err;
  EXPECT_TRUE(says(never, "no event here matches \"unit:numbr\"")) << never.err;
}

TEST_F(TriggerCli, MistakesAreExplained) {
  const auto fails = [&](const std::string& arguments, int code, const char* what) {
    const Outcome o = ringside("trigger " + arguments);
    EXPECT_EQ(o.code, code) << arguments << "\n" << o.err;
    EXPECT_TRUE(says(o, what)) << arguments << "\n" << o.err;
  };
  fails("", 2, "CONDITION");
  fails("'latency > 5' --latency wakeup", 2, "unit");
  fails("'latency > 5ms &&' --latency wakeup", 2, "the text ends");
  fails("'latency > 5ms' --latency sched:sched_switch", 2, "START END");
  fails("'pid == 1' --key pid", 2, "--latency");
  fails("'n == ' -- true", 2, "the text ends");
  fails("'n == 1' -i nobody", 1, "nobody");
  fails("'n == 1' --libc nonsense -- true", 2, "nonsense");
  ASSERT_EQ(run("mkdir mine && touch mine/letter").code, 0);
  fails("'n == 1' -o mine -- true", 1, "no recording");
  fails("'n == 1' -o /nowhere/at/all -- true", 1, "/nowhere/at/all");
  fails("'n == 1' -- /no/such/program", 127, "/no/such/program");
  EXPECT_TRUE(fs::is_empty(dir + "/root"));
}

struct KernelTrigger : TriggerCli {
  void SetUp() override {
    if (auto found = tracefs_dir(); !found) GTEST_SKIP() << found.error().sentence;
    TriggerCli::SetUp();
  }
};

// The filter alone names the event; its cause is the system call.
TEST_F(KernelTrigger, ARareSignal) {
  const Outcome o = armed(
      "\"event == signal_generate && sig == 28 && pid == $$\" -e 'signal:*' -e sched:sched_switch -e syscalls:sys_enter_kill "
      "--after 20ms",
      "echo $$ > pid; kill -WINCH $$");
  ASSERT_EQ(o.code, 0) << o.err;
  const i32 pid = std::stoi(test::slurp(dir + "/pid"));
  EXPECT_TRUE(says(o, "triggered by: ") && says(o, "signal_generate: sig=28 ")) << o.err;
  EXPECT_FALSE(says(o, "not in the recording")) << o.err;
  const auto all = events("");
  const auto it = std::find_if(all.begin(), all.end(), [&](const json& e) {
    return e.at("event") == "signal:signal_generate" && e.at("fields").at("sig") == 28 && e.at("fields").at("pid") == pid;
  });
  ASSERT_NE(it, all.end());
  EXPECT_TRUE(std::any_of(all.begin(), it,
                          [&](const json& e) { return e.at("event") == "syscalls:sys_enter_kill" && e.at("tid") == pid; }));
  EXPECT_GT(all.end() - it, 1);  // --after
  const json stat = json::parse(ringside("stat ringside.data --json").out);
  EXPECT_EQ(stat.at("adds_up"), true);
  EXPECT_EQ(stat.at("trigger").at("time_ns"), it->at("ts"));
}

// Of the start, and of the end: the thread that waited, and no other.
TEST_F(KernelTrigger, TheConditionSaysItsSide) {
  for (const char* side :
       {"prev_comm == sleep", "start/prev_comm == sleep && end/comm == sleep", "key != 1 && start/task == sleep"}) {
    const Outcome o = armed("'latency sleep >= 200ms && " + std::string(side) + "' --duration 60s", "sleep 0.3; sleep 0.3");
    EXPECT_EQ(o.code, 0) << side << o.err;
    EXPECT_TRUE(says(o, "sched_waking: comm=sleep") && says(o, "; latency ")) << side << o.err;
  }
  const Outcome o = ringside("trigger 'latency wakeup > 1ms && cpu == 0' --duration 1s");
  EXPECT_EQ(o.code, 2) << o.err;
  EXPECT_TRUE(says(o, "start/cpu or end/cpu")) << o.err;
}

TEST_F(KernelTrigger, ALongTimeBetweenTwo) {
  const Outcome o = armed("'latency >= 200ms && comm == sleep' --latency sleep --duration 60s", "sleep 0.3; sleep 0.3");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_TRUE(says(o, "sched_waking: comm=sleep") && says(o, "; latency ")) << o.err;
  const json trigger = json::parse(ringside("stat ringside.data --json").out).at("trigger");
  EXPECT_GE(trigger.at("latency_ns"), 200'000'000);
  const u64 end = trigger.at("time_ns");
  const auto all = events("-e sched:sched_waking");
  EXPECT_TRUE(std::any_of(all.begin(), all.end(),
                          [&](const json& e) { return e.at("ts") == end && e.at("fields").at("comm") == "sleep"; }));
}

TEST_F(KernelTrigger, MoreThanOnce) {
  const Outcome o =
      armed("\"signal:signal_generate if sig == 28 && pid == $$\" -e sched:sched_switch --count 2 -o r-%n --duration 60s",
            "while kill -0 $trigger 2>/dev/null; do kill -WINCH $$; sleep 0.1; done");
  ASSERT_EQ(o.code, 0) << o.err;
  u64 last = 0;
  for (const char* name : {"r-1", "r-2"}) {
    const json stat = json::parse(ringside("stat --json " + std::string(name)).out);
    EXPECT_EQ(stat.at("adds_up"), true);
    const u64 time = stat.at("trigger").at("time_ns");
    const auto all = events(name);
    EXPECT_GT(all.front().at("ts"), last);  // the second begins after the first
    EXPECT_TRUE(std::any_of(all.begin(), all.end(),
                            [&](const json& e) { return e.at("ts") == time && e.at("event") == "signal:signal_generate"; }));
    last = all.back().at("ts");
  }
  EXPECT_FALSE(fs::exists(dir + "/r-3"));
}

// Small rings go round many times; the last events are saved, and the books say what is missing.
TEST_F(KernelTrigger, RingsGoRound) {
  const Outcome o =
      armed("\"signal:signal_generate if sig == 28 && pid == $$\" -e raw_syscalls:sys_enter -b 64k --duration 60s",
            "dd if=/dev/zero of=/dev/null bs=1 count=20000; kill -WINCH $$");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_TRUE(says(o, "were overwritten")) << o.err;
  const json stat = json::parse(ringside("stat ringside.data --json").out);
  EXPECT_EQ(stat.at("adds_up"), true);
  EXPECT_GT(stat.at("total").at("overrun"), 10'000u);
  EXPECT_LT(events("").size(), 10'000u);
}

std::vector<std::string> instances_of(const std::string& pid) {
  std::vector<std::string> found;
  for (const std::string& name : kernel_instances()) {
    if (name.size() > pid.size() && name.compare(name.size() - pid.size() - 1, std::string::npos, "-" + pid) == 0)
      found.push_back(name);
  }
  return found;
}

TEST_F(KernelTrigger, NothingStaysBehind) {
  const std::string never = "'signal:signal_generate if sig == 1000' -e sched:sched_switch";
  const Outcome ended = armed(never, "echo -n $trigger > pid; kill -TERM $trigger");
  EXPECT_EQ(ended.code, 4) << ended.err;
  EXPECT_TRUE(instances_of(test::slurp(dir + "/pid")).empty());
  const Outcome killed = armed(never, "echo -n $trigger > pid; kill -KILL $trigger");
  EXPECT_EQ(killed.code, 128 + 9);
  const std::string pid = test::slurp(dir + "/pid");
  EXPECT_EQ(ringside("trigger --duration 1ms " + never).code, 4);
  EXPECT_TRUE(instances_of(pid).empty());
  EXPECT_TRUE(fs::is_empty(dir + "/root"));
}

TEST_F(KernelTrigger, MistakesAreExplained) {
  const auto fails = [&](const std::string& arguments, const char* what, int code = 1) {
    const Outcome o = ringside("trigger " + arguments);
    EXPECT_EQ(o.code, code) << arguments << "\n" << o.err;
    EXPECT_TRUE(says(o, what)) << arguments << "\n" << o.err;
  };
  fails("'sig == 9' -e signal:signal_nonsense", "the kernel has no such event", 2);
  fails("'signal:signal_nonsense'", "signal:signal_nonsense");
  fails("'sig == 9' -e sched:sched_switch", "no event here has a field \"sig\"", 2);
  fails("'event == signal_generate' -e sched:sched_switch", "none of the events of -e can meet");
  fails("'signal:signal_generate if sg == 9'", "did you mean sig", 2);
  fails("'latency > 5ms' --latency wakeup -k nonsense", "nonsense", 2);
}

}  // namespace
}  // namespace ringside::trigger_cli_test
