// The data of a page against slow references: random slices and times in random order.
#include "plot/plot.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <tuple>

#include "cli/hand_made.hpp"
#include "plot/curves.hpp"
#include "plot/lanes.hpp"
#include "plot/states.hpp"
#include "plot/time_grid.hpp"
#include "property/rounds.hpp"
#include "sys/json.hpp"

namespace ringside::plot::plot_test {
namespace {

// Times of every size, close together or not.
u64 random_time(u64 base) {
  const u32 bits = *rc::gen::inRange(0u, 65u);
  const u64 low = bits == 0 ? 0 : *rc::gen::arbitrary<u64>() >> (64 - bits);
  return base + low;
}

RC_GTEST_PROP(TimeGrid, IsTheNarrowestThatHoldsAllTimes, ()) {
  const u32 most = *rc::gen::inRange(2u, 40u);
  const u64 base = *rc::gen::element(u64{0}, u64{1'000'000'000'000}, u64{1} << 63);
  const auto count = *rc::gen::inRange(1, 60);
  TimeGrid grid(most);
  std::vector<std::tuple<u64, u32, u64>> all;
  for (int i = 0; i < count; ++i) {
    all.emplace_back(random_time(base), *rc::gen::inRange(0u, 3u), *rc::gen::inRange(u64{1}, u64{5}));
    const auto& [time, row, n] = all.back();
    grid.add(time, row, n);
  }
  u64 low = ~u64{0}, high = 0;
  for (const auto& [time, row, n] : all) low = std::min(low, time), high = std::max(high, time);
  u32 shift = 0;
  while ((high >> shift) - (low >> shift) >= most) ++shift;
  RC_ASSERT(grid.shift() == shift);
  RC_ASSERT(grid.first() == low >> shift);
  RC_ASSERT(grid.last() == high >> shift);
  for (u32 row = 0; row < 3; ++row) {
    std::map<u64, u64> expected, found;
    for (const auto& [time, r, n] : all) {
      if (r == row) expected[time >> shift] += n;
    }
    grid.for_each(row, [&](u64 column, u64 n) { found[column] = n; });
    RC_ASSERT(found == expected);
  }
}

// The relevant parts of a slice.
using Seen = std::tuple<u64, u64, u32, u32, u32, u64, u64, u64, std::string>;
Seen seen(const Slice& s) { return {s.end, s.begin, s.what, s.ring, s.merged, s.weight, s.busy, s.longest, s.text}; }

// The slices at a level, merged.
std::vector<std::multiset<Seen>> reference(const std::vector<std::pair<u32, Slice>>& all, u32 lanes, int level, u64& held) {
  const bool mixed = level > 21;
  const int shift = mixed ? level - 2 : level - 1;
  std::vector<std::multiset<Seen>> out(lanes);
  held = 0;
  for (u32 lane = 0; lane < lanes; ++lane) {
    std::map<std::pair<u32, u64>, std::vector<Slice>> meeting;
    for (const auto& [l, s] : all) {
      if (l != lane) continue;
      if (level == 0 || (s.end - s.begin) >> shift != 0)
        out[lane].insert(seen(s));
      else
        meeting[{mixed ? 0 : s.what, s.end >> shift}].push_back(s);
    }
    for (const auto& [place, slices] : meeting) {
      Slice one = slices[0];
      for (size_t i = 1; i < slices.size(); ++i) {
        const Slice& s = slices[i];
        one.begin = std::min(one.begin, s.begin);
        one.end = std::max(one.end, s.end);
        if (one.what != s.what) one.what = Slice::various;
        if (one.ring != s.ring) one.ring = Slice::various;
        ++one.merged;
        one.weight += s.weight;
        one.longest = std::max(one.longest, s.longest);
        one.busy = one.busy + s.busy < one.busy ? ~u64{0} : one.busy + s.busy;
        one.text.clear();
      }
      out[lane].insert(seen(one));
    }
    held += out[lane].size();
  }
  return out;
}

RC_GTEST_PROP(Lanes, MergeAsLittleAsTheBoundAllows, ()) {
  const u64 most = *rc::gen::inRange(u64{1}, u64{40});
  const auto count = *rc::gen::inRange(0, 80);
  const u64 base = *rc::gen::element(u64{0}, u64{1'000'000'000'000});
  const u32 spread = *rc::gen::inRange(4u, 62u);
  std::mt19937_64 random(*rc::gen::arbitrary<u64>());
  Lanes lanes(most);
  std::vector<std::pair<u32, Slice>> all;
  for (int i = 0; i < count; ++i) {
    Slice s;
    s.end = base + (random() >> (64 - spread));
    s.begin = random() % 3 == 0 ? s.end : s.end - std::min(s.end, random() >> (2 + random() % 61));
    s.what = static_cast<u32>(random() % 4);
    s.ring = static_cast<u32>(random() % 2);
    s.weight = random() % 9;
    s.busy = s.longest = s.end - s.begin;
    all.emplace_back(static_cast<u32>(random() % 3), s);
  }
  if (random() % 2 == 0)
    std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.second.end < b.second.end; });
  for (int i = 0; i < count; ++i) {
    all[static_cast<size_t>(i)].second.text = std::to_string(i);
    const auto& [lane, s] = all[static_cast<size_t>(i)];
    Slice without_text = s;
    without_text.text.clear();
    lanes.add(lane, without_text, [&, text = s.text] { return text; });
  }
  lanes.finish();
  int level = 0;
  u64 held = 0;
  std::vector<std::multiset<Seen>> expected;
  for (; level <= 65; ++level) {
    expected = reference(all, 3, level, held);
    if (held <= most) break;
  }
  level = std::min(level, 65);
  RC_ASSERT(lanes.held() == held);
  RC_ASSERT(lanes.merges() == (level > 0));
  RC_ASSERT(lanes.mixed() == (level > 21));
  for (u32 lane = 0; lane < lanes.size(); ++lane) {
    std::multiset<Seen> found;
    u64 before = 0;
    for (const Slice& s : lanes.slices(lane)) {
      RC_ASSERT(s.end >= before);
      before = s.end;
      found.insert(seen(s));
    }
    RC_ASSERT(found == expected[lane]);
  }
}

