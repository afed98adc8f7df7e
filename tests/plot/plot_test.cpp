// A trace as the JSON of its page: lanes, rates, heat maps, losses, bounds.
#include "plot/plot.hpp"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "cli/hand_made.hpp"
#include "decode/syscalls.hpp"
#include "plot/page.hpp"
#include "plot_page.hpp"
#include "sys/json.hpp"

namespace ringside::plot_test {
namespace {

using nlohmann::json;
using test::Payload;

std::string switch_format() {
  return test::format(
      5, "sched_switch",
      "\tfield:char prev_comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\tfield:s32 prev_pid;\toffset:24;\tsize:4;\tsigned:1;\n"
      "\tfield:char next_comm[16];\toffset:28;\tsize:16;\tsigned:0;\n\tfield:s32 next_pid;\toffset:44;\tsize:4;\tsigned:1;\n"
      "\tfield:long prev_state;\toffset:48;\tsize:8;\tsigned:1;\n",
      R"("%d to %d", REC->prev_pid, REC->next_pid)");
}

std::string padded(std::string name) {
  name.resize(16);
  return name;
}

Payload switch_to(const std::string& from, i32 prev, const std::string& to, i32 next, i64 state = 0) {
  return Payload(5, prev).text(padded(from)).put(prev).text(padded(to)).put(next).put(state);
}

// A lane's slices as {begin, end, name, text or merged count}, times after the first event.
using Row = std::tuple<i64, i64, std::string, std::string>;

struct PlotTest : testing::Test {
  Formats formats;
  Tasks tasks;
  RingName cpu0{0, 0, 0, "", "", true}, cpu1{1, 0, 0, "", "", true}, thread{3, 4700, 4711, "cc1plus", "g++"};
  plot::Options options;
  std::unique_ptr<plot::Plot> plot;

  PlotTest() {
    formats.add(1, "libc", "free",
                test::format(1, "free", "\tfield:u64 ptr;\toffset:8;\tsize:8;\tsigned:0;\n", R"("ptr=%llu", REC->ptr)"));
    formats.add(2, "libc", "read",
                test::format(2, "read", "\tfield:u64 duration_ns;\toffset:8;\tsize:8;\tsigned:0;\n",
                             R"("duration_ns=%llu", REC->duration_ns)"));
    formats.add(3, "ringside", "span",
                test::format(3, "span",
                             "\tfield:char track_event_type;\toffset:8;\tsize:1;\tsigned:0;\n"
                             "\tfield:char slice_name[15];\toffset:9;\tsize:15;\tsigned:0;\n",
                             R"("%c %s", REC->track_event_type, REC->slice_name)"));
    formats.add(kernel_ids + 5, "sched", "sched_switch", switch_format());
    formats.add(
        kernel_ids + 9, "sched", "sched_waking",
        test::format(
            9, "sched_waking",
            "\tfield:char comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\tfield:s32 pid;\toffset:24;\tsize:4;\tsigned:1;\n",
            R"("pid=%d", REC->pid)"));
    for (const auto& [id, name] : {std::pair{10, "sys_enter"}, std::pair{11, "sys_exit"}})
      formats.add(
          kernel_ids + static_cast<u32>(id), "raw_syscalls", name,
          test::format(static_cast<u16>(id), name,
                       "\tfield:long id;\toffset:8;\tsize:8;\tsigned:1;\n\tfield:long ret;\toffset:16;\tsize:8;\tsigned:1;\n",
                       R"("NR %ld", REC->id)"),
          World::own());
    formats.add(4, "ringside", "counter",
                test::format(4, "counter",
                             "\tfield:s64 counter_value;\toffset:8;\tsize:8;\tsigned:1;\n\tfield:char "
                             "track_name[8];\toffset:16;\tsize:8;\tsigned:0;\n",
                             R"("%s %lld", REC->track_name, REC->counter_value)"));
    for (const auto& [id, name] :
         {std::pair{6, "sys_enter_read"}, std::pair{7, "sys_exit_read"}, std::pair{8, "sys_enter_write"}})
      formats.add(
          kernel_ids + static_cast<u32>(id), "syscalls", name,
          test::format(static_cast<u16>(id), name, "\tfield:s64 n;\toffset:8;\tsize:8;\tsigned:1;\n", R"("n=%lld", REC->n)"));
    tasks.add(thread);
    tasks.add(Task{4700, 4712, "as", "g++"});
  }
  void make() { plot = std::make_unique<plot::Plot>(formats, tasks, options); }
  void add(u64 time, const Payload& payload, u32 source = 2) {
    if (plot == nullptr) make();
    const RingName& name = source == 0 ? cpu0 : source == 1 ? cpu1 : thread;
    plot->add({time, 0, payload, source, name.ids()}, name);
  }
  void lose(u64 time, u64 count, u32 source = 2) {
    const RingName& name = source == 0 ? cpu0 : source == 1 ? cpu1 : thread;
    plot->add({time, count, {}, source, name.ids()}, name);
  }
  static Payload span(char kind, std::string name) {
    name.resize(15);
    return Payload(3, 4711).put(kind).text(name);
  }
  json page() { return json::parse(plot->json({"here", {{"clock", "mono"}}})); }

