// Properties of a following timeline: random rings, whose writers stall in the middle of events, read at random moments.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <map>

#include <rapidcheck/gtest.h>

#include "cli/hand_made.hpp"
#include "timeline/merge.hpp"

namespace ringside::timeline_test {
namespace {

using test::Payload;
using test::SubBuffer;

constexpr u64 bound = 50;

struct Event {
  u64 time, seen;  // the writer's look at the clock, and its commit
  u64 lost;        // losses in front of it
};

// Shows the events committed by `now`, and tells like a ring whether its writer is in the middle of an event.
class Scripted final : public Source {
 public:
  Scripted(u32 ring, std::vector<Event> events, const u64& now) : events_(std::move(events)), now_(now) { name_.ring = ring; }
  result<std::optional<SubBufferView>> next() override {
    writing_ = at_ < events_.size() && events_[at_].time <= now_;
    if (at_ == events_.size() || events_[at_].seen > now_) return std::nullopt;
    writing_ = false;
    page_ = std::make_unique<SubBuffer>(events_[at_].time, 8192);
    const u64 lost = events_[at_].lost;
    do page_->event(events_[at_].time, Payload(1, static_cast<i32>(at_)));
    while (++at_ != events_.size() && events_[at_].seen <= now_ && events_[at_].lost == 0 && page_->end() < 400);
    return page_->view(lost);
  }
  Counters counters() const override { return {}; }
  bool ended() const override { return false; }
  u64 lag_ns() const override { return writing_ ? unknown : 0; }

 private:
  std::vector<Event> events_;
  const u64& now_;
  size_t at_ = 0;
  bool writing_ = false;
  std::unique_ptr<SubBuffer> page_;
};

// One ring's events: each begins after the previous one's commit. Now and then one takes long.
std::vector<Event> script(u64 start, const std::vector<u32>& random) {
  std::vector<Event> all;
  for (const u32 r : random) {
    const u64 time = start + r % 17, takes = r % 29 == 0 ? r / 29 % (3 * bound) : r / 29 % 4;
    all.push_back({time, time + takes, r % 13 == 0 ? 1 + r % 7 : 0});
    start = time + takes;
  }
  return all;
}

RC_GTEST_PROP(TimelineProperty, FollowsInOrderWithinTheBound, ()) {
  const auto numbers = rc::gen::resize(100, rc::gen::inRange<u32>(0, 1u << 20));
  const auto scripts =
      *rc::gen::resize(12, rc::gen::container<std::vector<std::vector<u32>>>(rc::gen::container<std::vector<u32>>(numbers)));
  const auto steps = *rc::gen::resize(12, rc::gen::container<std::vector<u32>>(numbers));
  u64 now = 1000;
  std::vector<std::vector<Event>> all;
  Timeline timeline;
  u64 events = 0, lost = 0, end = now;
  bool stalls = false;
  for (const auto& random : scripts) {
    const auto ring = static_cast<u32>(all.size());
    all.push_back(script(now, random));
    for (const Event& e : all.back()) {
      ++events;
      lost += e.lost;
      end = std::max(end, e.seen);
      stalls = stalls || e.seen - e.time >= bound;
    }
    timeline.add(std::make_unique<Scripted>(ring, all.back(), now));
  }
  timeline.follow({bound, [&] { return now; }});
  std::vector<u64> moments;                     // the moments of the questions
  std::vector<size_t> given(all.size()), late(all.size());
  std::vector<u64> order;
  u64 high = 0, late_ones = 0, lost_ones = 0, before_lost = 0;
  const auto drain = [&] {
    TraceRecord r;
    while (timeline.next(r)) {
      RC_ASSERT(r.late == (r.time < high));
      high = std::max(high, r.time);
      if (r.lost != 0) {
        lost_ones += r.lost;
        before_lost = r.lost;
        RC_ASSERT(given[r.source] < all[r.source].size());
        RC_ASSERT(all[r.source][given[r.source]].time == r.time);
        continue;
      }
      // Each ring's events come whole and in their order, each loss directly in front of the next event.
      RC_ASSERT(given[r.source] < all[r.source].size());
      const Event& e = all[r.source][given[r.source]++];
      RC_ASSERT(e.time == r.time);
      RC_ASSERT(e.lost == 0 || before_lost == e.lost);
      RC_ASSERT(e.seen <= now);
      // Only an event that itself took longer than the bound comes late.
      if (r.late)
        RC_ASSERT(std::any_of(all[r.source].begin(), all[r.source].end(), [&](const Event& s) {
          return s.time <= e.time && s.seen >= e.time && s.seen - s.time >= bound;
        }));
      late_ones += r.late;
      order.push_back(r.time);
    }
  };
  for (size_t i = 0; now < end + 2 * bound; ++i) {
    moments.push_back(now);
    drain();
    // All the others together delay a ring by the bound at most, in any order of stalls.
    for (size_t ring = 0; ring < all.size(); ++ring) {
      if (given[ring] == all[ring].size()) continue;
      const auto first = std::lower_bound(moments.begin(), moments.end(), all[ring][given[ring]].seen);
      if (first != moments.end()) RC_ASSERT(now - *first < bound);
    }
    now += 1 + (steps.empty() ? 7 : steps[i % steps.size()] % 30);
  }
  timeline.finish();
  drain();
  RC_ASSERT(order.size() == events);
  RC_ASSERT(lost_ones == lost);
  RC_ASSERT(timeline.late() == late_ones);
  if (!stalls) RC_ASSERT(late_ones == 0u);
  // The plain reference: all events, sorted. Only late ones may differ.
  std::vector<u64> sorted = order;
  std::stable_sort(sorted.begin(), sorted.end());
  if (late_ones == 0) RC_ASSERT(order == sorted);
}

// Sub-buffers of a file that begin at these times; counts how many are read.
class Seekable final : public Source {
 public:
  explicit Seekable(std::vector<u64> begins) : begins_(std::move(begins)) {}
  result<std::optional<SubBufferView>> next() override { return std::nullopt; }
  Counters counters() const override { return {}; }
  bool ended() const override { return true; }
  u64 sub_buffers() const override { return begins_.size(); }
  u64 time_stamp(u64 index) const override {
    ++stamps_read;
    return begins_.at(index);
  }
  u64 place_bytes() const override { return 1; }
  mutable u64 stamps_read = 0;

