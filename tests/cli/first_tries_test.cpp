// What a new user tried, and did not get: each line is one that was typed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>

#include "binary.hpp"
#include "cli/hand_made.hpp"
#include "kernel/tracefs_instance.hpp"
#include "sys/json.hpp"

namespace ringside::test::first_tries_test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

const std::string build = RINGSIDE_BUILD_DIR "/", tool = build + "ringside";

struct FirstTries : BinaryTest {
  // Instance `web` with small rings, some overwritten, whose program has ended.
  void make_web() {
    ASSERT_EQ(ringside("record -q -i web -b 32k --subbuf-size 4k -o made -- true").code, 0);
    ASSERT_EQ(run("RINGSIDE_INSTANCE=web RINGSIDE_LIBC=io LD_PRELOAD=" + build +
                  "libringside-libc.so dd if=/dev/zero of=/dev/null bs=1 count=20000 status=none")
                  .code,
              0);
  }
  static std::vector<json> lines(const std::string& text) {
    std::vector<json> all;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) all.push_back(json::parse(line));
    return all;
  }
};

struct FirstTriesAsRoot : FirstTries {
  void SetUp() override {
    if (auto found = tracefs_dir(); !found) GTEST_SKIP() << found.error().sentence;
    FirstTries::SetUp();
  }
};

// The rate is that of now, and the loss that of this reading.
TEST_F(FirstTries, AnEarlierProgramsEventsAreInNoRateAndNoLoss) {
  make_web();
  ASSERT_GT(json::parse(ringside("top web --once --json").out).at("lost"), 0);
  for (const char* typed : {"top web --json --interval 50ms --duration 2s", "watch web --json --interval 50ms --duration 2s"}) {
    const auto pictures = lines(ringside(typed).out);
    ASSERT_GE(pictures.size(), 2u) << typed;
    for (size_t n = 0; n < pictures.size(); ++n) {
      EXPECT_EQ(pictures[n].at("lost"), 0) << typed;
      for (const json& row : pictures[n].at("rows")) EXPECT_EQ(row.at("rate"), 0.0) << typed << row;
    }
    EXPECT_GT(pictures.back().at("rows").at(0).at("count"), 0) << typed;
  }
  EXPECT_THAT(ringside("top web --duration 100ms").out,
              testing::ContainsRegex("none lost: the numbers are exact \\([0-9,]+ had been lost before this began\\)"));
}

TEST_F(FirstTriesAsRoot, ARecordingOfAProcessEndsWithIt) {
  const Outcome o = run("sh -c 'until [ -e ringside.data/meta.json ]; do sleep 0.02; done' & timeout 60 " + tool +
                        " record -e sched:sched_switch -p $!");
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.err, HasSubstr("lost 0; ringside.data"));
}

TEST_F(FirstTriesAsRoot, RecordWithCallsTakesThoseOfTheProgramAndOfTheKernel) {
  ASSERT_EQ(ringside("record -q -g -e sched:sched_process_exec --libc io cat /etc/hostname").code, 0);
  EXPECT_THAT(ringside("flame ringside.data --folded -e sched:sched_process_exec").out, HasSubstr("execve"));
  EXPECT_THAT(ringside("flame ringside.data --folded -e libc:open").out, HasSubstr("cat;cat"));
  // A stack is the lines below its event.
  const std::string first = ringside("report ringside.data -e sched:sched_process_exec -n 1").out;
  EXPECT_THAT(first, HasSubstr("<stack trace>"));
  EXPECT_THAT(ringside("record -e sched:sched_process_exec --stack true").err,
              HasSubstr("--stack is about events of programs, and none was written; -g records"));
}

// perf record -g CMD.
TEST_F(FirstTries, RecordWithCallsAloneTakesSamples) {
  ASSERT_EQ(ringside("record -q -g sh -c 'i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done'").code, 0);
  EXPECT_THAT(ringside("flame --folded").out, HasSubstr("sh;"));
  EXPECT_GT(json::parse(ringside("top --json -e ringside:sample").out).at("count"), 0);
}

// The program has ended long before its stacks are looked at.
TEST_F(FirstTriesAsRoot, StacksOfAProgramAtEventsOfTheKernelHaveNames) {
  ASSERT_EQ(ringside("record -q -g -e sched:sched_switch sleep 0.05").code, 0);
  EXPECT_THAT(ringside("flame ringside.data --folded -e sched:sched_switch").out, HasSubstr("nanosleep;"));
}

