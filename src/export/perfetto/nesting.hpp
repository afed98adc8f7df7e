// Whether Perfetto's importer finds each slice of a track again. It sorts begins and ends by time, those of equal times by
// their order in the file; an end closes the slice that began last and is open. So a slice may contain others and lie beside
// others, but must not overlap one, nor begin at the time of one that is in the file already and lasted longer than no time.
//
// Memory: bounded. What is forgotten counts as one slice from the beginning of time.
#pragma once
#include <algorithm>
#include <ringside/base/types.hpp>
#include <utility>
#include <vector>

namespace ringside::perfetto {

class Nesting {
 public:
  // A whole slice, its begin and its end one after the other in the file; false: it has no place on this track.
  bool take(u64 begin, u64 end) {
    if (!open_.empty() && begin < open_.back().begin) return false;
    if (!closed_.empty() && end < closed_.back().second) return false;  // it is late
    size_t keep = closed_.size();
    while (keep > 0 && closed_[keep - 1].first > begin) --keep;  // it contains the others
    if (keep > 0 && closed_[keep - 1].second > begin) return false;
    closed_.resize(keep);
    add(begin, end);
    return true;
  }
  // A begin alone; false: it would be too deep, and so is its end. `key`: of its name.
  bool open(u64 time, u64 key) {
    if (open_.size() == deepest) return ++too_deep_, false;
    open_.push_back({time, key});
    return true;
  }
  // An end alone: how many slices it closes, its own and those that began after it, whose ends are missing. 0: its begin is
  // missing, or was too deep. Key 0: it has no name, and ends the slice that began last.
  size_t close(u64 time, u64 key) {
    if (too_deep_ != 0) return --too_deep_, 0;
    const auto its = std::find_if(open_.rbegin(), open_.rend(), [&](const Open& o) { return key == 0 || o.key == key; });
    if (its == open_.rend()) return 0;
    const auto count = static_cast<size_t>(its - open_.rbegin()) + 1;
    const u64 begin = its->begin;
    open_.resize(open_.size() - count);
    while (!closed_.empty() && closed_.back().first >= begin) closed_.pop_back();
    add(begin, time);
    return count;
  }

 private:
  static constexpr size_t most = 4096, deepest = 400;  // the importer drops slices below 512 others

  struct Open {
    u64 begin = 0, key = 0;
  };

  void add(u64 begin, u64 end) {
    if (closed_.size() == most) {
      closed_.erase(closed_.begin() + 1, closed_.begin() + most / 2);
      closed_[0] = {0, closed_[1].first};
    }
    closed_.emplace_back(begin, end);
  }

  std::vector<std::pair<u64, u64>> closed_;  // beside each other, in order
  std::vector<Open> open_;
  u64 too_deep_ = 0;
};

}  // namespace ringside::perfetto
