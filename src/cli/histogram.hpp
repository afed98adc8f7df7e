// Values by size: buckets that grow with the value, so that any quantile is right within 0.8 %, whatever the range.
#pragma once
#include <ringside/base/types.hpp>
#include <vector>

namespace ringside::cli {

class Histogram {
 public:
  void add(double value);
  u64 count() const { return count_; }
  double sum() const { return sum_; }
  double max() const { return max_; }
  double quantile(double q) const;  // 0 when empty; never above max

 private:
  static constexpr u32 sub_bits = 7;  // 128 buckets for each power of two
  std::vector<u64> buckets_;
  u64 count_ = 0, below_zero_ = 0;
  double sum_ = 0, max_ = 0;
};

}  // namespace ringside::cli
