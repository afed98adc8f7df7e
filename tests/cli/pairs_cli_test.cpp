// Pairs in the commands that measure them: calls that nest, and one language of conditions, on recordings made by hand and with
// a second computation.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <random>
#include <sstream>

#include "binary.hpp"
#include "cli/hand_made.hpp"
#include "kernel/tracefs_instance.hpp"
#include "plot_page.hpp"
#include "source/recording.hpp"
#include "sys/json.hpp"

namespace ringside::test::pairs_cli_test {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

constexpr u64 ms = 1'000'000;

std::string field(const std::string& declared, int at, int size) {
  return "\tfield:" + declared + ";\toffset:" + std::to_string(at) + ";\tsize:" + std::to_string(size) + ";\tsigned:0;\n";
}

struct PairsCli : BinaryTest {
  json latency(const std::string& arguments) const {
    const Outcome o = ringside("latency " + arguments + " --json");
    EXPECT_EQ(o.code, 0) << arguments << "\n" << o.err;
    return o.code == 0 ? json::parse(o.out) : json();
  }
  static u64 weights(const std::string& lines) {
    u64 all = 0;
    std::istringstream in(lines);
    for (std::string line; std::getline(in, line);) all += json::parse(line).at("weight").get<u64>();
    return all;
  }
};

struct NestedCalls : PairsCli {
  // At 1 s three spans of one thread inside each other, of 10, 6 and 1 ms; at 2 s the same as entry and return of a probe.
  void SetUp() override {
    PairsCli::SetUp();
    auto w = must(RecordingWriter::create(dir + "/ringside.data", calibrate(ClockKind::mono)));
    const std::string span = field("char track_event_type", 8, 1) + field("char slice_name[7]", 9, 7);
    const auto add = [&](u16 id, const char* system, const char* name, const std::string& fields) {
      w.meta().events.push_back({id, system, name, format(id, name, fields, R"("x")"), true, false});
    };
    add(0xF001, "ringside", "span", span);
    add(0xF002, "probe_app", "walk", field("unsigned long __probe_ip", 8, 8));
    add(0xF003, "probe_app", "walk__return", field("unsigned long __probe_ip", 8, 8));
    add(0xF004, "app", "begin", field("unsigned long x", 8, 8));
    add(0xF005, "app", "end", field("unsigned long x", 8, 8));
    const u64 t = 1000 * ms;
    SubBuffer all(t, 4096);
    const std::pair<u64, bool> times[] = {{0, true}, {1, true}, {3, true}, {4, false}, {7, false}, {10, false}};
    for (const auto& [at, begins] : times)
      all.event(t + at * ms, Payload(0xF001, 42).text(begins ? "B" : "E").text({"walk\0\0\0", 7}));
    for (const auto& [at, begins] : times) all.event(2 * t + at * ms, Payload(begins ? 0xF002 : 0xF003, 42).put(u64{0x401000}));
    for (const auto& [at, begins] : times) all.event(3 * t + at * ms, Payload(begins ? 0xF004 : 0xF005, 42).put(u64{0}));
    must(w.add_ring({0, 42, 42, "prog", "prog", false, ""}, 4096));
    must(w.append(0, all.view()));
    must(w.finish(1));
  }
};

TEST_F(NestedCalls, EachEndTakesTheInnermostStart) {
  for (const std::string pair :
       {"span ringside.data", "probe_app:walk probe_app:walk__return ringside.data --key pid",
        "walk walk__return ringside.data", "span ringside.data --first", "span ringside.data --context 1"}) {
    const json j = latency(pair);
    ASSERT_EQ(j.at("pairs"), 3) << pair;
    EXPECT_EQ(j.at("all").at("sum"), 17 * ms) << pair;
    EXPECT_EQ(j.at("all").at("max"), 10 * ms) << pair;
    EXPECT_EQ(j.at("slowest")[0].at("start").at("ts").get<u64>() % (1000 * ms), 0u) << pair;
    EXPECT_EQ(j.at("repeated"), 0) << pair;
    EXPECT_EQ(j.at("nested"), true) << pair;
    EXPECT_EQ(j.at("exact"), true) << pair;
  }
  EXPECT_THAT(ringside("latency span ringside.data").out, HasSubstr("calls, the innermost first"));
  const Outcome flame = ringside("flame --json ringside.data --latency span");
  EXPECT_EQ(flame.code, 0) << flame.err;
  EXPECT_EQ(weights(flame.out), 17 * ms);
  EXPECT_EQ(json::parse(ringside("watch --json ringside.data --latency span").out).at("all").at("value").at("max"), 10 * ms);
}

// Begin and end of the program's own may be anything: then a repeated start makes the answer less than exact.
TEST_F(NestedCalls, WhatIsNoCallIsNotExactWhereStartsRepeat) {
  const json j = latency("app:begin app:end ringside.data");
  EXPECT_EQ(j.at("pairs"), 1);
  EXPECT_EQ(j.at("nested"), false);
  EXPECT_EQ(j.at("exact"), false);
  const Outcome o = ringside("latency app:begin app:end ringside.data");
  EXPECT_THAT(o.out, HasSubstr("2 starts repeat within the key before an end came: the last one counts (--first: the first)"));
  EXPECT_THAT(o.out, HasSubstr("2 ends have no start here"));
  EXPECT_THAT(o.out, HasSubstr("nothing was lost\n"));
  EXPECT_THAT(o.out, Not(HasSubstr("exact,")));
  EXPECT_THAT(ringside("latency app:begin app:end ringside.data --time ..3.0035").out, HasSubstr("1 start has no end here"));
  EXPECT_THAT(ringside("flame --json ringside.data --latency app:begin app:end").err,
              HasSubstr("2 starts repeat within the key"));
}

// After a fork both processes free the memory of one address, and end the work of one name and number.
TEST_F(PairsCli, AddressesAndNumbersOfTwoProcessesAreTwo) {
  auto w = must(RecordingWriter::create(dir + "/ringside.data", calibrate(ClockKind::mono)));
  const std::string pointer = field("u64 ptr", 8, 8);
  const std::string work =
      field("char track_event_type", 8, 1) + field("char slice_name[7]", 9, 7) + field("u64 async_id", 16, 8);
  w.meta().events.push_back({0xF001, "libc", "malloc", format(0xF001, "malloc", field("u64 size", 16, 8) + pointer, R"("x")")});
  w.meta().events.push_back({0xF002, "libc", "free", format(0xF002, "free", pointer, R"("x")")});
  w.meta().events.push_back({0xF003, "ringside", "async_span", format(0xF003, "async_span", work, R"("x")")});
  const u64 t = 1000 * ms;
  SubBuffer parent(t, 4096), child(t, 4096);
  const auto async = [](i32 tid, const char* kind) {
    return Payload(0xF003, tid).text(kind).text({"job\0\0\0\0", 7}).put(u64{7});
  };
  parent.event(t, Payload(0xF001, 42).put(u64{0xA0}).put(u64{64}));
  parent.event(t + 1 * ms, async(42, "B"));
  child.event(t + 1 * ms, Payload(0xF002, 50).put(u64{0xA0}));  // what it has of its parent
  child.event(t + 2 * ms, Payload(0xF001, 51).put(u64{0xA0}).put(u64{64}));
  child.event(t + 3 * ms, async(50, "B"));
  child.event(t + 10 * ms, async(51, "E"));
  child.event(t + 12 * ms, Payload(0xF002, 50).put(u64{0xA0}));
  parent.event(t + 200 * ms, Payload(0xF002, 42).put(u64{0xA0}));
  parent.event(t + 201 * ms, async(42, "E"));
  must(w.add_ring({0, 42, 42, "prog", "prog", false, ""}, 4096));
  must(w.add_ring({1, 50, 50, "child", "child", false, ""}, 4096));
  must(w.add_ring({2, 50, 51, "helper", "child", false, ""}, 4096));
  must(w.append(0, parent.view()));
  must(w.append(1, child.view()));
  must(w.finish(1));
  const json memory = latency("malloc ringside.data");
  EXPECT_EQ(memory.at("pairs"), 2);
  EXPECT_EQ(memory.at("all").at("sum"), 210 * ms);
  EXPECT_EQ(memory.at("all").at("max"), 200 * ms);
  EXPECT_EQ(memory.at("ends"), 3);
  const json jobs = latency("async ringside.data");
  EXPECT_EQ(jobs.at("pairs"), 2);
  EXPECT_EQ(jobs.at("all").at("sum"), 207 * ms);
  EXPECT_EQ(jobs.at("all").at("max"), 200 * ms);
  const Outcome flame = ringside("flame --json ringside.data --latency malloc");
  EXPECT_EQ(flame.code, 0) << flame.err;
  EXPECT_EQ(weights(flame.out), 210 * ms);
}

// A realloc frees what it was given, and allocates what it returns. One that fails does neither.
TEST_F(PairsCli, AReallocEndsALifetimeAndBeginsOne) {
  auto w = must(RecordingWriter::create(dir + "/ringside.data", calibrate(ClockKind::mono)));
  const auto declare = [&](u16 id, const char* name, const std::string& fields) {
    w.meta().events.push_back({id, "libc", name, format(id, name, fields, R"("x")")});
  };
  declare(0xF001, "malloc", field("u64 size", 8, 8) + field("u64 ptr", 16, 8));
  declare(0xF002, "free", field("u64 ptr", 8, 8));
  declare(0xF003, "realloc", field("u64 old", 8, 8) + field("u64 size", 16, 8) + field("u64 ptr", 24, 8));
  const u64 t = 1000 * ms;
  SubBuffer all(t, 4096);
  const auto malloc = [](u64 size, u64 p) { return Payload(0xF001, 42).put(size).put(p); };
  const auto free = [](u64 p) { return Payload(0xF002, 42).put(p); };
  const auto realloc = [](u64 old, u64 size, u64 p) { return Payload(0xF003, 42).put(old).put(size).put(p); };
  all.event(t, malloc(100, 0xA0)).event(t + 10 * ms, realloc(0xA0, 0, 0));                        // lives 10 ms
  all.event(t + 11 * ms, realloc(0, 8, 0xB0)).event(t + 31 * ms, realloc(0xB0, 9, 0xB0));         // 20 ms, in place
  all.event(t + 61 * ms, realloc(0xB0, 10, 0xC0)).event(t + 101 * ms, free(0xC0));                // 30 ms, then 40 ms
  all.event(t + 102 * ms, malloc(50, 0xD0)).event(t + 103 * ms, realloc(0xD0, u64{1} << 60, 0));  // it leaks
  all.event(t + 104 * ms, malloc(~u64{0}, 0)).event(t + 105 * ms, free(0));
  must(w.add_ring({0, 42, 42, "prog", "prog", false, ""}, 4096));
  must(w.append(0, all.view()));
  must(w.finish(1));
  const json memory = latency("malloc ringside.data");
  EXPECT_EQ(memory.at("pairs"), 4);
  EXPECT_EQ(memory.at("all").at("sum"), 100 * ms);
  EXPECT_EQ(memory.at("all").at("max"), 40 * ms);
  EXPECT_EQ(memory.at("starts"), 5);
  EXPECT_EQ(memory.at("ends"), 4);
  EXPECT_EQ(memory.at("open"), 1);
  EXPECT_EQ(memory.at("exact"), true);
  EXPECT_THAT(ringside("latency malloc ringside.data --slowest 1").out, HasSubstr("0xc0"));
  const Outcome flame = ringside("flame --json ringside.data --latency malloc");
  EXPECT_EQ(weights(flame.out), 100 * ms) << flame.err;
}

// Threads are woken and run later, on a machine made by hand.
struct Conditions : PairsCli {
  static constexpr u16 waking = 0xF001, switching = 0xF003;
  struct Pair {
    std::string woken, waker, before;
    i32 pid = 0;
    u64 ns = 0;
  };
  std::vector<Pair> pairs;

