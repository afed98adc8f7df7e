// How the kernel's clocks stand to a program's, measured: markers go to a tracefs instance made for it, each between two readings
// of ours. So each marker says of the offset what it is at least and at most; a clock that merges with ours has one offset, 0, that
// fits all markers, of all processors.
#pragma once
#include <string>
#include <vector>

#include "clock/clock.hpp"

namespace ringside {

struct ClockCheck {
  std::string name;  // as trace_clock lists it
  ClockKind against = ClockKind::mono;
  bool constant = false;  // one offset fits all markers
  i64 offset_ns = 0;      // the kernel's reading less ours; of no constant one: the middle
  u64 error_ns = 0;       // the offset is known to this; of no constant one: how far markers lie apart, halved
  u32 markers = 0, processors = 0;
  bool merges() const { return constant && static_cast<u64>(offset_ns < 0 ? -offset_ns : offset_ns) <= error_ns; }
};

// Of all clocks that this kernel offers. Takes half a second. An error: no rights, no tracefs.
result<std::vector<ClockCheck>> check_kernel_clocks();

// How to tell one of the kernel's clocks as CLOCK_MONOTONIC does, measured now: those that can be read, between two readings of
// CLOCK_MONOTONIC; local, global and perf, by markers. Two measurements 200 ms apart tell the rate.
struct ClockConversion {
  ClockInfo clock;         // its ns to CLOCK_MONOTONIC's
  u64 error_ns = 0;        // at this moment, at most
  double drift_ppm = 0;    // and so much more the further one is from it
};
// An error: there is no such clock, or no rights to measure it.
result<ClockConversion> measure_clock(const std::string& name);

// The clock that an instance of the kernel's is set to; empty: unknown.
std::string kernel_clock_of(const std::string& instance_dir);

}  // namespace ringside
