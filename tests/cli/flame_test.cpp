// ringside flame and stacks in the other commands, on recordings made by hand; the kernel's stacks beside its own file `trace`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <regex>
#include <thread>

#include "binary.hpp"
#include "cli/hand_made.hpp"
#include "kernel/kernel_source.hpp"
#include "kernel/tracefs_instance.hpp"
#include "plot_page.hpp"
#include "source/recording.hpp"
#include "sys/json.hpp"

namespace ringside::flame_cli_test {
namespace {

using nlohmann::json;
using test::Outcome;
using test::Payload;
using test::SubBuffer;
using testing::ElementsAre;
using testing::HasSubstr;

// libc:malloc (1), libc:free (2), ringside:stack (3), ringside:code_map (4).
struct FlameCli : test::BinaryTest {
  static constexpr const char* stack_field = "\tfield:ringside_stack stack;\toffset:24;\tsize:8;\tsigned:0;\n";
  static Payload stack_event(u64 id, const std::vector<u64>& frames) {
    Payload p(3, 71);
    p.put(id).put(static_cast<u32>(20 | frames.size() * 8 << 16));
    for (const u64 f : frames) p.put(f);
    return p;
  }
  static Payload allocated(u64 size, u64 pointer, u64 stack) { return Payload(1, 71).put(size).put(pointer).put(stack); }
  static Payload freed(u64 pointer) { return Payload(2, 71).put(pointer); }

