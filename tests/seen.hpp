// What a source hands out, event by event, where each event has a number.
#pragma once
#include <gtest/gtest.h>
#include <ringside/abi/event_cursor.hpp>

#include <cstring>
#include <string>
#include <vector>

#include "source/source.hpp"

namespace ringside::test {

struct Seen {
  std::vector<u64> numbers, times;
  u64 lost = 0;
  std::string gaps;   // "12@3 ": 12 lost before the number 3
  std::string error;  // a sentence, if next() failed
};

// number_at: where in an event's payload its number stands. An event that is shorter has the number 0.
inline void take(const SubBufferView& view, Seen& seen, u32 number_at = 0) {
  seen.lost += view.lost_before;
  bool first = true;
  abi::EventCursor c(view.sub_buffer + abi::header_size, view.begin, view.end, view.time);
  while (c.next()) {
    u64 number = 0;
    if (c.payload().size >= number_at + sizeof number) std::memcpy(&number, c.payload().data + number_at, sizeof number);
    if (first && view.lost_before != 0) seen.gaps += std::to_string(view.lost_before) + "@" + std::to_string(number) + " ";
    first = false;
    seen.numbers.push_back(number);
    seen.times.push_back(c.time());
  }
  EXPECT_EQ(c.malformed(), abi::Malformed::no) << abi::to_string(c.malformed());
}

// Reads until nothing is new, or an error comes, or there were `most` views.
inline void read_all(Source& source, Seen& seen, u32 number_at = 0, u64 most = ~u64{0}) {
  for (; most != 0; --most) {
    auto view = source.next();
    if (!view) seen.error = view.error().sentence;
    if (!view || !*view) return;
    take(**view, seen, number_at);
  }
}

// from, from + 1, ..., to - 1
inline std::vector<u64> from_to(u64 from, u64 to) {
  std::vector<u64> v;
  for (; from < to; ++from) v.push_back(from);
  return v;
}

}  // namespace ringside::test
