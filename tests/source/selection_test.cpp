// Selection: what is left of a ring has the times of the whole, however its sub-buffers are handed out.
#include "source/selection.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <ringside/abi/event_cursor.hpp>

#include "cli/hand_made.hpp"

namespace ringside::selection_test {
namespace {

using test::Payload;
using test::SubBuffer;

struct Seen {
  u64 time = 0;
  u16 id = 0;
  std::vector<u8> payload{};
  bool operator==(const Seen& other) const { return time == other.time && id == other.id && payload == other.payload; }
};

std::vector<Seen> events_of(const SubBufferView& view) {
  std::vector<Seen> all;
  abi::EventCursor c(view.sub_buffer + abi::header_size, view.begin, view.end, view.time);
  while (c.next()) {
    Seen one{c.time()};
    std::memcpy(&one.id, c.payload().data, 2);
    one.payload.assign(c.payload().data, c.payload().data + c.payload().size);
    all.push_back(std::move(one));
  }
  EXPECT_EQ(c.malformed(), abi::Malformed::no);
  return all;
}

bool odd(u16 id) { return id % 2 == 1; }
bool is_odd(Bytes payload) { return payload.size != 0 && odd(payload.data[0]); }

TEST(Selection, KeepsTimesHoweverTheViewsAreCut) {
  std::mt19937_64 random(1);
  Selection selection;
  u64 left_out = 0;
  for (int round = 0; round < 300; ++round) {
    const u64 start = 1'000'000'000 + random() % 1'000'000;
    SubBuffer whole(start);
    std::vector<u32> ends{0};
    std::vector<u64> times{start};
    u64 time = start;
    while (whole.end() < 3500) {
      const u64 kind = random() % 10;
      time += kind == 0   ? 0
              : kind == 1 ? abi::delta_limit - 1 + random() % 3
              : kind == 2 ? random() % (u64{1} << 40)
                          : random() % 1000;
      Payload payload(static_cast<u16>(1 + random() % 4), 7);
      for (u64 n = random() % (kind == 3 ? 40 : 4); n != 0; --n) payload.put(random());
      whole.event(time, payload);
      ends.push_back(whole.end());
      times.push_back(time);
    }
    std::vector<Seen> wanted, kept;
    for (Seen& one : events_of(whole.view())) {
      if (odd(one.id)) wanted.push_back(std::move(one));
      else ++left_out;
    }
    u32 kept_end = 0;
    for (size_t at = 0; at + 1 < ends.size();) {
      const size_t next = std::min(ends.size() - 1, at + 1 + random() % 30);
      const SubBufferView part{whole.bytes(), ends[at], ends[next], 0, times[at]};
      const SubBufferView some = selection.keep(part, is_odd);
      EXPECT_EQ(some.begin, kept_end) << "it grows where it ended";
      EXPECT_LE(some.end, part.end);
      for (Seen& one : events_of(some)) kept.push_back(std::move(one));
      kept_end = some.end;
      at = next;
    }
    EXPECT_EQ(kept, wanted);
  }
  EXPECT_EQ(selection.left_out(), left_out);
}

// The reader joins in the middle of a sub-buffer, and some are lost before it.
TEST(Selection, KeepsTheLossAndTheTimeInFrontOfAView) {
  SubBuffer whole(1000);
  whole.event(1000, Payload(1, 7)).event(2000, Payload(2, 7));
  const u32 middle = whole.end();
  whole.event(1'000'000'000, Payload(2, 7)).event(1'000'000'500, Payload(1, 7));
  Selection selection;
  const SubBufferView some = selection.keep({whole.bytes(), middle, whole.end(), 5, 2000}, is_odd);
  EXPECT_EQ(some.lost_before, 5u);
  const auto kept = events_of(some);
  ASSERT_EQ(kept.size(), 1u);
  EXPECT_EQ(kept[0].time, 1'000'000'500u);
}

TEST(Selection, LeavesAMalformedViewToItsReader) {
  SubBuffer whole(1000);
  whole.event(1000, Payload(2, 7)).word(abi::event_word(28, 1));
  Selection selection;
  const SubBufferView view = whole.view();
  EXPECT_EQ(selection.keep(view, is_odd).sub_buffer, view.sub_buffer);
  EXPECT_EQ(selection.left_out(), 0u);
}

}  // namespace
}  // namespace ringside::selection_test
