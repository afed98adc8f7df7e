#include "source/time_shift.hpp"

#include <algorithm>

#include "source/trace_dat_reader.hpp"

namespace ringside::trace_dat {
namespace {

constexpr u32 flag_interpolate = 1;
__extension__ using i128 = __int128;
__extension__ using u128 = unsigned __int128;

}  // namespace

TimeShift::OfCpu::OfCpu(std::vector<Sample> samples, bool interpolates)
    : samples_(std::move(samples)), interpolates_(interpolates) {
  std::stable_sort(samples_.begin(), samples_.end(), [](const Sample& a, const Sample& b) { return a.time < b.time; });
  const auto same = [](const Sample& a, const Sample& b) { return a.time == b.time; };
  samples_.erase(std::unique(samples_.begin(), samples_.end(), same), samples_.end());
}

u64 TimeShift::OfCpu::of(u64 ticks) const {
  if (samples_.size() == 1) return ticks + static_cast<u64>(samples_.front().offset);
  // Between the last one that is not later and the next.
  const auto later = std::upper_bound(samples_.begin() + 1, samples_.end() - 1, ticks,
                                      [](u64 time, const Sample& sample) { return time < sample.time; });
  const Sample& from = *(later - 1);
  u64 offset = static_cast<u64>(from.offset);
  if (interpolates_) {
    const u64 apart = later->time - from.time;
    const u128 more = static_cast<u128>(i128{ticks} - from.time) * static_cast<u128>(i128{later->offset} - from.offset);
    offset += static_cast<u64>(static_cast<i128>(more + apart / 2) / apart);  // what is hostile may wrap around
  }
  return static_cast<u64>(u128{ticks} * from.scaling >> from.fraction) + offset;
}

std::optional<TimeShift> TimeShift::read(Bytes option, bool big_endian) {
  Reader in(option, big_endian);
  in.number<u64>();  // identifies the host's trace
  const bool interpolates = (in.number<u32>() & flag_interpolate) != 0;
  const auto cpus = in.number<u32>();
  if (!in.ok || cpus > in.left() / sizeof(u32)) return std::nullopt;
  std::vector<std::vector<Sample>> all(cpus);
  for (auto& samples : all) {
    const auto n = in.number<u32>();
    if (!in.ok || n > in.left() / (3 * sizeof(u64))) return std::nullopt;
    samples.resize(n);
    for (Sample& sample : samples) sample.time = in.number<u64>();
    for (Sample& sample : samples) sample.offset = in.number<i64>();
    for (Sample& sample : samples) sample.scaling = in.number<u64>();
  }
  const bool has_fractions = in.left() != 0;  // older writers have none
  for (auto& samples : all) {
    for (Sample& sample : samples) {
      const auto bits = has_fractions ? in.number<u64>() : 0;
      if (!in.ok || bits > 63) return std::nullopt;
      sample.fraction = static_cast<u32>(bits);
    }
  }
  TimeShift shift;
  for (auto& samples : all) shift.cpus_.emplace_back(std::move(samples), interpolates);
  return shift;
}

}  // namespace ringside::trace_dat
