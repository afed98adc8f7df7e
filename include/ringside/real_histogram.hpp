// Reals by size, as Histogram has whole numbers: a bucket is the sign, the exponent and the first bits of the mantissa of a
// double, so quantiles of large and small values are equally near. The sum is exact until it is read, so the order in which
// values and parts are added changes nothing. Memory: 0.6 KiB, and 50 bytes a bucket that is not empty.
#pragma once
#include <ringside/base/cxx20.hpp>

#include <array>
#include <map>
#include <ringside/base/types.hpp>

#include <ringside/log_buckets.hpp>

namespace ringside {

// A fixed-point number that holds any sum of doubles (Kulisch's long accumulator).
class RealSum {
 public:
  void add(double value, u64 times = 1);
  void merge(const RealSum& other);
  double value() const;  // a double next to the sum; infinite, or NaN, where values were infinite

 private:
  void add_doubled(double value, u64 times);  // value * 2^times
  void carry();
  std::array<i64, 70> digits_{};  // of 2^32, the first of them counts 2^-1074; each is any number until it is carried
  u64 added_ = 0;                 // since then
  double infinite_ = 0;
};

class RealHistogram {
 public:
  explicit RealHistogram(u32 precision) : shift_(52 - precision) {}  // as Histogram's
  void add(double value, u64 times = 1);  // not NaN
  void merge(const RealHistogram& other);  // of the same precision
  u64 count() const { return count_; }
  double sum() const { return sum_.value(); }
  double min() const { return count_ == 0 ? 0 : min_; }
  double max() const { return count_ == 0 ? 0 : max_; }
  double quantile(double q) const;  // 0 when empty; never outside min and max
  // Buckets that are not empty, the smallest first, by their ends.
  template <class Use>
  void each(const Use& use) const {
    for (const auto& [bucket, count] : buckets_) use(end_of(bucket, false), end_of(bucket, true), count);
  }

 private:
  double end_of(i64 bucket, bool upper) const;
  u32 shift_;
  std::map<i64, u64> buckets_;  // by the first bits of a double; negative ones by their complement, which is in order
  u64 count_ = 0;
  RealSum sum_;
  double min_ = 0, max_ = 0;
};

}  // namespace ringside
