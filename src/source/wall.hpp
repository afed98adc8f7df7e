// The time of day of a trace's events: CLOCK_REALTIME less CLOCK_MONOTONIC, and how far that may be from the true time.
#pragma once
#include <ringside/base/result.hpp>
#include <ringside/base/types.hpp>
#include <string>
#include <string_view>

namespace ringside {

struct WallClock {
  static constexpr u64 unknown_error = ~u32{0};
  i64 offset_ns = 0;
  u64 error_ns = unknown_error;  // what the kernel says of its clock (adjtimex: maxerror), and that of the measurement

  static WallClock measure();
  i64 of(u64 ns) const { return static_cast<i64>(ns) + offset_ns; }  // since 1970, of a time of the trace
};

// "2026-11-28T14:05:02", in this process's time zone.
std::string wall_second(i64 seconds);
// With nine digits of the second, and the zone's difference from UTC: "2026-11-28T14:05:02.123456789+01:00".
std::string wall_text(i64 ns);

// "14:05", "14:05:02.5", "2026-11-28T14:05:02.5", with a blank for the T, and Z or +01:00 after it. ns since 1970; without a
// date (`has_date` false) ns of the day. EINVAL: it is none.
struct WallTime {
  i64 ns = 0;
  bool has_date = false;
};
result<WallTime> parse_wall(std::string_view text);
// The moment of this time of day that is meant by someone who sees a trace that begins at `begin` (since 1970): on its first
// day; if that was more than half a day before, on the next one.
i64 wall_on_day_of(i64 time_of_day, i64 begin);

}  // namespace ringside
