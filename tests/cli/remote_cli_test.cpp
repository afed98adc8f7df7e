// ringside remote, recover, and top and stat of an external writer: the example program, killed and restarted.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

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

// It made an empty instance of that name, and said that it had recorded 0 events.
TEST_F(RemoteCli, RecordTakesAWriter) {
  for (const std::string which : {"-i w", "-i $PWD/w", "--remote w"}) {
    const Outcome o =
        beside(std::string(tool) + "record " + which + " --duration 300ms -o rec && " + tool + "list --json > list");
    ASSERT_EQ(o.code, 0) << which << o.err;
    EXPECT_EQ(test::slurp(dir + "/list").find("\"w\""), std::string::npos) << which;
    const auto meta = must(RecordingMeta::read(dir + "/rec"));
    EXPECT_GT(meta.account.read, 10u) << which;
    EXPECT_TRUE(meta.complete);
    const Outcome r = ringside("report rec");
    EXPECT_EQ(static_cast<u64>(std::count(r.out.begin(), r.out.end(), '\n')), meta.account.read) << which;
    EXPECT_NE(r.out.find("example_03_remo-"), std::string::npos)
        << "the writer's own threads have their names: " << r.out.substr(0, 300);
  }
  EXPECT_EQ(ringside("record --remote nobody -o rec").code, 1);
  const Outcome o = beside(std::string(tool) + "trigger -i w 'app:tick'");
  EXPECT_NE(o.code, 0);
  EXPECT_NE(o.err.find("no condition is about them"), std::string::npos) << o.err;
}

// Its rings go round unread until the condition holds, twice; what is saved is what it wrote before.
TEST_F(RemoteCli, TriggerSavesAWritersLastEvents) {
  const std::string command = " -- sh -c 'sleep 0.5; " RINGSIDE_BUILD_DIR
                              "/example_01_write; until [ -e t.1/meta.json ]; do "
                              "sleep 0.02; done; sleep 0.5; " RINGSIDE_BUILD_DIR "/example_01_write'";
  const Outcome o =
      beside(std::string(tool) + "trigger --remote w 'net:packet_in if length == 66' --count 2 -o t.%n" + command);
  ASSERT_EQ(o.code, 0) << o.err;
  u64 last = 0;
  for (const std::string name : {"t.1", "t.2"}) {
    std::map<std::string, u64> counts;
    for (const auto& line : report(name)) {
      if (!line.contains("event")) continue;
      const std::string event = line["event"];
      ++counts[event];
      if (event != "app:tick") continue;
      const u64 number = line["fields"]["number"];
      EXPECT_TRUE(number > last || last == 0) << name << ": no event is in two recordings";
      last = number;
    }
    EXPECT_GT(counts["app:tick"], 0u) << name << o.err;
    EXPECT_GT(counts["net:packet_in"], 0u) << name;
  }
}

TEST_F(RemoteCli, SeveralWritersInPartsOfARecording) {
  const Outcome o =
      beside("rm -f v; " RINGSIDE_BUILD_DIR "/example_03_remote ./v & Q=$!; until [ -S v ]; do sleep 0.02; done; " +
             std::string(tool) +
             "record --remote w --remote v --rotate 200ms --keep 100 -o rec --duration 60s & R=$!; "
             "until [ $(ls -d rec* | wc -l) -ge 4 ]; do sleep 0.02; done; kill -TERM $R; wait $R; C=$?; kill -9 $Q; "
             "sh -c \"exit $C\"");
  ASSERT_EQ(o.code, 0) << o.err;
  std::map<std::string, std::vector<u64>> numbers;  // of each writer, in the order of the parts
  std::vector<std::string> parts;
  for (const auto& entry : std::filesystem::directory_iterator(dir))
    if (is_recording(entry.path())) parts.push_back(entry.path());
  std::sort(parts.begin(), parts.end(), [](const auto& a, const auto& b) {
    return must(RecordingMeta::read(a)).start_ns < must(RecordingMeta::read(b)).start_ns;
  });
  ASSERT_GE(parts.size(), 4u);
  for (const std::string& part : parts) {
    const auto meta = must(RecordingMeta::read(part));
    const auto of_writers = [](const RecordedRing& ring) { return ring.name.apart != 0; };
    EXPECT_EQ(std::count_if(meta.rings.begin(), meta.rings.end(), of_writers), 2);
    EXPECT_EQ(meta.account.overrun, 0u);
    for (const auto& line : report(part))
      if (line.contains("event")) numbers[line["tid"].dump()].push_back(line["fields"]["number"].get<u64>());
  }
  ASSERT_EQ(numbers.size(), 2u);
  for (const auto& [ring, all] : numbers) {
    ASSERT_FALSE(all.empty());
    for (size_t k = 1; k < all.size(); ++k) EXPECT_EQ(all[k], all[k - 1] + 1) << ring << ": nothing is lost between two parts";
  }
}