RC_GTEST_PROP(Curves, MergeAsLittleAsTheBoundAllows, ()) {
  const u64 most = *rc::gen::inRange(u64{1}, u64{40});
  const auto count = *rc::gen::inRange(0, 100);
  const u64 base = *rc::gen::element(u64{0}, u64{1'000'000'000'000});
  const u32 spread = *rc::gen::inRange(4u, 64u);
  std::mt19937_64 random(*rc::gen::arbitrary<u64>());
  Curves curves(most);
  std::vector<std::tuple<u32, u64, double>> all;
  std::set<std::pair<u32, u64>> taken;  // values of one time have no order
  for (int i = 0; i < count; ++i) {
    const u32 curve = random() % 3;
    const u64 time = base + (random() >> (64 - spread));
    if (taken.emplace(curve, time).second) all.emplace_back(curve, time, static_cast<double>(static_cast<i64>(random())));
  }
  if (random() % 2 == 0)
    std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return std::get<1>(a) < std::get<1>(b); });
  for (const auto& [curve, time, value] : all) curves.add(curve, time, value);
  curves.finish();
  std::sort(all.begin(), all.end());
  u32 level = 0;
  std::vector<std::pair<u32, Point>> expected;
  for (;; ++level) {
    expected.clear();
    for (const auto& [curve, time, value] : all) {
      if (level > 0 && !expected.empty() && expected.back().first == curve &&
          expected.back().second.end >> (level - 1) == time >> (level - 1)) {
        Point& p = expected.back().second;
        p = {p.begin, time, std::min(p.low, value), std::max(p.high, value), p.first, value, p.count + 1};
      } else {
        expected.emplace_back(curve, Point{time, time, value, value, value, value, 1});
      }
    }
    if (expected.size() <= most || level == 64) break;
  }
  RC_ASSERT(curves.merges() == (level > 0));
  std::vector<std::pair<u32, Point>> found;
  for (u32 n = 0; n < curves.size(); ++n) {
    for (const Point& p : curves.points(n)) found.emplace_back(n, p);
  }
  RC_ASSERT(found.size() == expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    const Point &a = found[i].second, &b = expected[i].second;
    RC_ASSERT(std::tie(found[i].first, a.begin, a.end, a.low, a.high, a.first, a.last, a.count) ==
              std::tie(expected[i].first, b.begin, b.end, b.low, b.high, b.first, b.last, b.count));
  }
}

