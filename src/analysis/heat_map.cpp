#include "analysis/heat_map.hpp"

#include <algorithm>

namespace ringside {

void HeatMap::halve() {
  std::vector<std::vector<u64>> wide((first_ + columns_.size() - 1) / 2 - first_ / 2 + 1);
  for (size_t i = 0; i < columns_.size(); ++i) {
    std::vector<u64>& to = wide[(first_ + i) / 2 - first_ / 2];
    std::vector<u64>& from = columns_[i];
    if (from.size() > to.size()) to.swap(from);
    for (size_t row = 0; row < from.size(); ++row) to[row] += from[row];
  }
  columns_ = std::move(wide);
  first_ /= 2;
  ++shift_;
}

// Makes a column for a time that has none.
u64 HeatMap::make_room(u64 time_ns) {
  if (columns_.empty()) first_ = time_ns >> shift_;
  for (;;) {
    const u64 column = time_ns >> shift_;
    const u64 low = std::min(first_, column), high = std::max(columns_.empty() ? first_ : first_ + columns_.size() - 1, column);
    if (high - low < most_) {
      columns_.insert(columns_.begin(), first_ - low, {});
      columns_.resize(high - low + 1);
      first_ = low;
      return column - low;
    }
    halve();
  }
}

void HeatMap::merge(const HeatMap& other) {
  for (size_t c = 0; c < other.columns(); ++c) {
    for (u32 row = 0; row < other.columns_[c].size(); ++row) {
      if (const u64 n = other.columns_[c][row]; n != 0) {
        while (shift_ < other.shift_ && !columns_.empty()) halve();
        if (columns_.empty()) shift_ = std::max(shift_, other.shift_);
        add(other.begin_ns(c), other.low(row), n);
      }
    }
  }
}

void HeatMap::narrow(size_t most_columns) {
  while (columns_.size() > std::max<size_t>(most_columns, 1) && shift_ < 63) halve();
}

u32 HeatMap::rows() const {
  size_t rows = 0;
  for (const auto& column : columns_) {
    for (size_t row = column.size(); row > rows; --row) {
      if (column[row - 1] != 0) rows = row;
    }
  }
  return static_cast<u32>(rows);
}

}  // namespace ringside
