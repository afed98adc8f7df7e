#include <ringside/histogram.hpp>

#include <algorithm>

namespace ringside {

void Histogram::add_real(double value, u64 times) {
  if (reals_.empty()) reals_.emplace_back(buckets_.precision);
  reals_.front().add(value, times);
  count_ += times;
}

void Histogram::merge(const Histogram& other) {
  if (other.reals() != nullptr && reals() == nullptr) reals_ = other.reals_;
  else if (other.reals() != nullptr) reals_.front().merge(*other.reals());
  const auto add = [](std::vector<u64>& to, const std::vector<u64>& from) {
    if (from.size() > to.size()) to.resize(from.size());
    for (size_t i = 0; i < from.size(); ++i) to[i] += from[i];
  };
  add(above_, other.above_);
  add(below_, other.below_);
  count_ += other.count_;
  sum_ += other.sum_;
  min_ = std::min(min_, other.min_);
  max_ = std::max(max_, other.max_);
}

double Histogram::quantile(double q) const {
  if (reals() != nullptr) return reals()->quantile(q);
  if (count_ == 0) return 0;
  const u64 rank = rank_of(q, count_);
  u64 seen = 0;
  double found = static_cast<double>(max_);
  each_whole([&](Whole low, Whole high, u64 count) {
    if (seen < rank && seen + count >= rank)
      found = static_cast<double>(low) + (static_cast<double>(high) - static_cast<double>(low)) / 2;
    seen += count;
  });
  return std::clamp(found, static_cast<double>(min_), static_cast<double>(max_));
}

}  // namespace ringside
