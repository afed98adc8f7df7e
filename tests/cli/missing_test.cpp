// Nothing is called exact that lacks events: files that were changed, lines that break off, statistics of a trace.dat.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "binary.hpp"
#include "cli/hand_made.hpp"
#include "instance/instance.hpp"
#include "perfetto_reader.hpp"
#include "source/recording.hpp"

namespace ringside::missing_test {
namespace {

using test::Outcome;
using test::Payload;
using test::SubBuffer;

struct MissingCli : test::BinaryTest {
  const std::string board = RINGSIDE_BUILD_DIR "/example_04_stream", tool = RINGSIDE_BUILD_DIR "/ringside ";

  void write_to(const std::string& instance) const {
    EXPECT_EQ(run("RINGSIDE_INSTANCE=" + instance +
                  " RINGSIDE_LIBC=io LD_PRELOAD=" RINGSIDE_BUILD_DIR
                  "/libringside-libc.so dd if=/dev/zero of=/dev/null bs=1 count=3000")
                  .code,
              0);
  }
  // Records what an instance has, and returns what that says is missing.
  u64 lost_in(const std::string& instance, const std::string& name) const {
    const Outcome o = ringside("record -i " + instance + " --duration 100ms --fail-on-loss -o " + name);
    const RecordingMeta meta = must(RecordingMeta::read(dir + "/" + name));
    u64 lost = meta.account.elsewhere();
    for (const RecordedRing& ring : meta.rings) lost += ring.lost;
    EXPECT_EQ(o.code, lost == 0 ? 0 : 3) << o.err;
    EXPECT_EQ(ringside("report " + name + " --fail-on-loss").code, o.code) << name;
    return lost;
  }
  // 40 sub-buffers of ten events in one ring. early: those that begin before the one in front of them.
  void record(const std::string& name, std::initializer_list<u64> early = {}, u64 refused = 0) const {
    auto w = must(RecordingWriter::create(dir + "/" + name, ClockInfo{}));
    w.meta().events.push_back({61441, "app", "malloc", test::malloc_format(61441), true});
    must(w.add_ring({0, 100, 100, "t", "p"}, 4096));
    for (u64 page = 0; page < 40; ++page) {
      const u64 time = 1000 + page * 100 - (std::find(early.begin(), early.end(), page) != early.end() ? 500 : 0);
      SubBuffer s(time);
      for (u64 n = 0; n < 10; ++n) s.event(time + n, Payload(61441, 100).put(page).put(n));
      must(w.append(0, s.view()));
    }
    w.meta().account.refused[Refusal::unknown] = refused;
    must(w.finish(1));
  }
  // Changes the number of events that the recording's description tells.
  void tell_events(const std::string& name, u64 told) const {
    const std::string file = dir + "/" + name + "/meta.json";
    nlohmann::json meta = nlohmann::json::parse(test::slurp(file));
    meta["rings"][0]["events"] = told;
    std::ofstream(file) << meta.dump();
  }
  void expect_doubt(const std::string& where) const {
    const Outcome o = ringside("report " + where + " --fail-on-loss");
    EXPECT_NE(o.code, 0) << where << o.err;
    EXPECT_EQ(ringside("top " + where).out.find("exact"), std::string::npos) << where;
    for (const char* jobs : {"1", "3"})
      EXPECT_EQ(ringside("hist event " + where + " --jobs " + jobs).out.find("exact"), std::string::npos) << where << jobs;
  }
  std::string hist(const std::string& arguments) const {
    const Outcome o = ringside("hist event " + arguments);
    return o.out.substr(o.out.rfind('\n', o.out.size() - 2) + 1);
  }
};

TEST_F(MissingCli, ARecordingWhoseFilesWereChanged) {
  record("whole");
  EXPECT_EQ(ringside("report whole --fail-on-loss").code, 0);
  EXPECT_NE(hist("whole").find("400 events, none lost: the numbers are exact"), std::string::npos);
  const auto copy = [&](const std::string& name) {
    std::filesystem::copy(dir + "/whole", dir + "/" + name);
    return dir + "/" + name + "/ring0.raw";
  };
  std::filesystem::resize_file(copy("cut"), 39 * 4096);
  std::filesystem::resize_file(copy("empty"), 0);
  const auto zeros = [](const std::string& file, u64 from, u64 pages) {
    std::fstream(file, std::ios::in | std::ios::out | std::ios::binary)
        .seekp(static_cast<std::streamoff>(from * 4096))
        .write(std::string(pages * 4096, '\0').data(), static_cast<std::streamsize>(pages * 4096));
  };
  zeros(copy("hole"), 7, 3);
  zeros(copy("end"), 38, 2);
  for (const char* name : {"cut", "empty", "hole", "end"}) expect_doubt(name);
  EXPECT_EQ(ringside("report hole --time 1.5us..2.5us --fail-on-loss").code, 3);
  EXPECT_EQ(ringside("report hole --time 2.5us..3us --fail-on-loss").code, 0);  // nothing of it is missing there
  EXPECT_EQ(ringside("report cut --time 1us..2us --fail-on-loss").code, 1);  // where more is missing is not known
  for (const char* jobs : {"1", "2", "3", "5"})
    EXPECT_NE(hist(std::string("hole --time 1.5us..2.5us --jobs ") + jobs).find("71 events, 1 or more lost"), std::string::npos)
        << jobs << hist(std::string("hole --time 1.5us..2.5us --jobs ") + jobs);
  ASSERT_EQ(ringside("export hole --to hole.dat").code, 1);
  EXPECT_NE(hist("hole.dat").find("370 events, 1 or more lost"), std::string::npos) << hist("hole.dat");
  EXPECT_NE(ringside("export cut --to cut.dat").code, 0);
  expect_doubt("cut.dat");
}

// Its files have the right sizes, but fewer events than were recorded: each command that reads them all finds that itself.
TEST_F(MissingCli, ADoubtThatAReadingFindsIsSaid) {
  record("fewer");
  tell_events("fewer", 403);
  const std::string doubt = "3 events that were recorded are not in the files: these were cut, or changed";
  for (const char* command : {"report fewer", "top fewer", "hist event fewer", "hist event fewer --jobs 3", "plot fewer",
                              "export fewer -o fewer.json", "export fewer -o fewer.csv", "export fewer -o fewer.pftrace"}) {
    const Outcome o = ringside(command);
    EXPECT_EQ(o.code, 1) << command;
    const size_t at = o.err.find(doubt);
    EXPECT_NE(at, std::string::npos) << command << o.err;
    EXPECT_EQ(o.err.find(doubt, at + 1), std::string::npos) << command << " says it twice: " << o.err;
  }
}

TEST_F(MissingCli, ALineThatBreaksOff) {
  Outcome o = run(board + " 5000 >all; head -c 20000 all >cut; " + tool + "stream cut -o cut.data");
  EXPECT_EQ(o.code, 1);
  EXPECT_NE(o.err.find("the line ended before its writer did"), std::string::npos) << o.err;
  EXPECT_EQ(ringside("top cut.data").out.find("exact"), std::string::npos);
  // The last sub-buffer is damaged; the frame of the end is whole.
  o = run("size=$(stat -c %s all); { head -c $((size - 300)) all; printf x; tail -c 299 all; } >bad; " + tool +
          "stream bad -o bad.data");
  EXPECT_EQ(o.code, 1);
  EXPECT_NE(o.err.find("nothing after them says how many events they held"), std::string::npos) << o.err;
  // Of its only sub-buffer.
  o = run(board + " 20 >few; size=$(stat -c %s few); { head -c $((size - 150)) few; printf x; tail -c 149 few; } >none; " +
          tool + "stream none -o none.data");
  EXPECT_EQ(o.code, 1) << o.err;
  // Damaged at the end, and stopped before its writer's end.
  o = run("mkfifo line; exec 3<>line; { head -c 20000 all; head -c 300 /dev/zero; } >&3; " + tool +
          "stream line --duration 300ms -o stopped.data");
  EXPECT_EQ(o.code, 1);
  EXPECT_NE(o.err.find("the last bytes belong to no good frame"), std::string::npos) << o.err;
  // The board begins anew and writes the same again, without its first frames: nothing tells that from a part that came twice.
  o = run(board + " 3000 >second; { cat cut; tail -c +9000 second; } >anew; " + tool + "stream anew -o anew.data");
  EXPECT_EQ(o.code, 1);
  EXPECT_NE(o.err.find("a writer that began anew and wrote the same again would look so, too"), std::string::npos) << o.err;
  EXPECT_EQ(must(RecordingMeta::read(dir + "/anew.data")).totals.read, 3000u);
  EXPECT_EQ(ringside("top anew.data").out.find("exact"), std::string::npos);
}

TEST_F(MissingCli, ARingWhoseRefusedEventsAreNotKnownHasNoNumberOfThem) {
  for (const u64 told : {u64{0}, u64{5}}) {
    record("untold");
    const std::string file = dir + "/untold/meta.json";
    nlohmann::json meta = nlohmann::json::parse(test::slurp(file));
    for (nlohmann::json* counters : {&meta["totals"], &meta["rings"][0]["counters"]}) {
      (*counters)["dropped"] = told;
      (*counters)["refusals"] = "at least";
    }
    meta["account"]["refused"]["unknown"] = told;
    meta["account"]["at_least"] = {"refused"};
    std::ofstream(file) << meta.dump();
    const Outcome table = ringside("stat untold");
    EXPECT_NE(table.out.find(told == 0 ? "not known" : "5 or more"), std::string::npos) << table.out;
    const auto stat = nlohmann::json::parse(ringside("stat untold --json").out);
    EXPECT_EQ(stat["total"]["refusals"], "at least");
    EXPECT_EQ(stat["rings"][0]["refusals"], "at least");
    const Outcome report = ringside("report untold --fail-on-loss");
    EXPECT_EQ(report.code, 3);
    EXPECT_NE(report.err.find(told == 0 ? "perhaps some events were lost" : "5 or more events were lost"), std::string::npos);
    const Outcome latency = ringside("latency '*' '*' untold");
    EXPECT_NE(latency.out.find(told == 0 ? " perhaps some events are missing" : " 5 or more events are missing"),
              std::string::npos)
        << latency.out << latency.err;
    const auto count = nlohmann::json::parse(ringside("hist event untold --json").out);
    EXPECT_EQ(count["lost"], told);
    EXPECT_EQ(count["proved"], false);
    for (const char* ending : {"json", "csv", "dat"})
      ASSERT_EQ(ringside(std::string("export untold --to untold.") + ending).code, 0) << ending;
    EXPECT_NE(test::slurp(dir + "/untold.json").find(R"("at_least":["refused"])"), std::string::npos);
    EXPECT_NE(test::slurp(dir + "/untold.csv").find("a writer has not reported all"), std::string::npos);
    expect_doubt("untold.dat");
    std::filesystem::remove_all(dir + "/untold");
  }
}

TEST_F(MissingCli, ATraceDatSaysWhatItsRecordingLacks) {
  record("refused", {}, 77);
  ASSERT_EQ(ringside("export refused --to refused.dat").code, 0);
  EXPECT_NE(hist("refused.dat").find("400 events, 77 lost"), std::string::npos) << hist("refused.dat");
  EXPECT_EQ(ringside("report refused.dat --fail-on-loss").code, 3);
  // What only a reading of all its events finds.
  record("fewer");
  tell_events("fewer", 403);
  record("damaged");
  std::fstream(dir + "/damaged/ring0.raw", std::ios::in | std::ios::out | std::ios::binary)
      .seekp(5 * 4096 + 16)
      .write("\0\0\0\0\1\0\0", 8);
  for (const auto& [name, words] : {std::pair(std::string("fewer"), "3 events that were recorded are not in the files"),
                                    {"damaged", "a sub-buffer is malformed"}}) {
    const Outcome o = ringside("export " + name + " --to " + name + ".dat");
    EXPECT_EQ(o.code, 1) << o.err;
    EXPECT_NE(o.err.find(words), std::string::npos) << o.err;
    expect_doubt(name + ".dat");
  }
  record("killed");
  std::ifstream in(dir + "/killed/meta.json");
  std::string text((std::istreambuf_iterator<char>(in)), {});
  const size_t at = text.find("true", text.find("\"complete\""));
  ASSERT_NE(at, std::string::npos);
  std::ofstream(dir + "/killed/meta.json") << text.replace(at, 4, "false");
  (void)ringside("export killed --to killed.dat");
  expect_doubt("killed.dat");
}

// Events that no gap stands for have a last line, row, instant or message of their own.
TEST_F(MissingCli, RefusedEventsAreInEachFormat) {
  record("r", {}, 77);
  record("whole");
  for (const char* ending : {"json", "csv", "pftrace"})
    for (const char* name : {"r", "whole"})
      ASSERT_EQ(ringside(std::string("export ") + name + " -o " + name + "." + ending).code, 0) << ending;
  const auto more = [&](const char* ending) {
    const std::string all = test::slurp(dir + "/r." + ending), whole = test::slurp(dir + "/whole." + ending);
    EXPECT_EQ(all.substr(0, whole.size()), whole);
    return all.substr(std::min(all.size(), whole.size()));
  };
  const auto line = nlohmann::json::parse(more("json"));
  EXPECT_EQ(line["ts"], 4909);
  EXPECT_EQ(line["lost"], 77);
  EXPECT_EQ(line["account"]["refused"], nlohmann::json({{"unknown", 77}}));
  EXPECT_EQ(line["account"]["read"], 400);
  EXPECT_EQ(more("csv"), "4909,,,,,,,,77,,,\r\n");
  u64 told = 0;
  const test::PerfettoFile file(test::slurp(dir + "/r.pftrace"));
  for (const test::PerfettoTrackEvent& e : file.track_events)
    if (const auto events = e.annotations.find("events"); events != e.annotations.end()) {
      EXPECT_EQ(file.tracks.at(e.track).name, "lost: refused or not recorded");
      EXPECT_EQ(events->second, "77");
      ++told;
    }
  EXPECT_EQ(told, 1u);
  if (run("babeltrace2 --version").code == 127) return;
  const Outcome made = ringside("export r -o r.ctf");
  if (made.err.find("libbabeltrace2-dev") != std::string::npos) return;
  ASSERT_EQ(made.code, 0) << made.err;
  const std::string said = run("babeltrace2 r.ctf").err;
  EXPECT_NE(said.find("discarded 77 events"), std::string::npos) << said;
  EXPECT_NE(hist("r.ctf").find("400 events, 77 lost"), std::string::npos) << hist("r.ctf");
}

// The names are lines of the file.
TEST_F(MissingCli, ATraceDatKeepsTheNamesOfThreadsOnOneLineEach) {
  auto w = must(RecordingWriter::create(dir + "/r", ClockInfo{}));
  w.meta().events.push_back({61441, "app", "malloc", test::malloc_format(61441), true});
  const std::pair<i32, const char*> names[] = {{100, "a\n101 b"}, {101, "c"}, {102, ""}};
  for (u32 ring = 0; ring < 3; ++ring) {
    must(w.add_ring({ring, 100, names[ring].first, names[ring].second, "p"}, 4096));
    SubBuffer s(1000 + ring);
    s.event(1000 + ring, Payload(61441, names[ring].first).put(u64{1}).put(u64{2}));
    must(w.append(ring, s.view()));
  }
  must(w.finish(1));
  ASSERT_EQ(ringside("export r --to r.dat").code, 0);
  const std::string text = ringside("report r.dat").out;
  for (const char* words : {" a?101 b-100 ", " c-101 "}) EXPECT_NE(text.find(words), std::string::npos) << text;
  EXPECT_EQ(test::slurp(dir + "/r.dat").find("102 \n"), std::string::npos);
}

TEST_F(MissingCli, ATraceDatOfARingWhoseTimesGoBack) {
  record("back", {5, 20, 21});
  ASSERT_EQ(ringside("export back --to back.dat").code, 0);
  for (const char* range : {"", "--time 1.4us..2us", "--time 2.5us..3.1us", "--time 4us..9us"})
    for (const char* jobs : {" --jobs 1", " --jobs 2", " --jobs 5"}) {
      const std::string options = std::string(range) + jobs;
      const std::string lines = " | cut -d: -f2-";  // the dat says that it was CPU 0
      const std::string printed = run(tool + "report back " + std::string(range) + lines).out;
      EXPECT_EQ(run(tool + "report back.dat " + options + lines).out, printed) << options;
      const std::string seen = hist("back " + std::string(range));
      EXPECT_EQ(hist("back.dat " + options).substr(0, seen.find(' ')), seen.substr(0, seen.find(' '))) << options;
    }
}

// Each loss is told by one recording: the next ones of the instance begin behind it.
TEST_F(MissingCli, ALossIsToldOnce) {
  ASSERT_EQ(ringside("record -q -i over -b 16k --subbuf-size 4k -o made -- true").code, 0);
  write_to("over");
  EXPECT_GT(lost_in("over", "first"), 1000u);
  EXPECT_EQ(lost_in("over", "second"), 0u);
  EXPECT_EQ(lost_in("over", "third"), 0u);
}
TEST_F(MissingCli, ARefusalIsToldOnce) {
  ASSERT_EQ(ringside("record -q -i full -b 16k --subbuf-size 4k --mode discard -o made -- true").code, 0);
  write_to("full");
  EXPECT_GT(lost_in("full", "first"), 1000u);
  EXPECT_EQ(lost_in("full", "second"), 0u);
  write_to("full");
  EXPECT_GT(lost_in("full", "third"), 1000u);
  EXPECT_EQ(lost_in("full", "fourth"), 0u);
  // Counters that begin anew hide nothing.
  const auto instance = must(Instance::open(dir + "/root/full"));
  for (const RingInfo& ring : instance->rings()) must(instance->reset(ring.name.ring));
  write_to("full");
  EXPECT_GT(lost_in("full", "fifth"), 1000u);
  must(instance->snapshot());
  write_to("full");
  EXPECT_GT(lost_in("full", "sixth"), 1000u);
  EXPECT_EQ(lost_in("full", "seventh"), 0u);
}
TEST_F(MissingCli, ALossOfARingWhoseMemoryWasGivenBackIsToldOnce) {
  ASSERT_EQ(ringside("record -q -i given -b 16k --subbuf-size 4k --rings thread -o made -- true").code, 0);
  write_to("given");
  EXPECT_GT(lost_in("given", "first"), 1000u);
  EXPECT_GT(must(Instance::open(dir + "/root/given"))->trim(false), 0u);
  EXPECT_EQ(lost_in("given", "second"), 0u);
}

// The events that a thread's ring lost may be of any CPU.
TEST_F(MissingCli, ALossOfAThreadIsInASelectionByCpu) {
  auto w = must(RecordingWriter::create(dir + "/r", ClockInfo{}));
  w.meta().events.push_back({61441, "app", "malloc", test::malloc_format(61441), true});
  for (const i32 cpu : {0, 1, -1}) {
    RingName name{static_cast<u32>(cpu + 1), 100, 100, "t", "p"};
    name.cpu = cpu;
    must(w.add_ring(name, 4096));
    for (u64 page = 0; page < 2; ++page) {
      SubBuffer s(1000 + page);
      s.event(1000 + page, Payload(61441, 100).put(page).put(page));
      must(w.append(name.ring, s.view(page == 1 ? (cpu < 0 ? 70 : 5) : 0)));
    }
  }
  must(w.finish(1));
  EXPECT_NE(hist("r --cpu 1").find("2 events, 75 lost"), std::string::npos) << hist("r --cpu 1");
  EXPECT_EQ(ringside("top r --cpu 1").out.find("exact"), std::string::npos);
  EXPECT_NE(ringside("report r --cpu 1").out.find("LOST 70 EVENTS"), std::string::npos);
  EXPECT_NE(ringside("plot r --cpu 1").err.find("2 events, lost 75"), std::string::npos) << ringside("plot r --cpu 1").err;
  ASSERT_EQ(ringside("export r --cpu 1 -o r.json").code, 0);
  EXPECT_NE(test::slurp(dir + "/r.json").find("\"lost\":70"), std::string::npos);
}

// CTF: the losses of two rings, the first and the last message of one among them, and two in a row.
TEST_F(MissingCli, ACtfTraceHasEachLossOfSeveralRings) {
  if (run("babeltrace2 --version").code == 127) GTEST_SKIP() << "babeltrace2 is not installed";
  auto w = must(RecordingWriter::create(dir + "/r", ClockInfo{}));
  w.meta().events.push_back({61441, "app", "malloc", test::malloc_format(61441), true});
  for (u32 ring = 0; ring < 2; ++ring) must(w.add_ring({ring, 100, 100 + static_cast<i32>(ring), "t", "p"}, 4096));
  for (const auto& [ring, time, lost] :
       {std::tuple(0u, 1000u, u64{0}), {1u, 2000u, 7u}, {0u, 2500u, 0u}, {1u, 3000u, 8u}, {0u, 4000u, 9u}}) {
    SubBuffer s(time);
    const auto tid = static_cast<i32>(100 + ring);
    s.event(time, Payload(61441, tid).put(u64{1}).put(u64{2})).event(time + 100, Payload(61441, tid).put(u64{3}).put(u64{4}));
    must(w.append(ring, s.view(lost)));
  }
  must(w.finish(1));
  for (const auto& [choice, events] :
       {std::pair("", 10u), {" -F 'size == 3'", 5u}, {" -F 'size == 3 && common_pid == 100'", 3u}}) {
    std::filesystem::remove_all(dir + "/r.ctf");
    const Outcome made = ringside("export r --to r.ctf" + std::string(choice));
    if (made.err.find("libbabeltrace2-dev") != std::string::npos) GTEST_SKIP() << made.err;
    ASSERT_EQ(made.code, 0) << made.err;
    const Outcome read = run("babeltrace2 r.ctf");
    EXPECT_EQ(static_cast<size_t>(std::count(read.out.begin(), read.out.end(), '\n')), events) << read.out;
    for (const char* lost : {"discarded 7 events", "discarded 8 events", "discarded 9 events"})
      EXPECT_NE(read.err.find(lost), std::string::npos) << choice << read.err;
  }
}

// The sentence of a failed babeltrace2 is in the error, a signal has its number, and nothing is left behind.
TEST_F(MissingCli, ACtfTraceThatCannotBeWrittenSaysWhy) {
  if (run("babeltrace2 --version").code == 127) GTEST_SKIP() << "babeltrace2 is not installed";
  record("r");
  for (const auto& [does, words] : {std::pair("echo 'ERROR:' >&2; echo '  no room in r.ctf' >&2; exit 1",
                                              "babeltrace2 could not write r.ctf: no room in r.ctf\n"),
                                    {"kill -KILL $$", "r.ctf was not written: signal 9 ended babeltrace2\n"}}) {
    std::ofstream(dir + "/babeltrace2") << "#!/bin/sh\n" << does << '\n';
    std::filesystem::permissions(dir + "/babeltrace2", std::filesystem::perms::owner_all);
    const Outcome o = run("PATH=.:$PATH; " + tool + "export r --to r.ctf");
    if (o.err.find("libbabeltrace2-dev") != std::string::npos) GTEST_SKIP() << o.err;
    EXPECT_EQ(o.code, 1);
    EXPECT_NE(o.err.find(words), std::string::npos) << o.err;
  }
  for (const auto& entry : std::filesystem::directory_iterator(dir))
    EXPECT_NE(entry.path().filename().string().rfind("r.ctf", 0), 0u) << entry.path();
}

// The largest time is one like any other, and a range holds it to the nanosecond.
TEST_F(MissingCli, TimesAtTheEndsOfTheirRange) {
  constexpr u64 last = ~u64{0}, exact = (u64{1} << 53) + 1;
  auto w = must(RecordingWriter::create(dir + "/r", ClockInfo{}));
  w.meta().events.push_back({61441, "app", "malloc", test::malloc_format(61441), true});
  must(w.add_ring({0, 100, 100, "t", "p"}, 4096));
  for (const u64 time : {u64{1}, exact - 1, exact, exact + 1, last - 1, last}) {
    SubBuffer s(time);
    s.event(time, Payload(61441, 100).put(time).put(time));
    must(w.append(0, s.view()));
  }
  must(w.finish(1));
  for (const char* jobs : {"1", "2", "4"})
    EXPECT_NE(hist(std::string("r --jobs ") + jobs).find("6 events, none lost"), std::string::npos) << jobs;
  const std::string at = std::to_string(exact) + "ns";
  EXPECT_NE(hist("r --time " + at + ".." + at).find("1 event"), std::string::npos) << hist("r --time " + at + ".." + at);
  EXPECT_NE(hist("r --time 9007199.254740993.." + at).find("1 event"), std::string::npos);
}

}  // namespace
}  // namespace ringside::missing_test
