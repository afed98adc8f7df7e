#include "source/selection.hpp"

#include <algorithm>
#include <cstring>
#include <ringside/abi/event_cursor.hpp>
#include <ringside/abi/sub_buffer.hpp>

namespace ringside {

namespace {

bool wants_all(const SubBufferView& view, const Selection::Wants& wants) {
  abi::EventCursor c(view.sub_buffer + abi::header_size, view.begin, view.end, view.time);
  while (c.next())
    if (!wants(c.payload())) return false;
  return true;
}

}  // namespace

SubBufferView Selection::keep(const SubBufferView& view, const Wants& wants) {
  const u8* const data = view.sub_buffer + abi::header_size;
  const bool goes_on = view.begin != 0 && view.begin == source_end_ && end_ <= view.begin;
  if (!goes_on && wants_all(view, wants)) {
    source_end_ = 0;
    return view;
  }
  SubBufferView kept = view;
  kept.begin = goes_on ? end_ : view.begin;
  kept.time = goes_on ? time_ : view.time;
  copy_.resize(std::max<size_t>(copy_.size(), (abi::header_size + view.end) / sizeof(u32) + 3));
  u8* const bytes = reinterpret_cast<u8*>(copy_.data()) + abi::header_size;
  u32 at = kept.begin;
  u64 time = kept.time, left_out = 0;
  abi::EventCursor c(data, view.begin, view.end, view.time);
  while (c.next()) {
    if (!wants(c.payload())) {
      ++left_out;
      continue;
    }
    // What was left out before a long delta, or its time extend, made room for this one.
    const u64 delta = c.time() - std::min(c.time(), time);
    const u32 size = c.position() - c.offset();
    u32 word = 0;
    std::memcpy(&word, data + c.offset(), sizeof word);
    if (delta >= abi::delta_limit) {
      const u32 extend[2] = {abi::event_word(abi::type_time_extend, static_cast<u32>(delta & (abi::delta_limit - 1))),
                             static_cast<u32>(delta >> abi::delta_bits)};
      std::memcpy(bytes + at, extend, sizeof extend);
      at += abi::stamp_size;
    }
    word = abi::event_word(abi::word_type(word), delta >= abi::delta_limit ? 0 : static_cast<u32>(delta));
    std::memcpy(bytes + at, &word, sizeof word);
    std::memcpy(bytes + at + sizeof word, data + c.offset() + sizeof word, size - sizeof word);
    at += size;
    time = std::max(time, c.time());
  }
  if (c.malformed() != abi::Malformed::no) return view;
  const abi::SubBufferHeader header{kept.time, at};
  std::memcpy(copy_.data(), &header, sizeof header);
  kept.sub_buffer = reinterpret_cast<const u8*>(copy_.data());
  kept.end = at;
  source_end_ = view.end;
  end_ = at;
  time_ = time;
  left_out_ += left_out;
  return kept;
}

}  // namespace ringside