// The writer, a program and the kernel in one recording, each event in its numbers.
TEST_F(RemoteCli, OneRecordingOfAWriterAProgramAndTheKernel) {
  const std::string kernel = geteuid() == 0 && ringside("list sched:sched_switch").code == 0 ? " -e sched:sched_switch" : "";
  const Outcome o =
      beside(std::string(tool) + "record --remote w" + kernel + " -o rec " RINGSIDE_BUILD_DIR "/example_01_write");
  ASSERT_EQ(o.code, 0) << o.err;
  const auto lines = report("rec");
  std::map<std::string, u64> counts;
  for (const auto& line : lines)
    if (line.contains("event")) ++counts[line["event"].get<std::string>()];
  EXPECT_GT(counts["app:tick"], 0u);
  EXPECT_GT(counts.size(), 1u) << "the program's events, too";
  if (!kernel.empty()) {
    EXPECT_GT(counts["sched:sched_switch"], 0u);
  }
  for (const auto& [name, count] : counts) EXPECT_EQ(name.find("unknown"), std::string::npos) << name << " " << count;
  EXPECT_TRUE(must(RecordingMeta::read(dir + "/rec")).account.proved());
}

// It appeared in `mount` alone.
TEST_F(RemoteCli, AnAnnouncedWriterIsKnownByItsName) {
  const std::string announced =
      "export RINGSIDE_ROOT=$PWD/root; mkdir -m 700 root; mkdir -m 700 root/.remotes; " RINGSIDE_BUILD_DIR
      "/example_03_remote root/.remotes/hv & Q=$!; until [ -S root/.remotes/hv ]; do sleep 0.02; done; ";
  const std::string end = "; C=$?; kill -9 $Q; wait 2>/dev/null; exit $C";
  const auto with = [&](const std::string& command) {
    const Outcome o = run(announced + tool + command + end);
    std::filesystem::remove_all(dir + "/root");
    return o;
  };
  Outcome o = with("list --json");
  EXPECT_NE(o.out.find("{\"instance\":\"hv\",\"state\":\"writer\"}"), std::string::npos) << o.out << o.err;
  o = with("list -i hv --json");
  EXPECT_NE(o.out.find("\"name\":\"tick\""), std::string::npos) << o.out << o.err;
  o = with("remote hv --duration 200ms -o rec");
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_GT(must(RecordingMeta::read(dir + "/rec")).account.read, 10u);
  o = with("top hv --once --interval 300ms --look-ahead 5s --json");
  EXPECT_NE(o.out.find("\"event\":\"app:tick\""), std::string::npos) << o.out << o.err;
  EXPECT_EQ(with("stat hv").code, 0);
  o = with("record -i hv --duration 200ms -o rec");
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_GT(must(RecordingMeta::read(dir + "/rec")).account.read, 10u);
  EXPECT_EQ(std::filesystem::exists(dir + "/root/hv"), false);
}

// `recover --like DIR --clock mono` took the clock of DIR.
TEST_F(RemoteCli, RecoverTakesTheClockThatIsNamed) {
  const Outcome o = beside(
      "remote w --clock mono --layout footers -o mono; more mono 10; over; remote w --layout footers -o rec; more rec 10; "
      "kill -STOP $P; L=$(grep ringside-remote /proc/$P/maps | head -1); A=$((0x${L%%-*})); B=${L#*-}; B=$((0x${B%% *})); "
      "dd if=/proc/$P/mem of=dump bs=4096 count=$(((B - A) / 4096)) iflag=skip_bytes skip=$A 2>/dev/null; kill -CONT $P; over");
  ASSERT_EQ(o.code, 0) << o.err;
  for (const auto& [clock, kind] : {std::pair<std::string, ClockKind>{"", must(RecordingMeta::read(dir + "/rec")).clock.kind},
                                    {" --clock mono", ClockKind::mono},
                                    {" --clock counter", ClockKind::counter}}) {
    const Outcome r = ringside("recover dump --like rec -o crash" + clock);
    EXPECT_EQ(r.code, 0) << r.err;
    EXPECT_EQ(must(RecordingMeta::read(dir + "/crash")).clock.kind, kind) << clock;
  }
}

