#include "plot/curves.hpp"

#include <algorithm>

namespace ringside::plot {

void Curves::merge(Point& into, const Point& other) {
  if (other.begin < into.begin) into.begin = other.begin, into.first = other.first;
  if (other.end >= into.end) into.end = other.end, into.last = other.last;
  into.low = std::min(into.low, other.low);
  into.high = std::max(into.high, other.high);
  into.count += other.count;
}

void Curves::take(u32 curve, const std::vector<Point>& points) {
  if (curve >= curves_.size()) curves_.resize(curve + 1);
  curves_[curve].insert(curves_[curve].end(), points.begin(), points.end());
  held_ += points.size();
}

void Curves::compact() {
  for (bool again = true; again;) {
    held_ = 0;
    for (auto& points : curves_) {
      std::stable_sort(points.begin(), points.end(), [](const Point& a, const Point& b) { return a.end < b.end; });
      size_t kept = 0;
      for (const Point& point : points) {
        if (kept > 0 && meet(points[kept - 1], point))
          merge(points[kept - 1], point);
        else
          points[kept++] = point;
      }
      points.resize(kept);
      held_ += kept;
    }
    again = held_ > most_ && level_ < last_level;
    if (again) ++level_;
  }
  room_ = std::max(2 * most_, 2 * held_);
}

}  // namespace ringside::plot
