// Pairs: which events are matched, how mistakes are reported, and the small parts that pairs are made of.
#include "analysis/pairs.hpp"

#include <gtest/gtest.h>

#include <random>

#include "analysis/aged_table.hpp"
#include "analysis/heat_map.hpp"
#include "analysis/names.hpp"
#include "cli/hand_made.hpp"

namespace ringside::pairs_test {
namespace {

using test::Payload;

struct PairsOf : testing::Test {
  Formats formats;
  Tasks tasks;
  RingName cpu0{0, 0, 0, "", "", true, ""}, cpu1{1, 0, 0, "", "", true, ""}, thread{7, 70, 71, "worker", "app", false, ""};
  u64 time = 0;

  void SetUp() override {
    formats.add(
        kernel_ids + 1, "sched", "sched_waking",
        test::format(
            1, "sched_waking",
            "\tfield:char comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\tfield:pid_t pid;\toffset:24;\tsize:4;\tsigned:1;\n",
            R"("%s", REC->comm)"));
    formats.add(
        kernel_ids + 2, "sched", "sched_switch",
        test::format(
            2, "sched_switch",
            "\tfield:pid_t prev_pid;\toffset:8;\tsize:4;\tsigned:1;\n\tfield:long prev_state;\toffset:16;\tsize:8;\tsigned:1;\n"
            "\tfield:pid_t next_pid;\toffset:24;\tsize:4;\tsigned:1;\n",
            R"("%d", REC->next_pid)"));
    formats.add(3, "app", "lock",
                test::format(3, "lock", "\tfield:u64 lock;\toffset:8;\tsize:8;\tsigned:0;\n", R"("%llu", REC->lock)"));
    formats.add(4, "app", "unlock",
                test::format(4, "unlock", "\tfield:u64 lock;\toffset:8;\tsize:8;\tsigned:0;\n", R"("%llu", REC->lock)"));
  }
  Payload waking(const std::string& comm, i32 pid) const {
    std::string name = comm;
    name.resize(16);
    return Payload(1, 5).text(name).put(pid);
  }
  Payload sched_switch(i32 prev, i64 state, i32 next) const {
    return Payload(2, prev).put(prev).put(u32{0}).put(state).put(next);
  }
  Payload lock(i32 tid, u64 at) const { return Payload(3, tid).put(at); }
  Payload unlock(i32 tid, u64 at) const { return Payload(4, tid).put(at); }

