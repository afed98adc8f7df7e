#include "timeline/merge.hpp"

#include <algorithm>
#include <ringside/abi/sub_buffer.hpp>

namespace ringside {

Timeline::Timeline(std::vector<std::unique_ptr<Source>> sources) {
  for (auto& s : sources) add(std::move(s));
}

u32 Timeline::add(std::unique_ptr<Source> source) {
  const auto index = static_cast<u32>(lanes_.size());
  Lane& lane = lanes_.emplace_back();
  lane.clock = source->clock();
  lane.ids = source->name().ids();
  lane.source = std::move(source);
  lane.index = index;
  idle_.push_back(index);
  return index;
}

// Equal times come in the order of the rings, so that the same recording always prints the same.
bool Timeline::later(u32 a, u32 b) const { return lanes_[a].time != lanes_[b].time ? lanes_[a].time > lanes_[b].time : a > b; }

void Timeline::push(u32 lane) {
  heap_.push_back(lane);
  std::push_heap(heap_.begin(), heap_.end(), [this](u32 a, u32 b) { return later(a, b); });
}

// Loads the lane's next sub-buffer that has something to say. False: nothing now.
bool Timeline::fetch(Lane& lane) {
  for (;;) {
    if (lane.cursor.malformed() != abi::Malformed::no) {
      problems_.push_back((lane.source->name().kernel ? "cpu " : "ring ") + std::to_string(lane.source->name().ring) + ": a sub-buffer is malformed at offset " +
                          std::to_string(lane.cursor.position()) + ": " + abi::to_string(lane.cursor.malformed()) +
                          "; the rest of it was skipped");
      lane.cursor = abi::EventCursor{nullptr, 0, 0, 0};
    }
    const bool ended = lane.source->ended();  // asked first: what was written before the end is still to come
    auto view = lane.source->next();
    if (!view) problems_.push_back(view.error().sentence);
    if (!view || !*view) {
      lane.over = !view || (ended && !follow_);
      return false;
    }
    const SubBufferView& v = **view;
    lane.cursor = abi::EventCursor(v.sub_buffer + abi::header_size, v.begin, v.end, v.time);
    lane.pending_lost = v.lost_before;
    if (advance(lane)) return true;
    if (lane.pending_lost != 0) {
      lane.time = lane.clock.to_ns(v.time);
      return true;
    }
  }
}

void Timeline::ask_idle() {
  size_t kept = 0;
  for (size_t i = 0; i < idle_.size(); ++i) {
    const u32 index = idle_[i];
    Lane& lane = lanes_[index];
    if (fetch(lane))
      push(index);
    else if (!lane.over)
      idle_[kept++] = index;
  }
  idle_.resize(kept);
}

// Puts the lane that was being read back where it belongs.
void Timeline::settle_current() {
  if (!has_current_) return;
  has_current_ = false;
  current_.active = false;
  Lane& lane = lanes_[current_.lane];
  if (lane.has_event) {
    push(lane.index);
    return;
  }
  const bool more = fetch(lane);
  if (!idle_.empty()) ask_idle();
  if (more)
    push(lane.index);
  else if (!lane.over)
    idle_.push_back(lane.index);
}

bool Timeline::next_lane(TraceRecord& out) {
  settle_current();
  if (heap_.empty()) ask_idle();
  if (heap_.empty()) return false;
  std::pop_heap(heap_.begin(), heap_.end(), [this](u32 a, u32 b) { return later(a, b); });
  const u32 index = heap_.back();
  heap_.pop_back();
  Lane& lane = lanes_[index];
  has_current_ = true;
  current_ = {index, heap_.empty() ? ~u64{0} : lanes_[heap_.front()].time, false};
  if (!heap_.empty() && heap_.front() < index && current_.until > 0) --current_.until;  // at equal times it is the other's turn
  if (lane.pending_lost != 0) {
    out = TraceRecord{lane.time, lane.pending_lost, {}, index, lane.ids};
    lane.pending_lost = 0;
    current_.active = lane.has_event && lane.time <= current_.until;
    return true;
  }
  give(lane, out);
  current_.active = advance(lane);
  return true;
}

}  // namespace ringside
