// A timeline that follows live sources, by a clock that the test sets.
#include <gtest/gtest.h>

#include <deque>
#include <map>

#include "cli/hand_made.hpp"
#include "timeline/merge.hpp"

namespace ringside::look_ahead_test {
namespace {

using test::SubBuffer;

// A ring whose events the test triggers, one event in each sub-buffer.
class Live final : public Source {
 public:
  explicit Live(u32 ring) { name_.ring = ring; }
  result<std::optional<SubBufferView>> next() override {
    ++asked;
    if (silent) return refuse(std::errc::timed_out, "ring " + std::to_string(name_.ring) + " does not answer");
    if (waiting.empty()) return std::nullopt;
    page_ = std::move(waiting.front());
    waiting.pop_front();
    return page_->view(std::exchange(lost, 0));
  }
  void write(u64 time) {
    waiting.push_back(std::make_unique<SubBuffer>(time));
    waiting.back()->event(time, {1, 1});
  }
  Counters counters() const override { return {}; }
  bool ended() const override { return false; }
  u64 lag_ns() const override { return lag; }

  std::deque<std::unique_ptr<SubBuffer>> waiting;
  u64 lag = 10, lost = 0;
  u32 asked = 0;
  bool silent = false;

 private:
  std::unique_ptr<SubBuffer> page_;
};

struct LookAheadOf {
  explicit LookAheadOf(u32 sources) {
    for (u32 i = 0; i < sources; ++i) {
      auto source = std::make_unique<Live>(i);
      live.push_back(source.get());
      timeline.add(std::move(source));
    }
    timeline.follow({100, [this] { return now; }});
  }
  std::string drain() {
    std::string out;
    TraceRecord r;
    while (timeline.next(r))
      out += (out.empty() ? "" : " ") + std::to_string(r.source) + (r.lost != 0 ? "!" + std::to_string(r.lost) : "") + "@" +
             std::to_string(r.time) + (r.late ? "*" : "");
    return out;
  }
  u64 now = 1000;
  std::vector<Live*> live;
  Timeline timeline;
};

struct LookAhead : testing::Test, LookAheadOf {
  LookAhead() : LookAheadOf(2) {}
};

TEST_F(LookAhead, AnEventWaitsUntilAnIdleSourceCannotBringAnOlderOne) {
  live[0]->write(995);
  EXPECT_EQ(drain(), "");  // the other one may still bring an event of 991
  live[1]->write(991);
  EXPECT_EQ(drain(), "1@991");
  now = 1004;
  EXPECT_EQ(drain(), "");
  now = 1005;
  EXPECT_EQ(drain(), "0@995");
  EXPECT_EQ(timeline.late(), 0u);
}

TEST_F(LookAhead, ASourceWithAnEventIsNoLongerWaitedFor) {
  live[0]->write(500);
  live[1]->write(600);
  live[0]->write(700);
  EXPECT_EQ(drain(), "0@500 1@600 0@700");
  live[0]->write(999);
  live[1]->write(1000);
  EXPECT_EQ(drain(), "0@999");  // source 0 may bring more before 1000
}

TEST_F(LookAhead, AWriterInTheMiddleOfAnEventDelaysTheOthersByTheBoundAtMost) {
  EXPECT_EQ(drain(), "");
  live[1]->lag = Source::unknown;
  now = 1020;
  live[0]->write(1010);
  for (; now < 1100; now += 10) EXPECT_EQ(drain(), "") << now;  // its last promise was made at 1000
  live[0]->write(1099);
  now = 1120;
  EXPECT_EQ(drain(), "0@1010 0@1099");
  // It no longer delays others,
  live[0]->write(1119);
  now = 1130;
  EXPECT_EQ(drain(), "0@1119");
  // and its next event is late.
  live[1]->lag = 10;
  live[1]->write(1001);
  live[1]->write(1130);
  now = 1140;
  EXPECT_EQ(drain(), "1@1001* 1@1130");
  EXPECT_EQ(timeline.late(), 1u);
  live[0]->write(1145);
  now = 1150;
  EXPECT_EQ(drain(), "");  // it promises again, so others wait for it
  now = 1155;
  EXPECT_EQ(drain(), "0@1145");
}

// The second stall becomes visible only when the first is over: its ring also had a waiting event.
TEST(LookAheadOfThree, ConsecutiveStallsDelayByTheBoundInAll) {
  LookAheadOf three(3);
  three.drain();
  three.live[0]->lag = Source::unknown;
  three.live[1]->write(1001);
  three.live[2]->write(1002);
  three.now = 1050;
  EXPECT_EQ(three.drain(), "");
  three.live[1]->lag = Source::unknown;
  three.live[2]->write(1060);
  three.now = 1101;
  EXPECT_EQ(three.drain(), "1@1001");
  three.now = 1102;
  EXPECT_EQ(three.drain(), "2@1002");
  three.now = 1160;
  EXPECT_EQ(three.drain(), "2@1060");
}

TEST_F(LookAhead, ASourceThatDoesNotAnswerIsAskedNowAndThen) {
  live[1]->silent = true;
  live[0]->write(990);
  EXPECT_EQ(drain(), "");
  now = 1089;
  EXPECT_EQ(drain(), "");
  EXPECT_EQ(live[1]->asked, 1u);
  now = 1090;
  EXPECT_EQ(drain(), "0@990");  // as old as the look-ahead
  for (now = 1100; now < 1200; now += 10) {
    live[0]->write(now - 20);
    EXPECT_EQ(drain(), "0@" + std::to_string(now - 20));
  }
  EXPECT_EQ(live[1]->asked, 2u);
  ASSERT_EQ(timeline.problems().size(), 1u);  // reported once
  live[1]->silent = false;
  live[1]->write(1150);
  now = 1300;
  EXPECT_EQ(drain(), "1@1150*");
  EXPECT_TRUE(timeline.problems().size() == 1);
}

TEST_F(LookAhead, LossesAreReportedWhereTheyHappened) {
  live[0]->write(100);
  live[1]->write(50);
  live[1]->write(120);
  live[0]->lost = 7;
  EXPECT_EQ(drain(), "1@50 0!7@100 0@100 1@120");
}

TEST_F(LookAhead, AFutureTimeIsNotWaitedFor) {
  live[0]->write(500'000);
  EXPECT_EQ(drain(), "0@500000");
  live[1]->write(980);
  EXPECT_EQ(drain(), "1@980");  // it does not make others late
}

TEST_F(LookAhead, RecordsWaitForSourcesThatAreNotHereYet) {
  timeline.hold_after(600);
  live[0]->write(590);
  live[0]->write(610);
  EXPECT_EQ(drain(), "0@590");
  auto third = std::make_unique<Live>(2);
  third->write(605);
  timeline.add(std::move(third));
  timeline.hold_after(Timeline::forever);
  EXPECT_EQ(drain(), "2@605 0@610");
}

TEST_F(LookAhead, FinishReleasesAllRecords) {
  live[0]->write(1000);
  live[1]->lag = Source::unknown;
  EXPECT_EQ(drain(), "");
  live[1]->write(999);
  timeline.finish();
  EXPECT_EQ(drain(), "1@999 0@1000");
}

TEST_F(LookAhead, FinishAsksASilentSourceOnceMore) {
  live[1]->silent = true;
  EXPECT_EQ(drain(), "");
  live[1]->silent = false;
  live[1]->write(999);
  timeline.finish();
  EXPECT_EQ(drain(), "1@999");
}

TEST_F(LookAhead, ASourceThatIsSilentAtTheEndIsReportedOnce) {
  live[1]->silent = true;
  EXPECT_EQ(drain(), "");
  timeline.finish();
  EXPECT_EQ(drain(), "");
  EXPECT_EQ(timeline.problems().size(), 1u);
  EXPECT_EQ(live[1]->asked, 2u);
}

TEST(Timeline, RecordingsNeverWait) {
  SubBuffer a(10), b(5);
  a.event(10, {1, 1}).event(20, {1, 1});
  b.event(5, {1, 1});
  Timeline t;
  t.add(std::make_unique<test::FakeSource>(0, std::vector<std::optional<SubBufferView>>{a.view()}));
  t.add(std::make_unique<test::FakeSource>(1, std::vector<std::optional<SubBufferView>>{b.view()}));
  t.follow({100, [] { return u64{1000}; }});
  TraceRecord r;
  std::vector<u64> times;
  while (t.next(r)) times.push_back(r.time);
  EXPECT_EQ(times, (std::vector<u64>{5, 10, 20}));
}

TEST(Timeline, EventIdsOfSourcesAreKeptApart) {
  SubBuffer a(10), b(20);
  a.event(10, {7, 1});
  b.event(20, {7, 1});
  Timeline t;
  t.add(std::make_unique<test::FakeSource>(0, std::vector<std::optional<SubBufferView>>{a.view()}));
  ClockInfo clock;
  clock.base_ns = 100;
  t.add(std::make_unique<test::FakeSource>(0, std::vector<std::optional<SubBufferView>>{b.view()}), {clock, 2 << 16, "web"});
  TraceRecord r;
  ASSERT_TRUE(t.next(r));
  EXPECT_EQ(r.ids, 0u);
  ASSERT_TRUE(t.next(r));
  EXPECT_EQ(r.ids, 2u << 16);
  EXPECT_EQ(r.time, 120u);
  EXPECT_EQ(t.name(1).buffer, "web");
}

// A clock goes back within a ring: no record out of order is handed out as being in order.
TEST(Timeline, LateEventsAreMarked) {
  SubBuffer a(100), a2(50), b(70);
  a.event(100, {1, 1});
  a2.event(50, {1, 1}).event(60, {1, 1}).event(110, {1, 1});
  b.event(70, {1, 1});
  Timeline t;
  t.add(std::make_unique<test::FakeSource>(0, std::vector<std::optional<SubBufferView>>{a.view(), a2.view()}));
  t.add(std::make_unique<test::FakeSource>(1, std::vector<std::optional<SubBufferView>>{b.view()}));
  TraceRecord r;
  std::string out;
  while (t.next(r)) out += std::to_string(r.time) + (r.late ? "* " : " ");
  EXPECT_EQ(out, "70 100 50* 60* 110 ");
  EXPECT_EQ(t.late(), 2u);
}

}  // namespace
}  // namespace ringside::look_ahead_test
