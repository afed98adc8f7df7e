#include "cli/histogram.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

namespace ringside::cli {
namespace {

constexpr u32 bits = 7;

u32 bucket_of(u64 value) {
  if (value < (1u << bits)) return static_cast<u32>(value);
  const auto shift = static_cast<u32>(std::bit_width(value)) - bits - 1;
  return ((shift + 1) << bits) + static_cast<u32>((value >> shift) - (1u << bits));
}

// The middle of a bucket.
double value_of(u32 bucket) {
  if (bucket < (1u << bits)) return bucket;
  const u32 shift = (bucket >> bits) - 1;
  const double low = std::ldexp((bucket & ((1u << bits) - 1)) + (1u << bits), static_cast<int>(shift));
  return low + (std::ldexp(1.0, static_cast<int>(shift)) - 1) / 2;
}

}  // namespace

void Histogram::add(double value) {
  static_assert(sub_bits == bits);
  if (std::isnan(value)) return;
  max_ = count_ == 0 ? value : std::max(max_, value);
  ++count_;
  sum_ += value;
  if (value < 0) {
    ++below_zero_;
    return;
  }
  const u32 bucket = bucket_of(value >= 1.8e19 ? ~u64{0} : static_cast<u64>(value));
  if (bucket >= buckets_.size()) buckets_.resize(bucket + 1);
  ++buckets_[bucket];
}

double Histogram::quantile(double q) const {
  if (count_ == 0) return 0;
  const auto rank = static_cast<u64>(std::max(1.0, std::ceil(q * static_cast<double>(count_))));
  u64 seen = below_zero_;
  if (seen >= rank) return std::min(0.0, max_);
  for (u32 i = 0; i < buckets_.size(); ++i) {
    seen += buckets_[i];
    if (seen >= rank) return std::min(value_of(i), max_);
  }
  return max_;
}

}  // namespace ringside::cli
