// record --sample with -a and -p: samples of the kernel, on one timeline with the program's events.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "clock/tsc.hpp"
#include "binary.hpp"
#include "kernel/perf_sampler.hpp"
#include "sys/json.hpp"

namespace ringside::sample_cli_test {
namespace {

using nlohmann::json;
using test::Outcome;
using testing::HasSubstr;

const std::string sampled = RINGSIDE_BUILD_DIR "/tests/sampled";

struct SampleCli : test::BinaryTest {
  bool sees_kernel = false;
  void SetUp() override {
    const auto sampler = PerfSampler::open({});
    if (!sampler) GTEST_SKIP() << sampler.error().sentence;
    sees_kernel = (*sampler)->sees_kernel();
    BinaryTest::SetUp();
  }
  // Only the program's own: to name all that ran here could take seconds.
  Outcome folded_of(const std::string& where, const std::string& task = "sampled") const {
    return ringside("flame --folded -e ringside:sample -f 'task == \"" + task + "\"' " + where);
  }
  u64 count(const std::string& folded, const std::string& part) const {
    u64 sum = 0;
    std::istringstream lines(folded);
    for (std::string line; std::getline(lines, line);) {
      if (line.find(part) != std::string::npos) sum += std::stoull(line.substr(line.rfind(' ') + 1));
    }
    return sum;
  }
};

TEST_F(SampleCli, TheWholeMachineOnTheProgramsTimeline) {
  for (const char* clock : {"tsc", "mono"}) {
    if (clock == std::string("tsc") && !tsc_evidence().usable()) continue;
    const Outcome o = ringside(std::string("record -a --sample 1999 --clock ") + clock + " " + sampled);
    ASSERT_EQ(o.code, 0) << o.err;
    EXPECT_THAT(o.err, HasSubstr("refused 0"));
    const std::string folded = folded_of("").out;
    EXPECT_GT(count(folded, "main;caller_of_spun;spun"), 10u) << folded;
    EXPECT_GT(count(folded, "main;short_lived"), 3u) << folded;  // of processes that are gone
    EXPECT_TRUE(!sees_kernel || count(folded, "vfs_read;") > 3) << folded;
    // Between the events the thread is in spun, and nowhere else.
    i64 begin = 0, end = 0;
    i64 tid = 0;
    const auto all = events("-f 'task == \"sampled\"'");
    for (const json& e : all) {
      if (e["event"] == "sampled:begin") begin = e["ts"], tid = e["tid"];
      if (e["event"] == "sampled:end") end = e["ts"];
    }
    u64 in_spun = 0, outside = 0;
    for (const json& e : all) {
      if (e["event"] != "ringside:sample" || e["tid"] != tid || !e.contains("stack")) continue;
      const bool is = e["stack"].dump().find("\"spun") != std::string::npos;
      const i64 time = e["ts"];
      const bool between = time > begin - 1000 && time < end + 1000;
      in_spun += is && between;
      outside += is && !between;
    }
    EXPECT_GT(in_spun, 10u) << clock;
    EXPECT_EQ(outside, 0u) << clock;
  }
}

// The counts are exact, also in the parts of a rotated recording and where the oldest goes.
TEST_F(SampleCli, BooksBalance) {
  const Outcome rotated = ringside("record -a --sample 4999 --rotate 100ms --keep 20 " + sampled);
  ASSERT_EQ(rotated.code, 0) << rotated.err;
  const Outcome parts = folded_of("ringside.data*");
  EXPECT_GT(count(parts.out, "main;caller_of_spun;spun"), 10u) << parts.err;
  EXPECT_GT(count(parts.out, "main;short_lived"), 3u) << parts.out;
  // Of a process whose maps were read before all that is left.
  const Outcome bounded =
      run(sampled + " hold & p=$!; " RINGSIDE_BUILD_DIR
                    "/ringside record -p $p --sample 19999 --max-size 1M --duration 700ms -o bounded; kill $p");
  ASSERT_EQ(bounded.code, 0) << bounded.err;
  EXPECT_THAT(bounded.err, HasSubstr("lost 0"));
  EXPECT_GT(count(folded_of("bounded").out, "main;caller_of_spun;spun"), 3u);
}

TEST_F(SampleCli, OfOneProcess) {
  std::string folded;
  for (int tries = 0; tries < 20 && count(folded, "main;caller_of_spun;spun") == 0; ++tries) {
    const Outcome o =
        run(sampled + " hold & p=$!; " RINGSIDE_BUILD_DIR "/ringside record -p $p --sample 999 --duration 200ms; kill $p");
    ASSERT_EQ(o.code, 0) << o.err;
    folded = ringside("flame --folded").out;
  }
  EXPECT_GT(count(folded, "main;caller_of_spun;spun"), 0u);
  EXPECT_EQ(count(folded, "sampled;"), count(folded, ""));  // and of no other
}

// Code without frame pointers: its callers are found by its tables, also from inside of the kernel and of processes that are
// gone.
// Without a recording: rows are functions.
TEST_F(SampleCli, LiveByFunction) {
  for (const char* command : {"top --json", "watch --batch", "top --by task"}) {
    const Outcome o = run(sampled + " hold & p=$!; " RINGSIDE_BUILD_DIR "/ringside " + command +
                          " --sample 1999 -p $p --duration 2s; code=$?; kill $p; exit $code");
    ASSERT_EQ(o.code, 0) << command << o.err;
    EXPECT_THAT(o.out, HasSubstr(std::string(command).ends_with("task") ? "sampled" : "spun")) << command << o.err;
    EXPECT_EQ(o.err.find("NOT exact"), std::string::npos) << o.err;
  }
  for (const char* wrong : {"top --sample web", "top --sample 999 web", "top --sample -e sched", "top -p 1"})
    EXPECT_EQ(ringside(wrong).code, 2) << wrong;
}

TEST_F(SampleCli, CallersByTables) {
  if (perf_registers == 0) GTEST_SKIP() << "no walks by tables for this processor";
  const Outcome o = ringside("record -a --sample 1999 --call-graph dwarf -b 64M " + sampled + "_tables");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.err, HasSubstr("refused 0"));
  const std::string folded = folded_of("", "sampled_tables").out;
  EXPECT_GT(count(folded, "main;caller_of_spun;spun"), 10u) << folded;
  // In its execve() it has no callers yet, and no memory at its end; on a stack of the library's own the copy ends with that.
  const u64 none =
      count(folded, "__x64_sys_execve;") + count(folded, ";do_exit;") + count(folded, "[cut off];ringside_switch_stack;");
  EXPECT_GT(count(folded, "_start;"), (count(folded, "") - none) * 9 / 10) << folded;
  EXPECT_GT(count(folded, "main;short_lived"), 3u) << folded;
  EXPECT_TRUE(!sees_kernel || count(folded, "main;in_kernel;") > 3) << folded;
  // Fewer bytes than the stack has.
  ASSERT_EQ(ringside("record -a --sample 1999 --call-graph dwarf,8 -o short " + sampled + "_tables").code, 0);
  EXPECT_EQ(count(folded_of("short", "sampled_tables").out, "main;caller_of_spun;spun"), 0u);
}

// Copies of stacks fill their ring in a millisecond; what names the code of each process has a ring of its own.
TEST_F(SampleCli, LostSamplesTakeNoNamesAlong) {
  if (perf_registers == 0) GTEST_SKIP() << "no walks by tables for this processor";
  ASSERT_EQ(run("cp /bin/true one_of_60").code, 0);  // others on this machine execute true, too
  const Outcome o =
      ringside("record -a --sample 9999 --call-graph dwarf,65000 -b 256K sh -c 'for i in $(seq 60); do ./one_of_60; done'");
  ASSERT_EQ(o.code, 0) << o.err;
  std::istringstream maps(ringside("report -e code_map").out);
  size_t programs = 0;
  for (std::string line; std::getline(maps, line);)
    programs += line.ends_with("/one_of_60");
  EXPECT_EQ(programs, 60u) << o.err;
}

TEST_F(SampleCli, WithoutTheRightItSaysWhatToDo) {
  std::ifstream level("/proc/sys/kernel/perf_event_paranoid");
  int paranoid = 0;
  if (!(level >> paranoid) || paranoid < 1 || geteuid() != 0) GTEST_SKIP() << "not root, or everybody has the right";
  ASSERT_EQ(run("mkdir theirs && chown 65534 theirs && chmod 755 .").code, 0);
  const Outcome o = run("export RINGSIDE_ROOT=$PWD/theirs; setpriv --reuid=65534 --clear-groups " RINGSIDE_BUILD_DIR
                        "/ringside record -a --sample 999 --duration 1ms -o theirs/data");
  EXPECT_EQ(o.code, 1) << o.err;
  EXPECT_THAT(o.err, testing::AllOf(HasSubstr("kernel.perf_event_paranoid is"), HasSubstr("as root"),
                                    HasSubstr("record --sample 999 COMMAND")));
}

TEST_F(SampleCli, WhatCannotBe) {
  EXPECT_THAT(ringside("record --sample 999").err, HasSubstr("-a samples the whole machine"));
  EXPECT_THAT(ringside("record -a --sample 999 --clock counter --duration 1ms").err, HasSubstr("use --clock tsc or mono"));
  EXPECT_EQ(ringside("record -p 1").code, 2);
  for (const char* how : {"lbr", "dwarf,", "dwarf,7", "dwarf,65536", "dwarf,1k"})
    EXPECT_THAT(ringside(std::string("record -a --sample 9 --duration 1ms --call-graph ") + how).err,
                HasSubstr("--call-graph takes fp"));
  EXPECT_THAT(ringside("record --sample 9 --call-graph dwarf true").err, HasSubstr("with -a or -p"));
}

}  // namespace
}  // namespace ringside::sample_cli_test
