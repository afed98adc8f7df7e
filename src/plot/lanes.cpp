#include "plot/lanes.hpp"

#include <algorithm>
#include <tuple>

namespace ringside::plot {

void Lanes::merge(Slice& into, const Slice& other) {
  into.begin = std::min(into.begin, other.begin);
  into.end = std::max(into.end, other.end);
  if (into.what != other.what) into.what = Slice::various;
  if (into.ring != other.ring) into.ring = Slice::various;
  if (into.stack != other.stack) into.stack = 0;
  if (__builtin_add_overflow(into.merged, other.merged, &into.merged)) into.merged = ~u32{0};
  if (__builtin_add_overflow(into.weight, other.weight, &into.weight)) into.weight = ~u64{0};
  if (__builtin_add_overflow(into.busy, other.busy, &into.busy)) into.busy = ~u64{0};
  into.longest = std::max(into.longest, other.longest);
  into.text = {};
}

// Merges slices at the present level.
void Lanes::merge_all() {
  held_ = 0;
  for (Lane& lane : lanes_) {
    auto& s = lane.slices;
    std::sort(s.begin(), s.end(), [this](const Slice& a, const Slice& b) {
      const u32 of_a = mixed() ? 0 : a.what, of_b = mixed() ? 0 : b.what;
      return std::tie(of_a, a.end) < std::tie(of_b, b.end);
    });
    lane.latest.assign(mixed() ? 1 : lane.latest.size(), none);
    size_t kept = 0;
    for (size_t i = 0; i < s.size(); ++i) {
      u32* latest = is_short(s[i]) ? &lane.latest[mixed() ? 0 : s[i].what] : nullptr;
      if (latest != nullptr) {
        if (*latest != none && meet(s[*latest], s[i])) {
          merge(s[*latest], s[i]);
          continue;
        }
        *latest = static_cast<u32>(kept);
      }
      if (kept != i) s[kept] = std::move(s[i]);
      ++kept;
    }
    s.resize(kept);
    held_ += kept;
  }
}

void Lanes::compact() {
  merge_all();
  while (held_ > most_ && level_ < last_level) {
    ++level_;
    merge_all();
  }
  room_ = std::max(2 * most_, 2 * held_);
}

void Lanes::finish() {
  compact();
  for (Lane& lane : lanes_) {
    lane.latest.clear();
    std::sort(lane.slices.begin(), lane.slices.end(), [](const Slice& a, const Slice& b) {
      return std::tie(a.end, a.begin, a.what, a.ring, a.text) < std::tie(b.end, b.begin, b.what, b.ring, b.text);
    });
  }
}

}  // namespace ringside::plot
