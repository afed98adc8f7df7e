// Several WHEREs in one order: recordings, trace.dat, instances, external writers, the kernel.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <sstream>

#include "binary.hpp"
#include "kernel/tracefs_instance.hpp"
#include "source/recording.hpp"
#include "sys/beneath.hpp"
#include "sys/json.hpp"

namespace ringside::timeline_cli_test {
namespace {

using nlohmann::json;
using test::Outcome;

struct TimelineCli : test::BinaryTest {
  static constexpr const char* tool = RINGSIDE_BUILD_DIR "/ringside ";
  static constexpr const char* dd = "dd if=/dev/zero of=/dev/null bs=1 count=5";
  std::vector<json> events(const std::string& wheres) const {
    std::vector<json> all = BinaryTest::events(wheres);
    u64 last = 0;
    for (const json& e : all) {
      EXPECT_GE(e.at("ts").get<u64>(), last);
      last = e.at("ts");
    }
    return all;
  }
  void change(const std::string& recording, const std::string& boot) const {
    RecordingMeta meta = must(RecordingMeta::read(dir + "/" + recording));
    meta.boot = boot;
    must(meta.write(must(sys::open_trusted(dir + "/" + recording, sys::Role::other)).get(), recording));
  }
};

TEST_F(TimelineCli, RecordingsTogether) {
  // Each numbers its events by itself: a number in a.rec means another event in b.rec.
  ASSERT_EQ(run(std::string(tool) + "record -q --libc malloc,io -o a.rec -- " + dd + " & " + tool +
                "record -q --libc io -o b.rec -- " + dd + "; wait")
                .code,
            0);
  const auto a = events("a.rec"), b = events("b.rec"), both = events("a.rec b.rec");
  ASSERT_FALSE(a.empty() || b.empty());
  EXPECT_EQ(both.size(), a.size() + b.size());
  std::multiset<std::string> apart, together;
  for (const auto* all : {&a, &b})
    for (const json& e : *all) apart.insert(e.at("event").get<std::string>() + e.at("fields").dump());
  for (const json& e : both) together.insert(e.at("event").get<std::string>() + e.at("fields").dump());
  EXPECT_EQ(apart, together);
  const Outcome text = ringside("report a.rec b.rec -v");
  EXPECT_NE(text.out.find("\nb.rec: "), std::string::npos) << text.out;
  EXPECT_NE(text.err.find("b.rec: clock "), std::string::npos) << text.err;
  EXPECT_EQ(ringside("report a.rec b.rec").err, "");
  const Outcome one = ringside("report a.rec b.rec --filter 'source == \"b.rec\"' --json");
  EXPECT_EQ(static_cast<size_t>(std::count(one.out.begin(), one.out.end(), '\n')), b.size()) << one.err;
  const Outcome hist = ringside("hist libc:write/count a.rec b.rec --json");
  EXPECT_EQ(json::parse(hist.out).at("count"), 10) << hist.out << hist.err;
  EXPECT_EQ(json::parse(ringside("top a.rec b.rec --json").out).at("count"), both.size());
}

TEST_F(TimelineCli, RecordingsOfOtherMachinesAreRefused) {
  ASSERT_EQ(ringside(std::string("record -q --libc io -o a.rec -- ") + dd).code, 0);
  ASSERT_EQ(run("cp -r a.rec b.rec && cp -r a.rec c.rec").code, 0);
  change("b.rec", "another");
  Outcome o = ringside("report a.rec b.rec");
  EXPECT_EQ(o.code, 1);
  EXPECT_NE(o.err.find("different machines"), std::string::npos) << o.err;
  EXPECT_EQ(ringside("report b.rec").code, 0);
  change("b.rec", "");
  o = ringside("report a.rec b.rec");
  EXPECT_EQ(o.code, 0);
  EXPECT_NE(o.err.find("b.rec: clock "), std::string::npos) << o.err;
  EXPECT_NE(o.err.find("times are used unchanged"), std::string::npos) << o.err;
  ASSERT_EQ(ringside(std::string("record -q --clock counter --libc io -o c.rec -- ") + dd).code, 0);
  o = ringside("report a.rec c.rec");
  EXPECT_EQ(o.code, 1);
  EXPECT_NE(o.err.find("counts ticks and has no rate"), std::string::npos) << o.err;
}

TEST_F(TimelineCli, NoEventCountsTwice) {
  ASSERT_EQ(ringside(std::string("record -q --libc io -o a.rec -- ") + dd).code, 0);
  ASSERT_EQ(ringside("export a.rec -o a.dat").code, 0);
  ASSERT_EQ(run("ln -s a.rec link && cp -r a.rec copy && tar cf a.tar a.rec && ln a.dat hard.dat && cp a.dat copy.dat").code,
            0);
  for (const char* command : {"report", "hist event", "top --once", "latency libc:read libc:write", "export -o x.csv"}) {
    const Outcome o = ringside(command + std::string(" a.rec a.rec"));
    EXPECT_EQ(o.code, 1) << command << o.out;
    EXPECT_NE(o.err.find("a.rec is named twice"), std::string::npos) << command << o.err;
  }
  for (const char* of : {"a.rec link", "a.rec ./a.rec", "a.dat hard.dat", "- a.dat <a.dat"})
    EXPECT_NE(ringside("report " + std::string(of)).err.find(" are the same: each of its events would count twice"),
              std::string::npos)
        << of;
  for (const char* of : {"a.rec copy", "a.rec a.tar", "a.dat copy.dat"})
    EXPECT_NE(ringside("report " + std::string(of)).err.find(" are copies of one recording"), std::string::npos) << of;
}

// A trace-cmd recording by the kernel's local clock, around the program's own recording by another clock.
TEST_F(TimelineCli, TheKernelsLocalClock) {
  if (auto found = tracefs_dir(); !found) GTEST_SKIP() << found.error().sentence;
  if (run("trace-cmd --help").code == 127) GTEST_SKIP() << "there is no trace-cmd";
  const std::string instance = "ringside-timeline-" + std::to_string(getpid());
  // Rings in which the machine's other writes leave room for these. trace-cmd ends where events of another test's probes go
  // while it lists them.
  Outcome recorded{1, "", ""};
  for (int tries = 0; tries < 20 && recorded.code != 0; ++tries)
    recorded = run("rm -rf ours.rec; LD_PRELOAD=" RINGSIDE_BUILD_DIR
                   "/tests/trace_cmd_shim.so trace-cmd record -q -o theirs.dat -B " +
                   instance +
                   " -b 16384 -C local -e syscalls:sys_enter_write -e syscalls:sys_exit_write "
                   "sh -c 'unset LD_PRELOAD; exec " +
                   std::string(tool) + "record -q --libc io -o ours.rec -- " + dd + "'");
  rmdir(("/sys/kernel/tracing/instances/" + instance).c_str());  // if trace-cmd was killed
  ASSERT_EQ(recorded.code, 0) << recorded.err;
  const Outcome o = ringside("report theirs.dat ours.rec");
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_NE(o.err.find("theirs.dat: clock local, converted by measurement, ±"), std::string::npos) << o.err;
  // What is said of the error is true: each call of the program encloses the kernel's.
  const std::string error = o.err.substr(o.err.find("±") + std::string("±").size());
  double within_us = 0, drift_us = 0;
  ASSERT_EQ(std::sscanf(error.c_str(), "%lf us, and at most %lf us", &within_us, &drift_us), 2) << error;
  struct Call {
    i64 begin, end;
  };
  std::vector<Call> program, kernel;
  const auto all = events("ours.rec theirs.dat");
  json dd_tid;  // the kernel's events are of all dds of the machine
  for (const json& e : all) {
    if (e.value("event", "") != "libc:write") continue;
    const i64 end = e.at("ts");
    program.push_back({end - e.at("fields").at("duration_ns").get<i64>(), end});
    dd_tid = e.at("tid");
  }
  bool of_dd = false;
  for (const json& e : all) {
    if (e.at("tid") != dd_tid) continue;
    const std::string name = e.value("event", "");
    if (name == "syscalls:sys_enter_write" && (of_dd = e.at("fields").at("count") == 1)) kernel.push_back({e.at("ts"), 0});
    if (name == "syscalls:sys_exit_write" && of_dd) kernel.back().end = e.at("ts");
  }
  ASSERT_EQ(program.size(), 5u);
  ASSERT_GE(kernel.size(), 5u) << o.err;  // one that is not of the copy comes at the end
  const double seconds_back = static_cast<double>(static_cast<i64>(sys::now_ns()) - program.front().begin) / 1e9;
  const i64 bound = static_cast<i64>(1000 * (within_us + drift_us * seconds_back)) + 1;
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_GE(kernel[i].begin, program[i].begin - bound) << i << "\n" << o.err;
    EXPECT_LE(kernel[i].end, program[i].end + bound) << i << "\n" << o.err;
  }
}

TEST_F(TimelineCli, ALiveWriterThatStandsStillAndTheKernel) {
  if (auto found = tracefs_dir(); !found) GTEST_SKIP() << found.error().sentence;
  const Outcome o =
      run(RINGSIDE_BUILD_DIR
          "/example_03_remote ./w & P=$!; while [ ! -S w ]; do sleep 0.02; done; "
          "{ " +
          std::string(tool) +
          "top w -e app:tick,sched:sched_switch --interval 100ms --look-ahead 20ms --json >seen 2>said & T=$!; "
          "lives() { kill -0 $T 2>/dev/null; }; "
          "pictures() { N=$(($(wc -l <seen) + $1)); until [ $(wc -l <seen) -ge $N ] || ! lives; do sleep 0.05; done; }; "
          "until grep -q tick seen || ! lives; do sleep 0.05; done; "
          // It is asked only if its ring shows more than was read: a writer that stopped right after a swap owes
          // no answer.
          "while kill -STOP $P; pictures 3; ! grep -q 'does not answer' said && lives; do kill -CONT $P; pictures 1; done; "
          "pictures 6; kill -CONT $P; pictures 3; kill $T; wait $T; }; kill -9 $P; cat seen; cat said >&2");
  std::vector<u64> kernel;
  std::istringstream lines(o.out);
  u64 ticks = 0, lost = 0;
  for (std::string line; std::getline(lines, line);) {
    const json picture = json::parse(line);
    lost = picture.at("lost");
    for (const json& e : picture.at("rows")) {
      if (e.at("event") == "sched:sched_switch") kernel.push_back(e.at("count"));
      if (e.at("event") == "app:tick") ticks = e.at("count");
    }
  }
  EXPECT_GT(ticks, 0u);
  ASSERT_GT(kernel.size(), 6u) << o.out << o.err;
  EXPECT_TRUE(std::is_sorted(kernel.begin(), kernel.end()));
  EXPECT_GT(kernel.back(), kernel.front());
  EXPECT_NE(o.err.find("does not answer"), std::string::npos) << o.err;
  EXPECT_EQ(lost, 0u);
}

}  // namespace
}  // namespace ringside::timeline_cli_test