  // Two stacks, of which one is in another ring, and one that is nowhere. Names come from a map of /tmp/perf-PID.map's kind:
  // there is no file, so all are offsets of "app".
  void make(const std::string& name, u64 more = 0) const {
    auto w = must(RecordingWriter::create(dir + "/" + name, ClockInfo{}));
    const auto add = [&](u16 id, const char* system, const char* event, const std::string& fields) {
      w.meta().events.push_back({id, system, event, test::format(id, event, fields, R"("")"), true, false});
    };
    const std::string u64_at_8 = "\tfield:u64 size;\toffset:8;\tsize:8;\tsigned:0;\n", pointer_at = "\tfield:u64 ptr;\toffset:";
    add(1, "libc", "malloc", u64_at_8 + pointer_at + "16;\tsize:8;\tsigned:0;\n" + stack_field);
    add(2, "libc", "free", pointer_at + "8;\tsize:8;\tsigned:0;\n");
    add(3, "ringside", "stack",
        "\tfield:u64 id;\toffset:8;\tsize:8;\tsigned:0;\n\tfield:__data_loc u64[] frames;\toffset:16;\tsize:4;\tsigned:0;\n");
    add(4, "ringside", "code_map",
        "\tfield:u32 pid;\toffset:8;\tsize:4;\tsigned:0;\n\tfield:u64 start;\toffset:16;\tsize:8;\tsigned:0;\n\tfield:u64 "
        "size;\toffset:24;\tsize:8;\tsigned:0;\n"
        "\tfield:u64 file_offset;\toffset:32;\tsize:8;\tsigned:0;\n\tfield:__data_loc char[] "
        "path;\toffset:40;\tsize:4;\tsigned:0;\n");
    const std::string path = std::string("/nowhere/app") + '\0';
    SubBuffer one(1000), two(1000);
    one.event(1000, Payload(4, 71)
                        .put(u32{70})
                        .put(u32{0})
                        .put(u64{0x10000})
                        .put(u64{0x1000})
                        .put(u64{0})
                        .put(static_cast<u32>(44 | path.size() << 16))
                        .text(path));
    one.event(1010, stack_event(0xA, {0x10101, 0x10201}));
    one.event(1020, allocated(100, 0x1, 0xA)).event(1030, allocated(50, 0x2, 0xA)).event(1040, allocated(7, 0x3, 0xB));
    one.event(1050, freed(0x2)).event(1060, allocated(1, 0x4, 0xC)).event(1070, freed(0x99)).event(1080, allocated(2, 0x5, 0));
    for (u64 i = 0; i < more; ++i) one.event(1100 + i, allocated(10, 0x100 + i, 0xB));
    two.event(5000, stack_event(0xB, {0x10301, 0x10201}));
    must(w.add_ring({0, 70, 71, "worker", "server", false, ""}, 4096));
    must(w.add_ring({1, 70, 72, "other", "server", false, ""}, 4096));
    must(w.append(0, one.view()));
    must(w.append(1, two.view()));
    must(w.finish(1));
  }
};

TEST_F(FlameCli, FoldedTextHasEachEventOnce) {
  make("ringside.data");
  const Outcome o = ringside("flame --folded -e libc:malloc");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(o.out, "worker;[no stack] 1\nworker;[stack lost] 1\nworker;app+0x200;app+0x100 2\nworker;app+0x200;app+0x300 1\n");
  EXPECT_THAT(o.err, HasSubstr("5 events with 4 different stacks, lost 0"));
  EXPECT_THAT(o.err, HasSubstr("1 event has no stack"));
  EXPECT_THAT(o.err, HasSubstr("1 different stack is lost"));
  EXPECT_THAT(o.err, HasSubstr("3 addresses have no names"));
  EXPECT_EQ(ringside("flame --folded -e libc:malloc --by size --root none").out,
            "[no stack] 2\n[stack lost] 1\napp+0x200;app+0x100 150\napp+0x200;app+0x300 7\n");
  // Without -e: the events that have stacks.
  EXPECT_THAT(ringside("flame --folded --root event").out, testing::StartsWith("libc:malloc;[stack lost] 1\n"));
}

TEST_F(FlameCli, LeaksAreWhatWasNotFreed) {
  make("ringside.data");
  const Outcome o = ringside("flame --leaks --folded");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(o.out,
            "worker;[no stack] 2\nworker;[stack lost] 1\nworker;app+0x200;app+0x100 100\nworker;app+0x200;app+0x300 7\n");
  EXPECT_THAT(
      o.err,
      HasSubstr("allocations 5 = freed 1 + replaced 0 + left 4; frees of what was allocated before the trace or elsewhere: 1"));
}

TEST_F(FlameCli, ThePeakIsWhatWasHeldWhenMostWas) {
  make("ringside.data");
  const Outcome o = ringside("flame --peak --folded");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(o.out, "worker;app+0x200;app+0x100 150\nworker;app+0x200;app+0x300 7\n");
  EXPECT_THAT(o.err, HasSubstr("the highest point of server-70: 157 bytes in 3 blocks, at 0.000001040 s\n"));
  EXPECT_EQ(ringside("flame --peak --folded -f 'size < 50'").out,
            "worker;[no stack] 2\nworker;[stack lost] 1\nworker;app+0x200;app+0x300 7\n");
  for (const char* wrong : {"--peak --leaks", "--peak --contention", "--peak --cpu 0", "--peak --by size", "--absolute"})
    EXPECT_EQ(ringside(std::string("flame --folded ") + wrong).code, 2) << wrong;
}

// The same blocks over time: a counter of the process, and one of each call site.
TEST_F(FlameCli, TheHeapOverTimeHasThatPeak) {
  make("ringside.data");
  const auto curves = [&](const std::string& words) {
    const Outcome o = ringside("plot -o page.html " + words);
    EXPECT_EQ(o.code, 0) << o.err;
    std::map<std::string, std::vector<std::pair<i64, i64>>> out;
    const json page = test::page_json(test::slurp(dir + "/page.html"));
    const i64 origin = std::stoll(page.at("origin").get<std::string>());
    for (const json& c : page.at("counters")) {
      EXPECT_EQ(page.at("threads").at(c.at("thread").get<size_t>()).at("tid"), 70);
      auto& points = out[c.at("name")];
      i64 at = origin;
      for (size_t n = 0; n < c.at("at").size(); ++n) points.emplace_back(at += c.at("at")[n].get<i64>(), c.at("value")[n]);
    }
    return out;
  };
  using Points = std::vector<std::pair<i64, i64>>;
  auto all = curves("");
  EXPECT_EQ(all["heap: bytes held"], (Points{{1020, 100}, {1030, 150}, {1040, 157}, {1050, 107}, {1060, 108}, {1080, 110}}));
  // Two columns of 1,024 ns; the last event is in the second.
  EXPECT_EQ(all["heap: app+0x100 ← app+0x200"], (Points{{1023, 100}, {1080, 100}}));
  EXPECT_EQ(all["heap: app+0x300 ← app+0x200"], (Points{{1080, 7}}));
  auto small = curves("-f 'size < 50'");  // chooses allocations
  EXPECT_EQ(small["heap: bytes held"], (Points{{1040, 7}, {1060, 8}, {1080, 10}}));
  EXPECT_TRUE(curves("-e libc:free").empty());
  EXPECT_THAT(ringside("plot -o page.html").err,
              HasSubstr("allocations 5 = freed 1 + replaced 0 + left 4; frees of what was allocated before the trace"));
}

// Two machines have a program at one path, without a build id, each with names that its recorder has kept.
TEST_F(FlameCli, EachMachineHasItsOwnNames) {
  for (const std::string name : {"one", "two"}) {
    make(name);
    json meta = json::parse(test::slurp(dir + "/" + name + "/meta.json"));
    meta.erase("boot");
    meta["world"]["host"] = name;
    std::ofstream(dir + "/" + name + "/meta.json") << meta;
    std::ofstream(dir + "/" + name + "/names") << "F\t\t0\t0\t/nowhere/app\nA\t100\nP\t0\t16\t0\t0\t\tinner_of_" + name +
                                                      "\nA\t200\nP\t0\t16\t0\t0\t\touter_of_" + name + "\n";
  }
  const Outcome o = ringside("flame --folded -e libc:malloc -f 'size == 100 || size == 50' one two");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(o.out, "worker;outer_of_one;inner_of_one 2\nworker;outer_of_two;inner_of_two 2\n") << o.err;
}

// A filter chooses allocations. Frees count always: those that it refuses by a field that they lack, by their thread, by a CPU.
TEST_F(FlameCli, AFilterOfLeaksLeavesNoFreeOut) {
  make("ringside.data");
  const Outcome o = ringside("flame --leaks --folded -f 'size > 40'");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(o.out, "worker;app+0x200;app+0x100 100\n");
  EXPECT_THAT(o.err, HasSubstr("allocations 2 = freed 1 + replaced 0 + left 1; frees"));
  const Outcome by_stack = ringside("flame --leaks --folded -f 'ptr != 5 && size < 10'");
  EXPECT_EQ(by_stack.out, "worker;[stack lost] 1\nworker;app+0x200;app+0x300 7\n") << by_stack.err;
  EXPECT_THAT(by_stack.err, HasSubstr("allocations 2 = freed 0 + replaced 0 + left 2; frees"));
  for (const char* wrong : {"--leaks --cpu 0", "--contention --cpu 0"}) {
    const Outcome refused = ringside(std::string("flame --folded ") + wrong);
    EXPECT_EQ(refused.code, 2) << wrong;
    EXPECT_THAT(refused.err, HasSubstr("--cpu has no meaning beside")) << wrong;
  }
}

TEST_F(FlameCli, ThePageHoldsTheTreeAndLoadsNothing) {
  make("ringside.data");
  make("more", 5);
  const Outcome o = ringside("flame -e libc:malloc more --against ringside.data");
  ASSERT_EQ(o.code, 0) << o.err;
  const std::string html = test::slurp(dir + "/flame.html");
  for (const char* loads : {"src=", "@import", "<link rel=\"stylesheet\"", "http-equiv=\"refresh\""})
    EXPECT_EQ(html.find(loads), std::string::npos) << loads;
  const json page = test::page_json(html);
  EXPECT_EQ(page["against"], "ringside.data");
  EXPECT_EQ(page["absolute"], false);
  EXPECT_EQ(page["unit"], "events");
  u64 sums[2] = {};
  for (const int which : {0, 1}) {
    for (const auto& own : page["nodes"]["own"][static_cast<size_t>(which)]) sums[which] += own.get<u64>();
  }
  EXPECT_EQ(sums[0], 10u);
  EXPECT_EQ(sums[1], 5u);
  EXPECT_EQ(page["nodes"]["name"].size(), page["nodes"]["depth"].size());
  ASSERT_EQ(ringside("flame -e libc:malloc more --against ringside.data --absolute").code, 0);
  EXPECT_EQ(test::page_json(test::slurp(dir + "/flame.html"))["absolute"], true);
}

TEST_F(FlameCli, ReportFilterAndHistKnowStacks) {
  make("ringside.data");
  const std::string text = ringside("report -e libc:malloc").out;
  EXPECT_THAT(text, HasSubstr("malloc: \n => app+0x100\n => app+0x200\n"));
  EXPECT_THAT(text, HasSubstr("malloc: \n => app+0x300\n => app+0x200\n"));  // from the other ring, behind the event
  EXPECT_EQ(events("-e libc:malloc")[0]["stack"], json::parse(R"(["app+0x100","app+0x200"])"));
  EXPECT_FALSE(events("-e libc:malloc")[4].contains("stack"));
  EXPECT_EQ(events("-f 'stack ~ \"*app+0x300*\"'").size(), 1u);
  EXPECT_EQ(events("-f 'stack[1] == \"app+0x200\"'").size(), 3u);
  EXPECT_EQ(events("-f 'event == malloc && !(stack ~ \"*app*\")'").size(), 2u);
  EXPECT_EQ(ringside("report -f 'stack[x] == 1'").code, 2);
  const json rows = json::parse(ringside("hist libc:malloc/stack -v size --json").out)["rows"];
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0]["libc:malloc/stack"], json::parse(R"(["app+0x100","app+0x200"])"));
  EXPECT_EQ(rows[0]["size"]["sum"], 150);
  EXPECT_EQ(json::parse(ringside("hist 'libc:malloc/stack[1]' --json").out)["rows"][0]["count"], 3);
  EXPECT_EQ(json::parse(ringside("top --by 'stack[1]' --json").out)["rows"][0]["count"], 3);
  EXPECT_EQ(ringside("hist 'stack[-1]'").code, 2);
}

