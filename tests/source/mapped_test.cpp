// MappedSource over a real ring in a memfd, advanced by the ring's own reader as by the kernel's ioctl; and over false data.
#include "source/mapped.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <ringside/ring/counters.hpp>

#include "mapped_ring.hpp"
#include "seen.hpp"

namespace ringside::test::mapped_test {
namespace {

// kernel-facts, "What the kernel's own tests check": map_test.c.
TEST(Mapped, StepsMatchTheKernels) {
  MappedRing t;
  MetaPageSource source = source_of(t);
  const abi::MetaPage& m = source.meta();
  EXPECT_EQ(m.meta_page_size, 4096u);
  EXPECT_EQ(m.meta_struct_len, 80u);
  EXPECT_EQ(m.nr_subbufs, 4u);
  ASSERT_FALSE(must(source.next()));
  EXPECT_EQ(m.entries, 0u);
  EXPECT_EQ(m.reader.id, 0u);
  for (u64 i = 0; i < 16; ++i) t.write(i);
  EXPECT_EQ(m.entries, 0u);  // not updated by every write
  auto view = must(source.next());
  ASSERT_TRUE(view);
  EXPECT_EQ(m.entries, 16u);
  EXPECT_EQ(m.overrun, 0u);
  EXPECT_EQ(m.read, 16u);
  EXPECT_EQ(m.reader.id, 1u);
  EXPECT_EQ(m.reader.lost_events, 0u);
  EXPECT_EQ(m.reader.read, view->end);
  EXPECT_EQ(view->begin, 0u);
  ASSERT_FALSE(must(source.next()));
  EXPECT_EQ(m.read, 16u);
  EXPECT_EQ(m.reader.id, 1u);
  t.write(16);  // the same sub-buffer, further on
  const u32 before = view->end;
  view = must(source.next());
  ASSERT_TRUE(view);
  EXPECT_EQ(view->begin, before);
  EXPECT_EQ(m.reader.id, 1u);
  EXPECT_EQ(m.read, 17u);
}

TEST(Mapped, EveryWayOfReadingGivesEachEventAndItsTime) {
  for (const bool copies : {false, true}) {
    MappedRing t(5);
    MetaPageSource source = source_of(t, copies);
    Seen seen;
    u64 value = 0;
    for (u32 round = 0; round < 300; ++round) {
      for (u32 i = 0; i < round % 97; ++i) t.write(value++);
      read_all(source, seen);
    }
    ASSERT_EQ(seen.numbers.size(), value);
    EXPECT_EQ(seen.lost, 0u);
    for (u64 i = 0; i < value; ++i) ASSERT_EQ(seen.numbers[i], i);
    for (u64 i = 1; i < value; ++i) ASSERT_GT(seen.times[i], seen.times[i - 1]);
    EXPECT_EQ(source.counters().read, value);
    EXPECT_EQ(source.counters().unread, 0u);
  }
}

TEST(Mapped, LossesAreReportedWhereTheyHappened) {
  MappedRing t(4);
  MetaPageSource source = source_of(t);
  Seen seen;
  u64 value = 0;
  for (u32 round = 0; round < 5; ++round) {
    for (u32 i = 0; i < 2500; ++i) t.write(value++);
    read_all(source, seen);
  }
  EXPECT_NE(seen.lost, 0u);
  EXPECT_EQ(seen.numbers.size() + seen.lost, value);
  u64 expected = 0;
  for (u64 i = 0; i < seen.numbers.size(); ++i) {
    const std::string at = "@" + std::to_string(seen.numbers[i]) + " ";
    if (seen.numbers[i] != expected) {
      EXPECT_NE(seen.gaps.find(std::to_string(seen.numbers[i] - expected) + at), std::string::npos) << i << seen.gaps;
    }
    expected = seen.numbers[i] + 1;
  }
}

TEST(Mapped, EventsReadByOthersAreNotShownAgain) {
  MappedRing t;
  for (u64 i = 0; i < 10; ++i) t.write(i);
  ASSERT_EQ(t.reader->get_reader(), Got::data);
  t.write(10);
  const u64 time = t.time;
  for (u64 i = 11; i < 20; ++i) t.write(i);
  MetaPageSource source = source_of(t);
  Seen seen;
  read_all(source, seen);
  ASSERT_EQ(seen.numbers.size(), 10u);
  EXPECT_EQ(seen.numbers[0], 10u);
  EXPECT_EQ(seen.times[0], time);
}

TEST(Mapped, TwoMappersOfOneRingSeeEverythingBetweenThem) {
  MappedRing t(6);
  MetaPageSource a = source_of(t), b = source_of(t);
  std::vector<u32> seen(4000);
  u64 value = 0;
  while (value < seen.size()) {
    for (u32 i = 0; i < 50; ++i) t.write(value++);
    for (MetaPageSource* s : {&a, &b}) {
      Seen got;
      read_all(*s, got);
      ASSERT_EQ(got.lost, 0u);
      for (const u64 v : got.numbers) ++seen[v];
    }
  }
  for (u32 v = 0; v < seen.size(); ++v) ASSERT_GE(seen[v], 1u) << v;
}

TEST(Mapped, WrongNumbersInTheMetaPageAreErrorsOrClamped) {
  MappedRing t;
  for (u64 i = 0; i < 10; ++i) t.write(i);
  struct Liar {
    ReaderStep step;
    result<ReaderStep> get_reader() { return step; }
    result<bool> wait(int, std::chrono::nanoseconds) { return false; }
  };
  MappedSource<Liar> source(t.map(), t.ring.geometry, Liar{{true, 1, 0, 0, false}}, {});
  for (const u32 id : {4u, 5u, 0x7FFFFFFFu, ~0u}) {
    source.get().step.id = id;
    auto view = source.next();
    ASSERT_FALSE(view);
    EXPECT_NE(view.error().sentence.find("names sub-buffer"), std::string::npos);
  }
  source.get().step = {true, 1, ~0u, 0, false};  // beyond the commit: only committed data counts
  auto view = must(source.next());
  ASSERT_TRUE(view);
  EXPECT_EQ(view->end, 10u * 28);
  t.ring.header(2).commit = 0xFFFFF;  // a commit beyond the sub-buffer
  source.get().step = {true, 2, ~3u, 0, false};
  view = must(source.next());
  ASSERT_TRUE(view);
  EXPECT_EQ(view->end, 4080u);
  // Missed events whose number would lie outside.
  for (const u64 data : {4080u, 4076u, 0xFFFFCu, 4074u}) {
    t.ring.header(3).time_stamp = data;
    t.ring.header(3).commit = data | abi::missed_events | abi::missed_stored;
    source.get().step = {true, 3, ~0u, 0, false};
    view = must(source.next());
    ASSERT_TRUE(view);
    EXPECT_EQ(view->lost_before, 1u) << data;
  }
}

TEST(Mapped, ATruncatedFileIsAnError) {
  sys::guard_mappings();
  struct Still {
    result<ReaderStep> get_reader() { return ReaderStep{}; }
    result<bool> wait(int, std::chrono::nanoseconds) { return false; }
  };
  MappedRing cut;
  MappedSource<Still> still(cut.map(), cut.ring.geometry, Still{}, {});
  ASSERT_EQ(ftruncate(cut.fd.get(), 0), 0);
  (void)still.meta().reader.id;
  auto first = still.next();   // the first call reaches the hole, and reads zeros
  auto second = still.next();  // from then on it is known
  EXPECT_TRUE(!first || !*first);
  ASSERT_FALSE(second);
  EXPECT_NE(second.error().sentence.find("truncated"), std::string::npos);
}

}  // namespace
}  // namespace ringside::test::mapped_test