  static std::vector<Row> rows(const json& j, const std::string& kind, u32 number) {
    std::vector<Row> out;
    for (const json& lane : j["lanes"]) {
      if (lane["kind"] != kind || lane["number"] != number) continue;
      i64 end = 0;
      for (size_t i = 0; i < lane["end"].size(); ++i) {
        end += lane["end"][i].get<i64>();
        const i64 begin = end - lane["length"][i].get<i64>();
        if (kind == "loss") {
          out.emplace_back(begin, end, "lost", std::to_string(lane["lost"][i].get<u64>()));
          continue;
        }
        const i64 what = lane["what"][i];
        const auto n = static_cast<size_t>(what);
        const std::string name = what < 0        ? "various"
                                 : kind == "cpu" ? j["threads"][n]["name"].get<std::string>()
                                                 : j["names"][n][0].get<std::string>();
        out.emplace_back(begin, end, name, lane["text"][i].get<std::string>());
      }
    }
    return out;
  }
  // A thread's states as {begin, end, state, waker}.
  using State = std::tuple<i64, i64, u32, i64>;
  static std::vector<State> states(const json& j, i32 tid) {
    std::vector<State> out;
    for (const json& lane : j["lanes"]) {
      if (lane["kind"] != "state" || lane["number"] != number_of(j, tid)) continue;
      i64 end = 0;
      for (size_t i = 0; i < lane["end"].size(); ++i) {
        end += lane["end"][i].get<i64>();
        out.emplace_back(end - lane["length"][i].get<i64>(), end, lane["what"][i].get<u32>(), lane["waker"][i].get<i64>());
      }
    }
    return out;
  }
  static Payload waking(i32 waker, i32 tid, u16 flags = 0) { return Payload(9, waker, flags).text(padded("as")).put(tid); }
  static Payload counter(i64 value, std::string name) {
    name.resize(8);
    return Payload(4, 4711).put(value).text(name);
  }
  static u32 number_of(const json& j, i32 tid) {
    for (u32 n = 0; n < j["threads"].size(); ++n) {
      if (j["threads"][n]["tid"] == tid) return n;
    }
    return ~u32{0};
  }
};

TEST_F(PlotTest, AnEmptyTraceGivesAPage) {
  make();
  const json j = page();
  EXPECT_EQ(j["events"], 0);
  EXPECT_EQ(j["duration"], 0);
  EXPECT_TRUE(j["lanes"].empty());
  EXPECT_TRUE(j["types"].empty());
  EXPECT_EQ(j["rates"]["columns"], 0);
}

TEST_F(PlotTest, DurationsEndAtTheirTimeAndOtherEventsAreInstants) {
  add(1000, Payload(1, 4711).put(u64{7}));
  add(1500, Payload(2, 4711).put(u64{300}));
  add(1600, Payload(2, 4712).put(u64{700}));  // began before the trace
  add(1700, Payload(2, 4712).put(~u64{0}));   // longer than all of time
  const json j = page();
  EXPECT_EQ(rows(j, "thread", number_of(j, 4711)),
            (std::vector<Row>{{0, 0, "libc:free", "ptr=7"}, {200, 500, "libc:read", "duration_ns=300"}}));
  EXPECT_EQ(rows(j, "thread", number_of(j, 4712)),
            (std::vector<Row>{{-100, 600, "libc:read", "duration_ns=700"},
                              {700, 700, "libc:read", "duration_ns=18446744073709551615"}}));
  EXPECT_EQ(j["origin"], "1000");
  EXPECT_EQ(j["duration"], 700);
  EXPECT_EQ(j["threads"][number_of(j, 4712)]["process"], "g++");
  ASSERT_EQ(j["heat"].size(), 1u);
  EXPECT_EQ(j["heat"][0]["name"], "libc:read duration_ns");
  EXPECT_EQ(j["heat"][0]["count"], 3);
  EXPECT_EQ(j["types"][1]["name"], "libc:read");
  EXPECT_EQ(j["types"][1]["count"], 3);
}

TEST_F(PlotTest, ProcessorsShowTheThreadsThatRan) {
  add(1000, Payload(6, 4711).put(i64{1}), 0);  // a thread is on CPU 0 from here on
  add(2000, switch_to("cc1plus", 4711, "idle", 0), 0);
  add(3000, switch_to("idle", 0, "as", 4712), 0);
  add(3500, switch_to("as", 4712, "new", 99), 0);
  add(5000, switch_to("x", 50, "y", 51), 1);  // the begin of x is unknown: its slice begins here
  const json j = page();
  EXPECT_EQ(rows(j, "cpu", 0),
            (std::vector<Row>{{0, 1000, "cc1plus", "4711 to 0"}, {2000, 2500, "as", "4712 to 99"}, {2500, 4000, "new", ""}}));
  EXPECT_EQ(rows(j, "cpu", 1), (std::vector<Row>{{4000, 4000, "x", "50 to 51"}}));
}

using S = plot::ThreadStates;

TEST_F(PlotTest, AThreadIsWhatTheSwitchesAndWakeUpsSay) {
  add(1000, switch_to("idle", 0, "as", 4712), 0);
  add(1100, switch_to("as", 4712, "cc1plus", 4711, 1), 0);         // sleeps
  add(1300, waking(4711, 4712), 0);
  add(1301, waking(4711, 4712), 0);                                // tells nothing new
  add(1400, switch_to("idle", 0, "as", 4712), 1);
  add(1500, switch_to("cc1plus", 4711, "idle", 0, 0x100), 0);      // preempted
  add(1600, switch_to("as", 4712, "idle", 0, 2), 1);               // blocked
  add(1700, switch_to("idle", 0, "cc1plus", 4711), 0);
  add(1750, waking(4711, 4711), 0);                                // wakes itself: it runs
  add(1800, waking(0, 4712, 0x08), 1);                             // in an interrupt
  add(1900, switch_to("idle", 0, "as", 4712), 1);
  add(1950, switch_to("as", 4712, "idle", 0, 0x20), 1);            // has ended
  add(2000, switch_to("cc1plus", 4711, "idle", 0, 4), 0);          // stopped
  add(2500, Payload(1, 4711).put(u64{1}));
  const json j = page();
  const i64 cc1plus = number_of(j, 4711);
  EXPECT_EQ(states(j, 4712), (std::vector<State>{{0, 100, S::running, -2},
                                                 {100, 300, S::sleeping, -2},
                                                 {300, 400, S::runnable, cc1plus},
                                                 {400, 600, S::running, -2},
                                                 {600, 800, S::blocked, -2},
                                                 {800, 900, S::runnable, -1},
                                                 {900, 950, S::running, -2}}));
  EXPECT_EQ(states(j, 4711), (std::vector<State>{{100, 500, S::running, -2},
                                                 {500, 700, S::preempted, -2},
                                                 {700, 1000, S::running, -2},
                                                 {1000, 1500, S::stopped, -2}}));
}

TEST_F(PlotTest, ALossLeavesStatesUnknownButThoseOfThreadsOnOtherCpus) {
  add(1000, switch_to("idle", 0, "cc1plus", 4711), 1);
  add(1000, switch_to("idle", 0, "as", 4712), 0);
  add(1100, switch_to("as", 4712, "other", 9, 1), 0);
  lose(1500, 3, 0);
  add(1600, waking(4711, 4712), 1);
  add(1700, switch_to("cc1plus", 4711, "idle", 0, 1), 1);
  const json j = page();
  EXPECT_EQ(states(j, 4712), (std::vector<State>{{0, 100, S::running, -2}, {600, 700, S::runnable, number_of(j, 4711)}}));
  EXPECT_EQ(states(j, 9), std::vector<State>{});  // it ran until an unknown time
  EXPECT_EQ(states(j, 4711), (std::vector<State>{{0, 700, S::running, -2}}));
}

TEST_F(PlotTest, StatesKnowWhatIsNotShown) {
  const auto see = [this](u64 time, const Payload& payload, u64 lost = 0) {
    plot->see({time, lost, lost != 0 ? Bytes() : payload, 1, cpu1.ids()}, cpu1);
  };
  add(1000, switch_to("idle", 0, "as", 4712), 0);
  add(1100, switch_to("as", 4712, "idle", 0, 1), 0);
  see(1200, waking(50, 4712));                                 // by a thread that is not here
  see(1300, switch_to("idle", 0, "as", 4712));                 // on another CPU
  see(1400, switch_to("as", 4712, "unknown", 51, 1));
  see(1500, Payload(6, 4711).put(i64{1}));
  see(1600, Payload(6, 4711), 9);
  add(1700, switch_to("idle", 0, "as", 4712), 0);
  add(1800, switch_to("as", 4712, "idle", 0, 1), 0);
  const json j = page();
  EXPECT_EQ(states(j, 4712), (std::vector<State>{{0, 100, S::running, -2},
                                                 {100, 200, S::sleeping, -2},
                                                 {200, 300, S::runnable, -2},
                                                 {300, 400, S::running, -2},
                                                 {400, 500, S::sleeping, -2},  // then events are missing
                                                 {700, 800, S::running, -2}}));
  EXPECT_EQ(j["events"], 4);
  EXPECT_EQ(j["lost"], 0);
  EXPECT_EQ(number_of(j, 51), ~u32{0});
  EXPECT_EQ(rows(j, "cpu", 1).size(), 0u);
  EXPECT_TRUE(plot->notes().empty());
}

TEST_F(PlotTest, WhereASwitchIsMissingNobodyRuns) {
  add(1000, switch_to("idle", 0, "cc1plus", 4711), 0);
  add(1100, switch_to("cc1plus", 4711, "other", 9, 1), 0);
  add(1900, switch_to("as", 4712, "cc1plus", 4711, 1), 0);  // other left, and as came, unseen
  add(2000, switch_to("cc1plus", 4711, "as", 4712, 1), 0);
  add(3000, Payload(1, 4711).put(u64{1}));  // and so it is not known how long as runs now
  const json j = page();
  ASSERT_EQ(plot->notes().size(), 1u);
  EXPECT_NE(plot->notes()[0].find("missing in 1 place,"), std::string::npos) << plot->notes()[0];
  EXPECT_EQ(rows(j, "cpu", 0),
            (std::vector<Row>{
                {0, 100, "cc1plus", "4711 to 9"}, {900, 900, "as", "4712 to 4711"}, {900, 1000, "cc1plus", "4711 to 4712"}}));
  EXPECT_EQ(states(j, 9), std::vector<State>{});
  EXPECT_EQ(states(j, 4712), (std::vector<State>{{900, 1000, S::sleeping, -2}}));
}

TEST_F(PlotTest, CountersAreCurvesOfEachThread) {
  add(1000, counter(5, "depth"));
  add(1200, counter(-3, "depth"));
  add(1300, counter(7, "other"));
  const json j = page();
  ASSERT_EQ(j["counters"].size(), 2u);
  EXPECT_EQ(j["counters"][0].dump(), R"({"at":[0,200],"merged":[],"name":"depth","thread":1,"type":0,"value":[5,-3]})");
  EXPECT_EQ(j["counters"][1]["name"], "other");
  EXPECT_EQ(j["types"][0]["count"], 3);
  EXPECT_EQ(j["threads"][1]["events"], 3);
  EXPECT_TRUE(rows(j, "thread", 1).empty());
}

TEST_F(PlotTest, ACounterOfAProcessIsOneCurve) {
  formats.add(12, "ringside", "process_counter",
              test::format(12, "process_counter",
                           "\tfield:double counter_value;\toffset:8;\tsize:8;\tsigned:1;\n\tfield:char "
                           "track_name[8];\toffset:16;\tsize:8;\tsigned:0;\n\tfield:s32 scope_tgid;\toffset:24;\tsize:4;"
                           "\tsigned:1;\n",
                           R"("%s", REC->track_name)"));
  const auto value = [](i32 tid, double number, i32 of = 0) {
    return Payload(12, tid).put(number).text(std::string("depth") + std::string(3, 0)).put(of);
  };
  add(1000, value(4711, 0.5));
  add(1200, value(4712, 1.5));
  add(1250, value(4712, std::nan("")));
  add(1300, value(4711, 3, 4700));
  const json j = page();
  ASSERT_EQ(j["counters"].size(), 1u);
  EXPECT_EQ(j["counters"][0]["value"].dump(), "[0.5,1.5,3]");
  EXPECT_EQ(j["threads"][j["counters"][0]["thread"].get<size_t>()]["tid"], 4700);
  EXPECT_EQ(rows(j, "thread", number_of(j, 4712)).size(), 1u) << "what is no number is an event";
}

TEST_F(PlotTest, MoreCountersThanAreDrawnAreEvents) {
  for (u32 n = 0; n < plot::Plot::most_counters + 3; ++n) add(1000 + n, counter(1, std::to_string(n)));
  const json j = page();
  EXPECT_EQ(j["counters"].size(), plot::Plot::most_counters);
  EXPECT_EQ(rows(j, "thread", 1).size(), 3u);
  ASSERT_EQ(plot->notes().size(), 1u);
  EXPECT_NE(plot->notes()[0].find("counters"), std::string::npos);
}

// Beside a computation that keeps every state of the heaps.
TEST_F(PlotTest, HeapsOverTimeKeepTheirHighestPoints) {
  std::mt19937 random(1);
  for (const u64 most : {u64{100'000}, u64{200}}) {  // all values, or merged ones
    plot::Heap heap(most);
    std::map<i64, std::vector<std::pair<u32, u64>>> live;
    std::map<i64, u64> held, highest;
    std::map<i64, std::map<u64, u64>> values;  // by time
    for (u64 time = 1000; time < 9000; time += 1 + random() % 3) {
      const i64 process = 70 + static_cast<i64>(random() % 2);
      auto& blocks = live[process];
      const bool frees = !blocks.empty() && random() % 100 < 48;
      const bool reallocates = frees && random() % 3 == 0;
      if (frees) {
        std::swap(blocks[random() % blocks.size()], blocks.back());
        heap.free(process, time, 0, blocks.back().first, blocks.back().second);
        held[process] -= blocks.back().second;
        blocks.pop_back();
      }
      if (!frees || reallocates) {
        blocks.emplace_back(random() % 5, random() % 1000);
        heap.add(process, time, 0, blocks.back().first, blocks.back().second);
        held[process] += blocks.back().second;
      }
      highest[process] = std::max(highest[process], held[process]);
      values[process][time] = held[process];
    }
    heap.finish();
    ASSERT_EQ(heap.processes().size(), 2u);
    for (size_t n = 0; n < 2; ++n) {
      const i64 process = heap.processes()[n].key;
      double high = 0;
      u64 count = 0;
      for (const plot::Point& p : heap.curves().points(static_cast<u32>(n))) {
        high = std::max(high, p.high);
        count += p.count;
        EXPECT_EQ(static_cast<u64>(p.last), values[process][p.end]);
      }
      EXPECT_EQ(static_cast<u64>(high), highest[process]);
      EXPECT_EQ(count, values[process].size());
    }
    EXPECT_EQ(heap.curves().merges(), most == 200);
  }
}

TEST_F(PlotTest, SystemCallsOfRawEventsHaveTheirNames) {
  const auto raw = [](u16 id, i64 call, i64 ret) { return Payload(id, 4711).put(call).put(ret); };
  add(1000, raw(10, 0, 0), 0);
  add(1300, raw(11, 0, 12), 0);
  add(1400, raw(10, 1, 0), 0);
  add(1500, raw(11, 0, 12), 0);  // another call's end
  add(1600, raw(10, 99999, 0), 0);
  add(1650, raw(11, 99999, 0), 0);
  const json j = page();
  std::vector<std::tuple<i64, i64, std::string>> found;
  for (const auto& [begin, end, name, text] : rows(j, "thread", number_of(j, 4711))) found.emplace_back(begin, end, name);
  const Architecture own = World::own().architecture;
  const std::string first(syscall_name(0, own)), second(syscall_name(1, own));
  EXPECT_EQ(found, (std::vector<std::tuple<i64, i64, std::string>>{{0, 300, "syscalls:" + first},
                                                                   {400, 400, "syscalls:" + second},
                                                                   {500, 500, "syscalls:" + first},
                                                                   {600, 650, "syscalls:99999"}}));
  EXPECT_EQ(j["heat"][0]["name"], "syscalls:" + first);
}

TEST_F(PlotTest, AThreadHasItsNamesAndItsParent) {
  add(1000, Payload(1, 4712).put(u64{1}));
  tasks.rename(4712, "ld", true);
  add(1500, Payload(1, 4712).put(u64{1}));
  tasks.begin(77, 4712, Birth::of_process);
  tasks.begin(78, 77, Birth::of_thread);
  tasks.rename(77, "collect2", true);
  add(1600, Payload(1, 78).put(u64{1}));
  const json j = page();
  const json& as = j["threads"][number_of(j, 4712)];
  EXPECT_EQ(as["name"], "ld");
  EXPECT_EQ(as["names"].dump(), R"([[null,"as"],[500,"ld"]])");
  const json& child = j["threads"][number_of(j, 78)];
  EXPECT_EQ(child["pid"], 77);
  EXPECT_EQ(child["parent"], 4700);
  EXPECT_EQ(child["process"], "collect2");
  EXPECT_FALSE(child.contains("names"));
}

TEST_F(PlotTest, AHeatMapThatWasAskedForSaysSo) {
  make();
  plot->heat_map("latency: wakeup").add(1000, 5);
  for (u64 n = 0; n < 3; ++n) add(1000 + n, Payload(2, 4711).put(u64{30}));
  const json j = page();
  ASSERT_EQ(j["heat"].size(), 2u);
  EXPECT_EQ(j["heat"][0]["asked"], true);
  EXPECT_FALSE(j["heat"][1].contains("asked"));
}

TEST_F(PlotTest, ALossIsABandAndEndsTheRunningSlice) {
  add(1000, switch_to("idle", 0, "cc1plus", 4711), 0);
  add(1500, Payload(6, 4711).put(i64{3}), 0);
  lose(4000, 77, 0);
  add(4000, Payload(7, 4711).put(i64{3}), 0);  // may belong to another call: no slice across the gap
  add(4500, switch_to("as", 4712, "idle", 0), 0);
  lose(4600, 5, 2);  // a ring's first record
  const json j = page();
  EXPECT_EQ(rows(j, "cpu", 0), (std::vector<Row>{{0, 500, "cc1plus", ""}, {3000, 3500, "as", "4712 to 0"}}));
  EXPECT_EQ(rows(j, "loss", 0), (std::vector<Row>{{500, 3000, "lost", "77"}}));
  EXPECT_EQ(rows(j, "loss", 2), (std::vector<Row>{{3600, 3600, "lost", "5"}}));
  EXPECT_EQ(rows(j, "thread", number_of(j, 4711)),
            (std::vector<Row>{{500, 500, "syscalls:read", "n=3"}, {3000, 3000, "syscalls:read", "n=3"}}));
  EXPECT_EQ(j["lost"], 82);
  EXPECT_EQ(j["rings"][0]["lost"], 77);
  EXPECT_FALSE(plot->notes().empty());
}

TEST_F(PlotTest, SystemCallsReachFromEnterToExit) {
  add(1000, Payload(6, 4711).put(i64{3}), 0);
  add(1100, Payload(2, 4711).put(u64{20}));
  add(1800, Payload(7, 4711).put(i64{512}), 1);  // on another processor
  add(1900, Payload(8, 4711).put(i64{3}), 1);    // never left
  add(1950, Payload(7, 4712).put(i64{1}), 1);    // entered before
  const json j = page();
  EXPECT_EQ(rows(j, "thread", number_of(j, 4711)), (std::vector<Row>{{80, 100, "libc:read", "duration_ns=20"},
                                                                     {0, 800, "syscalls:read", "n=3 -> n=512"},
                                                                     {900, 900, "syscalls:write", "n=3"}}));
  EXPECT_EQ(rows(j, "thread", number_of(j, 4712)), (std::vector<Row>{{950, 950, "syscalls:read", "n=1"}}));
  ASSERT_EQ(plot->notes().size(), 1u);
  EXPECT_EQ(plot->notes()[0].substr(0, 2), "2 ");
}

TEST_F(PlotTest, SpansNest) {
  add(1000, span('B', "outer"));
  add(1100, span('B', "inner"));
  add(1150, span('I', "now"));
  add(1200, span('E', "inner"));
  add(1300, span('E', "outer"));
  add(1400, span('E', "none"));
  const json j = page();
  EXPECT_EQ(rows(j, "thread", number_of(j, 4711)), (std::vector<Row>{{150, 150, "now", "I now"},
                                                                     {100, 200, "inner", "E inner"},
                                                                     {0, 300, "outer", "E outer"},
                                                                     {400, 400, "none", "E none"}}));
}

// As `latency span` pairs them.
TEST_F(PlotTest, AnEndTakesTheInnermostSpanOfItsName) {
  add(1000, span('B', "a"));
  add(1100, span('B', "b"));
  add(1300, span('E', "a"));
  add(1700, span('E', "b"));
  add(2000, span('B', "c"));
  add(2100, span('B', "d"));
  add(2300, span('E', ""));
  add(2700, span('E', ""));
  const json j = page();
  EXPECT_EQ(rows(j, "thread", number_of(j, 4711)),
            (std::vector<Row>{{0, 300, "a", "E a"}, {100, 700, "b", "E b"}, {1100, 1300, "d", "E "}, {1000, 1700, "c", "E "}}));
  EXPECT_TRUE(plot->notes().empty());
}

TEST_F(PlotTest, DeepSpansHaveTheirOwnLengths) {
  constexpr u64 depth = 300;
  for (u64 i = 0; i < depth; ++i) add(1000 + i, span('B', "r"));
  for (u64 i = 0; i < depth; ++i) add(2000 + i, span('E', "r"));
  const json j = page();
  const auto all = rows(j, "thread", number_of(j, 4711));
  ASSERT_EQ(all.size(), depth);
  for (u64 i = 0; i < depth; ++i)
    EXPECT_EQ(std::get<1>(all[i]) - std::get<0>(all[i]), static_cast<i64>(1000 + i - (depth - 1 - i))) << i;
  EXPECT_TRUE(plot->notes().empty());
}

TEST(OpenSlices, TheOldestOfTooManyIsDropped) {
  using plot::OpenSlices;
  OpenSlices open;
  const auto key = OpenSlices::span(1, "", "r");
  for (u64 i = 0; i < OpenSlices::most_open + 3; ++i) open.begin(key, {i, 0, 0});
  EXPECT_EQ(open.left(), OpenSlices::most_open + 3);
  for (u64 i = OpenSlices::most_open + 2; i > 2; --i) ASSERT_EQ(open.end(key)->begin, i);
  EXPECT_FALSE(open.end(key));
  EXPECT_FALSE(open.end(OpenSlices::span(1, "", "")));
  EXPECT_EQ(open.left(), 3u);
}

TEST_F(PlotTest, RatesAddUp) {
  options.columns = 64;
  for (u64 i = 0; i < 1000; ++i) add(1'000'000 + i * i, Payload(i % 3 == 0 ? 1 : 2, 4711).put(u64{1}));
  lose(2'100'000, 9);
  const json j = page();
  u64 sum = 0;
  for (const json& type : j["types"]) {
    u64 of_type = 0, column = 0;
    for (size_t i = 0; i < type["rate"].size(); i += 2) {
      column += type["rate"][i].get<u64>();
      of_type += type["rate"][i + 1].get<u64>();
    }
    EXPECT_LT(column, j["rates"]["columns"]);
    EXPECT_EQ(of_type, type["count"]);
    sum += of_type;
  }
  EXPECT_EQ(sum, 1000u);
  EXPECT_LE(j["rates"]["columns"], 64);
  EXPECT_EQ(j["rates"]["lost"].back(), 9);
}

TEST_F(PlotTest, MergedSlicesAreCounted) {
  options.items = 100;
  for (u64 i = 0; i < 5000; ++i) add(1'000'000 + i * 100, Payload(i % 2 == 0 ? 1 : 2, 4711).put(u64{10}));
  const json j = page();
  u64 drawn = 0, slices = 0;
  for (const json& lane : j["lanes"]) {
    slices += lane["end"].size();
    drawn += lane["end"].size();
    for (size_t i = 0; i < lane["merged"].size(); i += 4) drawn += lane["merged"][i + 1].get<u64>() - 1;
  }
  EXPECT_EQ(drawn, 5000u);
  EXPECT_LE(slices, 100u);
  EXPECT_GT(j["merge_ns"], 0);
  ASSERT_EQ(plot->notes().size(), 1u);
  EXPECT_NE(plot->notes()[0].find("--items"), std::string::npos);
}

TEST_F(PlotTest, BoundsHoldAndAreReported) {
  for (i32 tid = 1; tid <= 5000; ++tid) add(1000 + static_cast<u64>(tid), Payload(1, tid).put(u64{1}));
  for (int i = 0; i < 5000; ++i) add(10'000, span('I', std::to_string(i)));
  const json j = page();
  EXPECT_EQ(j["threads"].size(), plot::Plot::most_lanes + 1);
  EXPECT_EQ(j["threads"][0]["name"], "other threads");
  EXPECT_EQ(j["threads"][0]["events"], 5000 - plot::Plot::most_lanes + 5000);
  EXPECT_EQ(j["names"].size(), plot::Plot::most_names);
  EXPECT_EQ(plot->notes().size(), 2u);
}

TEST_F(PlotTest, LongTextsAreCutBetweenCharacters) {
  formats.add(9, "x", "long",
              test::format(9, "long", "\tfield:char a[500];\toffset:8;\tsize:500;\tsigned:0;\n", R"("%s", REC->a)"));
  std::string text = "-";
  for (int i = 0; i < 210; ++i) text += "\xc3\xa4";
  text.resize(500);
  add(1, Payload(9, 4711).text(text));
  const json j = page();
  const auto slices = rows(j, "thread", number_of(j, 4711));
  const std::string& shown = std::get<3>(slices.at(0));
  ASSERT_EQ(shown.size(), 402u);  // 399 bytes, because the next character needs two
  EXPECT_EQ(shown.substr(397), "\xc3\xa4...");
}

TEST_F(PlotTest, TimesMaySpanAll64Bits) {
  add(~u64{0}, Payload(2, 4711).put(u64{5}));
  add(0, Payload(2, 4712).put(u64{5}));
  lose(1, 3);
  add(~u64{0} / 2, switch_to("a", 1, "b", 2), 0);
  const json j = page();
  EXPECT_EQ(j["events"], 3);
  EXPECT_EQ(j["duration"], ~u64{0});
}

TEST_F(PlotTest, APageHoldsItsData) {
  const std::string text = R"({"where":"</script><script>alert(1)</script>"})";
  auto page = plot::page(text);
  if (!page) GTEST_SKIP() << page.error().sentence;
  EXPECT_EQ(test::page_json(*page).dump(), text);
  EXPECT_EQ(page->find("alert(1)"), std::string::npos);
  EXPECT_EQ(page->substr(0, 15), "<!doctype html>");
  EXPECT_EQ(page->find("RINGSIDE_DATA"), std::string::npos);
}

// Stacks by number: of its digits, the last is the innermost function.
struct DigitStacks final : StackTexts {
  std::vector<std::string> names;
  const std::vector<std::string>& functions(u32 stack) override {
    names.clear();
    for (; stack != 0; stack /= 10) names.push_back("f" + std::to_string(stack % 10));
    return names;
  }
  std::string_view text(u32) override { return {}; }
  u32 same_names(u32 stack) override { return stack; }
  void append_lines(u32, fmt::memory_buffer&) override {}
};

TEST_F(PlotTest, StacksOfSlicesAndHowOftenTheyCame) {
  DigitStacks stacks;
  formats.use_stacks(&stacks);
  make();
  const auto with = [&](u64 time, u32 stack, u64 weight) {
    TraceRecord record;
    const Payload payload = Payload(1, 4711).put(u64{1});
    record.time = time;
    record.payload = payload;
    record.source = 2;
    record.ids = thread.ids();
    record.stack = stack;
    plot->add(record, thread, weight);
  };
  with(1000, 123, 1);
  with(2000, 124, 5);
  with(4000, 0, 1);
  with(5000, 123, 1);
  const json page = json::parse(plot->json({"here"}));
  // As "outermost;...;innermost".
  const auto path = [&](size_t stack) {
    std::string out;
    for (size_t n = stack; n != 0; n = page["calls"][2 * n - 1])
      out = page["functions"][page["calls"][2 * n - 2].get<size_t>()].get<std::string>() + (out.empty() ? "" : ";") + out;
    return out;
  };
  EXPECT_EQ(page["calls"].size(), 2 * 4u) << "f1, f2 are shared";
  std::map<std::string, u64> counts;
  for (const json& row : page["stack_counts"]["rows"]) {
    EXPECT_EQ(page["types"][row[0].get<size_t>()]["name"], "libc:free");
    for (size_t n = 1; n < row[2].size(); n += 2) counts[path(row[1])] += row[2][n].get<u64>();
  }
  EXPECT_EQ(counts, (std::map<std::string, u64>{{"f1;f2;f3", 2}, {"f1;f2;f4", 5}}));
  std::vector<std::string> of_slices(4);
  for (const json& lane : page["lanes"]) {
    if (lane["kind"] != "thread") continue;
    for (size_t n = 0, at = 0; n < lane["stack"].size(); n += 2)
      of_slices[at += lane["stack"][n].get<size_t>()] = path(lane["stack"][n + 1]);
  }
  EXPECT_EQ(of_slices, (std::vector<std::string>{"f1;f2;f3", "f1;f2;f4", "", "f1;f2;f3"}));
}

TEST(StackCounts, DoNotDependOnTheOrder) {
  std::map<u64, u64> sums[2];
  u32 shifts[2];
  for (const bool backwards : {false, true}) {
    plot::StackCounts counts(64);
    for (u64 n = 0; n < 5000; ++n) counts.add((backwards ? 4999 - n : n) * 1000, 0, 1);
    u64 sum = 0;
    for (const auto& c : counts.row(0)) sum += c.count;
    EXPECT_EQ(sum, 5000u);
    EXPECT_LE(counts.row(0).size(), 128u);
    shifts[backwards] = counts.shift();
    for (const auto& c : counts.row(0)) sums[backwards][c.column] = c.count;
  }
  EXPECT_EQ(shifts[0], shifts[1]);
  EXPECT_EQ(sums[0], sums[1]);
}

}  // namespace
}  // namespace ringside::plot_test