TEST_F(FlameCli, PprofIsWhatProtocReads) {
  if (run("protoc --version").code != 0) GTEST_SKIP() << "there is no protoc";
  make("ringside.data");
  ASSERT_EQ(ringside("flame --pprof -e libc:malloc --by size").code, 0);
  const Outcome o =
      run("gzip -dc profile.pb.gz | protoc --decode=profile.Profile -I " RINGSIDE_SOURCE_DIR "/tests/stacks profile.proto");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(o.out.find("\n  9"), std::string::npos);
  // The sums of both values over all samples.
  std::vector<std::string> strings;
  u64 sums[2] = {}, samples = 0, functions = 0;
  std::istringstream lines(o.out);
  bool in_sample = false;
  u32 values = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("sample {", 0) == 0) in_sample = true, values = 0, ++samples;
    if (line == "}") in_sample = false;
    if (in_sample && line.rfind("  value: ", 0) == 0) sums[values++ % 2] += std::stoull(line.substr(9));
    functions += line.rfind("function {", 0) == 0;
    if (line.rfind("string_table: ", 0) == 0) strings.push_back(line.substr(15, line.size() - 16));
  }
  EXPECT_EQ(samples, 4u);
  EXPECT_EQ(sums[0], 5u);
  EXPECT_EQ(sums[1], 160u);
  ASSERT_FALSE(strings.empty());
  EXPECT_EQ(strings[0], "");
  EXPECT_THAT(strings, testing::IsSupersetOf({"app+0x100", "app+0x200", "app+0x300", "[stack lost]", "[no stack]",
                                              "/nowhere/app", "worker", "task", "size", "bytes", "count"}));
  EXPECT_EQ(functions, 5u);
}