TEST_F(FirstTriesAsRoot, AnEventInThePlaceOfARecordingLeadsToItsOption) {
  EXPECT_THAT(ringside("report sched_switch").err, HasSubstr("an event of this name is chosen by -e sched_switch"));
}

TEST_F(FirstTriesAsRoot, TheKernelsWordsOnAFilterAreOneSentence) {
  const Outcome o = ringside("record -e sched:sched_switch -f 'nosuch == 1' touch ran");
  EXPECT_EQ(o.code, 2);
  EXPECT_THAT(o.err,
              HasSubstr("does not take the filter \"nosuch == 1\" for sched:sched_switch: Field not found; ringside list "
                        "sched:sched_switch shows its fields"));
  EXPECT_FALSE(fs::exists(dir + "/ran"));
}

TEST_F(FirstTriesAsRoot, ATriggersPairIsGivenInAnyOrder) {
  for (const char* typed :
       {"--latency wakeup 'latency > 1ns' sleep 1",
        "--latency sched:sched_waking sched:sched_switch -k pid=next_pid 'latency > 1ns'",
        "-k pid=next_pid --latency sched:sched_waking sched:sched_switch 'latency > 1ns' sleep 1",
        "'latency wakeup > 1ns' sleep 1", "'latency sched:sched_waking sched:sched_switch > 1ns' -k pid=next_pid"}) {
    const Outcome o = ringside(std::string("trigger --duration 60s -o saved ") + typed);
    EXPECT_EQ(o.code, 0) << typed << "\n" << o.err;
    EXPECT_THAT(o.err, HasSubstr("triggered by: ")) << typed;
  }
}

TEST_F(FirstTries, ATriggerAsksWhichPairBeforeItRunsTheCommand) {
  const Outcome o = ringside("trigger 'latency > 50us' touch ran");
  EXPECT_EQ(o.code, 2);
  EXPECT_THAT(o.err, HasSubstr("the latency of which pair?"));
  EXPECT_THAT(ringside("trigger 'wakeup > 5ms' touch ran").err,
              HasSubstr("the latency of a pair begins with that word: 'latency wakeup > 5ms'"));
  EXPECT_FALSE(fs::exists(dir + "/ran"));
}

TEST_F(FirstTries, SpansAreAPairByName) {
  ASSERT_EQ(ringside("record -q " + build + "example_01_write").code, 0);
  const auto all = json::parse(ringside("latency span --json").out);
  EXPECT_GT(all.at("pairs"), 0);
  EXPECT_EQ(all.at("pairs"), all.at("starts"));
  const auto count = [&](const std::string& filter) {
    return json::parse(ringside("top --json -e ringside:span -f " + filter).out).at("count");
  };
  EXPECT_EQ(count("'track_event_type == B'"), all.at("starts"));
  EXPECT_EQ(count("'track_event_type == \"B\"'"), all.at("starts"));
  EXPECT_EQ(count("'track_event_type == E'"), all.at("pairs"));
}

TEST_F(FirstTries, ARangeWithoutEventsIsSaid) {
  ASSERT_EQ(ringside("record -q --libc io cat /etc/hostname").code, 0);
  const auto all = events("ringside.data");
  ASSERT_FALSE(all.empty());
  const u64 end = all.back().at("ts");
  for (const char* typed : {"report --time +1000s..", "top --time +1000s..", "hist event --time +1000s.."}) {
    const Outcome o = ringside(typed);
    EXPECT_EQ(o.code, 2) << typed;
    EXPECT_THAT(o.err, HasSubstr("no event in ringside.data is in the range of --time; its first one is at ")) << typed;
    EXPECT_THAT(o.err,
                HasSubstr(", its last one at " + fmt::format("{}.{:06} s;", end / 1'000'000'000, end % 1'000'000'000 / 1000)))
        << typed;
    EXPECT_THAT(o.err, Not(HasSubstr("--cpu"))) << typed;
  }
  EXPECT_THAT(ringside("report --from 5").err, HasSubstr("did you mean --time FROM..?"));
}

TEST_F(FirstTries, QuantilesAreNotCalledExact) {
  ASSERT_EQ(ringside("record -q --libc io cat /etc/hostname").code, 0);
  EXPECT_THAT(ringside("hist event -v duration_ns").out, HasSubstr("the numbers are exact, quantiles within 1.6 %\n"));
  EXPECT_THAT(ringside("hist event").out, HasSubstr("the numbers are exact\n"));
}

