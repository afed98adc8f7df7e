// A walk over the events of a view: how many there are, and where they end.
#pragma once
#include <ringside/abi/event_cursor.hpp>
#include <ringside/abi/sub_buffer.hpp>

#include "source/source.hpp"

namespace ringside {

// What a walk over a view finds out.
struct Walk {
  u64 events = 0;
  u32 end = 0;          // after the last event: padding is not worth keeping
  u32 last = 0;         // the last event's header
  u32 before_last = 0;  // after the event before that
  u64 time_before_last = 0, time = 0;  // time: of the last event
  bool backwards = false;              // an event is earlier than the one before it
  abi::Malformed malformed = abi::Malformed::no;
};

inline Walk walk(const SubBufferView& view) {
  Walk w;
  w.end = w.before_last = view.begin;
  w.time_before_last = view.time;
  u64 time = view.time;
  abi::EventCursor c(view.sub_buffer + abi::header_size, view.begin, view.end, view.time);
  while (c.next()) {
    ++w.events;
    w.before_last = w.end;
    w.time_before_last = time;
    w.end = c.position();
    w.last = c.offset();
    w.backwards |= c.time() < time;
    time = c.time();
  }
  w.time = time;
  w.malformed = c.malformed();
  return w;
}

}  // namespace ringside