// Thread 71 holds a lock at 0xA, 72 waits for it 900 ns, 71 fails to get it; another process has a mutex at the same address.
TEST_F(FlameCli, WhoWaitsForALockAndWhoHoldsIt) {
  auto w = must(RecordingWriter::create(dir + "/ringside.data", ClockInfo{}));
  w.meta().events.push_back(
      {1, "libc", "mutex_lock",
       test::format(
           1, "mutex_lock",
           "\tfield:u64 mutex;\toffset:8;\tsize:8;\tsigned:0;\n\tfield:u64 wait_ns;\toffset:16;\tsize:8;\tsigned:0;\n"
           "\tfield:int ret;\toffset:24;\tsize:4;\tsigned:1;\n\tfield:ringside_stack stack;\toffset:32;\tsize:8;\tsigned:0;\n",
           R"("")"),
       true, false});
  w.meta().events.push_back(
      {3, "ringside", "stack",
       test::format(
           3, "stack",
           "\tfield:u64 id;\toffset:8;\tsize:8;\tsigned:0;\n\tfield:__data_loc u64[] frames;\toffset:16;\tsize:4;\tsigned:0;\n",
           R"("")"),
       true, false});
  const auto locks = [](i32 tid, u64 wait_ns, i32 ret, u64 stack) {
    return Payload(1, tid).put(u64{0xA}).put(wait_ns).put(ret).put(u32{0}).put(stack);
  };
  SubBuffer all(1000);
  all.event(1000, stack_event(0xA, {0x101})).event(1000, stack_event(0xB, {0x202}));
  all.event(1100, locks(71, 5, 0, 0xA))
      .event(1200, locks(71, 7, 16, 0xB))
      .event(1900, locks(90, 3, 0, 0xB))
      .event(2000, locks(72, 900, 0, 0xB))
      .event(3000, locks(71, 70, 0, 0xA));
  must(w.add_ring({0, 0, 0, "", "", false, "", 0}, 4096));
  for (const RingName& thread : {RingName{1, 70, 71, "holder", "server"}, RingName{2, 70, 72, "waiter", "server"},
                                 RingName{3, 90, 90, "other", "other"}})
    w.meta().threads.push_back(thread);
  must(w.append(0, all.view()));
  must(w.finish(1));
  const Outcome o = ringside("flame --contention --folded");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(
      o.out,
      "holder;[no map] 5\nholder;[no map];-- held by;[no map] 77\nother;[no map] 3\nwaiter;[no map];-- held by;[no map] 900\n");
  EXPECT_EQ(ringside("flame --contention --folded -f 'wait_ns > 100'").out, "waiter;[no map];-- held by;[no map] 900\n");
  EXPECT_EQ(ringside("flame --contention --leaks").code, 2);
}

