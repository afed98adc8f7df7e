// The values of counters over time, in bounded memory.
//
//   Curves curves(200'000);
//   curves.add(counter, time_ns, value);          // in any order
//   curves.finish();
//   for (const Point& p : curves.points(counter)) ...
//
// When there are more than `most` points, those of one counter in the same 2^shift ns become one, which keeps their number, the
// lowest, the highest and the last value; one that is alone there stays unchanged. The shift is the lowest that suffices (or
// one point is left for each counter), so the result does not depend on the order of adding, but for values of one time.
// Memory: 2 * most points.
#pragma once
#include <ringside/base/types.hpp>
#include <vector>

namespace ringside::plot {

struct Point {
  u64 begin = 0, end = 0;  // ns: the first and the last of its values
  double low = 0, high = 0, first = 0, last = 0;
  u64 count = 1;
};

class Curves {
 public:
  explicit Curves(u64 most) : most_(most) {}

  void add(u32 curve, u64 time, double value) {
    if (curve >= curves_.size()) curves_.resize(curve + 1);
    auto& points = curves_[curve];
    const Point point{time, time, value, value, value, value, 1};
    if (!points.empty() && meet(points.back(), point)) return merge(points.back(), point);
    points.push_back(point);
    if (++held_ > room_) compact();
  }
  // The points of another one's curve.
  void take(u32 curve, const std::vector<Point>& points);
  void finish() { compact(); }
  bool merges() const { return level_ > 0; }
  u32 shift() const { return level_ - 1; }  // if merges()
  u32 size() const { return static_cast<u32>(curves_.size()); }
  const std::vector<Point>& points(u32 curve) const { return curves_[curve]; }  // after finish(): by time

 private:
  static constexpr u32 last_level = 64;
  bool meet(const Point& a, const Point& b) const { return level_ > 0 && a.end >> shift() == b.end >> shift(); }
  static void merge(Point& into, const Point& other);
  void compact();

  u64 most_, held_ = 0;
  u64 room_ = 2 * most_;
  u32 level_ = 0;  // 0: nothing is merged; else 2^(level - 1) ns
  std::vector<std::vector<Point>> curves_;
};

}  // namespace ringside::plot