 private:
  std::vector<u64> begins_;
};

// The number of sub-buffers before this time, and of time stamps that it takes to tell.
std::pair<u64, u64> before(const std::vector<u64>& begins, u64 time) {
  auto source = std::make_unique<Seekable>(begins);
  const Seekable& kept = *source;
  Timeline timeline;
  timeline.add(std::move(source));
  const u64 number = timeline.bytes(0, time);
  return {number, kept.stamps_read};
}

RC_GTEST_PROP(TimelineProperty, ATimeIsFoundByFewTimeStampsHoweverFastTheRingFilled, ()) {
  u64 time = 1000;
  std::vector<u64> begins;
  const auto steps = *rc::gen::container<std::vector<std::pair<u8, u16>>>(rc::gen::arbitrary<std::pair<u8, u16>>());
  for (const auto& [power, step] : steps) begins.push_back(time += u64{step} << power % 40);  // bursts and pauses
  const u64 sought = *rc::gen::inRange<u64>(0, time + 2);
  const auto [found, stamps] = before(begins, sought);
  RC_ASSERT(found == static_cast<u64>(std::lower_bound(begins.begin(), begins.end(), sought) - begins.begin()));
  RC_ASSERT(stamps <= 3 * (std::bit_width(begins.size()) + 2));
}

TEST(TimelineProperty, ATimeInAMillionEvenSubBuffersIsFoundBySixTimeStamps) {
  std::vector<u64> begins;
  for (u64 n = 0; n < 1'000'000; ++n) begins.push_back(1'000'000 + n * 80'000 + n * n % 30'000);
  for (u64 sought = 1'000'000; sought < begins.back(); sought += 777'777'777) {
    const auto [found, stamps] = before(begins, sought);
    ASSERT_EQ(found, static_cast<u64>(std::lower_bound(begins.begin(), begins.end(), sought) - begins.begin())) << sought;
    ASSERT_LE(stamps, 1 + 6u) << sought;  // the first one finds the begin
  }
}

}  // namespace
}  // namespace ringside::timeline_test
