// Counts over time when the range of times is not known in advance: columns of 2^shift ns that begin at multiples of their
// width.
//
//   TimeGrid grid(2048);
//   grid.add(time_ns, row, 1);
//   grid.for_each(row, [](u64 column, u64 count) { ... });     // column's begin: column << grid.shift()
//
// The width is the smallest power of two with which all added times fit into `most` columns: when a time does not fit,
// neighbours are added up, so the counts never depend on the order of adding. Memory: most * 8 bytes for each row in use.
#pragma once
#include <ringside/base/types.hpp>
#include <vector>

namespace ringside::plot {

class TimeGrid {
 public:
  explicit TimeGrid(u32 most) : most_(most < 2 ? 2 : most) {}

  void add(u64 time, u32 row, u64 count) {
    u64 column = time >> shift_;
    if (empty_) first_ = last_ = column;
    empty_ = false;
    if (column < first_ || column > last_) column = widen(time);
    if (row >= rows_.size()) rows_.resize(row + 1);
    if (rows_[row].empty()) rows_[row].resize(most_);
    rows_[row][column % most_] += count;
  }

  bool empty() const { return empty_; }
  u32 shift() const { return shift_; }  // log2 of a column's width in ns
  u64 first() const { return first_; }  // columns in use: first() to last()
  u64 last() const { return last_; }
  u32 rows() const { return static_cast<u32>(rows_.size()); }

  // visit(column, count) in order of time, for counts that are not 0.
  template <class Visit>
  void for_each(u32 row, Visit visit) const {
    if (row >= rows_.size() || rows_[row].empty()) return;
    for (u64 n = 0; n <= last_ - first_; ++n) {
      if (const u64 count = rows_[row][(first_ + n) % most_]; count != 0) visit(first_ + n, count);
    }
  }

 private:
  // Makes room for `time`; returns its column.
  u64 widen(u64 time) {
    while (true) {
      const u64 column = time >> shift_;
      const u64 low = column < first_ ? column : first_, high = column > last_ ? column : last_;
      if (high - low < most_) {
        first_ = low;
        last_ = high;
        return column;
      }
      halve();
    }
  }
  void halve() {
    for (auto& row : rows_) {
      if (row.empty()) continue;
      std::vector<u64> half(most_);
      for (u64 n = 0; n <= last_ - first_; ++n) half[((first_ + n) >> 1) % most_] += row[(first_ + n) % most_];
      row = std::move(half);
    }
    ++shift_;
    first_ >>= 1;
    last_ >>= 1;
  }

  u32 most_, shift_ = 0;
  u64 first_ = 0, last_ = 0;
  bool empty_ = true;
  std::vector<std::vector<u64>> rows_;  // a column's place is its number modulo most_
};

}  // namespace ringside::plot
