#include <ringside/real_histogram.hpp>

#include <algorithm>
#include <bit>
#include <cmath>

namespace ringside {

void RealSum::add(double value, u64 times) {
  if (!std::isfinite(value)) {
    infinite_ += times == 0 ? 0 : value;
    return;
  }
  for (u64 doubled = 0; times != 0; times >>= 1, ++doubled)
    if ((times & 1) != 0) add_doubled(value, doubled);
}

void RealSum::add_doubled(double value, u64 times) {
  const u64 bits = std::bit_cast<u64>(value), exponent = bits >> 52 & 0x7FF;
  const u64 mantissa = (bits & ((u64{1} << 52) - 1)) | (exponent == 0 ? 0 : u64{1} << 52);
  const u64 place = (exponent == 0 ? 0 : exponent - 1) + times;  // value = mantissa * 2^(place - times - 1074)
  __extension__ using Wide = unsigned __int128;
  Wide shifted = Wide{mantissa} << (place % 32);
  for (size_t digit = place / 32; shifted != 0; ++digit, shifted >>= 32) {
    const i64 part = static_cast<i64>(shifted & 0xFFFF'FFFF);
    digits_[digit] += value < 0 ? -part : part;
  }
  if (++added_ == u64{1} << 30) carry();  // each digit is below 2^62
}

void RealSum::merge(const RealSum& other) {
  for (size_t i = 0; i < digits_.size(); ++i) digits_[i] += other.digits_[i];
  infinite_ += other.infinite_;
  carry();
}

void RealSum::carry() {
  for (size_t i = 0; i + 1 < digits_.size(); ++i) {
    const i64 over = digits_[i] >> 32;
    digits_[i] -= over * (i64{1} << 32);
    digits_[i + 1] += over;
  }
  added_ = 0;
}

double RealSum::value() const {
  if (infinite_ != 0) return infinite_;  // NaN is not 0
  RealSum copy = *this;
  copy.carry();
  const bool negative = copy.digits_.back() < 0;
  if (negative) {  // so that all digits have one sign
    for (i64& digit : copy.digits_) digit = -digit;
    copy.carry();
  }
  long double sum = 0;
  for (size_t i = copy.digits_.size(); i-- != 0;)
    sum += std::ldexp(static_cast<long double>(copy.digits_[i]), static_cast<int>(32 * i) - 1074);
  return static_cast<double>(negative ? -sum : sum);
}

void RealHistogram::add(double value, u64 times) {
  if (times == 0) return;
  value += 0.0;  // -0 is 0
  const u64 bits = std::bit_cast<u64>(std::fabs(value)) >> shift_;
  buckets_[std::signbit(value) ? ~static_cast<i64>(bits) : static_cast<i64>(bits)] += times;
  min_ = count_ == 0 ? value : std::min(min_, value);
  max_ = count_ == 0 ? value : std::max(max_, value);
  count_ += times;
  sum_.add(value, times);
}

void RealHistogram::merge(const RealHistogram& other) {
  if (other.count_ == 0) return;
  for (const auto& [bucket, count] : other.buckets_) buckets_[bucket] += count;
  min_ = count_ == 0 ? other.min_ : std::min(min_, other.min_);
  max_ = count_ == 0 ? other.max_ : std::max(max_, other.max_);
  count_ += other.count_;
  sum_.merge(other.sum_);
}

double RealHistogram::end_of(i64 bucket, bool upper) const {
  const u64 bits = static_cast<u64>(bucket < 0 ? ~bucket : bucket);
  const double inner = std::bit_cast<double>(bits << shift_);
  double outer = std::bit_cast<double>((bits + 1) << shift_);
  if (bits == 0 || !std::isfinite(outer)) outer = inner;
  return bucket < 0 ? -(upper ? inner : outer) : (upper ? outer : inner);
}

double RealHistogram::quantile(double q) const {
  if (count_ == 0) return 0;
  const u64 rank = rank_of(q, count_);
  u64 seen = 0;
  double found = max_;
  for (const auto& [bucket, count] : buckets_) {
    if (seen < rank && seen + count >= rank) found = end_of(bucket, false) / 2 + end_of(bucket, true) / 2;
    seen += count;
  }
  return std::clamp(found, min_, max_);
}

}  // namespace ringside
