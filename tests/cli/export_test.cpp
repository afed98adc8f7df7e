// trace.dat files, written and read: trace-cmd is the reference. Its lines must equal ringside's, except for white space and
// the words for a gap.
#include <gtest/gtest.h>

#include <algorithm>
#include <regex>

#include "binary.hpp"
#include "kernel/tracefs_instance.hpp"
#include "random_recording.hpp"
#include "trace_dat_files.hpp"

namespace ringside::export_test {
namespace {

using test::Of;
using test::Outcome;
using test::random_recording;

struct TraceDatTest : test::BinaryTest {
  void SetUp() override {
    BinaryTest::SetUp();
    if (run("trace-cmd --version").code == 127) GTEST_SKIP() << "trace-cmd is not installed";
  }

  // "{0x8e3f,0x2986}", as libtraceevent 1.8 shows an array of numbers, as 1.7 does: "36415 10630".
  static std::string old_arrays(const std::string& line) {
    if (line.find("{0x") == std::string::npos) return line;
    static const std::regex array(R"(\{(0x[0-9a-f]+(,0x[0-9a-f]+)*)\})");
    std::string out;
    auto at = line.cbegin();
    for (std::smatch found; std::regex_search(at, line.cend(), found, array); at = found.suffix().first) {
      out.append(at, found[0].first);
      std::istringstream in(found.str(1));
      std::string before;
      for (std::string one; std::getline(in, one, ','); before = " ")
        out += before + std::to_string(std::stoull(one, nullptr, 16));
    }
    return out.append(at, line.cend());
  }
  // Without the name of the buffer in front, which trace-cmd omits after a gap, and the flags of latency, which 3.3 adds.
  // Regular expressions are slow: the few lines that need one are found without.
  static std::vector<std::string> lines(const std::string& text) {
    static const std::regex gap(R"(^CPU:(\d+) \[(?:(\d+) )?EVENTS DROPPED\]$)"),
        flags(R"(^(.*?-\d+ \[\d+\]) [-.#a-zA-Z][-.#a-zA-Z0-9]{4} ?(?=[0-9.]+: ))");
    std::vector<std::string> all;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) {
      if (line.rfind("cpus=", 0) == 0) continue;
      std::string plain;
      for (const char c : line) {
        if (!plain.empty() && plain.back() == ']' && c != ' ') plain += ' ';  // "[000]123456789012:" where times are numbers
        if (c != ' ' || (!plain.empty() && plain.back() != ' ')) plain += c;
      }
      while (!plain.empty() && plain.back() == ' ') plain.pop_back();
      if (const size_t colon = plain.find(": "); colon < plain.find("] "))
        for (const char* buffer : {"kernel: ", "program: ", "ringside-"})
          if (plain.rfind(buffer, 0) == 0) plain.erase(0, colon + 2);
      const size_t cpu = plain.find("] ");
      if (cpu + 2 < plain.size() && std::isdigit(plain[cpu + 2]) == 0) plain = std::regex_replace(plain, flags, "$1 ");
      const size_t name = plain.rfind(" # ");
      if (name < plain.size() && plain.find(": sys_e") < name &&
          std::all_of(plain.begin() + static_cast<ssize_t>(name) + 3, plain.end(),
                      [](char c) { return std::isalnum(c) != 0 || c == '_' || c == ' '; }))
        plain.resize(name);
      plain = old_arrays(plain);
      std::smatch found;
      if (plain.rfind("CPU:", 0) == 0 && std::regex_match(plain, found, gap))
        plain = "CPU:" + found.str(1) + " [LOST " + (found[2].matched ? found.str(2) : "1") + " EVENTS]";
      all.push_back(std::move(plain));
    }
    return all;
  }
  // Where the number in the first " [001] " or " [---] " stands; nowhere: both the same.
  static std::pair<size_t, size_t> cpu_of(const std::string& line) {
    for (size_t at = 0; (at = line.find(" [", at)) != std::string::npos; at += 2) {
      const size_t from = at + 2, to = line.find("] ", from);
      if (to == std::string::npos) break;
      if (to == line.find_first_not_of("0123456789", from) || line.compare(from, to - from, "---") == 0) return {from, to};
    }
    return {0, 0};
  }
  // A trace.dat gives a thread's ring the number of a CPU.
  static std::vector<std::string> without_cpus(std::vector<std::string> all) {
    for (std::string& line : all) {
      if (line.rfind("RING:", 0) == 0) line.replace(0, 4, "CPU");
      if (const auto [from, to] = cpu_of(line); to > from) line.erase(from, to - from);
    }
    return all;
  }
  // Two buffers' events at one microsecond come in any order, each with the loss in front of it.
  static void sort_ties(std::vector<std::string>& all) {
    const auto last = [](const std::string& lines) {
      return lines.substr(lines.rfind('\n') + 1);
    };  // all of it, if it is one line
    const auto time = [&](const std::string& lines) {
      const std::string line = last(lines);
      return line.substr(0, line.find(": ")).substr(std::min(line.find("] "), line.size()));
    };
    std::vector<std::string> joined;
    for (const std::string& line : all) {
      if (!joined.empty() && last(joined.back()).rfind("CPU:", 0) == 0) joined.back() += "\n" + line;
      else joined.push_back(line);
    }
    for (auto from = joined.begin(); from != joined.end();) {
      auto to = std::next(from);
      while (to != joined.end() && time(*to) == time(*from)) ++to;
      std::sort(from, to);
      from = to;
    }
    all = std::move(joined);
  }
  // The output of trace-cmd for `dat`, without its plugins, which print in other ways than the formats say.
  std::vector<std::string> judged(const std::string& dat) const {
    const Outcome judge = run("trace-cmd report -N " + dat);
    EXPECT_EQ(judge.code, 0);
    EXPECT_EQ(judge.err, "");
    return lines(judge.out);
  }
  static void expect_same(std::vector<std::string> ours, std::vector<std::string> theirs, u64 events, bool ties = false) {
    EXPECT_GE(ours.size(), events);
    // trace-cmd shows a thread's last name, where the trace tells when it got that, has lost that event, or began just before it.
    const auto renames = [](const std::string& line) {
      if (line.find(": sched_process_exec: ") != std::string::npos || line.find(": task_rename: ") != std::string::npos ||
          line.find(" [LOST ") != std::string::npos)
        return true;
      const auto [from, to] = cpu_of(line);
      const size_t dash = to > from ? line.rfind('-', from - 2) : std::string::npos;
      if (dash == std::string::npos) return false;
      const std::string name = line.substr(0, dash), pid = "pid=" + line.substr(dash + 1, from - 2 - dash);
      return line.find(pid, to) != std::string::npos && line.find("comm=" + name + " ", to) == std::string::npos;
    };
    if (std::any_of(ours.begin(), ours.end(), renames)) {
      for (auto* all : {&ours, &theirs})
        for (std::string& line : *all)
          if (const auto [from, to] = cpu_of(line); to > from) line.erase(0, line.rfind('-', from - 2) + 1);
    }
    // libtraceevent groups the operators of two events otherwise than C does.
    const auto cut = [](std::string& line, const char* event, const char* field) {
      if (line.find(event) != std::string::npos) line.erase(std::min(line.size(), line.find(field)));
    };
    for (auto* all : {&ours, &theirs})
      for (std::string& line : *all)
        cut(line, ": timer_start: ", " flags="), cut(line, ": mm_page_alloc_extfrag: ", " fragmenting=");
    if (ties) {
      sort_ties(ours);
      sort_ties(theirs);
    }
    for (size_t i = 0; i < std::min(ours.size(), theirs.size()); ++i) ASSERT_EQ(ours[i], theirs[i]) << "line " << i;
    ASSERT_EQ(ours.size(), theirs.size());
  }
};

struct Export : TraceDatTest {
  void expect_equal(const std::string& from, u64 events, bool both = false) {
    const Outcome made = ringside("export " + from + " --to out.dat");
    ASSERT_EQ(made.code, 0) << made.err;
    EXPECT_EQ(test::slurp(dir + "/out.dat").substr(10, 1), both ? "7" : "6");
    const auto theirs = judged("out.dat");
    const auto ours = lines(ringside("report " + from).out);
    const bool known = std::none_of(ours.begin(), ours.end(),
                                    [](const std::string& line) { return line.find(" [---] ") != std::string::npos; });
    expect_same(known ? ours : without_cpus(ours), known ? theirs : without_cpus(theirs), events, both);
    const Outcome again = ringside("report out.dat");
    EXPECT_EQ(again.code, 0) << again.err;
    expect_same(lines(again.out), theirs, events, both);
  }
  u64 make(const ClockInfo& clock, u32 rings, u32 subbuf_size, Of of = Of::program) const {
    return random_recording(dir + "/data", clock, rings, subbuf_size, of);
  }
};

TEST_F(Export, MonotonicClock) { expect_equal("data", make(ClockInfo{}, 2, 4096)); }
TEST_F(Export, MoreRingsThanProcessorsAndLargeSubBuffers) { expect_equal("data", make(ClockInfo{}, 40, 16384)); }
TEST_F(Export, Ticks) { expect_equal("data", make(calibrate(ClockKind::tsc), 3, 8192)); }

TEST_F(Export, NumbersForTimes) {
  ClockInfo clock;
  clock.kind = ClockKind::counter;
  expect_equal("data", make(clock, 3, 8192));
}
TEST_F(Export, KernelAndProgram) { expect_equal("data", make(ClockInfo{}, 6, 4096, Of::both), true); }
TEST_F(Export, KernelAndProgramInTicks) { expect_equal("data", make(calibrate(ClockKind::tsc), 80, 16384, Of::both), true); }

TEST_F(Export, TheKernels) {
  if (auto found = tracefs_dir(); !found) GTEST_SKIP() << found.error().sentence;
  const Outcome o = ringside(
      "record -b 16M -o data -e 'syscalls:*' -e 'sched:*' -e 'timer:*' -e 'kmem:*' -e 'rcu:*' -- ls -la /etc /usr/bin");
  ASSERT_EQ(o.code, 0) << o.err;
  expect_equal("data", 1000);
}

TEST_F(Export, BothOrOneOfTheTwo) {
  if (auto found = tracefs_dir(); !found) GTEST_SKIP() << found.error().sentence;
  for (const char* clock : {"mono", "tsc"}) {
    ASSERT_EQ(ringside(std::string("record --clock ") + clock +
                       " --libc io -o data -u 'libc:*' -e 'syscalls:*' -- dd if=/dev/zero of=/dev/null count=10")
                  .code,
              0);
    expect_equal("data", 40, true);
  }
  for (const char* only : {"kernel", "program"}) {
    ASSERT_EQ(ringside(std::string("export data --to out.dat --only ") + only).code, 0);
    EXPECT_EQ(test::slurp(dir + "/out.dat").substr(10, 1), "6");
    const Outcome judge = run("trace-cmd report -N out.dat");
    EXPECT_EQ(judge.err, "");
    EXPECT_NE(judge.out.find(only[0] == 'k' ? "sys_enter_read:" : "read: "), std::string::npos);
    EXPECT_EQ(judge.out.find(only[0] == 'p' ? "sys_enter_read:" : "] read: "), std::string::npos);
  }
}

// Every event that `report` has, at its time, of its thread, by its name; a loss is one event there.
TEST_F(Export, KernelSharkReadsAllOfThem) {
  const std::string client = RINGSIDE_BUILD_DIR "/tests/kernelshark_client";
  if (!std::filesystem::exists(client)) GTEST_SKIP() << "libkshark-dev and libjson-c-dev are not installed";
  make(ClockInfo{}, 6, 4096, Of::both);
  for (const auto& [only, streams] : {std::pair("", 2), {" --only kernel", 1}, {" --only program", 1}}) {
    ASSERT_EQ(ringside(std::string("export data --to out.dat") + only).code, 0);
    const Outcome cpus = run("trace-cmd report -N out.dat | head -1");
    EXPECT_TRUE(std::regex_match(cpus.out, std::regex("cpus=([5-9]|1[01])\n"))) << cpus.out;
    const Outcome o = run(client + " out.dat");
    ASSERT_EQ(o.code, 0) << o.err;
    std::vector<std::string> theirs, ours;
    std::istringstream in(o.out);
    std::string line;
    std::getline(in, line);
    EXPECT_EQ(line.find("streams=" + std::to_string(streams) + " "), 0u) << line;
    const std::regex parts(R"((\d+) (\d+) (\S+)-(\d+) (?:kern|app)/(\S+) (.*))");
    u64 gaps = 0;
    for (std::smatch m; std::getline(in, line);) {
      if (line.find(" missed_events ") != std::string::npos)
        ++gaps;
      else if (std::regex_match(line, m, parts))
        theirs.push_back(m.str(1) + " " + m.str(4) + " " + m.str(5));
      else
        ADD_FAILURE() << line;
    }
    u64 lost = 0;
    for (const auto& e : report("data")) {
      if (e.contains("lost")) {
        lost += *only == 0 || (e["cpu"].is_null() ? only[8] == 'p' : only[8] == 'k');
        continue;
      }
      const std::string name = e["event"];
      if (*only == 0 || (name.rfind("app:", 0) == 0 ? only[8] == 'p' : only[8] == 'k'))
        ours.push_back(e["ts"].dump() + " " + e["tid"].dump() + " " + name.substr(name.find(':') + 1));
    }
    std::sort(ours.begin(), ours.end());
    std::sort(theirs.begin(), theirs.end());
    EXPECT_GT(ours.size(), 200u);
    EXPECT_EQ(ours, theirs) << only;
    EXPECT_EQ(gaps, lost) << only;
  }
}

// trace-cmd writes what it found out about a guest's clock into the guest's file.
TEST_F(Export, AGuestsTimesAreItsHosts) {
  constexpr i64 s = 1'000'000'000;
  const u64 events = make(ClockInfo{}, 3, 4096);  // CPUs 0, 2, 4
  ASSERT_EQ(ringside("export data --to plain.dat").code, 0);
  const std::string plain = test::slurp(dir + "/plain.dat");
  const std::vector<std::vector<test::ShiftSample>> shifts[] = {
      {{{0, 1000 * s}}, {{0, 0}}, {{0, 2000 * s}}, {{0, 0}}, {{0, -5}}},
      {{{2 * s, 100}, {3 * s, 200}, {4 * s, 300}, {20 * s, 1 * s}}, {{0, 0}}, {{2 * s, 7}, {9 * s, 8}}, {{0, 0}},
       {{0, 1, 3, 1}, {1, 2, 5, 2}}},
  };
  for (const auto& shift : shifts) {
    for (const u32 flags : {0u, 1u}) {
      std::ofstream(dir + "/guest.dat") << test::with_option(plain, trace_dat::option_time_shift,
                                                             test::time_shift(shift, flags));
      expect_same(lines(ringside("report guest.dat").out), judged("guest.dat"), events);
    }
  }
  // Beside the host's file, they are on one timeline.
  std::ofstream(dir + "/guest.dat") << test::with_option(plain, trace_dat::option_time_shift,
                                                         test::time_shift({5, {{0, 50'000}}}));
  std::vector<u64> alone, expected, both;
  for (const auto& e : report("plain.dat")) alone.push_back(e["ts"]);
  for (const u64 time : alone) expected.insert(expected.end(), {time, time + 50'000});
  for (const auto& e : report("plain.dat guest.dat")) both.push_back(e["ts"]);
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(both, expected);
  // Where the shift is not known, that is said.
  std::ofstream(dir + "/guest.dat") << test::with_option(plain, trace_dat::option_time_shift, std::string(16, '\xff'));
  const Outcome o = ringside("report plain.dat guest.dat");
  EXPECT_NE(o.err.find("guest.dat: its times are of a guest, and are not shifted to its host's"), std::string::npos) << o.err;
  EXPECT_NE(o.err.find("guest.dat: clock mono, its times are used unchanged"), std::string::npos) << o.err;
}

TEST_F(Export, WrongUse) {
  EXPECT_EQ(ringside("export data").code, 2);
  EXPECT_EQ(ringside("export nothing --to out.dat").code, 1);
  make(ClockInfo{}, 1, 4096);
  EXPECT_EQ(ringside("export data --to nowhere/out.dat").code, 1);
  EXPECT_FALSE(std::filesystem::exists(dir + "/out.dat"));
}

// Files that trace-cmd recorded itself.
struct Report : TraceDatTest {
  std::string instance = "ringside-dat-" + std::to_string(getpid());
  void SetUp() override {
    TraceDatTest::SetUp();
    if (IsSkipped()) return;
    if (auto found = tracefs_dir(); !found) GTEST_SKIP() << found.error().sentence;
  }
  void TearDown() override {
    for (const char* more : {"", "-b"}) rmdir(("/sys/kernel/tracing/instances/" + instance + more).c_str());
    TraceDatTest::TearDown();
  }
  // Records only what the command itself does: the file's length then does not depend on the machine's other load. trace-cmd
  // 3.1 measures the kernel's list of names before it copies it: if that grew meanwhile, the file is damaged, and trace-cmd
  // itself reads nothing of it. It also ends where events of another test's probes go while it lists them.
  void record(const std::string& options, const std::string& command = "ls -laR /etc") const {
    for (int tries = 0; tries < 20; ++tries) {
      const Outcome o = run("LD_PRELOAD=" RINGSIDE_BUILD_DIR "/tests/trace_cmd_shim.so trace-cmd record -q -o theirs.dat " +
                            options + " -F " + command + " >ls.out");
      if (o.code != 0 && o.err.find("No such file or directory") != std::string::npos) continue;
      ASSERT_EQ(o.code, 0) << o.err;
      const Outcome judge = run("trace-cmd report -N theirs.dat | tail -n +2 | head -1");
      if (judge.err.empty() && !judge.out.empty()) return;
    }
    FAIL() << "trace-cmd cannot read what it records";
  }
  void expect_equal(const std::string& file, u64 events, bool ties = false) const {
    const Outcome ours = ringside("report " + file);
    EXPECT_EQ(ours.code, 0) << ours.err;
    expect_same(lines(ours.out), judged(file), events, ties);
  }
  std::string some = " -e sched -e irq -e syscalls ";
};

TEST_F(Report, Version6) {
  record("--file-version 6 -B " + instance + " -C mono" + some);
  expect_equal("theirs.dat", 100);
}

TEST_F(Report, Version7AndEachCompression) {
  record("--compression none -B " + instance + " -C mono" + some);
  expect_equal("theirs.dat", 100);
  for (const char* as : {"--file-version 7 --compression zstd", "--file-version 6", "--file-version 7 --compression none"}) {
    ASSERT_EQ(run(std::string("trace-cmd convert -i theirs.dat -o other.dat ") + as).code, 0);
    expect_equal("other.dat", 100);
  }
}

TEST_F(Report, TicksAndAnOffset) {
  record("--ts-offset 12345 -B " + instance + " -C x86-tsc" + some);
  expect_equal("theirs.dat", 100);
}

TEST_F(Report, TimeOfDay) {
  record("--date -B " + instance + some);
  expect_equal("theirs.dat", 100);
}

TEST_F(Report, LostEvents) {
  // trace-cmd's readers stand still while the command runs.
  const std::string readers = " -x -P $PPID trace-cmd; ";
  record("-B " + instance + " -b 8 -C mono -c" + some,
         "sh -c 'pkill -STOP" + readers + "ls -laR /etc; pkill -CONT" + readers + "'");
  const Outcome ours = ringside("report theirs.dat");
  EXPECT_NE(ours.out.find("EVENTS]"), std::string::npos) << "nothing was lost";
  EXPECT_NE(ours.err.find("events were lost"), std::string::npos);
  expect_equal("theirs.dat", 100);
  EXPECT_EQ(ringside("report theirs.dat --fail-on-loss").code, 3);
}

TEST_F(Report, SeveralBuffers) {
  record("-B " + instance + " -C mono -e sched -B " + instance + "-b -C mono -e syscalls");
  expect_equal("theirs.dat", 100, true);
  const Outcome json = ringside("report theirs.dat --json");
  EXPECT_NE(json.out.find("\"buffer\":\"" + instance + "-b\",\"ring\":"), std::string::npos) << json.out.substr(0, 300);
}

TEST_F(Report, WhateverReadsARecording) {
  // sh waits for sleep: there is a switch back to it, even if nothing else interrupts it.
  record("-B " + instance + " -C mono -e sched -e syscalls", "sh -c 'sleep 0.1; exec ls -laR /etc'");
  const Outcome hist = ringside("hist sched:sched_switch/next_comm theirs.dat -v next_pid -n 1000");
  EXPECT_EQ(hist.code, 0) << hist.err;
  EXPECT_NE(hist.out.find("\nsh "), std::string::npos) << hist.out;
  const Outcome top = ringside("top theirs.dat --once -n 1000");
  EXPECT_EQ(top.code, 0) << top.err;
  EXPECT_NE(top.out.find("syscalls:sys_enter_write"), std::string::npos) << top.out;
  const Outcome one = ringside("report theirs.dat -e 'sched:sched_sw*' --json");
  EXPECT_EQ(one.code, 0) << one.err;
  EXPECT_NE(one.out.find("\"event\":\"sched:sched_switch\""), std::string::npos);
  EXPECT_EQ(one.out.find("sys_enter"), std::string::npos);
  const Outcome stat = ringside("stat theirs.dat");
  EXPECT_EQ(stat.code, 0) << stat.err;
  EXPECT_NE(stat.out.find("read"), std::string::npos) << stat.out;
}

// record --to.
struct RecordTo : Report {
  bool there(const std::string& name) const { return std::filesystem::exists(dir + "/" + name); }
  std::string start = RINGSIDE_BUILD_DIR "/ringside record ";
  // Records until there are events in the parts, however long that takes; then sends the signal.
  Outcome record_until(const std::string& signal) const {
    return run("bash -c 'set -m; " + start +
               "-e \"sched:*\" --to out.dat & P=$!; until find out.dat.parts -name \"*.raw\" -size +8k 2>/dev/null | grep -q . "
               "|| ! kill -0 $P 2>/dev/null; do sleep 0.05; done; kill -" +
               signal + " $P; wait $P'");
  }
};

TEST_F(RecordTo, KernelAndProgram) {
  const Outcome o =
      ringside("record --libc malloc,io -e 'syscalls:*' -e 'sched:*' --to out.dat -- sh -c 'ls -laR /etc; exit 7'");
  EXPECT_EQ(o.code, 7);
  EXPECT_NE(o.err.find("out.dat"), std::string::npos) << o.err;
  EXPECT_FALSE(there("out.dat.parts"));
  EXPECT_FALSE(there("ringside.data"));
  expect_equal("out.dat", 1000, true);
  const Outcome again = ringside("record -q -e 'sched:*' --to out.dat --duration 100ms");  // replaces the older one
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(again.err, "");
  EXPECT_EQ(test::slurp(dir + "/out.dat").substr(10, 1), "6");
  expect_equal("out.dat", 1);
}

TEST_F(RecordTo, InterruptedItIsWhole) {
  const Outcome o = record_until("INT");
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_FALSE(there("out.dat.parts"));
  expect_equal("out.dat", 10);
}

TEST_F(RecordTo, KilledItsPartsAreARecording) {
  EXPECT_EQ(record_until("KILL").code, 137);
  EXPECT_FALSE(there("out.dat"));
  EXPECT_NE(ringside("report out.dat.parts").out.find("sched_switch: "), std::string::npos);
  const Outcome made = ringside("export out.dat.parts --to out.dat");
  EXPECT_EQ(made.code, 0) << made.err;
  expect_equal("out.dat", 10);
}

TEST_F(RecordTo, ShowsItsProgressOnATerminal) {
  const Outcome o = run("script -qec \"" + start + "-e 'sched:*' --to out.dat --duration 700ms\" /dev/null");
  EXPECT_EQ(o.code, 0) << o.out;
  EXPECT_TRUE(std::regex_search(o.out, std::regex("\r\033\\[K\033\\[\\?7l[0-9,]+ events, [0-9.]+ [KM]?i?B, 0 s"))) << o.out;
}

TEST_F(RecordTo, WrongUse) {
  EXPECT_EQ(ringside("record -e 'sched:*' --to . --duration 1ms").code, 2);
  EXPECT_EQ(ringside("record -e 'sched:*' --to x -o y --duration 1ms").code, 2);
  EXPECT_EQ(ringside("record -e 'sched:*' --to nowhere/x --duration 1ms").code, 1);
  ASSERT_EQ(run("mkdir x.dat.parts; echo mine > x.dat.parts/file").code, 0);
  EXPECT_EQ(ringside("record -e 'sched:*' --to x.dat --duration 1ms").code, 1);
  EXPECT_EQ(test::slurp(dir + "/x.dat.parts/file"), "mine\n");
}

TEST_F(Report, CutAndForeignFiles) {
  random_recording(dir + "/data", ClockInfo{}, 3, 4096, Of::both);
  ASSERT_EQ(ringside("export data --to out.dat --only program").code, 0);
  const auto size = std::filesystem::file_size(dir + "/out.dat");
  std::filesystem::resize_file(dir + "/out.dat", size - 6000);
  const Outcome cut = ringside("report out.dat");
  EXPECT_EQ(cut.code, 1);
  EXPECT_NE(cut.out.find("numbers: "), std::string::npos);
  EXPECT_NE(cut.err.find("it was cut"), std::string::npos) << cut.err;
  std::filesystem::resize_file(dir + "/out.dat", 300);
  EXPECT_EQ(ringside("report out.dat").code, 1);
  const Outcome foreign = run("echo hello > hello; " RINGSIDE_BUILD_DIR "/ringside report hello");
  EXPECT_EQ(foreign.code, 1);
  EXPECT_NE(foreign.err.find("no trace.dat"), std::string::npos) << foreign.err;
}

}  // namespace
}  // namespace ringside::export_test
