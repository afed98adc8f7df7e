// Many sources, one order: a k-way merge by time.
//
//   Timeline timeline(std::move(sources));
//   TraceRecord r;
//   while (timeline.next(r)) use(r);
//   for (const std::string& p : timeline.problems()) ...   // what could not be read
//
// A source is asked for its next sub-buffer only when the current one is used up, so every payload stays valid until the next
// call. Losses are records of their own, at the place where they happened. A live source with nothing new steps aside
// and is asked again whenever another source moves on: an idle ring stalls nobody. A source that fails or lies
// leaves the merge with a sentence in problems(); the others go on.
// Cost: a run of events of one ring goes by without touching the heap.
#pragma once
#include <memory>
#include <ringside/abi/event_cursor.hpp>
#include <string>
#include <vector>

#include "source/source.hpp"

namespace ringside {

struct TraceRecord {
  u64 time = 0;  // ns
  u64 lost = 0;  // not 0: no event, but this many lost here
  Bytes payload{};
  u32 source = 0;  // index in the order of add()
  u32 ids = 0;     // RingName::ids() of it
};

class Timeline {
 public:
  Timeline() = default;
  explicit Timeline(std::vector<std::unique_ptr<Source>> sources);

  u32 add(std::unique_ptr<Source> source);  // its index
  // Ask sources again that say they have ended: a look at a living ring has an end each time, and then more.
  void follow() { follow_ = true; }
  const Source& source(u32 index) const { return *lanes_[index].source; }
  u32 size() const { return static_cast<u32>(lanes_.size()); }

  // The next record; false: nothing now (for recordings: the end).
  bool next(TraceRecord& out) {
    if (!current_.active) return next_lane(out);
    Lane& lane = lanes_[current_.lane];
    if (!lane.pending_lost && lane.time <= current_.until) [[likely]] {
      give(lane, out);
      current_.active = advance(lane);
      return true;
    }
    return next_lane(out);
  }

  const std::vector<std::string>& problems() const { return problems_; }

 private:
  struct Lane {
    std::unique_ptr<Source> source;
    abi::EventCursor cursor{nullptr, 0, 0, 0};
    ClockInfo clock;
    u64 time = 0;  // ns of the event under the cursor, never running backwards within the lane's sub-buffer
    u64 pending_lost = 0;
    u32 index = 0;
    u32 ids = 0;
    bool has_event = false;
    bool over = false;  // ended or failed: never asked again
  };
  struct Current {
    u32 lane = 0;
    u64 until = 0;  // the second smallest time: up to it the lane needs no comparison
    bool active = false;
  };

  static void give(const Lane& lane, TraceRecord& out) {
    out.time = lane.time;
    out.lost = 0;
    out.payload = lane.cursor.payload();
    out.source = lane.index;
    out.ids = lane.ids;
  }
  // Steps within the sub-buffer; false: it is used up (the payload given out stays valid until fetch).
  bool advance(Lane& lane) {
    lane.has_event = lane.cursor.next();
    if (lane.has_event) lane.time = lane.clock.to_ns(lane.cursor.time());
    return lane.has_event;
  }
  bool next_lane(TraceRecord& out);
  bool fetch(Lane& lane);
  void settle_current();
  void ask_idle();
  void push(u32 lane);
  bool later(u32 a, u32 b) const;

  std::vector<Lane> lanes_;
  std::vector<u32> heap_;  // lanes with something to give, smallest time first
  std::vector<u32> idle_;  // lanes that had nothing at the last question
  std::vector<std::string> problems_;
  Current current_;
  bool follow_ = false;
  bool has_current_ = false;  // current_.lane is out of the heap
};

}  // namespace ringside
