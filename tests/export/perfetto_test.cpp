// Events in Perfetto's format, read back by the rules of its importer.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <random>
#include <set>

#include "cli/hand_made.hpp"
#include "export/perfetto/writer.hpp"
#include "perfetto_reader.hpp"

namespace ringside::perfetto_test {
namespace {

using test::PerfettoFile;
using test::PerfettoTrackEvent;

constexpr u64 second = 1'000'000'000;

const char* const common =
    "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\tfield:unsigned char "
    "common_flags;\toffset:2;\tsize:1;\tsigned:0;\n"
    "\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n\tfield:int "
    "common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n";

struct Perfetto : testing::Test {
  Formats formats;
  Tasks tasks;
  std::string bytes;
  RingName cpu, program;
  std::vector<u8> payload;
  std::string left_out{};

  Perfetto() {
    cpu.kernel = true;
    cpu.ring = 3;
    program.ring = 0;
    program.pid = 100;
    program.tid = 101;
    program.task = "worker";
    program.process = "server";
    tasks.add(program);
    tasks.add(Task{200, 201, "kthread", "daemon"});
  }
  // fields: "int a@8:4" lines; NAME alone: 8 bytes, unsigned.
  void add_format(u32 id, const std::string& system, const std::string& name, const std::string& fields) {
    ASSERT_TRUE(test::add(formats, id, system, name,
        "name: " + name + "\nID: " + std::to_string(id & 0xFFFF) + "\nformat:\n" + common + fields + "\nprint fmt: \"\"\n"))
        << name;
  }
  static std::string field(const std::string& type, const std::string& name, u32 offset, u32 size, bool is_signed) {
    return "\tfield:" + type + " " + name + ";\toffset:" + std::to_string(offset) + ";\tsize:" + std::to_string(size) +
           ";\tsigned:" + std::to_string(is_signed) + ";\n";
  }
  template <class T>
  Perfetto& put(const T& value) {
    payload.insert(payload.end(), reinterpret_cast<const u8*>(&value), reinterpret_cast<const u8*>(&value) + sizeof value);
    return *this;
  }
  Perfetto& text(const char* value, size_t room) {
    std::string all(value);
    all.resize(room);
    payload.insert(payload.end(), all.begin(), all.end());
    return *this;
  }
  Perfetto& head(u16 id, i32 tid) {
    payload.clear();
    return put(id).put(u16{0}).put(tid);
  }
  TraceRecord record(u64 time, u32 source, u32 ids) const {
    TraceRecord r;
    r.time = time;
    r.payload = {payload.data(), static_cast<u32>(payload.size())};
    r.source = source;
    r.ids = ids;
    return r;
  }
  static TraceRecord lost(u64 time, u64 count, u32 source) {
    TraceRecord r;
    r.time = time;
    r.lost = count;
    r.source = source;
    return r;
  }
  template <class Write>
  PerfettoFile file(const PerfettoOptions& options, const Write& write) {
    bytes.clear();
    PerfettoWriter w(formats, tasks, options, [&](std::string_view more) -> result<void> {
      bytes += more;
      return {};
    });
    EXPECT_TRUE(w.begin(second));
    write(w);
    EXPECT_TRUE(w.finish());
    left_out = w.left_out();
    return PerfettoFile(bytes);
  }
};

World suspended(u64 ns) {
  World world;
  world.suspended_ns = ns;
  return world;
}

std::string sched_switch_fields() {
  return Perfetto::field("char", "prev_comm[16]", 8, 16, false) + Perfetto::field("pid_t", "prev_pid", 24, 4, true) +
         Perfetto::field("int", "prev_prio", 28, 4, true) + Perfetto::field("long", "prev_state", 32, 8, true) +
         Perfetto::field("char", "next_comm[16]", 40, 16, false) + Perfetto::field("pid_t", "next_pid", 56, 4, true) +
         Perfetto::field("int", "next_prio", 60, 4, true);
}

TEST_F(Perfetto, KernelEventsUsePerfettosOwnMessages) {
  add_format(kernel_ids + 5, "sched", "sched_switch", sched_switch_fields());
  for (const bool compressed : {false, true}) {
    const auto f = file({.world = suspended(7), .compressed = compressed}, [&](PerfettoWriter& w) {
      head(5, 0).text("idle", 16).put(i32{0}).put(i32{120}).put(i64{0}).text("kthread", 16).put(i32{201}).put(i32{-5});
      EXPECT_TRUE(w.add(record(2 * second, 0, kernel_ids), cpu));
      head(5, 201).text("kthread", 16).put(i32{201}).put(i32{-5}).put(i64{1}).text("idle", 16).put(i32{0}).put(i32{120});
      EXPECT_TRUE(w.add(record(3 * second, 0, kernel_ids), cpu));
    });
    EXPECT_EQ(f.dropped, 0u);
    EXPECT_EQ(f.boottime, second + 7);
    ASSERT_EQ(f.events.size(), 2u);
    EXPECT_EQ(f.events[0].message, 4u);
    EXPECT_EQ(f.events[0].cpu, 3u);
    EXPECT_EQ(f.events[0].pid, 0) << "the idle task's must be written";
    EXPECT_EQ(f.events[0].time, 2 * second + 7);
    EXPECT_EQ(f.events[0].fields,
              (std::map<std::string, std::string>{
                  {"1", "idle"}, {"2", "0"}, {"3", "120"}, {"4", "0"}, {"5", "kthread"}, {"6", "201"}, {"7", "-5"}}));
    EXPECT_EQ(f.threads.at(201), "kthread");
    EXPECT_EQ(f.stats.at(3), (std::pair<u64, u64>{2, 0}));
  }
}

TEST_F(Perfetto, AThreadThatIsRenamedHasItsLastName) {
  add_format(kernel_ids + 5, "sched", "sched_switch", sched_switch_fields());
  const auto f = file({}, [&](PerfettoWriter& w) {
    for (const u64 time : {2, 3}) {
      head(5, 201).text("kthread", 16).put(i32{201}).put(i32{-5}).put(i64{1}).text("idle", 16).put(i32{0}).put(i32{120});
      EXPECT_TRUE(w.add(record(time * second, 0, kernel_ids), cpu));
      tasks.rename(201, "renamed", true);
    }
  });
  EXPECT_EQ(f.threads.at(201), "renamed");
}

// The format has one name for a thread: the last. The names of each time stand on a track below it.
TEST_F(Perfetto, NamesOverTimeHaveATrack) {
  add_format(7, "app", "mark", "");
  add_format(kernel_ids + 9, "my", "thing", "");
  const auto f = file({}, [&](PerfettoWriter& w) {
    for (const u64 time : {2, 3, 5, 6, 8}) {
      if (time == 5) tasks.rename(101, "parser", true);
      if (time == 5) tasks.rename(201, "kworker", true);
      if (time == 8) tasks.rename(101, "worker", true);
      head(7, 101);
      EXPECT_TRUE(w.add(record(time * second, 0, 0), program));
      head(9, 201);
      EXPECT_TRUE(w.add(record(time * second + 1, 1, kernel_ids), cpu));
    }
  });
  EXPECT_EQ(f.dropped, 0u);
  using Names = std::vector<std::tuple<std::string, u64, i64>>;
  std::map<i32, Names> names;  // by TID
  for (const test::PerfettoSlice& slice : f.slices()) {
    const test::PerfettoTrack& track = f.tracks.at(slice.track);
    ASSERT_EQ(track.name, "names");
    names[f.tracks.at(track.parent).tid].emplace_back(slice.name, slice.time, slice.duration);
  }
  const auto s = static_cast<i64>(second);
  EXPECT_EQ(names[101], (Names{{"worker", 2 * second, 3 * s}, {"parser", 5 * second, 3 * s}, {"worker", 8 * second, 1}}));
  EXPECT_EQ(names[201], (Names{{"kthread", 2 * second + 1, 3 * s}, {"kworker", 5 * second + 1, 3 * s}}));
  EXPECT_EQ(names.size(), 2u);
  std::map<i32, std::string> last;
  for (const auto& [uuid, track] : f.tracks)
    if (track.tid != 0) last[track.tid] = track.name;
  EXPECT_EQ(last, (std::map<i32, std::string>{{101, "worker"}, {201, "kworker"}}));
  EXPECT_EQ(f.threads.at(201), "kworker");
}

TEST_F(Perfetto, OtherKernelEventsDescribeThemselves) {
  add_format(kernel_ids + 9, "my", "thing",
             field("u32", "count", 8, 4, false) + field("s64", "delta", 16, 8, true) + field("char", "who[8]", 24, 8, false) +
                 field("unsigned int", "list[3]", 32, 12, false));
  std::string many;
  for (u32 i = 0; i < 40; ++i) many += field("u32", "f" + std::to_string(i), 8 + 4 * i, 4, false);
  add_format(kernel_ids + 10, "my", "wide", many);
  const auto f = file({}, [&](PerfettoWriter& w) {
    for (int again = 0; again < 2; ++again) {
      head(9, 201).put(u32{4'000'000'000}).put(u32{0}).put(i64{-3}).text("abc", 8).put(u32{1}).put(u32{2}).put(u32{3});
      EXPECT_TRUE(w.add(record((2 + again) * second, 0, kernel_ids), cpu));
    }
    head(10, 201);
    for (u32 i = 0; i < 40; ++i) put(i);
    EXPECT_TRUE(w.add(record(5 * second, 0, kernel_ids), cpu));
  });
  EXPECT_EQ(f.dropped, 0u);
  ASSERT_EQ(f.events.size(), 3u);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(f.events[i].name, "my:thing");
    EXPECT_EQ(f.events[i].fields, (std::map<std::string, std::string>{
                                      {"count", "4000000000"}, {"delta", "-3"}, {"who", "abc"}, {"list", "1,2,3"}}));
  }
  EXPECT_EQ(f.events[2].message, 327u) << "more than 31 fields are named one by one";
  EXPECT_EQ(f.events[2].fields.size(), 40u);
  EXPECT_EQ(f.events[2].fields.at("f39"), "39");
}

TEST_F(Perfetto, FieldsThatPerfettosMessageLacksAreLeftOut) {
  add_format(kernel_ids + 11, "raw_syscalls", "sys_enter",
             field("long", "id", 8, 8, true) + field("unsigned long", "args[6]", 16, 48, false));
  const auto f = file({}, [&](PerfettoWriter& w) {
    head(11, 201).put(i64{257});
    for (u64 i = 0; i < 6; ++i) put(i);
    EXPECT_TRUE(w.add(record(2 * second, 0, kernel_ids), cpu));
  });
  EXPECT_EQ(f.dropped, 0u);
  ASSERT_EQ(f.events.size(), 1u);
  EXPECT_EQ(f.events[0].message, 329u);
  EXPECT_EQ(f.events[0].fields, (std::map<std::string, std::string>{{"1", "257"}}));
}

TEST_F(Perfetto, ArraysAndEnumsOfProgramsAreTexts) {
  ASSERT_TRUE(test::add(formats, 61450, "app", "state",
                          std::string("name: state\nID: 61450\nformat:\n") + common + field("u32", "state", 8, 4, false) +
                              field("s16", "list[3]", 12, 6, true) +
                              "\nprint fmt: \"state=%s\", __print_symbolic(REC->state, { 0, \"idle\" }, { 1, \"busy\" })\n"));
  const auto f = file({}, [&](PerfettoWriter& w) {
    for (const u32 state : {1u, 5u}) {
      head(61450, 101).put(state).put(int16_t{-1}).put(int16_t{2}).put(int16_t{3});
      EXPECT_TRUE(w.add(record(2 * second + state, 0, 0), program));
    }
  });
  ASSERT_EQ(f.track_events.size(), 2u);
  EXPECT_EQ(f.track_events[0].annotations, (std::map<std::string, std::string>{{"state", "busy"}, {"list", "-1,2,3"}}));
  EXPECT_EQ(f.track_events[1].annotations.at("state"), "5") << "no name is known";
}

TEST_F(Perfetto, ProgramsEventsAreSlicesCountersAndInstants) {
  add_format(61441, "ringside", "track_span",
             field("char", "track_event_type", 8, 1, false) + field("char", "slice_name[8]", 9, 8, false) +
                 field("char", "track_name[8]", 17, 8, false));
  add_format(61442, "ringside", "counter",
             field("s64", "counter_value", 8, 8, true) + field("char", "track_name[8]", 16, 8, false));
  add_format(61443, "db", "query", field("u64", "rows", 8, 8, false) + field("u64", "duration_ns", 16, 8, false));
  add_format(61444, "db", "commit", field("s32", "code", 8, 4, true));
  const auto f = file({}, [&](PerfettoWriter& w) {
    const auto add = [&](u64 time) { EXPECT_TRUE(w.add(record(time, 0, 0), program)); };
    head(61441, 101).put('B').text("parse", 8).text("", 8), add(2 * second);
    head(61443, 101).put(u64{7}).put(u64{1000}), add(2 * second + 5000);
    head(61441, 101).put('E').text("parse", 8).text("", 8), add(3 * second);
    head(61441, 101).put('B').text("io", 8).text("disk", 8), add(3 * second + 1);
    head(61441, 101).put('E').text("io", 8).text("disk", 8), add(3 * second + 9);
    head(61442, 101).put(i64{-4}).text("depth", 8), add(4 * second);
    head(61444, 101).put(i32{-1}), add(5 * second);
  });
  EXPECT_EQ(f.dropped, 0u);
  EXPECT_TRUE(f.events.empty());
  std::string said;
  for (const PerfettoTrackEvent& e : f.track_events) {
    const auto& track = f.tracks.at(e.track);
    const auto& thread = track.tid != 0 ? track : f.tracks.at(track.parent);
    EXPECT_EQ(thread.pid, 100);
    EXPECT_EQ(thread.tid, 101);
    said += std::to_string(e.time - 2 * second) + " " + std::to_string(e.type) + " " + e.category + " " + e.name +
            (track.tid == 0 ? " @" + track.name : "");
    if (e.type == 4) said += " " + std::to_string(e.counter) + (track.counter ? "" : " on no counter's track");
    for (const auto& [name, value] : e.annotations) said += " " + name + "=" + value;
    said += "\n";
  }
  EXPECT_EQ(said,
            "0 1 ringside parse\n"
            "4000 1 db query duration_ns=1000 rows=7\n"
            "5000 2  \n"
            "1000000000 2 ringside \n"
            "1000000001 1 ringside io @disk\n"
            "1000000009 2 ringside  @disk\n"
            "2000000000 4 ringside  @depth -4\n"
            "3000000000 3 db commit code=-1\n");
}

TEST_F(Perfetto, AnEventWithoutAFormatIsAnInstant) {
  for (const bool stack : {false, true}) {
    const auto f = file({}, [&](PerfettoWriter& w) {
      TraceRecord of_program = record(2 * second, 0, 0), of_kernel = record(3 * second, 1, kernel_ids);
      head(61449, 101);
      of_program.payload = of_kernel.payload = {payload.data(), static_cast<u32>(payload.size())};
      if (stack) of_program.stack = of_kernel.stack = 1;
      EXPECT_TRUE(w.add(of_program, program));
      EXPECT_TRUE(w.add(of_kernel, cpu));
    });
    EXPECT_EQ(f.dropped, 0u);
    ASSERT_EQ(f.track_events.size(), 1u);
    EXPECT_EQ(f.track_events[0].name, "unknown:61449");
    EXPECT_EQ(f.track_events[0].type, 3u);
  }
}

TEST_F(Perfetto, ACounterMayBeRealAndOfAProcess) {
  add_format(61442, "ringside", "real_counter",
             field("double", "counter_value", 8, 8, true) + field("char", "track_name[8]", 16, 8, false));
  add_format(61443, "ringside", "process_counter",
             field("double", "counter_value", 8, 8, true) + field("char", "track_name[8]", 16, 8, false) +
                 field("s32", "scope_tgid", 24, 4, true));
  RingName other = program;
  other.ring = 1, other.tid = 102;
  tasks.add(other);
  const auto f = file({}, [&](PerfettoWriter& w) {
    head(61442, 101).put(0.25).text("load", 8);
    EXPECT_TRUE(w.add(record(2 * second, 0, 0), program));
    for (const auto& [tid, ring, of] : {std::tuple{101, program, 0}, std::tuple{102, other, 0}, std::tuple{102, other, 200}}) {
      head(61443, tid).put(1.5).text("depth", 8).put(i32{of});
      EXPECT_TRUE(w.add(record(3 * second, static_cast<u32>(ring.ring), 0), ring));
    }
  });
  EXPECT_EQ(f.dropped, 0u);
  std::string said;
  for (const PerfettoTrackEvent& e : f.track_events) {
    const auto &track = f.tracks.at(e.track), &parent = f.tracks.at(track.parent);
    EXPECT_TRUE(track.counter);
    EXPECT_EQ(e.type, 4u);
    EXPECT_TRUE(e.annotations.empty());
    said += fmt::format("{} {} of {}/{}\n", track.name, e.real_counter, parent.pid, parent.tid);
  }
  EXPECT_EQ(said, "load 0.25 of 100/101\ndepth 1.5 of 100/0\ndepth 1.5 of 100/0\ndepth 1.5 of 200/0\n");
}

// Whatever the durations of a thread's events: its importer finds each slice with its own length and fields.
TEST_F(Perfetto, SlicesOfOneThreadKeepTheirDurations) {
  add_format(61441, "ringside", "track_span",
             field("char", "track_event_type", 8, 1, false) + field("char", "slice_name[8]", 9, 8, false));
  add_format(61443, "db", "query", field("u64", "rows", 8, 8, false) + field("u64", "duration_ns", 16, 8, false));
  u64 rows = 0;
  std::vector<std::string> expected;
  const auto write = [&](PerfettoWriter& w, u64 begin, u64 end) {
    head(61443, 101).put(++rows).put(u64{end - begin});
    EXPECT_TRUE(w.add(record(second + end, 0, 0), program));
    expected.push_back(std::to_string(rows) + ": " + std::to_string(begin) + "+" + std::to_string(end - begin));
  };
  const auto span = [&](PerfettoWriter& w, char kind, u64 time) {
    head(61441, 101).put(kind).text("span", 8);
    EXPECT_TRUE(w.add(record(second + time, 0, 0), program));
  };
  const auto check = [&](const char* which, size_t tracks, const std::function<void(PerfettoWriter&)>& events) {
    rows = 0;
    expected.clear();
    const auto f = file({}, events);
    EXPECT_EQ(f.dropped, 0u);
    std::vector<std::string> found;
    std::set<u64> on;
    u64 root = 0;
    for (const auto& [number, track] : f.tracks)
      if (track.tid == 101) root = number;
    EXPECT_TRUE(f.tracks.at(root).apart);
    for (const auto& slice : f.slices()) {
      on.insert(slice.track);
      EXPECT_TRUE(slice.track == root || f.tracks.at(slice.track).parent == root) << which;
      if (slice.category == "db")
        found.push_back(slice.annotations.at("rows") + ": " + std::to_string(slice.time - second) + "+" +
                        std::to_string(slice.duration));
    }
    std::sort(found.begin(), found.end());
    std::sort(expected.begin(), expected.end());
    EXPECT_EQ(found, expected) << which;
    EXPECT_TRUE(tracks == 0 || on.size() == tracks) << which << ": " << on.size();
  };
  check("inside, beside, at one end", 1, [&](auto& w) {
    write(w, 10, 20), write(w, 20, 30), write(w, 5, 30), write(w, 30, 30), write(w, 30, 40), write(w, 1, 40);
  });
  check("of one begin", 2, [&](auto& w) { write(w, 10, 20), write(w, 10, 30), write(w, 30, 40); });
  check("of one begin, three deep", 3, [&](auto& w) { write(w, 10, 20), write(w, 10, 30), write(w, 10, 40); });
  check("of no length at a begin", 1, [&](auto& w) { write(w, 10, 10), write(w, 10, 30); });
  check("crossing", 2, [&](auto& w) { write(w, 10, 20), write(w, 15, 30), write(w, 5, 40); });
  check("late", 2, [&](auto& w) { write(w, 10, 20), write(w, 5, 15); });
  check("begun before an open span", 2,
        [&](auto& w) { span(w, 'B', 10), write(w, 12, 20), write(w, 5, 30), span(w, 'E', 40); });
  check("around a span", 1, [&](auto& w) { span(w, 'B', 10), span(w, 'E', 20), write(w, 5, 30); });
  check("of a span's begin", 2, [&](auto& w) { span(w, 'B', 10), span(w, 'E', 20), write(w, 10, 30); });
  check("around an end of nothing", 2, [&](auto& w) { span(w, 'E', 20), write(w, 10, 30), write(w, 20, 40); });
  check("around what is remembered", 1, [&](auto& w) {
    for (u64 i = 1; i < 10'000; ++i) write(w, 10 * i, 10 * i + 9);
    write(w, 98'999, 100'000);
  });
  check("around what is forgotten", 2, [&](auto& w) {
    for (u64 i = 1; i < 10'000; ++i) write(w, 10 * i, 10 * i + 9);
    write(w, 5, 100'000);
  });
  std::mt19937 random(1);
  for (int round = 0; round < 20; ++round)
    check("of random times", 0, [&](auto& w) {
      u64 now = 100;
      for (int i = 0; i < 200; ++i) {
        now += random() % 3;
        if (const u64 kind = random() % 8; kind < 2)
          span(w, kind == 0 ? 'B' : 'E', now);
        else
          write(w, now - random() % 20, now);
      }
    });
}

// A longjmp out of g leaves it without an end; the begin of h is missing.
TEST_F(Perfetto, AnEndClosesTheSpanOfItsName) {
  add_format(61441, "ringside", "track_span",
             field("char", "track_event_type", 8, 1, false) + field("char", "slice_name[8]", 9, 8, false));
  const auto f = file({}, [&](PerfettoWriter& w) {
    const auto span = [&](char kind, const char* name, u64 time) {
      head(61441, 101).put(kind).text(name, 8);
      EXPECT_TRUE(w.add(record(second + time, 0, 0), program));
    };
    span('B', "f", 10), span('B', "g", 20), span('E', "f", 30);
    span('B', "f", 40), span('E', "h", 45), span('B', "", 46), span('E', "", 47), span('E', "f", 50);
  });
  std::vector<std::string> found;
  for (const auto& slice : f.slices())
    found.push_back(slice.name + " " + std::to_string(slice.time - second) + "+" + std::to_string(slice.duration) +
                    (slice.annotations.count("unfinished") != 0 ? " unfinished" : ""));
  std::sort(found.begin(), found.end());
  EXPECT_EQ(found, (std::vector<std::string>{"f 10+20", "f 40+10", "g 20+10 unfinished", "track_span 46+1"}));
}

TEST_F(Perfetto, SpansThatNeverEndDoNotHideLaterOnes) {
  add_format(61441, "ringside", "track_span",
             field("char", "track_event_type", 8, 1, false) + field("char", "slice_name[8]", 9, 8, false));
  const auto f = file({}, [&](PerfettoWriter& w) {
    u64 now = 2 * second;
    for (const char* const kinds : {"B", "BE"})
      for (int i = 0; i < 600; ++i)
        for (const char* kind = kinds; *kind != 0; ++kind) {
          head(61441, 101).put(*kind).text("span", 8);
          EXPECT_TRUE(w.add(record(++now, 0, 0), program));
        }
  });
  EXPECT_EQ(f.dropped, 0u) << "none is too deep";
  EXPECT_EQ(f.track_events.size(), 600u + 2 * 600u);
  const auto all = f.slices();
  EXPECT_TRUE(std::all_of(all.begin(), all.end(), [](const auto& slice) { return slice.duration == -1; }))
      << "an end closes its own begin";
  EXPECT_EQ(all.size(), 400u);
}

TEST_F(Perfetto, LossesHaveATrackWithTimeAndNumber) {
  add_format(kernel_ids + 5, "sched", "sched_switch", sched_switch_fields());
  add_format(61444, "db", "commit", field("s32", "code", 8, 4, true));
  const auto f = file({}, [&](PerfettoWriter& w) {
    const auto kernel = [&](u64 time) {
      head(5, 201).text("a", 16).put(i32{1}).put(i32{2}).put(i64{3}).text("b", 16).put(i32{4}).put(i32{5});
      EXPECT_TRUE(w.add(record(time, 0, kernel_ids), cpu));
    };
    kernel(2 * second);
    EXPECT_TRUE(w.add(lost(3 * second, 1234, 0), cpu));
    kernel(3 * second);
    EXPECT_TRUE(w.add(lost(4 * second, 5, 1), program)) << "at the ring's begin";
    head(61444, 101).put(i32{0});
    EXPECT_TRUE(w.add(record(4 * second, 1, 0), program));
  });
  EXPECT_EQ(f.bundles_with_loss, (std::map<u32, u32>{{3, 1}}));
  EXPECT_EQ(f.stats.at(3), (std::pair<u64, u64>{2, 1234}));
  std::string said;
  for (const PerfettoTrackEvent& e : f.track_events)
    if (f.tracks.at(e.track).name.find("lost") != std::string::npos)
      said += f.tracks.at(e.track).name + " " + std::to_string(e.time / second) + " " + e.name +
              (e.annotations.empty() ? "" : " " + e.annotations.at("events")) + "\n";
  EXPECT_EQ(said,
            "kernel lost: CPU 3 2 1234 events lost 1234\nkernel lost: CPU 3 3 \n"
            "lost: worker-101 4 5 events lost 5\nlost: worker-101 4 \n");
}

TEST_F(Perfetto, LossesOfOneNameAndOneBehindTheOtherAreApart) {
  add_format(61444, "db", "commit", field("s32", "code", 8, 4, true));
  const auto f = file({}, [&](PerfettoWriter& w) {
    for (u32 source : {0, 1}) {
      head(61444, 101).put(i32{0});
      EXPECT_TRUE(w.add(record((2 + source) * second, source, 0), program));
    }
    EXPECT_TRUE(w.add(lost(4 * second, 1, 0), program));
    EXPECT_TRUE(w.add(lost(5 * second, 2, 1), program));
    EXPECT_TRUE(w.add(lost(6 * second, 3, 0), program)) << "no event between";
  });
  std::set<u64> tracks;
  std::string said;
  for (const auto& slice : f.slices()) {
    tracks.insert(slice.track);
    said += slice.annotations.at("events") + ": " + std::to_string(slice.time / second) + "+" +
            std::to_string(slice.duration / static_cast<i64>(second)) + "\n";
  }
  EXPECT_EQ(tracks.size(), 2u);
  EXPECT_EQ(said, "1: 2+2\n2: 3+2\n3: 4+2\n");
}

TEST_F(Perfetto, StacksStandAtTheirEventsWithTheirWeight) {
  const auto stack_field = "\tfield:ringside_stack stack;\toffset:16;\tsize:8;\tsigned:0;\n";
  add_format(61445, "libc", "malloc", field("u64", "size", 8, 8, false) + stack_field);
  add_format(61446, "ringside", "stack",
             field("u64", "id", 8, 8, false) + "\tfield:__data_loc u64[] frames;\toffset:16;\tsize:4;\tsigned:0;\n");
  add_format(61447, "ringside", "code_map",
             field("int", "pid", 8, 4, true) + field("u64", "start", 16, 8, false) + field("u64", "size", 24, 8, false) +
                 field("u64", "file_offset", 32, 8, false) + field("char", "path[16]", 40, 16, false) +
                 field("char", "build_id[8]", 56, 8, false));
  add_format(61448, "ringside", "sample", field("u64", "count", 8, 8, false) + stack_field);
  add_format(61449, "ringside", "counter", field("s64", "counter_value", 8, 8, true) + stack_field);
  Stacks stacks(formats, tasks);
  const auto f = file({.stacks = &stacks}, [&](PerfettoWriter& w) {
    const auto add = [&](u64 time) {
      TraceRecord r = record(time, 0, 0);
      stacks.see(r, program);
      r.stack = stacks.number(r, program, {});
      EXPECT_TRUE(w.add(r, program));
    };
    head(61447, 101)
        .put(i32{100})
        .put(u32{0})
        .put(u64{0x1000})
        .put(u64{0x1000})
        .put(u64{0x200})
        .text("/nowhere/app", 16)
        .text("abcdef", 8),
        add(second);
    head(61446, 101).put(u64{0xA}).put(u32{24 | 16 << 16}).put(u32{0}).put(u64{0x1101}).put(u64{0x1202}), add(second);
    for (u64 i = 0; i < 2; ++i) head(61445, 101).put(u64{32 + i}).put(u64{0xA}), add((2 + i) * second);
    head(61445, 101).put(u64{7}).put(u64{0}), add(4 * second);
    head(61445, 101).put(u64{7}).put(u64{0xBAD}), add(5 * second);
    for (u64 i = 0; i < 2; ++i) head(61448, 101).put(u64{1 + i}).put(u64{0xA}), add((6 + i) * second);
    head(61449, 101).put(i64{-9}).put(u64{0xA}), add(8 * second);
  });
  EXPECT_EQ(f.dropped, 0u);
  const std::vector<std::string> known{"app+0x300", "app+0x401"}, lost_one{"[stack lost]"};
  ASSERT_EQ(f.track_events.size(), 5u) << "stacks and maps are no events";
  EXPECT_EQ(f.track_events[0].stack, known);
  EXPECT_EQ(f.track_events[0].weight, 32);
  EXPECT_EQ(f.track_events[1].stack, known);
  EXPECT_EQ(f.track_events[1].weight, 33);
  EXPECT_TRUE(f.track_events[2].stack.empty());
  EXPECT_EQ(f.track_events[3].stack, lost_one);
  EXPECT_EQ(f.track_events[4].counter, -9);
  ASSERT_EQ(f.samples.size(), 3u);
  std::string said;
  for (const auto& s : f.samples)
    said += std::to_string(s.time / second) + " " + s.session + " " + std::to_string(s.pid) + "/" + std::to_string(s.tid) +
            " " + std::to_string(s.count) + (s.stack == known || s.stack.size() == 2 ? "" : " other") + "\n";
  EXPECT_EQ(said, "6 ringside:sample 100/101 1\n7 ringside:sample 100/101 3\n8 ringside:counter 100/101 1\n");
  const auto app =
      std::find_if(f.frames.begin(), f.frames.end(), [](const auto& frame) { return frame.function == "app+0x300"; });
  ASSERT_NE(app, f.frames.end());
  EXPECT_EQ(app->path, "/nowhere/app");
  EXPECT_EQ(app->build_id, "\xAB\xCD\xEF");
  EXPECT_EQ(app->address, 0x301u);
}

TEST_F(Perfetto, KernelEventsHaveSamplesForTheirStacks) {
  add_format(kernel_ids + 5, "sched", "sched_switch", sched_switch_fields());
  add_format(kernel_ids + 6, "ftrace", "kernel_stack",
             field("int", "size", 8, 4, true) + "\tfield:unsigned long caller[];\toffset:16;\tsize:0;\tsigned:0;\n");
  Stacks stacks(formats, tasks);
  const auto f = file({.stacks = &stacks}, [&](PerfettoWriter& w) {
    head(6, 201).put(u32{2}).put(u32{0}).put(u64{0xFFFFFFFF81000001}).put(u64{0xFFFFFFFF81000011});
    const std::vector<u8> behind = payload;
    head(5, 201).text("a", 16).put(i32{1}).put(i32{2}).put(i64{3}).text("b", 16).put(i32{4}).put(i32{5});
    TraceRecord r = record(2 * second, 0, kernel_ids);
    r.stack = stacks.number(r, cpu, {{behind.data(), static_cast<u32>(behind.size())}, {}});
    EXPECT_TRUE(w.add(r, cpu));
    payload = behind;
    EXPECT_TRUE(w.add(record(2 * second + 1, 0, kernel_ids), cpu));
  });
  EXPECT_EQ(f.dropped, 0u);
  EXPECT_EQ(f.events.size(), 1u);
  ASSERT_EQ(f.samples.size(), 1u);
  EXPECT_EQ(f.samples[0].session, "sched:sched_switch");
  EXPECT_EQ(f.samples[0].cpu, 3);
  EXPECT_EQ(f.samples[0].tid, 201);
  EXPECT_EQ(f.samples[0].stack.size(), 2u);
  for (const auto& frame : f.frames) EXPECT_EQ(frame.path, "/kernel");
}

TEST_F(Perfetto, EventsOfOneFlowAreConnected) {
  add_format(61444, "net", "packet", field("u64", "flow_id", 8, 8, false));
  const auto f = file({}, [&](PerfettoWriter& w) {
    for (const u64 flow : {7, 0, 7}) {
      head(61444, 101).put(u64{flow});
      EXPECT_TRUE(w.add(record(2 * second, 0, 0), program));
    }
  });
  ASSERT_EQ(f.track_events.size(), 3u);
  EXPECT_EQ(f.track_events[0].flows, std::vector<u64>{7});
  EXPECT_TRUE(f.track_events[1].flows.empty()) << "0 is none";
  EXPECT_EQ(f.track_events[2].flows, std::vector<u64>{7});
}

// A number that is used again: by a thread that begins, and by one of another process. An exec is no new thread.
TEST_F(Perfetto, ANumberUsedAgainIsAnotherThread) {
  add_format(7, "app", "mark", "");
  NameChange exec, other;
  exec.tid = other.tid = 101;
  exec.pid = exec.old_pid = other.old_pid = 100;
  exec.old_task = exec.old_process = "worker";
  exec.task = exec.process = other.old_task = other.old_process = "program";
  other.pid = 555;
  other.task = "thread", other.process = "server";
  tasks.add_change(exec, 3 * second, 0);
  tasks.add_change(other, 5 * second, 0);
  const auto f = file({}, [&](PerfettoWriter& w) {
    for (const u64 time : {2, 3, 4, 5, 6, 7, 8}) {
      tasks.go_to(time * second);
      if (time == 7) tasks.begin(101, 555, Birth::of_thread);
      head(7, 101);
      EXPECT_TRUE(w.add(record(time * second, 0, 0), program));
    }
  });
  EXPECT_EQ(f.dropped, 0u);
  std::map<u64, std::vector<u64>> of;  // times by track
  for (const test::PerfettoTrackEvent& e : f.track_events)
    if (e.type == 3) of[e.track].push_back(e.time / second);
  std::vector<std::vector<u64>> lives;
  for (const auto& [track, times] : of) {
    EXPECT_EQ(f.tracks.at(track).tid, 101);
    EXPECT_EQ(f.tracks.at(track).pid, times[0] == 2 ? 100 : 555);
    lives.push_back(times);
  }
  EXPECT_EQ(lives, (std::vector<std::vector<u64>>{{2, 3, 4}, {5, 6}, {7, 8}}));
}

// However many different names there are, a sequence keeps few of them.
TEST_F(Perfetto, ASequenceBeginsAnewWhenItIsFull) {
  std::string packets;
  perfetto::Sequence sequence(9, "", 3);
  u32 rounds = 1;
  for (u64 i = 0; i < 20; ++i) {
    sequence.make_room();
    rounds = std::max(rounds, sequence.round());
    const u64 number = sequence.text(perfetto::Sequence::name, "name " + std::to_string(i % 7));
    protozero::pbf_writer all(packets);
    protozero::pbf_writer p(all, 1);
    {
      protozero::pbf_writer track(p, 60);
      track.add_uint64(1, 1);
    }
    sequence.begin(p, i);
    protozero::pbf_writer e(p, 11);
    e.add_uint64(10, number);
    e.add_uint64(11, 1);
  }
  EXPECT_GT(rounds, 5u);
  const PerfettoFile f(packets);
  EXPECT_EQ(f.dropped, 0u);
  ASSERT_EQ(f.track_events.size(), 20u);
  for (u64 i = 0; i < 20; ++i) EXPECT_EQ(f.track_events[i].name, "name " + std::to_string(i % 7));
}

TEST_F(Perfetto, WhatPerfettoCannotReadIsCounted) {
  add_format(kernel_ids + 5, "sched", "sched_switch", sched_switch_fields());
  const auto f = file({}, [&](PerfettoWriter& w) {
    RingName far = cpu;
    far.ring = 1024;
    head(5, 201).text("a", 16).put(i32{1}).put(i32{2}).put(i64{3}).text("b", 16).put(i32{4}).put(i32{5});
    EXPECT_TRUE(w.add(record(2 * second, 0, kernel_ids), far));
    payload.resize(11);  // a cut payload reads as zeros and empty texts
    EXPECT_TRUE(w.add(record(3 * second, 0, kernel_ids), cpu));
    head(777, 201);
    EXPECT_TRUE(w.add(record(4 * second, 0, kernel_ids), cpu)) << "of no known type";
  });
  EXPECT_THAT(left_out, testing::StartsWith("1 event of CPUs from 1024 on"));
  EXPECT_EQ(f.dropped, 0u);
  ASSERT_EQ(f.events.size(), 2u);
  EXPECT_EQ(f.events[1].name, "unknown:777");
}

}  // namespace
}  // namespace ringside::perfetto_test
