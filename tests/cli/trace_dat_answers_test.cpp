// Answers over a trace.dat whose right ones are known, because it was made event by event.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "binary.hpp"
#include "foreign_dat.hpp"

namespace ringside::trace_dat_answers_test {
namespace {

using nlohmann::json;
using test::ForeignDat;
using testing::HasSubstr;
using testing::Not;

constexpr u64 second = 1'000'000'000;

struct TraceDatAnswers : test::BinaryTest {
  ForeignDat dat;
  std::string data;  // of the next sub-buffer

  static std::string text(std::string name) {
    name.resize(16);
    return name;
  }
  std::string number(auto value) const { return dat.number(value); }
  void event(u32 after_ns, u16 id, i32 tid, const std::string& fields) {
    data += dat.event(after_ns, dat.head(id, tid) + fields);
  }
  void put(const std::string& name) {
    dat.pages.push_back(dat.sub_buffer(second, std::exchange(data, "")));
    std::ofstream(dir + "/" + name, std::ios::binary) << dat.bytes();
  }
  void know(const std::string& system, const std::string& name, u32 id, const std::string& fields, const std::string& print) {
    dat.formats.push_back({system, ForeignDat::format(name, id, fields, print)});
  }

  // app:mark of a thread
  void know_mark() { know("app", "mark", 21, ForeignDat::field("int x", 8, 4, true), "\"x=%d\", REC->x"); }
  void mark(u32 after_ns, i32 tid, i32 x) { event(after_ns, 21, tid, number(x)); }
  void know_rename() {
    know("task", "task_rename", 22,
         ForeignDat::field("pid_t pid", 8, 4, true) + ForeignDat::field("char oldcomm[16]", 12, 16) +
             ForeignDat::field("char newcomm[16]", 28, 16),
         "\"pid=%d oldcomm=%s newcomm=%s\", REC->pid, REC->oldcomm, REC->newcomm");
  }
  void rename(u32 after_ns, i32 tid, const std::string& from, const std::string& to) {
    event(after_ns, 22, tid, number(tid) + text(from) + text(to));
  }
  // The task of each app:mark, by its x.
  std::map<i64, std::string> tasks(const std::string& options) const {
    std::map<i64, std::string> all;
    for (const json& e : events("-e app:mark " + options)) all[e.at("fields").at("x")] = e.at("task");
    return all;
  }
};

using Names = std::map<i64, std::string>;

TEST_F(TraceDatAnswers, AThreadHasTheNameThatItsFirstChangeEnds) {
  dat.cmdlines = "42 last\n";
  know_mark();
  know_rename();
  mark(0, 42, 1);
  rename(1000, 42, "first", "middle");
  mark(1000, 42, 2);
  rename(1000, 42, "middle", "last");
  mark(1000, 42, 3);
  put("x.dat");
  const Names right{{1, "first"}, {2, "middle"}, {3, "last"}};
  EXPECT_EQ(tasks("x.dat"), right);
  EXPECT_EQ(tasks("x.dat --jobs 4"), right);
  EXPECT_EQ(events("-e app:mark -f 'task == first' x.dat").size(), 1u);
  EXPECT_EQ(tasks("--time 1.000002..1.000002999 x.dat"), (Names{{2, "middle"}}));
  const std::string csv = ringside("export --format csv -o - x.dat").out;
  EXPECT_THAT(csv, HasSubstr(",first,app:mark,,1"));
  for (const char* command :
       {"hist app:mark/thread", "hist app:mark/common_pid.execname", "latency app:mark app:mark --by thread"}) {
    const std::string table = ringside(command + std::string(" x.dat")).out;
    EXPECT_THAT(table, HasSubstr("middle")) << command;
    EXPECT_THAT(table, HasSubstr("last")) << command;
    EXPECT_THAT(table, HasSubstr("first")) << command;
  }
  std::map<std::string, u64> groups;
  const json by = json::parse(ringside("latency app:mark app:mark --by thread --json x.dat").out);
  for (const json& group : by.at("groups")) groups[group.at("key")] = group.at("count");
  EXPECT_EQ(groups, (std::map<std::string, u64>{{"middle-42", 1}, {"last-42", 1}}));
}

TEST_F(TraceDatAnswers, AThreadHasTheNameThatItsFirstSwitchTells) {
  dat.cmdlines = "42 last\n43 other\n";
  know_mark();
  know("sched", "sched_switch", 23,
       ForeignDat::field("char prev_comm[16]", 8, 16) + ForeignDat::field("pid_t prev_pid", 24, 4, true) +
           ForeignDat::field("char next_comm[16]", 28, 16) + ForeignDat::field("pid_t next_pid", 44, 4, true),
       "\"%s %d %s %d\", REC->prev_comm, REC->prev_pid, REC->next_comm, REC->next_pid");
  mark(0, 42, 1);
  event(1000, 23, 42, text("first") + number(i32{42}) + text("other") + number(i32{43}));
  mark(1000, 43, 2);
  event(1000, 23, 43, text("other") + number(i32{43}) + text("last") + number(i32{42}));
  mark(1000, 42, 3);
  put("x.dat");
  EXPECT_EQ(tasks("x.dat"), (Names{{1, "first"}, {2, "other"}, {3, "last"}}));
}

TEST_F(TraceDatAnswers, ANameThatNoEventTellsIsUnknown) {
  dat.cmdlines = "42 program\n";
  know_mark();
  know("sched", "sched_process_exec", 23,
       ForeignDat::field("__data_loc char[] filename", 8, 4) + ForeignDat::field("pid_t pid", 12, 4, true),
       "\"%s %d\", __get_str(filename), REC->pid");
  mark(0, 42, 1);
  event(1000, 23, 42, number(u32{16 | 13 << 16}) + number(i32{42}) + std::string("/bin/program\0", 13));
  mark(1000, 42, 2);
  put("x.dat");
  EXPECT_EQ(tasks("x.dat"), (Names{{1, "<...>"}, {2, "program"}}));
}

// Calls of 10 and 15 ms that overlap.
TEST_F(TraceDatAnswers, EachCpuHasAnIdleThread) {
  dat.ftrace = {{"ftrace", ForeignDat::format("funcgraph_entry", 11, ForeignDat::field("unsigned long func", 8, 8),
                                              "\"%ps\", (void *)REC->func")}};
  dat.ftrace.push_back({"ftrace", ForeignDat::format("funcgraph_exit", 12, ForeignDat::field("unsigned long func", 8, 8),
                                                     "\"%ps\", (void *)REC->func")});
  const std::string function = number(u64{0xffffffff81000100});
  event(0, 11, 0, function);
  event(10'000'000, 12, 0, function);
  const std::string of_0 = std::exchange(data, "");
  event(5'000'000, 11, 0, function);
  event(15'000'000, 12, 0, function);
  dat.pages_of_1 = {dat.sub_buffer(second, data)};
  data = of_0;
  put("x.dat");
  const json all = json::parse(ringside("latency functions --json x.dat").out);
  EXPECT_EQ(all.at("pairs"), 2u);
  EXPECT_EQ(all.at("all").at("min"), 10'000'000u);
  EXPECT_EQ(all.at("all").at("max"), 15'000'000u);
  const std::string spans = ringside("export --format otlp -o - x.dat").out;
  EXPECT_THAT(spans, HasSubstr("\"startTimeUnixNano\":\"1005000000\",\"endTimeUnixNano\":\"1020000000\""));
}

// Two spans of one name that overlap on one thread, each on a track of its own: 5 and 8 ms.
TEST_F(TraceDatAnswers, SpansPairOnTheirTrack) {
  know("ringside", "span", 23,
       ForeignDat::field("char track_event_type", 8, 1) + ForeignDat::field("char slice_name[16]", 9, 16) +
           ForeignDat::field("char track_name[16]", 25, 16),
       "\"%c %s %s\", REC->track_event_type, REC->slice_name, REC->track_name");
  event(0, 23, 42, "B" + text("work") + text("one"));
  event(1'000'000, 23, 42, "B" + text("work") + text("two"));
  event(4'000'000, 23, 42, "E" + text("work") + text("one"));
  event(4'000'000, 23, 42, "E" + text("work") + text("two"));
  put("x.dat");
  const json all = json::parse(ringside("latency span --json x.dat").out);
  EXPECT_EQ(all.at("pairs"), 2u);
  EXPECT_EQ(all.at("all").at("min"), 5'000'000u);
  EXPECT_EQ(all.at("all").at("max"), 8'000'000u);
  const std::string spans = ringside("export --format otlp -o - x.dat").out;
  EXPECT_THAT(spans, HasSubstr("\"startTimeUnixNano\":\"1000000000\",\"endTimeUnixNano\":\"1005000000\""));
  EXPECT_THAT(spans, HasSubstr("\"startTimeUnixNano\":\"1001000000\",\"endTimeUnixNano\":\"1009000000\""));
}

// A longjmp leaves `inner` (1 ms) and its event without an end; `later` has no part of it.
TEST_F(TraceDatAnswers, ASpanThatNeverEndsHoldsNothingThatBeganLater) {
  know("ringside", "span", 23,
       ForeignDat::field("char track_event_type", 8, 1) + ForeignDat::field("char slice_name[16]", 9, 16),
       "\"%c %s\", REC->track_event_type, REC->slice_name");
  event(0, 23, 42, "B" + text("outer"));
  event(1'000'000, 23, 42, "B" + text("inner"));
  event(1'000'000, 23, 42, "E" + text("outer"));
  u64 begin = second;
  for (int i = 0; i < 600; ++i) {  // more than are kept open
    event(1'000'000, 23, 42, "B" + text("later"));
    event(1'000'000, 23, 42, "B" + text("inner"));
    event(1'000'000, 23, 42, "E" + text("later"));
    if (i % 20 == 19) {
      dat.pages.push_back(dat.sub_buffer(begin, std::exchange(data, "")));
      begin = second + 2'000'000 + 3'000'000 * static_cast<u64>(i + 1);
    }
  }
  std::ofstream(dir + "/x.dat", std::ios::binary) << dat.bytes();
  std::map<std::string, u64> lengths;
  const test::Outcome o = ringside("export --format otlp -o - x.dat");
  ASSERT_EQ(o.code, 0) << o.err;
  std::istringstream lines(o.out);
  for (std::string line; std::getline(lines, line);) {
    const json traces = json::parse(line);
    for (const json& resource : traces.at("resourceSpans"))
      for (const json& span : resource.at("scopeSpans").at(0).at("spans")) {
        const auto at = [&](const char* key) { return std::stoull(span.at(key).get<std::string>()); };
        const std::string name = span.at("name");
        ++lengths[name + " " + std::to_string(at("endTimeUnixNano") - at("startTimeUnixNano"))];
        EXPECT_EQ(span.dump().find("ringside.unfinished") != std::string::npos, name == "inner") << span;
        EXPECT_TRUE(name == "inner" || !span.contains("parentSpanId")) << span;
      }
  }
  EXPECT_EQ(lengths, (std::map<std::string, u64>{{"outer 2000000", 1}, {"later 2000000", 600}, {"inner 1000000", 601}}));
}

// The format says eight addresses, as the kernel's does.
TEST_F(TraceDatAnswers, AStackHasAllItsAddresses) {
  know_mark();
  dat.ftrace = {{"ftrace", ForeignDat::format(
                               "kernel_stack", 4,
                               ForeignDat::field("int size", 8, 4, true) + ForeignDat::field("unsigned long caller[8]", 16, 64),
                               "\"%ps\", (void *)REC->caller[0]")}};
  for (const u32 depth : {20u, 3u}) {
    mark(1000, 42, static_cast<i32>(depth));
    std::string addresses = number(depth) + number(u32{0});
    for (u64 n = 0; n < depth; ++n) addresses += number(n + 1000);
    event(0, 4, 42, addresses);
  }
  put("x.dat");
  const std::string csv = ringside("export --format csv -e ftrace:kernel_stack -o - x.dat").out;
  for (const u32 depth : {20u, 3u}) {
    std::string all;
    for (u64 n = 0; n < depth; ++n) all += (n == 0 ? "" : ",") + std::to_string(n + 1000);
    EXPECT_THAT(csv, HasSubstr("[" + all + "]"));
  }
  EXPECT_THAT(ringside("export --format csv -o - x.dat").out, HasSubstr(" => 0x3fa\n => 0x3fb\""));
  const auto stacks = events("-e ftrace:kernel_stack x.dat");
  ASSERT_EQ(stacks.size(), 2u);
  EXPECT_EQ(stacks[0].at("fields").at("caller").size(), 20u);
  EXPECT_EQ(stacks[1].at("fields").at("caller").size(), 3u);
}

TEST_F(TraceDatAnswers, AddressesOf32Bits) {
  dat.word = 4;
  know("kmem", "kmalloc", 23, ForeignDat::field("unsigned long call_site", 8, 4) + ForeignDat::field("size_t bytes_req", 12, 4),
       "\"call_site=%pS bytes_req=%zu\", (void *)REC->call_site, REC->bytes_req");
  event(0, 23, 42, number(u32{0xc1001234}) + number(u32{0xc1001234}));
  put("x.dat");
  EXPECT_THAT(ringside("hist kmem:kmalloc/call_site x.dat").out, HasSubstr("0xc1001234"));
  EXPECT_THAT(ringside("hist kmem:kmalloc/bytes_req x.dat").out, HasSubstr("3238007348"));
}

TEST_F(TraceDatAnswers, TheTimesOfACsvAreNamedForWhatTheyAre) {
  dat.clock = "x86-tsc";
  know_mark();
  mark(0, 42, 1);
  put("x.dat");
  EXPECT_THAT(ringside("export --format csv -o - x.dat").out, testing::StartsWith("ts_ticks,buffer,"));
  dat.clock = "local";
  dat.pages.clear();
  mark(0, 42, 1);
  put("x.dat");
  EXPECT_THAT(ringside("export --format csv -o - x.dat").out, testing::StartsWith("ts_ns,buffer,"));
}

// The second event of the file is older than the first: its pair is none.
TEST_F(TraceDatAnswers, WhatCameAfterLaterEventsIsNotCalledExact) {
  know_mark();
  mark(5000, 42, 1);
  put("x.dat");
  mark(1000, 42, 2);
  mark(1000, 42, 3);
  put("x.dat");
  const std::string hist = ringside("hist app:mark/x x.dat").out;
  EXPECT_THAT(hist, HasSubstr("3 events"));
  const std::string latency = ringside("latency app:mark app:mark x.dat").out;
  const json facts = json::parse(ringside("latency app:mark app:mark --json x.dat").out);
  EXPECT_GT(facts.at("late").get<u64>(), 0u);
  EXPECT_EQ(facts.at("exact"), false);
  for (const std::string& out : {hist, latency}) {
    EXPECT_THAT(out, HasSubstr("came after later events"));
    EXPECT_THAT(out, Not(HasSubstr("the numbers are exact")));
  }
}

TEST_F(TraceDatAnswers, AKindOfNumberThatHistCannotCountIsReported) {
  know("app", "one", 23, ForeignDat::field("int x", 8, 4, true), "\"\"");
  know("app", "list", 24, ForeignDat::field("u32 x[2]", 8, 8), "\"\"");
  event(0, 23, 42, number(i32{-1}));
  event(10, 24, 42, number(u64{1}));
  put("x.dat");
  for (const char* command : {"hist app:*/x", "top --once --by app:*/x"}) {
    EXPECT_THAT(ringside(std::string(command) + " x.dat").out, HasSubstr("1 event has a field of this name that is an array"));
    EXPECT_EQ(json::parse(ringside(std::string(command) + " --json x.dat").out).at("misfits"), 1);
  }
}

// The kernel's counters and the sub-buffers' flags are about the same losses.
TEST_F(TraceDatAnswers, LossesAreTheLargerOfCountersAndGaps) {
  know_mark();
  const auto lost = [&](u64 flagged, const std::string& overrun) {
    dat.pages.clear();
    dat.stat = overrun.empty() ? "" : "CPU: 0\nentries: 2\noverrun: " + overrun + "\n";
    mark(1000, 42, 1);
    mark(1000, 42, 2);
    dat.pages.push_back(dat.sub_buffer(second, std::exchange(data, ""), flagged));
    std::ofstream(dir + "/x.dat", std::ios::binary) << dat.bytes();
    const json hist = json::parse(ringside("hist app:mark/x --json x.dat").out);
    const json latency = json::parse(ringside("latency app:mark app:mark --json x.dat").out);
    EXPECT_EQ(latency.at("lost"), hist.at("lost"));
    EXPECT_EQ(latency.at("exact"), hist.at("lost") == 0);
    return hist.at("lost").get<u64>();
  };
  EXPECT_EQ(lost(0, ""), 0u);
  EXPECT_EQ(lost(0, "0"), 0u);
  EXPECT_EQ(lost(0, "5"), 5u);
  EXPECT_EQ(lost(3, "5"), 5u);
  EXPECT_EQ(lost(5, "5"), 5u);
  EXPECT_EQ(lost(7, "5"), 7u);
  lost(0, "5");
  EXPECT_THAT(ringside("hist app:mark/x x.dat").out, HasSubstr("2 events, 5 lost"));
}

// report rounds: 1000211638 ns is 1.000212.
TEST_F(TraceDatAnswers, TimeTakesTheEventsThatReportPrintsSo) {
  know_mark();
  mark(211'499, 42, 1);
  mark(139, 42, 2);
  mark(861, 42, 3);
  mark(1, 42, 4);
  put("x.dat");
  const auto of = [&](const std::string& time) {
    std::string all;
    for (const json& e : events("--time " + time + " x.dat")) all += std::to_string(e.at("fields").at("x").get<i64>());
    return all;
  };
  EXPECT_THAT(ringside("report x.dat").out, HasSubstr("1.000212: mark: x=2"));
  EXPECT_EQ(of("1.000212..1.000212"), "23");
  EXPECT_EQ(of("1.000212s.."), "234");
  EXPECT_EQ(of("..1.000211"), "1");
  EXPECT_EQ(of("1.000211638..1.000211638"), "2");
  EXPECT_EQ(of("1.0002..1.00021164"), "12");
}

}  // namespace
}  // namespace ringside::trace_dat_answers_test
