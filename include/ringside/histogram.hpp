// Values by size, in buckets that grow with the value, as HdrHistogram's: whatever the range, any quantile is right within
// 2^-precision of itself (0.4 % by default, as quantiles are given as the middle of their bucket). Count, sum, minimum and
// maximum are exact. Memory: 8 bytes a bucket up to the largest value seen, 60 KiB for all of 64 bits at the default precision.
//
//   Histogram h;
//   h.add(1234);
//   h.quantile(.99)
//   h.each([](i64 low, i64 high, u64 count) { ... });   // buckets that are not empty, the smallest first; both ends included
#pragma once
#include <ringside/base/cxx20.hpp>

#include <cmath>
#include <ringside/base/types.hpp>
#include <vector>

#include <ringside/log_buckets.hpp>

namespace ringside {

class Histogram {
 public:
  explicit Histogram(u32 precision = 7) : buckets_{precision} {}  // 1 to 16: buckets for each power of two, as a power of two

  RINGSIDE_INLINE void add(i64 value) { add(value, 1, value); }
  void add(i64 value, u64 times) { add(value, times, static_cast<__int128>(value) * static_cast<__int128>(times)); }
  void merge(const Histogram& other);  // of the same precision

  u64 count() const { return count_; }
  double sum() const { return static_cast<double>(sum_); }
  double mean() const { return count_ == 0 ? 0 : sum() / static_cast<double>(count_); }
  i64 min() const { return count_ == 0 ? 0 : min_; }
  i64 max() const { return count_ == 0 ? 0 : max_; }
  double quantile(double q) const;  // 0 when empty; never outside min and max
  u64 bytes() const { return (above_.capacity() + below_.capacity()) * sizeof(u64); }

  template <class Use>
  void each(const Use& use) const {
    for (size_t i = below_.size(); i-- != 0;) {
      if (below_[i] != 0)
        use(static_cast<i64>(~buckets_.high(static_cast<u32>(i))), static_cast<i64>(~buckets_.low(static_cast<u32>(i))),
            below_[i]);
    }
    for (u32 i = 0; i < above_.size(); ++i) {
      if (above_[i] != 0) use(static_cast<i64>(buckets_.low(i)), static_cast<i64>(buckets_.high(i)), above_[i]);
    }
  }

 private:
  RINGSIDE_INLINE void add(i64 value, u64 times, __int128 sum) {
    count_ += times;
    sum_ += sum;
    if (value < min_) min_ = value;
    if (value > max_) max_ = value;
    std::vector<u64>& side = value < 0 ? below_ : above_;
    const u32 bucket = buckets_.of(value < 0 ? ~static_cast<u64>(value) : static_cast<u64>(value));
    if (bucket >= side.size()) [[unlikely]] side.resize(bucket + 1);
    side[bucket] += times;
  }

  std::vector<u64> above_, below_;  // values from 0 on; those below, by ~value
  LogBuckets buckets_;
  u64 count_ = 0;
  __int128 sum_ = 0;
  i64 min_ = INT64_MAX, max_ = INT64_MIN;
};

}  // namespace ringside