TEST_F(FlameCli, LatencyMakesAFlameGraph) {
  make("ringside.data");
  const Outcome o = ringside("latency libc:malloc libc:free --key ptr --flame=pairs.html ringside.data");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(test::page_json(test::slurp(dir + "/pairs.html"))["unit"], "ns");
  EXPECT_EQ(ringside("latency -H a,b/c,d --flame ringside.data").code, 2);
}

// From outside: an event gets a stack if it is chosen when it is declared; what is not reached is named.
TEST_F(FlameCli, StacksAreSwitchedOnFromOutside) {
  const std::string program = RINGSIDE_BUILD_DIR "/tests/sampled events";
  ASSERT_EQ(ringside("record -q -i web --duration 1ms").code, 0);
  Outcome o = ringside("enable --stack -i web 'sampled:*'");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.err, HasSubstr("events that are declared from now on get a stack\n"));
  o = ringside("disable --stack sampled:end");
  ASSERT_EQ(o.code, 0) << o.err;
  ASSERT_EQ(run("RINGSIDE_INSTANCE=web " + program).code, 0);
  const auto has = [&](const std::string& where, const char* event) {
    const auto all = events("-i " + where + " -e " + event);
    return all.size() == 1 && all[0].contains("stack") && all[0]["stack"].dump().find("main") != std::string::npos;
  };
  EXPECT_TRUE(has("web", "sampled:begin"));
  EXPECT_FALSE(has("web", "sampled:end"));
  o = ringside("enable --stack sampled:end,sampled:begin");
  EXPECT_THAT(o.err, HasSubstr("not reached, because they were declared before: sampled:end. A new instance"));
  EXPECT_THAT(o.err, HasSubstr("sampled:begin has a stack already"));
  EXPECT_THAT(ringside("disable --stack sampled:begin").err,
              HasSubstr("not reached, because they were declared before: sampled:begin"));
  // By the program's own environment.
  ASSERT_EQ(ringside("record -q -i own --duration 1ms").code, 0);
  ASSERT_EQ(run("RINGSIDE_STACK=sampled:end RINGSIDE_INSTANCE=own " + program).code, 0);
  EXPECT_FALSE(has("own", "sampled:begin"));
  EXPECT_TRUE(has("own", "sampled:end"));
  EXPECT_EQ(ringside("enable --stack -i web '!x'").code, 2);
}

// What was chosen for an instance holds beside a recording's own choice, and again after it; a later choice of others stays.
TEST_F(FlameCli, ARecordingPutsTheInstancesChoiceBack) {
  const std::string program = RINGSIDE_BUILD_DIR "/tests/sampled events", chosen = dir + "/root/web/set_stack";
  ASSERT_EQ(ringside("record -q -i web --duration 1ms").code, 0);
  ASSERT_EQ(ringside("enable --stack -i web sampled:begin").code, 0);
  const std::string before = test::slurp(chosen);
  ASSERT_EQ(ringside("record -q -i web --stack=sampled:end --depth 5 -- " + program).code, 0);
  const auto all = events("-e sampled:begin,sampled:end");
  ASSERT_EQ(all.size(), 2u);
  for (const json& e : all) EXPECT_TRUE(e.contains("stack")) << e;
  EXPECT_EQ(test::slurp(chosen), before);
  ASSERT_EQ(
      ringside("record -q -i web --stack=sampled:end -- " RINGSIDE_BUILD_DIR "/ringside disable --stack -i web sampled:begin")
          .code,
      0);
  EXPECT_THAT(test::slurp(chosen), HasSubstr("!sampled:begin\n"));
}

