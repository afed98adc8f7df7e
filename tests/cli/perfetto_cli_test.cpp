// ringside export for Perfetto, as JSON and as CSV: every event and every loss of `report --json` is in the file, by the rules
// of Perfetto's importer.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "binary.hpp"
#include "export/recording_as_dat.hpp"
#include "kernel/tracefs_instance.hpp"
#include "perfetto_reader.hpp"
#include "random_recording.hpp"

namespace ringside::perfetto_cli_test {
namespace {

using test::Of;
using test::Outcome;

struct Row {
  const char* name;
  u32 message;
  const char* fields;
};
const Row rows[] = {
#include "export/perfetto/events.inc"
#include "sys/json.hpp"
};

// Events by kind of ring, name and time; stacks by kind and functions; losses by number.
using Counts = std::map<std::string, u64>;

struct ExportTo : test::BinaryTest {
  static std::string joined(const std::vector<std::string>& functions) {
    std::string all;
    for (const std::string& f : functions) all += ";" + f;
    return all;
  }
  static Counts counts_of(const std::vector<nlohmann::json>& lines) {
    Counts counts;
    const std::set<std::string> parts_of_stacks{"ringside:stack", "ringside:code_map", "ftrace:kernel_stack",
                                                "ftrace:user_stack"};
    for (const auto& line : lines) {
      if (line.contains("lost")) {
        ++counts["lost " + line["lost"].dump()];
        continue;
      }
      const std::string full = line["event"];
      if (parts_of_stacks.count(full) != 0) continue;
      if (line.contains("stack")) ++counts["stack" + joined(line["stack"])];
      const size_t colon = full.find(':');
      if (full == "ringside:sample")
        ++counts["sample " + line["ts"].dump()];
      else if (const std::string system = full.substr(0, colon); system != "app" && system != "libc")
        ++counts["kernel " + full.substr(colon + 1) + " " + line["ts"].dump()];
      else
        ++counts["program " + full.substr(0, colon)];
    }
    return counts;
  }
  static Counts counts_of(const test::PerfettoFile& file) {
    std::map<u32, std::string> names;
    for (const Row& row : rows) names[row.message] = row.name;
    Counts counts;
    for (const test::PerfettoEvent& e : file.events) {
      const auto known = names.find(e.message);
      const std::string name = known != names.end() ? known->second : e.name.substr(e.name.find(':') + 1);
      ++counts["kernel " + name + " " + std::to_string(e.time)];
    }
    for (const test::PerfettoTrackEvent& e : file.track_events) {
      if (const auto lost = e.annotations.find("events");
          lost != e.annotations.end() && file.tracks.at(e.track).name.find("lost") != std::string::npos)
        ++counts["lost " + lost->second];
      else if (!e.category.empty())
        ++counts["program " + e.category];
      if (!e.stack.empty()) ++counts["stack" + joined(e.stack)];
    }
    for (const test::PerfettoSample& s : file.samples) {
      if (s.session == "ringside:sample") ++counts["sample " + std::to_string(s.time)];
      if (!s.stack.empty()) ++counts["stack" + joined(s.stack)];
    }
    return counts;
  }
  void expect_all(const std::string& where) {
    const auto lines = report(where);
    ASSERT_FALSE(lines.empty());
    for (const char* how : {"", " --uncompressed"}) {
      const Outcome made = ringside("export " + where + " --to out.pftrace" + how);
      ASSERT_EQ(made.code, 0) << made.err;
      const test::PerfettoFile file(test::slurp(dir + "/out.pftrace"));
      EXPECT_EQ(file.dropped, 0u);
      EXPECT_TRUE(counts_of(file) == counts_of(lines))
          << where << how << ": " << file.events.size() << " and " << file.track_events.size() << " for " << lines.size();
    }
  }
};

TEST_F(ExportTo, RandomRecordingsAreWholeInPerfetto) {
  for (const Of of : {Of::program, Of::both}) {
    test::random_recording(dir + "/data", ClockInfo{}, 6, 4096, of);
    expect_all("data");
  }
  // An event of more fields than one that describes itself can have.
  const test::PerfettoFile file(test::slurp(dir + "/out.pftrace"));
  const auto wide = std::find_if(file.events.begin(), file.events.end(), [](const auto& e) { return e.name == "kern:wide"; });
  ASSERT_NE(wide, file.events.end());
  EXPECT_EQ(wide->fields.size(), test::wide_fields);
}

TEST_F(ExportTo, SeveralRecordingsAreWholeInOneFile) {
  test::random_recording(dir + "/one", ClockInfo{}, 3, 4096, Of::program);
  test::random_recording(dir + "/two", ClockInfo{}, 4, 8192, Of::both);
  expect_all("one two");
  const u64 both = report("one two").size();
  EXPECT_EQ(both, report("one").size() + report("two").size());
}

TEST_F(ExportTo, TheKernelAndAProgramOnOneTimeline) {
  if (auto kernel = tracefs_dir(); !kernel) GTEST_SKIP() << kernel.error().sentence;
  const Outcome o =
      ringside("record -b 16M -o data --libc malloc -e 'sched:*' -e raw_syscalls -e 'timer:*' -e 'irq:*' -- ls -lR /etc");
  ASSERT_EQ(o.code, 0) << o.err;
  expect_all("data");
  EXPECT_GT(counts_of(report("data")).count("program libc"), 0u);
}

TEST_F(ExportTo, StacksAndSamplesAreWholeInPerfetto) {
  if (auto kernel = tracefs_dir(); !kernel) GTEST_SKIP() << kernel.error().sentence;
  const Outcome o = ringside(
      "record -b 16M -o data --libc malloc --stack --kstack -e sched_switch --sample 1kHz -- "
      "sh -c \"awk 'BEGIN { for (i = 0; i < 10000000; ++i) n += i }'; ls -lR /etc\"");
  ASSERT_EQ(o.code, 0) << o.err;
  expect_all("data");
  u64 samples = 0, of_kernel = 0, of_program = 0;
  const test::PerfettoFile file(test::slurp(dir + "/out.pftrace"));
  for (const test::PerfettoSample& s : file.samples) (s.session == "ringside:sample" ? samples : of_kernel) += !s.stack.empty();
  for (const test::PerfettoTrackEvent& e : file.track_events) of_program += !e.stack.empty() && e.weight > 0;
  EXPECT_GT(samples, 0u);
  EXPECT_GT(of_kernel, 0u);
  EXPECT_GT(of_program, 10u);
}

TEST_F(ExportTo, JsonAndCsvHaveEveryEvent) {
  test::random_recording(dir + "/data", ClockInfo{}, 3, 4096, Of::program);
  ASSERT_EQ(ringside("export data --to out.json").code, 0);
  EXPECT_EQ(test::slurp(dir + "/out.json"), ringside("report --json data").out);
  ASSERT_EQ(ringside("export data --to out.csv").code, 0);
  // Quoted cells may have line breaks: a row ends outside quotes.
  std::vector<std::vector<std::string>> table(1, std::vector<std::string>(1));
  bool quoted = false;
  char before = 0;
  for (const char c : test::slurp(dir + "/out.csv")) {
    if (c == '"' && before == '"' && !quoted) table.back().back() += c;
    if (c == '"') quoted = !quoted;
    else if (!quoted && c == '\r') continue;
    else if (!quoted && c == ',') table.back().emplace_back();
    else if (!quoted && c == '\n') table.emplace_back(1);
    else table.back().back() += c;
    before = c;
  }
  EXPECT_FALSE(quoted);
  table.pop_back();
  const std::vector<std::string> head = table.at(0),
                                 fixed{"ts_ns", "buffer", "cpu", "ring", "pid", "tid", "task", "event", "lost"};
  ASSERT_GT(head.size(), fixed.size() + 5);
  EXPECT_TRUE(std::equal(fixed.begin(), fixed.end(), head.begin()));
  EXPECT_EQ(head.back(), "more");
  const auto lines = report("data");
  ASSERT_EQ(table.size(), lines.size() + 1);
  u64 lost = 0, arrays = 0;
  for (size_t i = 0; i < lines.size(); ++i) {
    const auto& line = lines[i];
    const std::vector<std::string>& cells = table[i + 1];
    ASSERT_EQ(cells.size(), head.size()) << "row " << i;
    const auto text_of = [](const nlohmann::json& value) {
      return value.is_null() ? "" : value.is_string() ? value.get<std::string>() : value.dump();
    };
    const auto cell = [&](const char* key) { return line.contains(key) ? text_of(line[key]) : ""; };
    EXPECT_EQ(cells[0], cell("ts"));
    EXPECT_EQ(cells[7], cell("event"));
    EXPECT_EQ(cells[8], cell("lost"));
    EXPECT_EQ(cells.back(), "");
    lost += line.contains("lost");
    if (line.contains("lost")) continue;
    for (const auto& [place, key] : {std::pair(2, "cpu"), {3, "ring"}, {4, "pid"}, {5, "tid"}, {6, "task"}})
      EXPECT_EQ(cells[place], cell(key)) << key << ", row " << i;
    for (size_t column = fixed.size(); column + 1 < head.size(); ++column) {
      const std::string name = head[column].starts_with("fields.") ? head[column].substr(7) : head[column];
      const auto& fields = line["fields"];
      if (fields.contains(name) && (fields[name].is_number_float() || fields[name].is_null()))
        EXPECT_EQ(nlohmann::json::parse(cells[column], nullptr, false), fields[name]) << name << ", row " << i;
      else
        EXPECT_EQ(cells[column], fields.contains(name) ? text_of(fields[name]) : "") << name << ", row " << i;
    }
    arrays += cells[7] == "app:arrays";
  }
  EXPECT_GT(lost, 0u);
  EXPECT_GT(arrays, 0u);
}

TEST_F(ExportTo, RecordWritesTheseFilesToo) {
  for (const char* const file : {"out.pftrace", "out.json", "out.csv"}) {
    const Outcome o = ringside(std::string("record --libc malloc --to ") + file + " -- ls /etc");
    ASSERT_EQ(o.code, 0) << o.err;
    EXPECT_NE(o.err.find(file), std::string::npos) << o.err;
    EXPECT_FALSE(std::filesystem::exists(dir + "/" + file + ".parts"));
  }
  u64 lines = 0;
  std::istringstream json(test::slurp(dir + "/out.json"));
  for (std::string line; std::getline(json, line); ++lines) EXPECT_TRUE(nlohmann::json::parse(line).contains("event")) << line;
  EXPECT_GT(lines, 10u);
  const test::PerfettoFile file(test::slurp(dir + "/out.pftrace"));
  EXPECT_EQ(file.dropped, 0u);
  EXPECT_GT(counts_of(file)["program libc"], 10u);
  EXPECT_EQ(ringside("record --to out.ctf -- true").code, 2);
}

TEST_F(ExportTo, JsonHasTheStacks) {
  const Outcome o = ringside("record -o data --libc malloc --stack -- ls /etc");
  ASSERT_EQ(o.code, 0) << o.err;
  ASSERT_EQ(ringside("export data --to out.json").code, 0);
  const std::string json = test::slurp(dir + "/out.json");
  EXPECT_EQ(json, ringside("report --json data").out);
  EXPECT_NE(json.find(R"("stack":[")"), std::string::npos);
}

// A recording of a program that stops in the middle until the file `go` is there.
struct RecordLive : ExportTo {
  // What then happens in between, when `file` has events, is a shell's command.
  Outcome record(const std::string& options, const std::string& file, const std::string& between) const {
    const std::string program = "sh -c 'ls /etc; until [ -e go ]; do sleep 0.02; done; ls /usr' >/dev/null";
    return run("rm -f go; " RINGSIDE_BUILD_DIR "/ringside record --libc malloc " + options + " --to " + file + " -- " +
               program + " & P=$!; until [ -s " + file + " ] || ! kill -0 $P 2>/dev/null; do sleep 0.02; done; " + between +
               "; touch go; wait $P");
  }
  // Of JSON lines, those that are whole: a reader of a file may see a write() up to the end of any page of the page cache.
  static u64 events_in_order(const std::string& text) {
    u64 events = 0, latest = 0;
    std::istringstream lines(text.substr(0, text.rfind('\n') + 1));
    for (std::string line; std::getline(lines, line);) {
      const auto json = nlohmann::json::parse(line);
      EXPECT_GE(json["ts"].get<u64>(), latest);
      latest = json["ts"];
      ++events;
    }
    return events;
  }
  // The number in "ringside: 1,234 events, ...".
  static u64 recorded(const std::string& err) {
    // In the line that ends a recording; in front of it another may say that events are lost already.
    const size_t sum = err.find(" events, "), line = sum == err.npos ? 0 : err.rfind('\n', sum) + 1;
    u64 n = 0;
    for (const char c : err.substr(err.find(": ", line) + 2)) {
      if (c >= '0' && c <= '9')
        n = n * 10 + static_cast<u64>(c - '0');
      else if (c != ',')
        break;
    }
    return n;
  }
};

TEST_F(RecordLive, LinesComeWhileTheProgramRuns) {
  const Outcome o = record("", "out.json", "cp out.json early.json; [ -d out.json.parts ] && touch running; ln out.json same");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_TRUE(std::filesystem::exists(dir + "/running"));
  const std::string early = test::slurp(dir + "/early.json"), all = test::slurp(dir + "/out.json");
  EXPECT_GT(events_in_order(early), 0u);
  EXPECT_EQ(all.substr(0, early.size()), early);
  EXPECT_GT(all.size(), early.size());
  EXPECT_EQ(all, test::slurp(dir + "/same")) << "tail -f reads another file";
  EXPECT_EQ(events_in_order(all), recorded(o.err)) << o.err;
  EXPECT_EQ(all.back(), '\n');
  EXPECT_FALSE(std::filesystem::exists(dir + "/out.json.parts"));
  const Outcome as_csv = record("", "out.csv", "cp out.csv early.csv");
  ASSERT_EQ(as_csv.code, 0) << as_csv.err;
  const std::string csv = test::slurp(dir + "/out.csv"), first = test::slurp(dir + "/early.csv");
  EXPECT_EQ(csv.substr(0, first.size()), first);
  EXPECT_EQ(static_cast<u64>(std::count(csv.begin(), csv.end(), '\n')), recorded(as_csv.err) + 1);
}

TEST_F(RecordLive, LinesGoIntoAFifo) {
  const Outcome o = run("mkfifo out.json; cat out.json >got & " RINGSIDE_BUILD_DIR
                        "/ringside record --libc malloc --to out.json -- ls /etc >/dev/null; c=$?; [ -p out.json ] || kill $!; "
                        "wait $!; exit $c");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_TRUE(std::filesystem::is_fifo(dir + "/out.json"));
  EXPECT_GT(recorded(o.err), 0u) << o.err;
  EXPECT_EQ(events_in_order(test::slurp(dir + "/got")), recorded(o.err)) << o.err;
}

// It is opened again and again while the recording goes on, and at its end until an interrupt.
TEST_F(RecordLive, AFifoWithoutAReaderHoldsNothingUp) {
  const std::string record = RINGSIDE_BUILD_DIR "/ringside record --libc malloc --to out.json -- ";
  const Outcome late =
      run("mkfifo out.json; " + record + "sh -c 'ls /etc; touch ran' >/dev/null & P=$!; until [ -e ran ] || ! kill -0 $P; do "
          "sleep 0.02; done; cat out.json >got; wait $P");
  ASSERT_EQ(late.code, 0) << late.err;
  EXPECT_GT(recorded(late.err), 0u) << late.err;
  EXPECT_EQ(events_in_order(test::slurp(dir + "/got")), recorded(late.err)) << late.err;
  const Outcome none =
      run("timeout --foreground 60 " + record + "ls /etc >/dev/null & P=$!; until grep -qs 'complete\": *true' "
          "out.json.parts/meta.json || ! kill -0 $P; do sleep 0.02; done; kill -TERM $P; wait $P");
  EXPECT_EQ(none.code, 1) << none.err;
  EXPECT_NE(none.err.find("out.json was not written: interrupted, and no program reads this FIFO; what was recorded is in "
                          "out.json.parts"),
            std::string::npos)
      << none.err;
  EXPECT_TRUE(std::filesystem::is_fifo(dir + "/out.json"));
  EXPECT_GT(report("out.json.parts").size(), 0u);
}

TEST_F(RecordLive, AFifosReaderThatLeavesEndsNoRecording) {
  const Outcome o = run("mkfifo out.json; head -c 1 out.json >got & H=$!; " RINGSIDE_BUILD_DIR
                        "/ringside record --libc malloc --to out.json -- sh -c 'ls /etc; until [ -e go ]; do sleep 0.02; done; "
                        "for i in $(seq 1000); do ls /usr; if grep -q \"goes on\" said; then break; fi; sleep 0.02; done' "
                        ">/dev/null 2>said & P=$!; until [ -s got ] || ! kill -0 $P; do sleep 0.02; done; kill $H; wait $H; "
                        "touch go; wait $P");
  const std::string said = test::slurp(dir + "/said");
  EXPECT_EQ(o.code, 1) << said;
  EXPECT_NE(said.find("out.json: Broken pipe; the recording goes on in out.json.parts"), std::string::npos) << said;
  EXPECT_NE(said.find("out.json has a part of the events"), std::string::npos) << said;
  EXPECT_EQ(report("out.json.parts").size(), recorded(said.substr(said.find(" events, ") - 12))) << said;
  EXPECT_EQ(ringside("list --json").out, "[]\n");
}

TEST_F(RecordLive, PerfettoLoadsItAtEveryMoment) {
  if (auto kernel = tracefs_dir(); !kernel) GTEST_SKIP() << kernel.error().sentence;
  const Outcome o = record("-e raw_syscalls -b 16M --stack", "out.pftrace", "cp out.pftrace early.pftrace");
  ASSERT_EQ(o.code, 0) << o.err;
  const std::string early = test::slurp(dir + "/early.pftrace"), all = test::slurp(dir + "/out.pftrace");
  EXPECT_EQ(all.substr(0, early.size()), early);
  const test::PerfettoFile before(test::PerfettoFile::whole_packets(early)), file(all);
  EXPECT_EQ(before.dropped + file.dropped, 0u);
  EXPECT_GT(before.events.size() + before.track_events.size(), 0u);
  EXPECT_GT(file.events.size(), before.events.size());
  EXPECT_GT(file.track_events.size(), before.track_events.size());
  for (size_t i = 1; i < file.events.size(); ++i)
    ASSERT_LE(file.events[i - 1].cpu == file.events[i].cpu ? file.events[i - 1].time : 0, file.events[i].time);
}

TEST_F(RecordLive, LossesAreInIt) {
  const Outcome o = ringside(
      "record --libc malloc -b 32k --subbuf-size 4k --mode overwrite --to out.json -- sh -c 'for i in 1 2 3 4 5 6 7 8; do ls "
      "-lR /etc >/dev/null & done; wait'");
  ASSERT_EQ(o.code, 0) << o.err;
  u64 events = 0, lost = 0;
  std::istringstream lines(test::slurp(dir + "/out.json"));
  for (std::string line; std::getline(lines, line);) {
    const auto json = nlohmann::json::parse(line);
    json.contains("lost") ? lost += json["lost"].get<u64>() : ++events;
  }
  EXPECT_EQ(events, recorded(o.err)) << o.err;
  const size_t at = o.err.find("; lost ");
  ASSERT_NE(at, std::string::npos) << o.err;
  EXPECT_EQ(lost, recorded(": " + o.err.substr(at + 7))) << o.err;
}

TEST_F(RecordLive, KilledItLeavesWhatItWrote) {
  const Outcome o = record("", "out.json", "kill -KILL $P");
  EXPECT_EQ(o.code, 137);
  const u64 written = events_in_order(test::slurp(dir + "/out.json"));
  EXPECT_GT(written, 0u);
  EXPECT_GE(report("out.json.parts").size(), written);
}

// A file is not put in the place of something else, and keeps its mode.
TEST_F(ExportTo, WhatIsNoFileStays) {
  namespace fs = std::filesystem;
  test::random_recording(dir + "/data", ClockInfo{}, 2, 4096, Of::program);
  const std::string tool = RINGSIDE_BUILD_DIR "/ringside ";
  ASSERT_EQ(ringside("export data -o out.json").code, 0);
  ASSERT_EQ(ringside("plot data -o out.html").code, 0);
  for (const auto& [command, name] : {std::pair("export data", "json"), {"plot data", "html"}}) {
    const std::string fifo = std::string("fifo.") + name;
    const Outcome o = run("mkfifo " + fifo + "; cat " + fifo + " >got & " + tool + command + " -o " + fifo + "; c=$?; " +
                          "[ -p " + fifo + " ] || kill $!; wait $!; exit $c");
    EXPECT_EQ(o.code, 0) << o.err;
    EXPECT_TRUE(fs::is_fifo(dir + "/" + fifo));
    EXPECT_EQ(test::slurp(dir + "/got"), test::slurp(dir + "/out." + name)) << name;
  }
  const Outcome dat = run("mkfifo fifo.dat; " + tool + "export data -o fifo.dat");
  EXPECT_EQ(dat.code, 1);
  EXPECT_NE(dat.err.find("fifo.dat: it is a device, a FIFO or a socket"), std::string::npos) << dat.err;
  EXPECT_TRUE(fs::is_fifo(dir + "/fifo.dat"));
  if (run("mknod device.csv c 1 3 && : >device.csv").code == 0) {
    EXPECT_EQ(ringside("export data -o device.csv").code, 0);
    EXPECT_TRUE(fs::is_character_file(dir + "/device.csv"));
  }
  // Behind symlinks, to a file that is there and to none.
  ASSERT_EQ(run("mkdir far; for n in json dat html; do ln -s link2.$n link.$n; ln -s far/real.$n link2.$n; done; "
                "touch far/real.json; chmod 640 far/real.json")
                .code,
            0);
  for (const auto& [command, name] : {std::pair("export data", "json"), {"export data", "dat"}, {"plot data", "html"}}) {
    const Outcome o = ringside(command + std::string(" -o link.") + name);
    EXPECT_EQ(o.code, 0) << o.err;
    EXPECT_TRUE(fs::is_symlink(dir + "/link." + name) && fs::is_symlink(dir + "/link2." + name)) << name;
    EXPECT_GT(fs::file_size(dir + "/far/real." + name), 100u) << name;
  }
  EXPECT_EQ(static_cast<unsigned>(fs::status(dir + "/far/real.json").permissions()), 0640u);
}

// A descriptor is written into where it stands, also where it is a file's.
TEST_F(ExportTo, OpenFilesKeepWhatIsAroundIt) {
  test::random_recording(dir + "/data", ClockInfo{}, 2, 4096, Of::program);
  ASSERT_EQ(ringside("export data -o out.csv").code, 0);
  const std::string tool = RINGSIDE_BUILD_DIR "/ringside ";
  for (const char* const name : {"/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"}) {
    ASSERT_EQ(run("((echo HEADER; " + tool + "export data --format csv -o " + name + "; echo TRAILER) >all)").code, 0) << name;
    EXPECT_EQ(test::slurp(dir + "/all"), "HEADER\n" + test::slurp(dir + "/out.csv") + "TRAILER\n") << name;
  }
  const Outcome dat = run("((echo HEADER; " + tool + "export data --format dat -o /dev/stdout; echo TRAILER) >all)");
  EXPECT_NE(dat.err.find("/dev/stdout: it is a device"), std::string::npos) << dat.err;
  EXPECT_EQ(test::slurp(dir + "/all"), "HEADER\nTRAILER\n");
  const Outcome another = run("echo HEADER >all; " + tool + "export data --format csv -o /proc/$$/fd/3 3>>all");
  EXPECT_EQ(another.code, 1);
  EXPECT_EQ(test::slurp(dir + "/all"), "HEADER\n");
}

// What another user has put there is not written through, and gives root's file no mode.
TEST_F(ExportTo, AnotherUsersFilesLeadNowhere) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can make files of another user";
  namespace fs = std::filesystem;
  test::random_recording(dir + "/data", ClockInfo{}, 2, 4096, Of::program);
  ASSERT_EQ(run("mkfifo fifo; ln -s fifo theirs.json; chown -h 65533 theirs.json; ln -s theirs.json link.json; touch old.json; "
                "chown 65533 old.json; chmod 4777 old.json")
                .code,
            0);
  for (const char* const name : {"theirs.json", "link.json"}) {
    const Outcome o = run("timeout 30 " RINGSIDE_BUILD_DIR "/ringside export data -o " + std::string(name));
    EXPECT_EQ(o.code, 1);
    EXPECT_NE(o.err.find("will not follow the symlink theirs.json"), std::string::npos) << o.err;
  }
  ASSERT_EQ(ringside("export data -o old.json").code, 0);
  EXPECT_EQ(static_cast<unsigned>(fs::status(dir + "/old.json").permissions()) & ~0644u, 0u);
}

// What babeltrace2 says, and counts, goes into no file that another user may have led elsewhere.
TEST_F(ExportTo, ACtfTraceIsMadeBesideNoNamesThatCanBeGuessed) {
  test::random_recording(dir + "/data", ClockInfo{}, 2, 4096, Of::program);
  if (run("babeltrace2 --version").code == 127) GTEST_SKIP() << "babeltrace2 is not installed";
  const Outcome o =
      run("echo mine >mine; sh -c 'for n in said totals part; do ln -s mine out.ctf.$n$$; done; "
          "exec " RINGSIDE_BUILD_DIR "/ringside export data -o out.ctf'");
  if (o.err.find("libbabeltrace2-dev") != std::string::npos) GTEST_SKIP() << o.err;
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(test::slurp(dir + "/mine"), "mine\n");
  EXPECT_TRUE(std::filesystem::exists(dir + "/out.ctf/metadata"));
  EXPECT_EQ(run("ls -d out.ctf.* | wc -l").out, "3\n") << "only the links are left";
}

TEST_F(ExportTo, ATraceDatThatIsStoppedLeavesNothing) {
  test::random_recording(dir + "/data", ClockInfo{}, 2, 4096, Of::program);
  ASSERT_EQ(run("echo old >out.dat").code, 0);
  int looks = 0;
  const auto written = export_recording(dir + "/data", dir + "/out.dat", "", nullptr, [&] { return ++looks == 2; });
  ASSERT_FALSE(written);
  EXPECT_NE(written.error().sentence.find("out.dat was not written: interrupted"), std::string::npos);
  EXPECT_EQ(test::slurp(dir + "/out.dat"), "old\n");
  EXPECT_EQ(run("ls -d out.dat*").out, "out.dat\n");
}

// A filter that no event passes does not keep it from looking at signals. Many recordings of the same files make it long.
TEST_F(ExportTo, AnInterruptEndsItThoughNoEventIsWanted) {
  auto w = must(RecordingWriter::create(dir + "/data", ClockInfo{}));
  w.meta().events.push_back({1, "app", "malloc", test::malloc_format(1), true});
  must(w.add_ring({0, 100, 100, "t", "p"}, 65536));
  for (u64 page = 0; page < 60; ++page) {
    test::SubBuffer s(1000 + page * 10000, 65536);
    for (u64 n = 0; n < 2000; ++n) s.event(1000 + page * 10000 + n, test::Payload(1, 100).put(n).put(n));
    must(w.append(0, s.view()));
  }
  must(w.finish(1));
  std::string names;
  for (u32 n = 0; n < 100; ++n) {
    const std::string name = "data" + std::to_string(n);
    std::filesystem::create_directory(dir + "/" + name);
    for (const auto& file : std::filesystem::directory_iterator(dir + "/data"))
      if (file.path().filename() != "meta.json")
        std::filesystem::create_hard_link(file, dir + "/" + name + "/" + file.path().filename().string());
    nlohmann::json meta = nlohmann::json::parse(test::slurp(dir + "/data/meta.json"));
    meta["start_ns"] = 1 + n;  // else they are copies
    std::ofstream(dir + "/" + name + "/meta.json") << meta;
    names += name + " ";
  }
  const Outcome o = run(RINGSIDE_BUILD_DIR "/ringside export " + names +
                        "-F 'size == 123456' -o out.json & P=$!; set --; until [ -e \"$1\" ] || ! kill -0 $P 2>/dev/null; do "
                        "set -- out.json.part*; done; kill -INT $P; wait $P");
  EXPECT_EQ(o.code, 1);
  EXPECT_NE(o.err.find("out.json was not written: interrupted"), std::string::npos) << o.err;
  EXPECT_FALSE(std::filesystem::exists(dir + "/out.json"));
}

TEST_F(ExportTo, CsvIsUtf8AndHasItsHeader) {
  auto w = must(RecordingWriter::create(dir + "/data", ClockInfo{}));
  const std::string name = "\tfield:char name[8];\toffset:8;\tsize:8;\tsigned:0;\n";
  w.meta().events.push_back({1, "app", "texts", test::format(1, "texts", name, R"("name=%s", REC->name)"), true});
  must(w.add_ring({0, 100, 100, "t", "p"}, 4096));
  test::SubBuffer s(1000);
  s.event(1000, test::Payload(1, 100).text({"a\xff\xc3\xa4\"b\xe2\0", 8}));
  must(w.append(0, s.view()));
  must(w.finish(1));
  const std::string header = "ts_ns,buffer,cpu,ring,pid,tid,task,event,lost,name,more\r\n";
  ASSERT_EQ(ringside("export data -o out.csv").code, 0);
  EXPECT_EQ(test::slurp(dir + "/out.csv"), header + "1000,,,0,100,100,t,app:texts,,\"a\ufffd\u00e4\"\"b\ufffd\",\r\n");
  ASSERT_EQ(ringside("export data -F 'common_pid == 5' -o none.csv").code, 0);
  EXPECT_EQ(test::slurp(dir + "/none.csv"), header);
}

// Of several inputs each row has its WHERE, and a field with the name of a column keeps a column of its own.
TEST_F(ExportTo, CsvTellsWhichInputARowIsOf) {
  for (const auto& [name, pid] : {std::pair{"a", 7}, {"b", 8}}) {
    auto w = must(RecordingWriter::create(dir + "/" + name, ClockInfo{}));
    const std::string field = "\tfield:int pid;\toffset:8;\tsize:4;\tsigned:1;\n";
    w.meta().events.push_back({1, "app", "mark", test::format(1, "mark", field, R"("pid=%d", REC->pid)"), true});
    must(w.add_ring({0, 100, 100, "t", "p"}, 4096));
    const u64 time = 1000 + static_cast<u64>(pid);
    must(w.append(0, test::SubBuffer(time).event(time, test::Payload(1, 100).put(i32{pid})).view()));
    must(w.finish(1));
  }
  ASSERT_EQ(ringside("export a b -o both.csv").code, 0);
  EXPECT_EQ(test::slurp(dir + "/both.csv"),
            "ts_ns,buffer,cpu,ring,pid,tid,task,event,lost,fields.pid,more\r\n"
            "1007,a,,0,100,100,t,app:mark,,7,\r\n1008,b,,0,100,100,t,app:mark,,8,\r\n");
}

TEST_F(ExportTo, AFormatIsChosenByNameOrByOption) {
  test::random_recording(dir + "/data", ClockInfo{}, 2, 4096, Of::program);
  EXPECT_EQ(ringside("export data --to out").code, 2);
  EXPECT_EQ(ringside("export data --to out.svg").code, 2);
  EXPECT_EQ(ringside("export data --to out --format nothing").code, 2);
  EXPECT_EQ(ringside("export data --to out.pftrace --only kernel").code, 2);
  EXPECT_EQ(ringside("export data data --to out.dat").code, 2) << "a trace.dat has one WHERE";
  EXPECT_EQ(ringside("export data --to nowhere/out.pftrace").code, 1);
  EXPECT_EQ(ringside("export nothing --to out.pftrace").code, 1);
  EXPECT_FALSE(std::filesystem::exists(dir + "/out.pftrace"));
  ASSERT_EQ(ringside("export data -o out --format perfetto").code, 0);
  EXPECT_FALSE(test::PerfettoFile(test::slurp(dir + "/out")).track_events.empty());
  for (const auto& entry : std::filesystem::directory_iterator(dir))
    EXPECT_EQ(entry.path().string().find(".part"), std::string::npos) << entry.path();
  // What is chosen is there, and nothing else.
  const std::string event = report("data")[0]["event"];
  ASSERT_EQ(ringside("export data -o some.pftrace -e '" + event + "'").code, 0);
  EXPECT_TRUE(counts_of(test::PerfettoFile(test::slurp(dir + "/some.pftrace"))) ==
              counts_of(report("data -e '" + event + "'")));
}

}  // namespace
}  // namespace ringside::perfetto_cli_test