  void SetUp() override {
    PairsCli::SetUp();
    auto w = must(RecordingWriter::create(dir + "/ringside.data", calibrate(ClockKind::mono)));
    const std::string woken = field("char comm[8]", 8, 8) + field("int pid", 16, 4) + field("int prio", 20, 4);
    const std::string change = field("char prev_comm[8]", 8, 8) + field("int prev_pid", 16, 4) + field("int prio", 20, 4) +
                               field("char next_comm[8]", 24, 8) + field("int next_pid", 32, 4);
    w.meta().events.push_back(
        {waking, "sched", "sched_waking", format(waking, "sched_waking", woken, R"("%s", REC->comm)"), true, false});
    w.meta().events.push_back({switching, "sched", "sched_switch",
                               format(switching, "sched_switch", change, R"("%s", REC->next_comm)"), true, false});
    const std::vector<std::string> names{"cc1", "as", "make", "ld"};
    const auto text = [](std::string name) {
      name.resize(8);
      return name;
    };
    std::mt19937 random(7);
    const u64 t = 5'000'000'000;
    SubBuffer all(t, 65536);
    std::map<size_t, std::pair<u64, size_t>> open;  // by the woken one: since when, and by whom
    u64 now = t;
    for (int i = 0; i < 400; ++i) {
      now += 1000 + random() % 2'000'000;
      const size_t mine = random() % names.size(), other = random() % names.size();
      if (open.count(mine) == 0) {
        open[mine] = {now, other};
        all.event(
            now, Payload(waking, 50 + static_cast<i32>(other)).text(text(names[mine])).put(50 + static_cast<i32>(mine)).put(1));
        continue;
      }
      all.event(now, Payload(switching, 50 + static_cast<i32>(other))
                         .text(text(names[other]))
                         .put(50 + static_cast<i32>(other))
                         .put(2)
                         .text(text(names[mine]))
                         .put(50 + static_cast<i32>(mine)));
      pairs.push_back(
          {names[mine], names[open[mine].second], names[other], 50 + static_cast<i32>(mine), now - open[mine].first});
      open.erase(mine);
    }
    must(w.add_ring({0, 50, -1, "cpu0", "", false, ""}, 65536));
    must(w.append(0, all.view()));
    must(w.finish(1));
  }
};

TEST_F(Conditions, OneLanguageAndTheSamePairsEverywhere) {
  using Wanted = std::function<bool(const Pair&)>;
  const std::vector<std::pair<std::string, Wanted>> all = {
      {"start/comm == cc1", [](const Pair& p) { return p.woken == "cc1"; }},
      {"comm == cc1", [](const Pair& p) { return p.woken == "cc1"; }},  // the start's field alone
      {"end/next_comm == as", [](const Pair& p) { return p.woken == "as"; }},
      {"prev_comm == make", [](const Pair& p) { return p.before == "make"; }},
      {"comm == cc1 || next_comm == as", [](const Pair& p) { return p.woken == "cc1" || p.woken == "as"; }},
      {"prev_comm == make && comm == ld", [](const Pair& p) { return p.before == "make" && p.woken == "ld"; }},
      {"latency > 1ms", [](const Pair& p) { return p.ns > ms; }},
      {"latency <= 1.5ms && !(start/comm ~ \"*c*\")", [](const Pair& p) { return p.ns <= 1'500'000 && p.woken != "cc1"; }},
      {"key == 52", [](const Pair& p) { return p.pid == 52; }},
      {"end/prio == 2 && start/prio == 1 && pid != 50", [](const Pair& p) { return p.pid != 50; }},
      {"sched_waking/pid == 51 || (latency > 2ms && end/prev_pid == 53)",
       [](const Pair& p) { return p.pid == 51 || (p.ns > 2 * ms && p.before == "ld"); }},
      {"comm == nobody", [](const Pair&) { return false; }},
  };
  for (const auto& [condition, wanted] : all) {
    u64 count = 0, sum = 0;
    for (const Pair& p : pairs) {
      if (!wanted(p)) continue;
      ++count;
      sum += p.ns;
    }
    const std::string f = " ringside.data -f '" + condition + "'", pair = " --latency wakeup";
    for (const char* way : {"", " --jobs 3", " --first", " --context 2"}) {
      const json j = latency("wakeup" + f + way);
      EXPECT_EQ(j.at("pairs"), count) << condition << way;
      EXPECT_EQ(j.at("all").at("sum"), sum) << condition << way;
      EXPECT_EQ(j.at("left_out"), pairs.size() - count) << condition << way;
    }
    const Outcome flame = ringside("flame --json" + f + pair);
    EXPECT_EQ(flame.code, count == 0 ? 1 : 0) << flame.err;
    EXPECT_EQ(weights(flame.out), sum) << condition;
    const std::string said = std::to_string(count) + (count == 1 ? " pair" : " pairs");
    EXPECT_THAT(flame.err, HasSubstr(said)) << condition;
    EXPECT_THAT(ringside("latency wakeup --flame=x.html" + f).err, HasSubstr(said)) << condition;
    const json watch = json::parse(ringside("watch --json" + f + pair).out);
    EXPECT_EQ(watch.at("all").at("count"), count) << condition;
    if (count != 0) {
      EXPECT_NEAR(watch.at("all").at("value").at("mean").get<double>() * static_cast<double>(count), static_cast<double>(sum),
                  1000.0)
          << condition;
    }
    const Outcome plot = ringside("plot -o p.html" + f + pair);
    ASSERT_EQ(plot.code, 0) << plot.err;
    u64 in_heat = 0;
    const json page = page_json(slurp(dir + "/p.html"));
    for (const json& heat : page.at("heat")) {
      if (heat.value("asked", false)) in_heat = heat.at("count");
    }
    EXPECT_EQ(in_heat, count) << condition;
  }
}

TEST_F(Conditions, TheThreadThatWaited) {
  u64 of_cc1 = 0, of_c = 0;
  for (const Pair& p : pairs) {
    of_cc1 += p.woken == "cc1";
    of_c += p.woken == "as" && p.ns > ms;
  }
  EXPECT_EQ(latency("wakeup ringside.data --task cc1").at("pairs"), of_cc1);
  // A slow wait ends with the thread that runs from then on.
  const json slow = latency("wakeup ringside.data --slowest 5").at("slowest");
  EXPECT_FALSE(slow.empty());
  for (const json& one : slow) EXPECT_EQ("next_pid=" + one.at("end").at("runs").at("tid").dump(), one.at("key")) << one;
  EXPECT_THAT(ringside("latency wakeup ringside.data --slowest 5").out, HasSubstr("  runs  "));
  EXPECT_EQ(latency("sched_waking sched_switch -k pid=next_pid ringside.data --task 'cc*'").at("pairs"), of_cc1);
  EXPECT_EQ(latency("wakeup ringside.data --task as -f 'latency > 1ms'").at("pairs"), of_c);
  EXPECT_THAT(ringside("flame --json ringside.data --task cc1 --latency wakeup").err,
              HasSubstr(std::to_string(of_cc1) + " pairs"));
  EXPECT_EQ(json::parse(ringside("watch --json ringside.data --task cc1 --latency wakeup").out).at("all").at("count"), of_cc1);
  EXPECT_EQ(ringside("plot ringside.data --task cc1").code, 2);
}

TEST_F(Conditions, WhatMayMeanBothSidesIsRefused) {
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {"prio == 1", "start and end both have \"prio\", and it may differ: write start/prio or end/prio"},
      {"task == cc1", "start and end both have \"task\", and it may differ: write start/task or end/task"},
      {"cpu == 0", "start/cpu or end/cpu"},
      {"nothing == 1", "neither the start nor the end has a field \"nothing\""},
      {"start/next_pid == 1", "has no field \"next_pid\""},
      {"sched_nothing/pid == 1", "\"sched_nothing\" is neither a start nor an end of these pairs"},
      {"latency > 5", "compare it with a time and its unit, as in latency > 5ms"},
      {"latency ~ 5ms", "compare it with a time and its unit"},
      {"pid == ", "expected a value"},
  };
  for (const auto& [condition, sentence] : wrong) {
    for (const char* command : {"latency wakeup ringside.data", "flame --json ringside.data --latency wakeup",
                                "watch --json ringside.data --latency wakeup", "plot ringside.data --latency wakeup"}) {
      const Outcome o = ringside(command + (" -f '" + condition + "'"));
      EXPECT_EQ(o.code, 2) << command << condition << o.err;
      EXPECT_EQ(o.out, "");
      EXPECT_THAT(o.err, HasSubstr(sentence)) << command << condition;
    }
  }
}

}  // namespace
}  // namespace ringside::test::pairs_cli_test