TEST_F(FlameCli, WrongUsageIsSaid) {
  make("ringside.data");
  for (const char* wrong : {"--folded --pprof", "--by nothing", "--leaks --by size", "--key ptr", "--leaks --latency malloc",
                            "--against x --folded", "--latency nothing"}) {
    const Outcome o = ringside(std::string("flame ") + wrong);
    EXPECT_NE(o.code, 0) << wrong;
    EXPECT_FALSE(o.err.empty()) << wrong;
  }
  EXPECT_EQ(ringside("flame nothing").code, 1);
  EXPECT_EQ(ringside("flame -o nowhere/x.html").code, 1);
}

// Stack by stack, for each CPU: the time, then the lines.
std::map<std::string, std::vector<std::string>> stacks_in(const std::string& text) {
  std::map<std::string, std::vector<std::string>> all;
  std::istringstream lines(text);
  std::string* open = nullptr;
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind(" => ", 0) == 0) {
      if (open != nullptr) *open += line + "\n";
      continue;
    }
    open = nullptr;
    static const std::regex head(R"(-(\d+)\s+(?:\(.*?\)\s*)?\[(\d+)\].*?(\d+\.\d{6}): <stack trace>)");
    std::smatch found;
    if (!std::regex_search(line, found, head)) continue;
    open = &all[found[2]].emplace_back(found[3].str() + " " + found[1].str() + "\n");
  }
  return all;
}

TEST_F(FlameCli, TheKernelsStacksAreThoseOfItsOwnFile) {
  TracefsOptions options;
  options.clock = ClockKind::mono;
  options.buffer_size = 16 << 20;
  auto made = TracefsInstance::create(options);
  if (!made) GTEST_SKIP() << made.error().sentence;
  TracefsInstance& kernel = *made;
  if (!kernel.write("options/stacktrace", "1") || !kernel.write("options/sym-offset", "1"))
    GTEST_SKIP() << "this kernel records no stacks";
  const auto events = must(kernel.enable(EventPattern("sched:sched_switch")));
  must(kernel.tracing(true));
  for (int i = 0; i < 30; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  must(kernel.tracing(false));
  const std::string theirs = test::slurp(kernel.dir() + "/trace");
  {
    auto w = must(RecordingWriter::create(dir + "/ringside.data", calibrate(ClockKind::mono)));
    for (const EventInfo& e : kernel_internal_events()) w.meta().events.push_back(e);
    for (const EventInfo& e : events) w.meta().events.push_back(e);
    must(w.keep("kallsyms", must(sys::read_file("/proc/kallsyms"))));
    for (const u32 cpu : kernel.cpus()) {
      auto source = must(open_kernel_ring({kernel.dir(), cpu}, calibrate(ClockKind::mono), KernelWay::read));
      must(w.add_ring(source->name(), 4096));
      for (auto view = must(source->next()); view; view = must(source->next()))
        must(w.append(cpu + RecordingWriter::kernel_rings, *view));
    }
    must(w.finish(1));
  }
  const auto kernels = stacks_in(theirs), ours = stacks_in(ringside("report").out);
  u64 count = 0;
  for (const auto& [cpu, stacks] : kernels) count += stacks.size();
  ASSERT_GT(count, 20u) << theirs.substr(0, 2000);
  EXPECT_EQ(kernels, ours);
  // Each belongs to an event; an event without the other's is not here.
  u64 joined = 0;
  for (const json& e : this->events("-e sched_switch")) joined += e.contains("stack");
  EXPECT_EQ(joined, count);
  EXPECT_EQ(ringside("report").err, "");
  const Outcome folded = ringside("flame --folded --root none");
  EXPECT_THAT(folded.out, HasSubstr("__schedule"));
}

}  // namespace
}  // namespace ringside::flame_cli_test
