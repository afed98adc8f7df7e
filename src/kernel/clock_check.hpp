// Measures the offset of the kernel's clocks from a program's: markers go to a tracefs instance made for it, each between two
// readings of the program's clock. So each marker bounds the offset from below and above; a clock that can be merged has one
// offset, 0, that fits all markers of all processors.
#pragma once
#include <time.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "clock/clock.hpp"

namespace ringside {

struct ClockCheck {
  std::string name;  // as trace_clock lists it
  ClockKind against = ClockKind::mono;
  bool constant = false;  // one offset fits all markers
  i64 offset_ns = 0;      // the kernel's reading less the program's; if not constant: the middle
  u64 error_ns = 0;       // the offset's error; if not constant: half the distance between the markers
  u32 markers = 0, processors = 0;
  bool merges() const { return constant && static_cast<u64>(offset_ns < 0 ? -offset_ns : offset_ns) <= error_ns; }
};

// Checks all clocks that this kernel offers. Takes half a second. An error: no privileges, no tracefs.
result<std::vector<ClockCheck>> check_kernel_clocks();

// A clock's reading less CLOCK_MONOTONIC, between low and high, at a reading of CLOCK_MONOTONIC.
struct ClockOffset {
  i64 low = 0, high = 0;
  u64 at = 0;
  i64 middle() const { return low + (high - low) / 2; }
};

// Measures it as often as it is asked: a clock that can be read, between two readings of CLOCK_MONOTONIC; local, global and
// perf, by markers in an instance of its own.
class ClockMeter {
 public:
  static result<ClockMeter> of(const std::string& name);
  ClockMeter(ClockMeter&&) noexcept;
  ~ClockMeter();
  result<ClockOffset> offset();

 private:
  struct Markers;
  ClockMeter() = default;
  std::optional<clockid_t> readable_;
  std::unique_ptr<Markers> markers_;
};

// Converts one of the kernel's clocks to CLOCK_MONOTONIC, measured now. Two measurements 200 ms apart give the rate.
struct ClockConversion {
  ClockInfo clock;         // its ns to CLOCK_MONOTONIC's
  u64 error_ns = 0;        // at this moment, at most
  double drift_ppm = 0;    // the error grows so fast with the distance from it
};
// An error: there is no such clock, or no privileges to measure it.
result<ClockConversion> measure_clock(const std::string& name);

// The clock that a kernel instance is set to; empty: unknown.
std::string kernel_clock_of(const std::string& instance_dir);

}  // namespace ringside