// "the recorder did not finish", while it worked.
TEST_F(RemoteCli, ARecordingThatGoesOnSaysSo) {
  const Outcome o = beside("remote w -o rec; more rec 10; " + std::string(tool) + "report rec > /dev/null 2> said; " + tool +
                           "stat rec 2>> said; over; " + tool + "report rec > /dev/null 2> after");
  ASSERT_EQ(o.code, 0) << o.err;
  const std::string said = test::slurp(dir + "/said");
  EXPECT_NE(said.find("it is still being recorded: what is here is what has been written so far"), std::string::npos) << said;
  EXPECT_EQ(said.find("did not finish"), std::string::npos) << said;
  EXPECT_EQ(test::slurp(dir + "/after").find("still being recorded"), std::string::npos);
}

// A reader that came after hello kept nothing.
TEST_F(RemoteCli, ALateReaderOfALineTakesWhatItMissedFromAnEarlierRecording) {
  const std::string board = RINGSIDE_BUILD_DIR "/example_04_stream";
  ASSERT_EQ(run(board + " > all && tail -c +20000 all > late && " + tool + "stream all -o first -q").code, 0);
  Outcome o = ringside("stream late -o rec");
  EXPECT_EQ(o.code, 1);
  EXPECT_NE(o.err.find("it said hello before (--like takes an earlier recording's)"), std::string::npos) << o.err;
  o = ringside("stream late -o rec --like first");
  const auto first = must(RecordingMeta::read(dir + "/first")), late = must(RecordingMeta::read(dir + "/rec"));
  EXPECT_EQ(late.account.read + late.account.overrun, 10'000u) << o.err;
  EXPECT_GT(late.account.read, 7000u);
  EXPECT_EQ(late.clock.mult, first.clock.mult);
  EXPECT_NE(ringside("report rec").out.find(": sample: number=9999 volts="), std::string::npos);
  // Formats from files: one file of them, or a directory like tracefs's.
  ASSERT_EQ(run(std::string(tool) +
                "stream all -o none -q && mkdir -p events/lab/sample && printf 'name: sample\\nID: 7\\nformat:\\n"
                "\\tfield:unsigned short common_type;\\toffset:0;\\tsize:2;\\tsigned:0;\\n\\n"
                "\\tfield:unsigned int number;\\toffset:8;\\tsize:4;\\tsigned:0;\\n\\n"
                "print fmt: \"n=%%u\", REC->number\\n' > events/lab/sample/format && cp events/lab/sample/format lab.format && "
                "sed 's/\"n=%u\"/bad(/; s/ID: 7/ID: 0/' lab.format > bad.format")
                .code,
            0);
  for (const std::string formats : {"events", "lab.format"}) {
    o = ringside("stream late -o rec --like first --formats " + formats);
    const Outcome r = ringside("report rec");
    EXPECT_NE(r.out.find("sample: n=9999"), std::string::npos) << formats << o.err << r.err << r.out.substr(0, 200);
  }
  o = ringside("stream all -o rec --formats bad.format");
  EXPECT_EQ(o.code, 1);
  EXPECT_NE(o.err.find("bad.format: the format of \"sample\" has no name, or no line \"ID: \""), std::string::npos) << o.err;
  EXPECT_EQ(ringside("stream all -o rec --formats all").code, 1);
}

TEST_F(RemoteCli, FormatsOfADump) {
  const Outcome o = beside(
      "remote w --layout footers --clock mono -o rec; more rec 10; kill -STOP $P; "
      "L=$(grep ringside-remote /proc/$P/maps | head -1); A=$((0x${L%%-*})); B=${L#*-}; B=$((0x${B%% *})); "
      "dd if=/proc/$P/mem of=dump bs=4096 count=$(((B - A) / 4096)) iflag=skip_bytes skip=$A 2>/dev/null; kill -CONT $P; over; "
      "printf 'name: tick\\nID: 1\\nformat:\\n\\tfield:unsigned short common_type;\\toffset:0;\\tsize:2;\\tsigned:0;\\n\\n"
      "\\tfield:unsigned long long number;\\toffset:8;\\tsize:8;\\tsigned:0;\\n\\nprint fmt: \"n=%%llu\", REC->number\\n' > "
      "app.format; " +
      std::string(tool) + "recover dump --formats app.format -o crash");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_NE(ringside("report crash").out.find(" tick: n="), std::string::npos) << ringside("report crash").out.substr(0, 200);
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