// Whatever the events say: a thread is in one state at a time, within the trace, and what is merged adds up.
RC_GTEST_PROP(ThreadStates, FollowEachOther, ()) {
  std::mt19937_64 random(*rc::gen::arbitrary<u64>());
  const auto count = *rc::gen::inRange(0, 200);
  const bool merge = *rc::gen::arbitrary<bool>();
  ThreadStates all(1000), few(5);
  u64 time = 1000;
  for (int i = 0; i < count; ++i) {
    time += random() % 50;
    const u32 thread = 1 + random() % 3, ring = random() % 2;
    const u64 what = random() % 9, state = random() % 512, since = time - random() % 100;
    for (ThreadStates* s : {&all, &few}) {
      if (what < 3) s->run(thread, time, ring);
      else if (what < 6) s->leave(thread, time, ring, static_cast<i64>(state), since);
      else if (what < 7) s->wake(thread, time, ring, ThreadStates::by_interrupt);
      else if (what < 8) s->lose(time, ring);
      else s->forget(thread);
    }
  }
  all.finish(time);
  few.finish(time);
  const Lanes& lanes = merge ? few.lanes() : all.lanes();
  u64 sum = 0, expected = 0;
  for (u32 thread = 0; thread < lanes.size(); ++thread) {
    u64 before = 0;
    for (const Slice& s : lanes.slices(thread)) {
      sum += s.busy;
      RC_ASSERT(s.end <= time);
      if (merge) continue;
      RC_ASSERT(s.begin >= before);
      RC_ASSERT(s.begin < s.end);
      RC_ASSERT(s.what >= ThreadStates::running && s.what <= ThreadStates::stopped);
      before = s.end;
    }
  }
  for (u32 thread = 0; thread < all.lanes().size(); ++thread) {
    for (const Slice& s : all.lanes().slices(thread)) expected += s.busy;
  }
  RC_ASSERT(sum == expected);
}

// As Plot.RandomRecordsGiveValidJson knows them; "": no such event.
std::string name_of_event(u8 id, bool kernel) {
  if (kernel) return id == 4 ? "syscalls:sys_enter_x" : id == 5 ? "syscalls:sys_exit_x" : id == 6 ? "sched:sched_switch" : "";
  return id == 1 ? "a:text" : id == 2 ? "a:wait" : id == 3 ? "a:span" : "";
}

