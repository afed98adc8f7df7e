#include "source/clock_watch.hpp"

#include <fmt/format.h>

#include <cstdlib>

namespace ringside {

std::optional<std::string> ClockWatch::look(TicksAndNs now) {
  constexpr u64 second = 1'000'000'000;
  look_ns_ = now.ns + second;
  const i64 off = static_cast<i64>(clock_.to_ns(now.ticks) - now.ns), step = off - last_off_;
  const u64 passed = now.ns - last_ns_;
  last_off_ = off;
  last_ns_ = now.ns;
  // 2 ms: this thread may be preempted between the two readings, though the tightest of many counts.
  const u64 allowed = passed / 500 + 2'000'000;
  if (static_cast<u64>(std::llabs(step)) <= allowed) return std::nullopt;
  return fmt::format(
      "the clock {} {} by {:.3f} s against CLOCK_MONOTONIC at {:.3f} s: the machine was suspended or moved, or the "
      "counter cannot be trusted; times before and after that do not compare (--clock mono does not do this)",
      to_string(clock_.kind), step > 0 ? "went ahead" : "fell back", static_cast<double>(std::llabs(step)) / 1e9,
      static_cast<double>(now.ns) / 1e9);
}

}  // namespace ringside
