// ringside remote, recover, and top and stat of an external writer: the example program, killed and restarted.
#include <gtest/gtest.h>

#include "binary.hpp"
#include "source/recording.hpp"
#include "sys/json.hpp"

namespace ringside::remote_cli_test {
namespace {

using test::Outcome;

struct RemoteCli : test::BinaryTest {
  // Runs `command` beside the example writer, which listens at ./w. "remote ARGUMENTS" there records in the background, as $R;
  // "ticks DIR" says how many events a recording has so far, "more DIR N" waits until there are more than N, "over" ends the
  // recording.
  Outcome beside(const std::string& command) const {
    return run(words +
               "rm -f w log; " RINGSIDE_BUILD_DIR "/example_03_remote ./w & P=$!; until [ -S w ]; do sleep 0.02; done; " +
               command + "; C=$?; cat log >&2; kill -9 $P $(cat pid 2>/dev/null); wait 2>/dev/null; exit $C");
  }
  static constexpr const char* tool = RINGSIDE_BUILD_DIR "/ringside ";
  const std::string words = "remote() { " + std::string(tool) + "remote \"$@\" 2> log & R=$!; }; "
                            "ticks() { " + tool + "report $1 2>/dev/null | grep -c ': tick:'; }; "
                            "more() { until [ $(ticks $1) -gt $2 ]; do sleep 0.02; done; }; "
                            "over() { kill -TERM $R; wait $R; }; ";
};

TEST_F(RemoteCli, RecordsAndReports) {
  for (const std::string layout : {"meta", "footers"}) {
    const Outcome o = beside("remote w --layout " + layout + " -o out." + layout + "; more out." + layout + " 10; over");
    ASSERT_EQ(o.code, 0) << o.err;
    const auto meta = RecordingMeta::read(dir + "/out." + layout);
    ASSERT_TRUE(meta) << meta.error().sentence;
    EXPECT_TRUE(meta->complete);
    EXPECT_GT(meta->totals.written, 10u);
    EXPECT_EQ(meta->totals.written, meta->totals.read + meta->totals.overrun);
    EXPECT_EQ(meta->rings[0].events, meta->totals.read);
    const Outcome r = ringside("report out." + layout);
    EXPECT_EQ(r.code, 0) << r.err;
    EXPECT_NE(r.out.find(": tick: number="), std::string::npos) << r.out.substr(0, 300);
    EXPECT_EQ(static_cast<u64>(std::count(r.out.begin(), r.out.end(), '\n')), meta->totals.read);
  }
}

TEST_F(RemoteCli, EndsAfterItsTime) {
  const Outcome o = beside(std::string(tool) + "remote w --duration 300ms --compress -o rec");
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_TRUE(must(RecordingMeta::read(dir + "/rec")).compressed);
  EXPECT_TRUE(must(RecordingMeta::read(dir + "/rec")).complete);
}

TEST_F(RemoteCli, AcrossADeathAndARestart) {
  const Outcome o = beside("remote w --again -o rec; more rec 10; kill -9 $P; wait $P; " RINGSIDE_BUILD_DIR
                           "/example_03_remote ./w & echo $! > pid; "
                           "until [ -e rec/ring1.raw ]; do sleep 0.02; done; more rec $(($(ticks rec) + 20)); over");
  ASSERT_EQ(o.code, 0) << o.err;
  const auto meta = RecordingMeta::read(dir + "/rec");
  ASSERT_TRUE(meta);
  ASSERT_EQ(meta->rings.size(), 2u) << o.err;
  for (const RecordedRing& ring : meta->rings) {
    EXPECT_GT(ring.events, 10u);
    EXPECT_EQ(ring.events, ring.counters.read);
    EXPECT_EQ(ring.counters.written, ring.counters.read + ring.counters.overrun);
  }
  EXPECT_NE(meta->rings[0].name.pid, meta->rings[1].name.pid);
}

TEST_F(RemoteCli, StartsTheWriterAndStopsWithIt) {
  const Outcome o = run(words + "remote w -o rec -- sh -c 'exec " RINGSIDE_BUILD_DIR
                                "/example_03_remote $RINGSIDE_REMOTE'; more rec 10; over; C=$?; cat log >&2; exit $C");
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_GT(must(RecordingMeta::read(dir + "/rec")).totals.written, 10u);
}

TEST_F(RemoteCli, TopAndStat) {
  Outcome o = beside(std::string(tool) + "top w --once --interval 300ms --look-ahead 5s --json");
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_NE(o.out.find("\"event\":\"app:tick\""), std::string::npos) << o.out;
  o = beside(std::string(tool) + "stat w --json");
  EXPECT_EQ(o.code, 0) << o.err;
  const auto stat = nlohmann::json::parse(o.out);
  EXPECT_EQ(stat["remote"], "w");
  EXPECT_EQ(stat["events"], nlohmann::json::array({"app:tick"}));
  EXPECT_EQ(stat["rings"].size(), 0u);  // a query gives the writer no rings, so it begins nothing
}

TEST_F(RemoteCli, AStoppedWriterDoesNotBlock) {
  const Outcome o = beside(
      "remote w --layout footers --patience 1s -o rec; more rec 10; kill -STOP $P; "
      "until grep -q 'does not answer' log; do sleep 0.02; done; kill -CONT $P; more rec $(ticks rec); over");
  EXPECT_EQ(o.code, 0) << o.err;
  const auto meta = RecordingMeta::read(dir + "/rec");
  ASSERT_TRUE(meta) << meta.error().sentence;
  EXPECT_EQ(meta->totals.written, meta->totals.read + meta->totals.overrun);
}

TEST_F(RemoteCli, NobodyListens) {
  const Outcome o = ringside("remote nobody");
  EXPECT_EQ(o.code, 1);
  EXPECT_NE(o.err.find("no external writer listens at nobody"), std::string::npos) << o.err;
  EXPECT_EQ(ringside("remote w --subbuf-size 5k").code, 2);
}

TEST_F(RemoteCli, ACallThatFindsNoWriterLeavesTheOlderRecordings) {
  ASSERT_EQ(beside("remote w -o rec; more rec 10; over; remote w -o rec; "
                   "until [ -e rec.old/meta.json ]; do sleep 0.02; done; more rec 10; over").code, 0);
  const auto last = must(RecordingMeta::read(dir + "/rec")).start_ns;
  const auto before = must(RecordingMeta::read(dir + "/rec.old")).start_ns;
  for (const std::string call : {"remote nobody -o rec", "remote nobody -o rec -- true",
                                 "remote nobody -o rec -- no-such-command", "remote nobody -o rec --again --duration 30ms"}) {
    const Outcome o = ringside(call);
    EXPECT_EQ(o.code, call.find("such") == std::string::npos ? 1 : 127) << call;
    EXPECT_FALSE(o.err.empty()) << call;
    EXPECT_EQ(must(RecordingMeta::read(dir + "/rec")).start_ns, last) << call;
    EXPECT_EQ(must(RecordingMeta::read(dir + "/rec.old")).start_ns, before) << call;
  }
}

TEST_F(RemoteCli, RecoversFromADump) {
  // The memory of a living writer, page by page out of its address space.
  const Outcome o = beside(
      "remote w --layout footers -o rec; more rec 10; kill -STOP $P; "
      "L=$(grep ringside-remote /proc/$P/maps | head -1); A=$((0x${L%%-*})); B=${L#*-}; B=$((0x${B%% *})); "
      "dd if=/proc/$P/mem of=dump bs=4096 count=$(((B - A) / 4096)) iflag=skip_bytes skip=$A 2>/dev/null; kill -CONT $P; over");
  ASSERT_EQ(o.code, 0) << o.err;
  Outcome r = ringside("recover dump --like rec -o crash");
  EXPECT_EQ(r.code, 0) << r.err;
  r = ringside("report crash");
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_NE(r.out.find(": tick: number="), std::string::npos) << r.out.substr(0, 300) << r.err;
  EXPECT_EQ(ringside("recover rec/meta.json -o none").code, 1);
  EXPECT_EQ(ringside("recover nothing").code, 1);
}

}  // namespace
}  // namespace ringside::remote_cli_test
