// Walks the events of one sub-buffer between two known bounds. Every byte may be hostile: nothing outside [begin, end) is read,
// each step goes forward, and the first malformed byte ends the walk and is named.
//
//   EventCursor c(data, begin, end, time);        // time: the sub-buffer's time_stamp, or the running time at `begin`
//   while (c.next()) use(c.time(), c.payload());
//   if (c.malformed() != Malformed::no) ...
//
// Cost: about a nanosecond an event. It guesses that an event is as long as the last one, so that the place of the next event
// does not wait for the load of this one's length. Deltas of padding count, as in libtraceevent's kbuffer, so the times of
// events around a discarded one are right.
#pragma once
#include <ringside/abi/event_header.hpp>

namespace ringside::abi {

enum class Malformed : u8 {
  no,
  header_cut,      // fewer bytes left than the event's header needs
  payload_cut,     // the event reaches beyond the end
  length_too_small,  // array[0] of a large event or padding is below 4
  length_unaligned,  // array[0] is no multiple of 4
};

constexpr const char* to_string(Malformed m) noexcept {
  switch (m) {
    case Malformed::no: return "well-formed";
    case Malformed::header_cut: return "an event header is cut off by the end of the data";
    case Malformed::payload_cut: return "an event reaches beyond the end of the data";
    case Malformed::length_too_small: return "an event claims a length below 4 bytes";
    case Malformed::length_unaligned: return "an event's length is no multiple of 4 bytes";
  }
  return "?";
}

class AlikeEvents;

class EventCursor {
 public:
  // data: the sub-buffer's data, 4-byte aligned, at least `end` bytes. begin <= end, both multiples of 4 (else malformed).
  EventCursor(const u8* data, u32 begin, u32 end, u64 time) noexcept : data_(data), at_(begin), end_(end), time_(time) {
    if ((begin | end) % 4 != 0) stop(Malformed::length_unaligned);
  }

  // Steps onto the next data event; false at the end or at the first malformed byte.
  RINGSIDE_INLINE bool next() noexcept {
    while (at_ < end_) {
      const u32 word = word_at(at_);
      const u32 type = word_type(word);
      if (type == guess_ && guessed_size_ <= end_ - at_) [[likely]] return data_event(word, at_ + 4, guessed_size_);
      if (type - 1 < type_data_max) [[likely]] {
        const u32 size = 4 + type * 4;
        if (size > end_ - at_) return stop(Malformed::payload_cut);
        guess_ = type;
        guessed_size_ = size;
        return data_event(word, at_ + 4, size);
      }
      if (!special(word, type)) return false;
      if (found_) {
        found_ = false;
        return true;
      }
    }
    return false;
  }

  u64 time() const noexcept { return time_; }          // of the event
  Bytes payload() const noexcept { return payload_; }  // its size is rounded up as on the sub-buffer
  u32 offset() const noexcept { return event_; }     // data offset of the event's header word
  u32 position() const noexcept { return at_; }      // data offset after the event
  Malformed malformed() const noexcept { return malformed_; }
  // Another cursor over a copy of what is left, at the same offsets: EventCursor(copy, offset(), end(), before()), then next().
  const u8* data() const noexcept { return data_; }
  u32 end() const noexcept { return end_; }
  u64 before() const noexcept { return time_ - word_delta(word_at(event_)); }  // the running time before the event

 private:
  friend class AlikeEvents;
  RINGSIDE_INLINE u32 word_at(u32 offset) const noexcept { return *reinterpret_cast<const u32*>(data_ + offset); }

  RINGSIDE_INLINE bool data_event(u32 word, u32 payload_at, u32 size) noexcept {
    time_ += word_delta(word);
    event_ = at_;
    payload_ = {data_ + payload_at, size - (payload_at - at_)};
    at_ += size;
    return true;
  }

  // Everything but a small data event. False: the walk is over. Not inlined, because it is rare and needs registers.
  [[gnu::noinline]] bool special(u32 word, u32 type) noexcept {
    if (type == type_padding && word_delta(word) == 0) {
      at_ = end_;
      return false;
    }
    if (end_ - at_ < 8) return stop(Malformed::header_cut);
    const u32 array = word_at(at_ + 4);
    const u64 long_time = (u64{array} << delta_bits) + word_delta(word);
    switch (type) {
      case type_time_extend:
        time_ += long_time;
        at_ += stamp_size;
        return true;
      case type_time_stamp: {
        u64 absolute = long_time & stamp_mask;
        if ((time_ & ~stamp_mask) != 0) {
          absolute |= time_ & ~stamp_mask;
          if (absolute < time_) absolute += stamp_mask + 1;
        }
        time_ = absolute;
        at_ += stamp_size;
        return true;
      }
      default: break;
    }
    if (array < 4) return stop(Malformed::length_too_small);
    if (array % 4 != 0) return stop(Malformed::length_unaligned);
    if (array > end_ - at_ - 4) return stop(Malformed::payload_cut);
    if (type == type_padding) {
      time_ += word_delta(word);
      at_ += 4 + array;
      return true;
    }
    found_ = true;
    return data_event(word, at_ + 8, 4 + array);
  }

  bool stop(Malformed m) noexcept {
    malformed_ = m;
    at_ = end_;
    return false;
  }

  const u8* data_;
  u32 at_, end_;
  u32 guess_ = ~0u, guessed_size_ = 0;  // type and size of the last small data event
  u64 time_;
  Bytes payload_{};
  u32 event_ = 0;
  bool found_ = false;
  Malformed malformed_ = Malformed::no;
};

// Those after a cursor's event that are small and as long as the last small one. Their walk has only a place and a time as its
// state, so a loop over them keeps it in registers.
//
//   AlikeEvents alike(cursor);
//   while (alike.next()) use(alike.delta(), alike.payload());    // delta: ticks since the event before
//   alike.move(cursor);                                          // onto the last one
class AlikeEvents {
 public:
  RINGSIDE_INLINE explicit AlikeEvents(const EventCursor& c) noexcept  // which has come to an event, or to the end
      : at_(c.data_ + c.at_),
        last_(c.at_ < c.end_ && c.guessed_size_ <= c.end_ - c.at_ ? c.data_ + c.end_ - c.guessed_size_ : nullptr),
        type_(c.guess_),
        size_(c.guessed_size_),
        time_(c.time_) {}

  RINGSIDE_INLINE bool next() noexcept {
    if (at_ > last_) return false;
    const u32 word = *reinterpret_cast<const u32*>(at_);
    if (word_type(word) != type_) return false;
    delta_ = word_delta(word);
    time_ += delta_;
    at_ += size_;
    return true;
  }
  RINGSIDE_INLINE u32 delta() const noexcept { return delta_; }
  RINGSIDE_INLINE Bytes payload() const noexcept { return {at_ - size_ + 4, size_ - 4}; }
  RINGSIDE_INLINE void move(EventCursor& c) const noexcept {
    const auto position = static_cast<u32>(at_ - c.data_);
    if (position == c.at_) return;
    c.at_ = position;
    c.event_ = position - size_;
    c.payload_ = payload();
    c.time_ = time_;
  }

 private:
  const u8 *at_, *last_;  // the next one; where the last one may begin, null: there is none
  u32 type_, size_, delta_ = 0;
  u64 time_;
};

// The running time before `end`, given `time` at `begin`. Anything malformed ends the sum.
inline u64 time_before(const u8* data, u32 begin, u32 end, u64 time) noexcept {
  EventCursor c(data, begin, end, time);
  while (c.next()) {
  }
  return c.time();
}

}  // namespace ringside::abi
