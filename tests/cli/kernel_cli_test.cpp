// record and its followers with events of the kernel.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/syscall.h>

#include <atomic>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <thread>

#include "binary.hpp"
#include "kernel/tracefs_instance.hpp"
#include "sys/sys.hpp"

namespace ringside {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::Outcome;

struct KernelCli : test::BinaryTest {
  void SetUp() override {
    if (auto found = tracefs_dir(); !found) GTEST_SKIP() << found.error().sentence;
    BinaryTest::SetUp();
  }
  std::vector<json> events(const std::string& arguments = "") {
    const Outcome o = ringside("report --json " + arguments);
    EXPECT_EQ(o.code, 0) << o.err;
    std::vector<json> all;
    std::istringstream lines(o.out);
    for (std::string line; std::getline(lines, line);) all.push_back(json::parse(line));
    return all;
  }
};

TEST_F(KernelCli, OneCommandsSystemCallsWithItsOwnEvents) {
  const Outcome o = ringside("record --libc io -e 'libc:*' -e 'syscalls:sys_enter_*' -- dd if=/dev/zero of=/dev/null bs=1 count=100");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_NE(o.err.find("lost 0;"), std::string::npos) << o.err;
  u64 calls = 0, hooks = 0, last = 0;
  i32 pid = 0;
  for (const json& e : events()) {
    EXPECT_GE(e.at("ts").get<u64>(), last);
    last = e.at("ts").get<u64>();
    const std::string name = e.at("event");
    if (name == "libc:read") {
      ++hooks;
      EXPECT_TRUE(e.contains("ring"));
      pid = e.at("tid");
    }
    if (name == "syscalls:sys_enter_read" && e.at("fields").at("count") == 1) {
      ++calls;
      EXPECT_TRUE(e.contains("cpu"));
      EXPECT_EQ(e.at("tid").get<i32>(), pid == 0 ? e.at("tid").get<i32>() : pid);
    }
  }
  EXPECT_EQ(calls, 100u);
  EXPECT_GE(hooks, 100u);
  const Outcome hist = ringside("hist syscalls:sys_enter_read --field count");
  EXPECT_EQ(hist.code, 0) << hist.err;
  EXPECT_NE(hist.out.find("syscalls:sys_enter_read"), std::string::npos);
  const json stat = json::parse(ringside("stat ringside.data --json").out);
  EXPECT_EQ(stat.at("adds_up"), true);
  EXPECT_EQ(stat.at("total").at("unread"), 0u);
}

// Patterns of the kernel's events leave the program's alone; others choose among them.
TEST_F(KernelCli, WhatAPatternLeavesOfTheProgram) {
  const std::string write = "dd if=/dev/zero of=/dev/null bs=1 count=3";
  const auto has = [&](const char* event) { return run(RINGSIDE_BUILD_DIR "/ringside report").out.find(event) != std::string::npos; };
  ASSERT_EQ(ringside("record -q --libc io -e syscalls:sys_enter_write -- " + write).code, 0);
  EXPECT_TRUE(has(" write: ") && has(" sys_enter_write: ") && has(" read: "));
  ASSERT_EQ(ringside("record -q --libc io -e syscalls:sys_enter_write -e libc:write -- " + write).code, 0);
  EXPECT_TRUE(has(" write: ") && has(" sys_enter_write: "));
  EXPECT_FALSE(has(" read: "));
  ASSERT_EQ(ringside("record -q --libc io -e net:packet -- " + write).code, 0);
  EXPECT_TRUE(has(" write: "));
}

TEST_F(KernelCli, ChildrenAreFollowedAndNobodyElse) {
  const Outcome o = ringside("record -e syscalls:sys_enter_write -- sh -c 'sh -c \"echo a >/dev/null\"; echo b >/dev/null'");
  ASSERT_EQ(o.code, 0) << o.err;
  std::set<i32> tids;
  for (const json& e : events()) tids.insert(e.at("tid").get<i32>());
  EXPECT_EQ(tids.size(), 2u);
}

TEST_F(KernelCli, FilterGoesToTheKernel) {
  const Outcome o = ringside("record -e syscalls:sys_enter_read -f 'count == 7' -- dd if=/dev/zero of=/dev/null bs=7 count=5");
  ASSERT_EQ(o.code, 0) << o.err;
  const auto all = events();
  EXPECT_EQ(all.size(), 5u);
  for (const json& e : all) EXPECT_EQ(e.at("fields").at("count"), 7u);
  const Outcome wrong = ringside("record -e syscalls:sys_enter_read -f 'nothing == 7' -- true");
  EXPECT_EQ(wrong.code, 1);
  EXPECT_NE(wrong.err.find("nothing"), std::string::npos) << wrong.err;
}

TEST_F(KernelCli, TheKernelAloneForSomeTime) {
  const Outcome o = ringside("record -e 'sched:*' --duration 200ms");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_FALSE(events("-e sched:sched_switch").empty());
}

TEST_F(KernelCli, PatternsThatNothingAnswersTo) {
  Outcome o = ringside("record -e sched:no_such_thing -- true");
  EXPECT_EQ(o.code, 0);
  EXPECT_NE(o.err.find("sched:no_such_thing"), std::string::npos) << o.err;
  o = ringside("record -e sched:no_such_thing --duration 10ms");
  EXPECT_EQ(o.code, 2) << o.err;
  o = ringside("record -e 'nobody:*' -f 'a == 1' -- true");
  EXPECT_EQ(o.code, 2) << o.err;
}

TEST_F(KernelCli, NothingStaysInTracefs) {
  ASSERT_EQ(ringside("record -e sched:sched_switch -q -- true").code, 0);
  // Killed in the middle: the next run takes its instance away.
  run("timeout -s KILL 0.5 " RINGSIDE_BUILD_DIR "/ringside record -e sched:sched_switch -a -- sleep 1");
  ASSERT_EQ(ringside("record -e sched:sched_switch -q -o again -- true").code, 0);
  for (const auto& entry : fs::directory_iterator(must(tracefs_dir()) + "/instances")) {
    const std::string name = entry.path().filename();
    if (name.rfind("ringside-", 0) != 0 || name.rfind("ringside-test-", 0) == 0) continue;
    EXPECT_NE(sys::start_time(std::stoi(name.substr(9))), 0u) << name << " stayed";
  }
  // What the killed one had written is readable.
  EXPECT_EQ(ringside("report").code, 0);
}

// On all CPUs events as fast as they can be made, and nobody gives the consumer time to catch up: Ctrl-C ends it all the same, and
// what was recorded and lost is all that the kernel counted.
TEST_F(KernelCli, CtrlCUnderAStorm) {
  std::atomic<bool> stop{false};
  std::vector<std::thread> storm;
  for (unsigned i = 0; i < std::thread::hardware_concurrency(); ++i)
    storm.emplace_back([&, i] {
      cpu_set_t one;
      CPU_ZERO(&one);
      CPU_SET(i, &one);
      sched_setaffinity(0, sizeof one, &one);
      while (!stop) syscall(SYS_getppid);
    });
  for (const char* command : {"record -e 'syscalls:*' -e 'sched:*' -b 64k -o small", "record -e 'syscalls:*' -e 'sched:*' -b 1M -o large",
                              "top -e 'syscalls:*' --interval 100ms"}) {
    const u64 start = sys::now_ns();
    const Outcome o = run("timeout --preserve-status -k 60 -s INT 1 " RINGSIDE_BUILD_DIR "/ringside " + std::string(command));
    EXPECT_EQ(o.code, 0) << command << "\n" << o.err;
    EXPECT_LT(sys::now_ns() - start, 20'000'000'000) << command;
  }
  stop = true;
  for (std::thread& thread : storm) thread.join();
  for (const char* name : {"small", "large"}) {
    const json meta = json::parse(test::slurp(dir + "/" + name + "/meta.json"));
    EXPECT_EQ(meta.at("complete"), true);
    u64 recorded = 0, lost = 0;
    for (const json& ring : meta.at("rings")) {
      const json& counters = ring.at("counters");
      EXPECT_EQ(counters.at("unread"), 0u);
      EXPECT_EQ(ring.at("events"), counters.at("read"));
      EXPECT_EQ(ring.at("lost"), counters.at("overrun"));
      EXPECT_EQ(ring.at("events").get<u64>() + ring.at("lost").get<u64>(), counters.at("written").get<u64>());
      recorded += ring.at("events").get<u64>();
      lost += ring.at("lost").get<u64>();
    }
    EXPECT_GT(recorded, 10000u);
    if (std::string(name) == "small") {
      EXPECT_GT(lost, 0u);
    }
    std::printf("%s: %lu recorded, %lu lost\n", name, recorded, lost);
  }
}

TEST_F(KernelCli, ListTopAndStat) {
  Outcome o = ringside("list -e sched:sched_switch --json");
  ASSERT_EQ(o.code, 0) << o.err;
  const json listed = json::parse(o.out);
  ASSERT_EQ(listed.size(), 1u);
  EXPECT_NE(listed[0].at("fields").get<std::string>().find("prev_pid"), std::string::npos);
  EXPECT_EQ(ringside("list -e nobody:nothing").code, 1);

  o = ringside("top -e 'sched:*' --once --interval 200ms --json");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_GT(json::parse(o.out).at("count").get<u64>(), 0u);
  EXPECT_EQ(ringside("top -e nobody:nothing --once").code, 1);

  TracefsOptions options;
  options.prefix = "ringside-test-";
  auto mine = must(TracefsInstance::create(options));
  const std::string name = fs::path(mine.dir()).filename();
  o = ringside("stat --json " + name);
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(json::parse(o.out).at("rings").size(), mine.cpus().size());
  EXPECT_EQ(ringside("stat " + mine.dir()).code, 0);
  o = ringside("report " + name);
  EXPECT_EQ(o.code, 1);
  EXPECT_NE(o.err.find("top -e"), std::string::npos) << o.err;
}

}  // namespace
}  // namespace ringside
