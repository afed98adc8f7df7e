// From the clock of a guest to its host's. trace-cmd asks both for the time now and then, and writes into the guest's trace.dat
// what it found, for each of its CPUs: at a time of the guest's, an offset and a rate.
//
//   auto shift = TimeShift::read(option);        // none: it is damaged
//   u64 host = shift->on(cpu)->of(ticks);
//
// As in trace-cmd's library, an offset holds from its time to the next one; that of the first also holds before it, that of the
// last but one also after it. With the flag, offsets between two times are interpolated. A CPU with one offset has no rate.
#pragma once
#include <optional>
#include <ringside/base/types.hpp>
#include <vector>

namespace ringside::trace_dat {

class TimeShift {
 public:
  struct Sample {
    u64 time = 0;  // ticks of the guest's
    i64 offset = 0;
    u64 scaling = 1;   // host ticks for 2^fraction of the guest's
    u32 fraction = 0;  // below 64
  };
  class OfCpu {
   public:
    OfCpu() = default;
    OfCpu(std::vector<Sample> samples, bool interpolates);
    bool empty() const { return samples_.empty(); }
    u64 of(u64 ticks) const;

   private:
    std::vector<Sample> samples_;  // in the order of time, no two of one
    bool interpolates_ = false;
  };

  static std::optional<TimeShift> read(Bytes option, bool big_endian = false);
  const OfCpu* on(u32 cpu) const { return cpu < cpus_.size() && !cpus_[cpu].empty() ? &cpus_[cpu] : nullptr; }

 private:
  std::vector<OfCpu> cpus_;
};

}  // namespace ringside::trace_dat