// Records of any bytes, at any time: what comes out is JSON, and every event is in it, under its type and its ring.
void take_anything(const Formats& formats, u64 seed) {
  Tasks tasks;
  std::mt19937_64 random(seed);
  const u64 spread = 2 + random() % 62, count = random() % 120;
  Options options;
  options.items = 1 + random() % 50;
  options.columns = 64;
  Plot plot(formats, tasks, options);
  u64 lost = 0, events = 0;
  std::map<std::string, u64> of_type;
  std::map<u32, std::pair<u64, u64>> of_ring;  // events, lost
  for (u64 i = 0; i < count; ++i) {
    const u32 source = random() % 4;
    RingName name{source, static_cast<i32>(source), static_cast<i32>(source), "t\xff", "p", source < 2};
    std::vector<u8> bytes(random() % 32);
    for (u8& b : bytes) b = static_cast<u8>(random() % 4 == 0 ? random() : "BEI\0"[random() % 4]);
    if (bytes.size() >= 8) {
      bytes[0] = static_cast<u8>(random() % 8);
      bytes[1] = 0;
      for (size_t b = 4; b < 8; ++b) bytes[b] = static_cast<u8>(b == 4 ? random() % 5 : 0);
    }
    TraceRecord record{
        random() >> spread, random() % 8 == 0 ? random() >> 20 : 0, {bytes.data(), bytes.size()}, source, name.ids()};
    if (record.lost != 0) record.payload = {};
    (record.lost != 0 ? lost : events) += record.lost != 0 ? record.lost : 1;
    (record.lost != 0 ? of_ring[source].second : of_ring[source].first) += record.lost != 0 ? record.lost : 1;
    if (record.lost == 0) ++of_type[bytes.size() < 2 || bytes[1] != 0 ? "" : name_of_event(bytes[0], source < 2)];
    plot.add(record, name);
  }
  const auto j = nlohmann::json::parse(plot.json({"\xff\""}), nullptr, false);
  ASSERT_FALSE(j.is_discarded());
  EXPECT_EQ(j["events"], events);
  EXPECT_EQ(j["lost"], lost);
  // Those that are not known have one name or another.
  std::map<std::string, u64> found;
  for (const auto& type : j["types"]) {
    const auto known = type["name"].get<std::string>();
    found[of_type.count(known) != 0 ? known : ""] += type["count"].get<u64>();
  }
  EXPECT_EQ(found, of_type);
  // A ring's place among them is its source's number. A source of which nothing came has a place, and nothing in it.
  u32 rings_listed = 0;
  std::map<u32, std::pair<u64, u64>> rings;
  for (const auto& ring : j["rings"]) {
    const u32 source = rings_listed++;
    const std::pair here(ring["events"].get<u64>(), ring["lost"].get<u64>());
    if (here == std::pair<u64, u64>()) continue;
    rings[source] = here;
    EXPECT_EQ(ring["ring"], source);
    EXPECT_EQ(ring["kernel"], source < 2);
  }
  EXPECT_EQ(rings, of_ring);
}

TEST(Plot, RandomRecordsGiveValidJson) {
  Formats formats;
  const std::string text = "\tfield:char name[8];\toffset:8;\tsize:8;\tsigned:0;\n",
                    number = "\tfield:s64 wait_ns;\toffset:8;\tsize:8;\tsigned:1;\n";
  formats.add(1, "a", "text", test::format(1, "text", text, R"("%s", REC->name)"));
  formats.add(2, "a", "wait", test::format(2, "wait", number, R"("%lld", REC->wait_ns)"));
  formats.add(3, "a", "span",
              test::format(3, "span",
                           "\tfield:char track_event_type;\toffset:8;\tsize:1;\tsigned:0;\n\tfield:char "
                           "slice_name[3];\toffset:9;\tsize:3;\tsigned:0;\n",
                           R"("%c", REC->track_event_type)"));
  for (const u16 id : {u16{4}, u16{5}}) {
    const std::string name = id == 4 ? "sys_enter_x" : "sys_exit_x";
    formats.add(kernel_ids + id, "syscalls", name, test::format(id, name, number, R"("%lld", REC->wait_ns)"));
  }
  formats.add(
      kernel_ids + 6, "sched", "sched_switch",
      test::format(
          6, "sched_switch",
          "\tfield:char prev_comm[4];\toffset:8;\tsize:4;\tsigned:0;\n\tfield:s32 prev_pid;\toffset:12;\tsize:4;\tsigned:1;\n"
          "\tfield:char next_comm[4];\toffset:16;\tsize:4;\tsigned:0;\n\tfield:s32 next_pid;\toffset:20;\tsize:4;\tsigned:1;\n",
          R"("%d", REC->prev_pid)"));
  for (u64 seed = 0; seed < test::rounds(500) && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    take_anything(formats, seed);
  }
}

}  // namespace
}  // namespace ringside::plot::plot_test