TEST_F(FirstTries, CommandsThatTakeAnInstanceTakeItWithItsLetter) {
  make_web();
  EXPECT_THAT(ringside("stat -i web").out, HasSubstr("cpu"));
  EXPECT_THAT(ringside("crash -i web -n 1").out, HasSubstr("close: fd=1"));
  EXPECT_THAT(ringside("crash -n 1").out, HasSubstr("close: fd=1"));  // the only one
  EXPECT_THAT(ringside("report").err, HasSubstr("or name an instance: web"));
  EXPECT_EQ(ringside("rm -i web").code, 0);
  EXPECT_THAT(ringside("crash").err, HasSubstr("of which instance?"));
}

TEST_F(FirstTries, AnEmptyNameOfAnInstanceIsNone) {
  const Outcome o = run("RINGSIDE_INSTANCE= " + build + "example_01_write");
  EXPECT_EQ(o.code, 0);
  EXPECT_EQ(o.err, "");
}

// Nothing that was recorded takes the place of the system calls that are asked for.
TEST_F(FirstTriesAsRoot, SyscallsWithoutTheKernelsEventsIsAnError) {
  if (run("unshare -m true").code != 0) GTEST_SKIP() << "unshare does not work here";
  ASSERT_EQ(ringside("record -q -e raw_syscalls:sys_enter,raw_syscalls:sys_exit true").code, 0);
  const std::string hidden =
      "unshare -m sh -c 'for d in tracing debug; do [ ! -d /sys/kernel/$d ] || mount -t tmpfs none /sys/kernel/$d; done; ";
  for (const char* command : {"syscalls touch ran", "syscalls -a --duration 10ms", "syscalls -p 1 --duration 10ms"}) {
    const Outcome o = run(hidden + build + "ringside " + command + "'");
    EXPECT_EQ(o.code, 1) << command << ": " << o.err;
    EXPECT_THAT(o.err, HasSubstr("cannot use ")) << command;
    EXPECT_EQ(o.out, "") << command;
  }
  EXPECT_FALSE(fs::exists(dir + "/ran"));
}

TEST_F(FirstTries, ExportToStdout) {
  ASSERT_EQ(ringside("record -q --libc io cat /etc/hostname").code, 0);
  EXPECT_EQ(run(build + "ringside export -o - --format json | grep -c '\"event\"'").out,
            run(build + "ringside export -o all.json && grep -c '\"event\"' all.json").out);
  EXPECT_FALSE(fs::exists(dir + "/-"));
  EXPECT_THAT(ringside("export -o -").err, HasSubstr("add --format"));
  EXPECT_EQ(ringside("export -o - --format ctf").code, 2);
}

// Without room for them the addresses stay numbers; the events are worth more.
TEST_F(FirstTriesAsRoot, ADiskWithoutRoomForSymbolsHasRoomForEvents) {
  if (run("unshare -m true").code != 0) GTEST_SKIP() << "unshare does not work here";
  fs::create_directories(dir + "/small");
  const Outcome o = run("unshare -m sh -c 'mount -t tmpfs -o size=2M none small && cd small && " + build +
                        "ringside record -e sched:sched_process_exec,workqueue:workqueue_execute_start true; echo $?; " +
                        build + "ringside report -e sched:sched_process_exec | wc -l; ls ringside.data'");
  EXPECT_THAT(o.out, testing::StartsWith("0\n1\n")) << o.err;
  EXPECT_THAT(o.out, testing::Not(HasSubstr("kallsyms")));
  EXPECT_THAT(o.err, HasSubstr("addresses in the kernel stay numbers"));
}

// timeout(1) sends its signal to the process, and then to its group.
TEST_F(FirstTries, ASignalThatTimeoutSendsTwiceEndsARecordingInOrder) {
  const Outcome o = run(build +
                        "ringside record -i web -o r & P=$!; until [ -e r/meta.json ] || ! kill -0 $P; do sleep 0.02; done; "
                        "kill -TERM $P; sleep 0.01; kill -TERM $P; wait $P; echo $?");
  EXPECT_EQ(o.out, "0\n") << o.err;
  EXPECT_THAT(test::slurp(dir + "/r/meta.json"), HasSubstr("\"complete\": true"));
}

TEST_F(FirstTries, AGraphOfNothingIsAFailureAsTextToo) {
  ASSERT_EQ(ringside("record -q --libc io cat /etc/hostname").code, 0);
  EXPECT_EQ(ringside("flame --folded").code, 1);
}

TEST_F(FirstTries, TheRateOfSamplesMayBeLeftOut) {
  EXPECT_EQ(ringside("record -q --sample true").code, 0);
  EXPECT_TRUE(fs::exists(dir + "/ringside.data"));
}

}  // namespace
}  // namespace ringside::test::first_tries_test
