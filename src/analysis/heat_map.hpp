// Counts of values over time and size: a column for each stretch of time, with a row for each bucket of sizes (LogBuckets).
// The number of columns is bounded: when the time no longer fits, they merge two by two and become twice as wide.
//
//   HeatMap heat;
//   heat.add(record.time, latency_ns);
//   for (size_t c = 0; c < heat.columns(); ++c) use(heat.begin_ns(c), heat.count(c, row));
//
// A column is a power of two of nanoseconds wide and begins at a multiple of that: its content does not depend on the order in
// which early and late values came. Memory: most_columns times 8 bytes for each row up to the largest value seen.
// Thread-safety: none.
#pragma once
#include <ringside/base/types.hpp>
#include <vector>

#include <ringside/log_buckets.hpp>

namespace ringside {

class HeatMap {
 public:
  struct Options {
    size_t most_columns = 256;  // 2 at least
    u32 precision = 0;          // rows for each power of two of sizes, as a power of two
    u32 finest = 16;            // columns of 2^finest ns to begin with
  };

  HeatMap() : HeatMap(Options()) {}
  explicit HeatMap(const Options& options)
      : most_(options.most_columns < 2 ? 2 : options.most_columns),
        buckets_{options.precision},
        shift_(options.finest < 63 ? options.finest : 63) {}

  void add(u64 time_ns, u64 value, u64 times = 1) {
    u64 column = (time_ns >> shift_) - first_;
    if (column >= columns_.size()) [[unlikely]] column = make_room(time_ns);
    std::vector<u64>& rows = columns_[column];
    const u32 row = buckets_.of(value);
    if (row >= rows.size()) [[unlikely]] rows.resize(row + 1);
    rows[row] += times;
    count_ += times;
  }
  // Adds the other's values, as if all had been added here. Both must have the same precision.
  void merge(const HeatMap& other);
  // Merges columns until at most most_columns are left (1 at least): for a narrower picture.
  void narrow(size_t most_columns);

  u64 count() const { return count_; }
  size_t columns() const { return columns_.size(); }
  u64 column_ns() const { return u64{1} << shift_; }
  u64 begin_ns(size_t column) const { return (first_ + column) << shift_; }
  u32 rows() const;  // one more than the last row that is not empty; 0: all are empty
  u64 count(size_t column, u32 row) const { return row < columns_[column].size() ? columns_[column][row] : 0; }
  u64 low(u32 row) const { return buckets_.low(row); }    // both ends belong to it
  u64 high(u32 row) const { return buckets_.high(row); }

 private:
  u64 make_room(u64 time_ns);
  void halve();

  size_t most_;
  LogBuckets buckets_;
  u32 shift_;
  u64 first_ = 0;  // the first column begins at first_ << shift_
  std::vector<std::vector<u64>> columns_;
  u64 count_ = 0;
};

}  // namespace ringside
