#include <gtest/gtest.h>

#include <random>

#include "cli/hand_made.hpp"
#include "timeline/merge.hpp"

namespace ringside::timeline_test {
namespace {

using test::FakeSource;
using test::Payload;
using test::SubBuffer;

using Views = std::vector<std::optional<SubBufferView>>;

std::string drain(Timeline& t) {
  std::string out;
  TraceRecord r;
  while (t.next(r)) {
    if (!out.empty()) out += ' ';
    out += std::to_string(t.source(r.source).name().ring) + (r.lost != 0 ? "!" + std::to_string(r.lost) : "") + "@" +
           std::to_string(r.time);
  }
  return out;
}

TEST(Timeline, MergesByTime) {
  SubBuffer a(10), b(5);
  a.event(10, {1, 1}).event(20, {1, 1}).event(30, {1, 1});
  b.event(5, {1, 1}).event(25, {1, 1});
  Timeline t;
  t.add(std::make_unique<FakeSource>(0, Views{a.view()}));
  t.add(std::make_unique<FakeSource>(1, Views{b.view()}));
  EXPECT_EQ(drain(t), "1@5 0@10 0@20 1@25 0@30");
}

TEST(Timeline, EqualTimesComeInTheOrderOfSources) {
  SubBuffer a(10), b(10);
  a.event(10, {1, 1}).event(10, {1, 1});
  b.event(10, {1, 1}).event(11, {1, 1});
  Timeline t;
  t.add(std::make_unique<FakeSource>(7, Views{a.view()}));
  t.add(std::make_unique<FakeSource>(3, Views{b.view()}));
  EXPECT_EQ(drain(t), "7@10 7@10 3@10 3@11");
}

TEST(Timeline, LossesAreReportedWhereTheyHappened) {
  SubBuffer a(10), a2(100), b(50);
  a.event(10, {1, 1});
  a2.event(100, {1, 1});
  b.event(50, {1, 1}).event(150, {1, 1});
  Timeline t;
  t.add(std::make_unique<FakeSource>(0, Views{a.view(), a2.view(1234)}));
  t.add(std::make_unique<FakeSource>(1, Views{b.view(2)}));
  EXPECT_EQ(drain(t), "0@10 1!2@50 1@50 0!1234@100 0@100 1@150");
}

// A writer that has gone round since the limit: nothing up to the limit is left, which is reported once for each limit.
TEST(Timeline, ALossInFrontOfAnEventBehindTheLimitIsReported) {
  SubBuffer a(10), late(100), empty(120), b(50);
  a.event(10, {1, 1});
  late.event(100, {1, 1});
  b.event(50, {1, 1});
  Timeline t;
  t.add(std::make_unique<FakeSource>(0, Views{a.view(), late.view(7)}));
  t.add(std::make_unique<FakeSource>(1, Views{b.view()}));
  t.add(std::make_unique<FakeSource>(2, Views{empty.view(5), empty.view(6), empty.view(8)}));
  t.hold_after(60);
  EXPECT_EQ(drain(t), "0@10 1@50 0!7@60 2!5@60");
  EXPECT_EQ(drain(t), "");
  t.hold_after(Timeline::forever);
  EXPECT_EQ(drain(t), "0@100 2!6@120 2!8@120");
}

TEST(Timeline, ALossWithoutALaterEventIsReported) {
  SubBuffer empty(77);
  Timeline t;
  t.add(std::make_unique<FakeSource>(0, Views{empty.view(9)}));
  EXPECT_EQ(drain(t), "0!9@77");
}

TEST(Timeline, AnIdleSourceStallsNoOtherAndComesBack) {
  SubBuffer a(10), a2(30), b(20);
  a.event(10, {1, 1});
  a2.event(30, {1, 1});
  b.event(20, {1, 1});
  Timeline t;
  t.add(std::make_unique<FakeSource>(0, Views{a.view(), std::nullopt, a2.view()}, false));
  t.add(std::make_unique<FakeSource>(1, Views{std::nullopt, std::nullopt, b.view()}, false));
  std::string all;
  for (int i = 0; i < 5; ++i) all += "[" + drain(t) + "]";
  EXPECT_NE(all.find("0@10"), std::string::npos);
  EXPECT_NE(all.find("0@30"), std::string::npos);
  EXPECT_NE(all.find("1@20"), std::string::npos);
}

TEST(Timeline, ASourceThatFailsLeavesTheOthersAlone) {
  SubBuffer a(10), b(20);
  a.event(10, {1, 1});
  b.event(20, {1, 1}).event(40, {1, 1});
  auto broken = std::make_unique<FakeSource>(0, Views{a.view(), a.view()});
  broken->fail_at = 1;
  Timeline t;
  t.add(std::move(broken));
  t.add(std::make_unique<FakeSource>(1, Views{b.view()}));
  EXPECT_EQ(drain(t), "0@10 1@20 1@40");
  ASSERT_EQ(t.problems().size(), 1u);
  EXPECT_EQ(t.problems()[0], "ring 0 is corrupt");
}

TEST(Timeline, AMalformedSubBufferEndsThereAndTheNextIsRead) {
  SubBuffer a(10), a2(50);
  a.event(10, {1, 1}).word(abi::event_word(20, 1));  // claims 80 bytes that are not there
  a2.event(50, {1, 1});
  Timeline t;
  t.add(std::make_unique<FakeSource>(4, Views{a.view(), a2.view()}));
  EXPECT_EQ(drain(t), "4@10 4@50");
  ASSERT_EQ(t.problems().size(), 1u);
  EXPECT_NE(t.problems()[0].find("ring 4: a sub-buffer is malformed"), std::string::npos);
}

TEST(Timeline, TicksBecomeNanoseconds) {
  SubBuffer a(1000);
  a.event(1000, {1, 1}).event(3000, {1, 1});
  auto source = std::make_unique<FakeSource>(0, Views{a.view()});
  source->clock_ = {ClockKind::tsc, 1, 1, 1000, 500};  // half a nanosecond per tick
  Timeline t;
  t.add(std::move(source));
  EXPECT_EQ(drain(t), "0@500 0@1500");
}

TEST(Timeline, RandomSourcesComeOutSortedAndComplete) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::unique_ptr<SubBuffer>> pages;
    Timeline t;
    size_t events = 0;
    for (u32 ring = 0; ring < 1 + random() % 6; ++ring) {
      Views views;
      u64 time = random() % 50;
      for (u32 k = 0; k < random() % 4; ++k) {
        auto& page = *pages.emplace_back(std::make_unique<SubBuffer>(time));
        for (u32 e = 0; e < random() % 5; ++e, ++events) page.event(time += random() % 10, {1, 1});
        views.emplace_back(page.view());
      }
      t.add(std::make_unique<FakeSource>(ring, std::move(views)));
    }
    TraceRecord r;
    u64 last = 0;
    size_t seen = 0;
    for (; t.next(r); ++seen) {
      EXPECT_GE(r.time, last);
      last = r.time;
    }
    EXPECT_EQ(seen, events);
  }
}

}  // namespace
}  // namespace ringside::timeline_test
