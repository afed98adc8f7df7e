// Log-linear buckets, as HdrHistogram's: each power of two in 2^precision equal parts, values below 2^precision on their own.
// So a bucket is never wider than 2^-precision of its values, and a few instructions compute its number from a value.
#pragma once
#include <ringside/base/cxx20.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <ringside/base/types.hpp>

namespace ringside {

// The place of a quantile among that many values in their order, from 1 on.
inline u64 rank_of(double q, u64 count) {
  const auto all = static_cast<double>(count);
  return static_cast<u64>(std::clamp(std::ceil(q * all), 1.0, all));
}

struct LogBuckets {
  u32 precision = 7;  // 0 to 16

  u32 of(u64 value) const {
    const auto bits = static_cast<u32>(std::bit_width(value));
    if (bits <= precision) return static_cast<u32>(value);
    const u32 shift = bits - precision - 1;
    return ((shift + 1) << precision) + static_cast<u32>((value >> shift) - (u64{1} << precision));
  }
  // Both ends are in it.
  u64 low(u32 bucket) const {
    if (bucket < (1u << precision)) return bucket;
    return ((bucket & ((1u << precision) - 1)) + (u64{1} << precision)) << ((bucket >> precision) - 1);
  }
  u64 high(u32 bucket) const {
    return bucket < (1u << precision) ? bucket : low(bucket) + (u64{1} << ((bucket >> precision) - 1)) - 1;
  }
};

}  // namespace ringside