  Pairs make(Pairs::Options options) {
    auto made = Pairs::make(options, formats, tasks);
    EXPECT_TRUE(made) << (made ? "" : made.error().sentence);
    return must(std::move(made));
  }
  std::string error(Pairs::Options options) {
    auto made = Pairs::make(options, formats, tasks);
    EXPECT_FALSE(made);
    return made ? "" : made.error().sentence;
  }
  bool take(Pairs& pairs, u64 at, const Payload& payload, const RingName& ring) {
    TraceRecord record;
    record.time = at;
    record.payload = payload;
    record.source = ring.ring;
    record.ids = ring.ids();
    return pairs.take(record, ring);
  }
  void lose(Pairs& pairs, u64 at, u64 lost, const RingName& ring) {
    TraceRecord record;
    record.time = at;
    record.lost = lost;
    record.source = ring.ring;
    pairs.take(record, ring);
  }
  Pairs wakeups() {
    Pairs::Options options;
    options.start = "sched:sched_waking";
    options.end = "sched:sched_switch";
    options.keys = {{"pid", "next_pid"}};
    options.by = "comm";
    options.context = 2;
    return make(options);
  }
};

TEST_F(PairsOf, WakeUpsAcrossCpusWithTheirContext) {
  Pairs pairs = wakeups();
  EXPECT_FALSE(take(pairs, 1000, waking("make", 42), cpu0));
  EXPECT_FALSE(take(pairs, 1100, sched_switch(9, 1, 8), cpu1));  // another thread
  EXPECT_TRUE(take(pairs, 1500, sched_switch(8, 1, 42), cpu1));
  EXPECT_EQ(pairs.latency(), 500u);
  EXPECT_FALSE(take(pairs, 1600, sched_switch(8, 1, 42), cpu1));  // the start is gone
  const Pairs::Counts c = pairs.counts();
  EXPECT_EQ(c.starts, 1u);
  EXPECT_EQ(c.ends, 3u);
  EXPECT_EQ(c.pairs, 1u);
  EXPECT_EQ(c.unmatched, 2u);
  EXPECT_TRUE(c.exact());
  const auto slowest = pairs.slowest();
  ASSERT_EQ(slowest.size(), 1u);
  EXPECT_EQ(slowest[0].key, "next_pid=42");
  EXPECT_EQ(slowest[0].group, "make");  // the start's: the end has no field comm
  EXPECT_EQ(slowest[0].start.source, 0u);
  EXPECT_EQ(read_common(slowest[0].start.record().payload).tid, 5);
  EXPECT_EQ(slowest[0].end.source, 1u);
  ASSERT_EQ(slowest[0].context.size(), 1u);
  EXPECT_EQ(slowest[0].context[0].time, 1100u);
}

TEST_F(PairsOf, TheNewestOrTheFirstStartCounts) {
  for (const bool first : {false, true}) {
    Pairs::Options options;
    options.start = "app:lock";
    options.end = "app:unlock";
    options.keys = {{"lock", "lock"}};
    options.first = first;
    Pairs pairs = make(options);
    take(pairs, 10, lock(1, 0xA0), thread);
    take(pairs, 30, lock(2, 0xA0), thread);
    EXPECT_TRUE(take(pairs, 100, unlock(2, 0xA0), thread));
    EXPECT_EQ(pairs.latency(), first ? 90u : 70u);
    EXPECT_EQ(pairs.counts().repeated, 1u);
    EXPECT_EQ(pairs.counts().waiting, 0u);
  }
}

TEST_F(PairsOf, AnEventWithAConditionMayStartAndEndPairs) {
  Pairs::Options options;
  options.start = " sched:sched_switch if prev_state == 0 && prev_pid != 0 ";
  options.end = "sched:sched_switch";
  options.keys = {{"prev_pid", "next_pid"}};
  Pairs pairs = make(options);
  take(pairs, 100, sched_switch(1, 0, 2), cpu0);  // 1 was preempted
  take(pairs, 150, sched_switch(2, 1, 3), cpu0);  // 2 sleeps: no start
  EXPECT_TRUE(take(pairs, 300, sched_switch(3, 0, 1), cpu0));
  EXPECT_EQ(pairs.latency(), 200u);
  EXPECT_FALSE(take(pairs, 400, sched_switch(1, 1, 2), cpu0));
  EXPECT_EQ(pairs.counts().starts, 2u);
  EXPECT_EQ(pairs.counts().waiting, 1u);
}

TEST_F(PairsOf, LateEndsMeasureNothing) {
  Pairs pairs = wakeups();
  take(pairs, 1000, waking("make", 42), cpu0);
  EXPECT_FALSE(take(pairs, 999, sched_switch(8, 1, 42), cpu1));
  EXPECT_EQ(pairs.counts().negative, 1u);
  EXPECT_EQ(pairs.counts().waiting, 0u);
  EXPECT_EQ(pairs.all().count(), 0u);
  EXPECT_FALSE(pairs.counts().exact());
}

TEST_F(PairsOf, PairsWithLossesInsideAreDoubtful) {
  Pairs pairs = wakeups();
  take(pairs, 1000, waking("make", 42), cpu0);
  lose(pairs, 1200, 7, cpu1);
  EXPECT_TRUE(take(pairs, 1500, sched_switch(8, 1, 42), cpu1));
  take(pairs, 1600, waking("make", 42), cpu0);
  EXPECT_TRUE(take(pairs, 1650, sched_switch(8, 1, 42), cpu1));
  EXPECT_EQ(pairs.counts().doubtful, 1u);
  EXPECT_EQ(pairs.counts().lost, 7u);
  EXPECT_TRUE(pairs.slowest()[0].doubtful);
  EXPECT_FALSE(pairs.slowest()[1].doubtful);

  // In a ring of its own, a thread's pairs are not affected by losses of other rings; and doubtful pairs may be left out.
  Pairs::Options options;
  options.start = "app:lock";
  options.end = "app:unlock";
  options.sure = true;
  Pairs own = make(options);
  take(own, 10, lock(71, 1), thread);
  lose(own, 20, 3, cpu0);
  EXPECT_TRUE(take(own, 30, unlock(71, 1), thread));
  take(own, 40, lock(71, 1), thread);
  lose(own, 50, 3, thread);
  EXPECT_FALSE(take(own, 60, unlock(71, 1), thread));
  EXPECT_EQ(own.counts().pairs, 2u);
  EXPECT_EQ(own.counts().doubtful, 1u);
  EXPECT_EQ(own.all().count(), 1u);
}

// A thread's events may be in any CPU's ring: an event lost by another one may have been the true end.
TEST_F(PairsOf, EachLossMattersOnCpuRings) {
  RingName first{0, 0, -1, "cpu0", "", false, ""}, second{1, 0, -1, "cpu1", "", false, ""};
  first.cpu = 0;
  second.cpu = 1;
  Pairs::Options options;
  options.start = "app:lock";
  options.end = "app:unlock";
  Pairs pairs = make(options);
  take(pairs, 10, lock(71, 1), first);
  lose(pairs, 20, 3, second);
  EXPECT_TRUE(take(pairs, 30, unlock(71, 1), first));
  EXPECT_EQ(pairs.counts().doubtful, 1u);
}

TEST_F(PairsOf, MistakesAreReported) {
  Pairs::Options options;
  options.start = "sched:sched_wak";
  options.end = "sched:sched_switch";
  EXPECT_NE(error(options).find("sched:sched_waking"), std::string::npos) << error(options);
  options.start = "sched:sched_waking";
  options.keys = {{"pidd", "next_pid"}};
  EXPECT_NE(error(options).find("did you mean pid"), std::string::npos) << error(options);
  options.keys = {{"comm", "next_pid"}};
  EXPECT_NE(error(options).find("not both the same"), std::string::npos) << error(options);
  options.keys = {{"pid", "next_pid"}};
  options.start = "sched:sched_waking if prio <";
  EXPECT_NE(error(options).find("prio <"), std::string::npos) << error(options);
  options.start = "";
  EXPECT_NE(error(options).find("SYSTEM:EVENT"), std::string::npos) << error(options);
}

TEST(AgedTable, AFullTableEvictsTheOldest) {
  AgedTable<int> table(3);
  const auto find = [&](u64 key) { return table.find({key, 0, 0}, table.hash({key, 0, 0})); };
  const auto put = [&](u64 key) {
    const u32 at = table.insert({key, 0, 0}, table.hash({key, 0, 0}));
    table[at] = static_cast<int>(key);
    return at;
  };
  put(1), put(2), put(3);
  table.renew(find(1));
  put(4);
  EXPECT_EQ(table.evicted(), 1u);
  EXPECT_EQ(find(2), table.none);
  std::vector<int> order;
  table.each([&](u32 place) { order.push_back(table[place]); });
  EXPECT_EQ(order, (std::vector<int>{3, 1, 4}));
  for (u64 key = 10; key < 1000; ++key) {
    const u32 at = put(key);
    EXPECT_EQ(find(key), at);
    if (key % 2 == 0) table.erase(at);
  }
  EXPECT_LE(table.size(), 3u);
}

// A key that is there several times is a stack; a hostile one, deeper than the table, gives up its outermost entries.
TEST(AgedTable, AKeyMayBeAStack) {
  constexpr u64 most = 20'000;
  AgedTable<u64> table(most);
  const AgedTable<u64>::Key deep{7, 0, 0}, other{8, 0, 0};
  const auto push = [&](const AgedTable<u64>::Key& key, u64 value) { table[table.insert(key, table.hash(key))] = value; };
  push(other, 0);
  for (u64 n = 1; n <= 50 * most; ++n) push(deep, n);
  EXPECT_EQ(table.size(), most);
  EXPECT_EQ(table.evicted(), 49 * most + 1);
  EXPECT_EQ(table.find(other, table.hash(other)), table.none);
  for (u64 n = 50 * most; n > 49 * most; --n) {
    const u32 at = table.find(deep, table.hash(deep));
    ASSERT_EQ(table[at], n);
    table.erase(at);
  }
  EXPECT_EQ(table.find(deep, table.hash(deep)), table.none);
  EXPECT_EQ(table.size(), 0u);
}

// Against a list, the oldest in front.
TEST(AgedTable, HasTheOrderOfAList) {
  std::mt19937_64 random(3);
  for (const size_t most : {1, 7, 300}) {
    AgedTable<u64> table(most);
    std::vector<u64> list;
    u64 evicted = 0;
    for (int step = 0; step < 30'000; ++step) {
      const u64 number = random() % (most + most / 2 + 2);
      const AgedTable<u64>::Key key{number, 0, 0};
      const u32 hash = table.hash(key), at = table.find(key, hash);
      const auto there = std::find(list.begin(), list.end(), number);
      ASSERT_EQ(at == table.none, there == list.end());
      if (at == table.none) {
        table[table.insert(key, hash)] = number;
        if (list.size() == most) list.erase(list.begin()), ++evicted;
        list.push_back(number);
      } else {
        list.erase(there);
        if (random() % 2 == 0) {
          table.renew(at);
          list.push_back(number);
        } else {
          table.erase(at);
        }
      }
      if (step % 16 != 0) continue;
      std::vector<u64> order;
      table.each([&](u32 place) { order.push_back(table[place]); });
      ASSERT_EQ(order, list);
      ASSERT_EQ(table.size(), list.size());
    }
    EXPECT_EQ(table.evicted(), evicted);
    EXPECT_GT(evicted, 100u);
  }
}

// The bound that the header promises, over all magnitudes, for each precision.
TEST(HistogramBound, QuantilesAreWithinIt) {
  std::mt19937_64 random(7);
  for (u32 precision = 1; precision <= 12; ++precision) {
    for (int i = 0; i < 100; ++i) {
      const u64 value = random() >> (1 + random() % 63);
      Histogram h(precision);
      h.add(static_cast<i64>(value));
      h.add(INT64_MAX);  // so that the value's bucket is not cut at the maximum
      h.add(0);
      EXPECT_LE(std::abs(h.quantile(.5) - static_cast<double>(value)),
                static_cast<double>(value) * std::exp2(-static_cast<double>(precision) - 1) + .5)
          << value;
    }
  }
}

TEST_F(PairsOf, NumbersOfTwoSignsAreEqualByValue) {
  formats.add(5, "app", "go", test::format(5, "go", "\tfield:int id;\toffset:8;\tsize:4;\tsigned:1;\n", "\"\""));
  formats.add(6, "app", "end", test::format(6, "end", "\tfield:u64 id;\toffset:8;\tsize:8;\tsigned:0;\n", "\"\""));
  Pairs pairs = make({.start = "app:go", .end = "app:end", .keys = {{"id", "id"}}});
  take(pairs, 10, Payload(5, 1).put(i32{-1}).put(u32{0}), thread);
  EXPECT_FALSE(take(pairs, 20, Payload(6, 1).put(~u64{0}), thread));
  take(pairs, 30, Payload(5, 1).put(i32{7}).put(u32{0}), thread);
  EXPECT_TRUE(take(pairs, 40, Payload(6, 1).put(u64{7}), thread));
  EXPECT_EQ(pairs.slowest()[0].key, "id=7");
}

// The inner call leaves by longjmp, and its start gets the outer one's end.
TEST_F(PairsOf, ACallThatMayHaveLostItsEndIsNotExact) {
  for (const char* name : {"call", "call__return"}) {
    const u16 id = name == std::string("call") ? 5 : 6;
    formats.add(id, "app", name, test::format(id, name, "\tfield:u64 x;\toffset:8;\tsize:8;\tsigned:0;\n", "\"\""));
  }
  const Payload begin = Payload(5, 71).put(u64{0}), end = Payload(6, 71).put(u64{0});
  for (const bool in_parts : {false, true}) {
    Pairs all = make({.start = "app:call", .end = "app:call__return"});
    ASSERT_TRUE(all.nests());
    take(all, 10, begin, thread);
    EXPECT_TRUE(all.counts().exact());  // it lasts on
    Pairs part = must(all.part(formats, tasks));
    Pairs& rest = in_parts ? part : all;
    take(rest, 20, begin, thread);
    take(rest, 50, end, thread);
    const auto ring = [&](u32) -> const RingName& { return thread; };
    if (in_parts) {
      ASSERT_TRUE(all.append(part, ring, [](const TraceRecord&) {}));
    }
    EXPECT_EQ(all.counts().passed, 1u);
    EXPECT_FALSE(all.counts().exact());
    take(all, 60, end, thread);
    EXPECT_EQ(all.counts().passed, 0u);
    EXPECT_TRUE(all.counts().exact());
  }
}

TEST(HeatMap, ColumnsMergeAsTimeGoesOn) {
  HeatMap::Options options;
  options.most_columns = 4;
  options.finest = 4;  // 16 ns
  HeatMap heat(options);
  for (u64 t = 0; t < 64; ++t) heat.add(t, 5);
  EXPECT_EQ(heat.columns(), 4u);
  EXPECT_EQ(heat.column_ns(), 16u);
  heat.add(64, 9);
  EXPECT_EQ(heat.column_ns(), 32u);
  EXPECT_EQ(heat.columns(), 3u);
  EXPECT_EQ(heat.count(0, 3), 32u);  // row 3: 4 to 7
  EXPECT_EQ(heat.low(3), 4u);
  EXPECT_EQ(heat.high(3), 7u);
  EXPECT_EQ(heat.count(2, 4), 1u);
  heat.add(~u64{0}, 1);
  EXPECT_LE(heat.columns(), 4u);
  EXPECT_EQ(heat.count(), 66u);
}

}  // namespace
}  // namespace ringside::pairs_test
