#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
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

// Each time stamp may cost a page from the disk.
TEST(Timeline, SeamsCutEvenlyByFewTimeStamps) {
  static constexpr u64 whole = 1'000'000'000;
  struct Even final : FakeSource {
    Even(u64 nr, u64* reads) : FakeSource(0, {}), nr_(nr), reads_(reads) {}
    u64 sub_buffers() const override { return nr_; }
    u64 time_stamp(u64 index) const override { return ++*reads_, 1 + index * (whole / nr_); }
    u64 place_bytes() const override { return 4096; }
    u64 nr_, *reads_;
  };
  for (const u64 lanes : {1, 2, 8, 100}) {
    for (const u32 parts : {2, 8, 100}) {
      SCOPED_TRACE(std::to_string(lanes) + " rings, " + std::to_string(parts) + " parts");
      u64 reads = 0;
      const auto expect_even = [&](const Timeline& t) {
        reads = 0;
        const auto seams = t.seams(parts, 0, Timeline::forever);
        EXPECT_LE(reads, 5 * parts + 20 * lanes);
        ASSERT_EQ(seams.size(), parts - 1);
        for (u32 n = 0; n + 1 < parts; ++n)
          EXPECT_NEAR(static_cast<double>(seams[n]) / whole, (n + 1.) / parts, 1. / parts) << n;
      };
      Timeline alike, uneven;
      for (u64 n = 0; n < lanes; ++n) alike.add(std::make_unique<Even>(10'000, &reads));
      expect_even(alike);
      // One ring has nearly everything.
      for (u64 n = 0; n < lanes; ++n) uneven.add(std::make_unique<Even>(n == 0 ? 100'000 : 1 + n % 2, &reads));
      expect_even(uneven);
    }
  }
}

// Whatever the time stamps say: seams rise, and lie in the range.
TEST(Timeline, SeamsOfStrangeTimesAreInOrder) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 3000; ++round) {
    struct Strange final : FakeSource {
      explicit Strange(std::vector<u64> stamps) : FakeSource(0, {}), stamps_(std::move(stamps)) {}
      u64 sub_buffers() const override { return stamps_.size(); }
      u64 time_stamp(u64 index) const override { return stamps_[index]; }
      u64 place_bytes() const override { return stamps_[0] % 3 * 4096; }
      std::vector<u64> stamps_;
    };
    const auto time = [&] {
      const u64 any = random();
      return any % 8 == 0 ? 0 : any % 8 == 1 ? any : any % 8 == 2 ? ~u64{0} : any % 1000;
    };
    Timeline t;
    for (u64 lanes = random() % 5; lanes > 0; --lanes) {
      std::vector<u64> stamps(1 + random() % 20);
      std::generate(stamps.begin(), stamps.end(), time);
      if (random() % 2 == 0) std::sort(stamps.begin(), stamps.end());
      t.add(std::make_unique<Strange>(std::move(stamps)));
    }
    const u64 from = time(), until = time();
    const auto seams = t.seams(static_cast<u32>(2 + random() % 50), from, until);
    for (size_t n = 0; n < seams.size(); ++n) {
      ASSERT_GT(seams[n], n == 0 ? from : seams[n - 1]);
      ASSERT_LT(seams[n], until);
    }
  }
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

// A source that has one sub-buffer at a time: what it gave before is overwritten.
class OneAtATime final : public Source {
 public:
  explicit OneAtATime(std::vector<SubBufferView> views) : views_(std::move(views)) {}
  result<std::optional<SubBufferView>> next() override {
    std::fill(shown_.begin(), shown_.end(), u8{0xFF});
    if (at_ >= views_.size()) return std::nullopt;
    SubBufferView view = views_[at_++];
    if (view.sub_buffer == nullptr) return refuse(std::errc::io_error, "ring 0 is corrupt");
    shown_.assign(view.sub_buffer, view.sub_buffer + abi::header_size + view.end);
    view.sub_buffer = shown_.data();
    return view;
  }
  Counters counters() const override { return {}; }
  bool ended() const override { return true; }
  u64 lag_ns() const override { return 0; }

 private:
  std::vector<SubBufferView> views_;
  size_t at_ = 0;
  std::vector<u8> shown_;
};

u64 number_of(Bytes payload) {
  u64 n = 0;
  std::memcpy(&n, payload.data + 8, sizeof n);
  return n;
}

// Wherever its ring is cut into sub-buffers, each event sees those behind it, and comes with its own payload, once, in order.
TEST(Timeline, LookingBehindGoesOnInTheNextSubBuffer) {
  std::mt19937 random(11);
  for (int round = 0; round < 300; ++round) {
    std::vector<std::unique_ptr<SubBuffer>> pages;
    std::vector<SubBufferView> views;
    std::vector<u64> times, loss_before, page;  // by the event's number
    const bool fails = round % 5 == 4;
    for (u64 n = 0, time = 100; n < 12;) {
      pages.push_back(std::make_unique<SubBuffer>(time));
      const u64 lost = random() % 6 == 0 ? 3 : 0;
      for (u64 i = 0, events = 1 + random() % 3; i < events; ++i, ++n) {
        time += random() % 3 == 0 ? u64{1} << 30 : random() % 4;
        Payload payload{1, 1};
        payload.put(n);
        pages.back()->event(time, payload);
        times.push_back(time);
        loss_before.push_back(i == 0 ? lost : 0);
        page.push_back(views.size());
      }
      views.push_back(pages.back()->view(lost));
    }
    const u64 events = times.size();
    if (fails) views.push_back({});  // the source fails behind them
    Timeline t;
    t.add(std::make_unique<OneAtATime>(views));
    u64 expected = 0, lost = 0;
    TraceRecord r;
    while (t.next(r)) {
      if (r.lost != 0) {
        lost += r.lost;
        EXPECT_EQ(r.lost, loss_before[expected]);
        continue;
      }
      const u64 wanted = random() % 5;  // how far it looks
      std::vector<u64> behind;
      if (wanted != 0)
        t.look_behind(r, [&](u32 n, Bytes payload) {
          if (n == 0) behind.clear();
          EXPECT_EQ(n, behind.size());
          behind.push_back(number_of(payload));
          return behind.size() < wanted;
        });
      EXPECT_EQ(r.time, times[expected]);
      ASSERT_EQ(number_of(r.payload), expected) << "round " << round;
      u64 end = expected + 1, near = end;  // those that may be seen; those of its own sub-buffer and the next one must be
      for (; end < events && end <= expected + wanted && loss_before[end] == 0; ++end)
        if (page[end] <= page[expected] + 1) near = end + 1;
      ASSERT_GE(behind.size(), near - expected - 1) << "round " << round << ", event " << expected;
      ASSERT_LE(behind.size(), end - expected - 1) << "round " << round << ", event " << expected;
      for (u64 i = 0; i < behind.size(); ++i) EXPECT_EQ(behind[i], expected + 1 + i);
      ++expected;
    }
    EXPECT_EQ(expected, events);
    EXPECT_EQ(lost, std::accumulate(loss_before.begin(), loss_before.end(), u64{0}));
    EXPECT_EQ(t.problems().size(), fails ? 1u : 0u);
  }
}

// Exactly where the next nine events stand in the same sub-buffer and none of them is named; other looks do not disturb it.
TEST(Timeline, NoneBehindIsTrueWhereNoneIsNamed) {
  std::mt19937 random(12);
  u64 answers[2] = {}, near = 0;
  for (int round = 0; round < 200; ++round) {
    std::vector<std::unique_ptr<SubBuffer>> pages;
    std::vector<SubBufferView> views;
    std::vector<bool> named;
    std::vector<u64> end;  // by event: the number of the first one behind its sub-buffer
    for (u64 time = 100; views.size() < 6;) {
      pages.push_back(std::make_unique<SubBuffer>(time));
      const u64 behind = named.size() + 1 + random() % 60;
      while (named.size() < behind) {
        Payload payload{1, 1};
        payload.put(u64{named.size()});
        pages.back()->event(time += random() % 4, payload);
        named.push_back(random() % 20 == 0);
        end.push_back(behind);
      }
      views.push_back(pages.back()->view(random() % 4 == 0 ? 3 : 0));
    }
    Timeline t;
    t.add(std::make_unique<OneAtATime>(views));
    const auto is = [&](Bytes payload) { return named[number_of(payload)] == true; };
    TraceRecord r;
    for (u64 n = 0; t.next(r);) {
      if (r.lost != 0) continue;
      ASSERT_EQ(number_of(r.payload), n);
      const u64 last = n + 1 + Timeline::most_between;
      bool none = last < end[n];
      for (u64 i = n + 1; none && i <= last; ++i) none = !named[i];
      if (t.none_near(r)) {
        ++near;
        ASSERT_TRUE(none && !named[n]) << "round " << round << ", event " << n;
      }
      if (random() % 3 != 0) {
        ASSERT_EQ(t.none_behind(r, is), none) << "round " << round << ", event " << n;
        ++answers[none];
      }
      if (random() % 8 == 0) t.look_behind(r, [&](u32 i, Bytes) { return i < random() % 20; });
      ++n;
    }
  }
  EXPECT_GT(std::min({answers[0], answers[1], near}), 1000u);
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

// Rings that interleave, events of several lengths, times that go back, losses; and a use() that takes a few at a time.
TEST(Timeline, RunsAreTheSameRecords) {
  std::mt19937 random(8);
  for (int round = 0; round < 500; ++round) {
    std::vector<std::unique_ptr<SubBuffer>> pages;
    Timeline one, other;
    const u32 step = 1 + random() % 30;
    const ClockInfo clock{ClockKind::tsc, static_cast<u32>(random()) >> (random() % 32), static_cast<u32>(random() % 33), 10,
                          100};
    for (u32 ring = 0; ring < 1 + random() % 4; ++ring) {
      Views views;
      u64 time = random() % 50;
      for (u32 k = 0; k < random() % 4; ++k) {
        auto& page = *pages.emplace_back(std::make_unique<SubBuffer>(time));
        for (u32 e = 0; e < random() % 40; ++e)
          page.event(time += random() % step, random() % 9 == 0 ? Payload{1, 1, 2} : Payload{1, 1});
        views.emplace_back(page.view(random() % 5 == 0 ? 3 : 0));
        time -= random() % 7 == 0 ? std::min<u64>(time, 20) : 0;
      }
      for (Timeline* t : {&one, &other}) {
        auto source = std::make_unique<FakeSource>(ring, views);
        source->clock_ = clock;
        t->add(std::move(source));
      }
    }
    std::vector<TraceRecord> expected, got;
    for (TraceRecord r; one.next(r);) expected.push_back(r);
    u32 n = 0;
    const auto use = [&](const TraceRecord& r) {
      got.push_back(r);
      return ++n % 5 != 0;
    };
    while (other.next_run(use)) continue;
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i) {
      const TraceRecord &a = expected[i], &b = got[i];
      ASSERT_EQ(std::tie(a.time, a.lost, a.source, a.late, a.payload.data, a.payload.size),
                std::tie(b.time, b.lost, b.source, b.late, b.payload.data, b.payload.size))
          << i;
    }
    EXPECT_EQ(one.late(), other.late());
  }
}

}  // namespace
}  // namespace ringside::timeline_test
