// Values by size, in buckets that grow with the value, as HdrHistogram's: whatever the range, any quantile is right within
// 2^-precision of itself (0.4 % by default, as quantiles are given as the middle of their bucket). Count, sum, minimum and
// maximum are exact, of unsigned values, too. Memory: 8 bytes a bucket up to the largest value seen, 60 KiB for all of 64 bits
// at the default precision. A histogram has whole numbers or reals (RealHistogram), not both.
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
#include <ringside/real_histogram.hpp>

namespace ringside {

class Histogram {
 public:
  __extension__ using Whole = __int128;
  explicit Histogram(u32 precision = 7) : buckets_{precision} {}  // 1 to 16: buckets for each power of two, as a power of two

  RINGSIDE_INLINE void add(i64 value) { add_whole(value, 1, value); }
  void add(i64 value, u64 times) { add_whole(value, times, Whole{value} * Whole{times}); }
  void add_unsigned(u64 value, u64 times = 1) { add_whole(value, times, Whole{value} * Whole{times}); }
  void add_real(double value, u64 times = 1);  // not NaN
  void merge(const Histogram& other);  // of the same precision

  u64 count() const { return count_; }
  const RealHistogram* reals() const { return reals_.empty() ? nullptr : &reals_.front(); }  // null: whole numbers
  double sum() const { return reals() != nullptr ? reals()->sum() : static_cast<double>(sum_); }
  double mean() const { return count_ == 0 ? 0 : sum() / static_cast<double>(count_); }
  i64 min() const { return signed_of(whole_min()); }  // from 2^63 on: 2^63 - 1
  i64 max() const { return signed_of(whole_max()); }
  double least() const { return reals() != nullptr ? reals()->min() : static_cast<double>(whole_min()); }
  double most() const { return reals() != nullptr ? reals()->max() : static_cast<double>(whole_max()); }
  // Of whole numbers.
  Whole whole_sum() const { return sum_; }
  Whole whole_min() const { return count_ == 0 ? 0 : min_; }
  Whole whole_max() const { return count_ == 0 ? 0 : max_; }
  double quantile(double q) const;  // 0 when empty; never outside min and max
  u64 bytes() const { return (above_.capacity() + below_.capacity()) * sizeof(u64); }

  // Ends from 2^63 on are given as 2^63 - 1; those of reals are rounded.
  template <class Use>
  void each(const Use& use) const {
    if (reals() != nullptr)
      return reals()->each([&](double low, double high, u64 count) { use(rounded(low), rounded(high), count); });
    each_whole([&](Whole low, Whole high, u64 count) { use(signed_of(low), signed_of(high), count); });
  }

 private:
  static i64 signed_of(Whole value) { return value > INT64_MAX ? INT64_MAX : static_cast<i64>(value); }
  static i64 rounded(double value) {
    return value >= 0x1p63 ? INT64_MAX : value <= -0x1p63 ? INT64_MIN : std::llround(value);
  }
  template <class Use>
  void each_whole(const Use& use) const {
    for (size_t i = below_.size(); i-- != 0;) {
      if (below_[i] != 0)
        use(~Whole{buckets_.high(static_cast<u32>(i))}, ~Whole{buckets_.low(static_cast<u32>(i))}, below_[i]);
    }
    for (u32 i = 0; i < above_.size(); ++i) {
      if (above_[i] != 0) use(Whole{buckets_.low(i)}, Whole{buckets_.high(i)}, above_[i]);
    }
  }
  RINGSIDE_INLINE void add_whole(Whole value, u64 times, Whole sum) {
    count_ += times;
    sum_ += sum;
    if (value < min_) min_ = value;
    if (value > max_) max_ = value;
    std::vector<u64>& side = value < 0 ? below_ : above_;
    const u32 bucket = buckets_.of(static_cast<u64>(value < 0 ? ~value : value));
    if (bucket >= side.size()) [[unlikely]] side.resize(bucket + 1);
    side[bucket] += times;
  }

  std::vector<u64> above_, below_;  // values from 0 on; those below, by ~value
  std::vector<RealHistogram> reals_;  // one, or none
  LogBuckets buckets_;
  u64 count_ = 0;
  Whole sum_ = 0, min_ = Whole{1} << 64, max_ = -(Whole{1} << 64);
};

}  // namespace ringside
