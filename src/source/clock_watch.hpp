// Watches a recording's clock of ticks: once a second its time is held against CLOCK_MONOTONIC. A machine that was suspended or
// moved to another host, or a counter that is not invariant after all, makes it jump.
#pragma once
#include <optional>
#include <string>

#include "clock/clock.hpp"

namespace ringside {

class ClockWatch {
 public:
  explicit ClockWatch(const ClockInfo& clock) : clock_(clock), last_ns_(clock.base_ns) {}
  // Never for a clock that no instruction reads here.
  bool is_due(u64 now_ns) const { return is_instruction(clock_.kind) && now_ns >= look_ns_; }
  // A sentence, if it jumped since the call before; in the first call, since the clock's base. The rate that was measured at
  // the start may be wrong by some parts in a million, and CLOCK_MONOTONIC may be slewed by a thousandth.
  std::optional<std::string> look(TicksAndNs now);

 private:
  const ClockInfo clock_;
  u64 look_ns_ = 0, last_ns_;
  i64 last_off_ = 0;  // the clock's time less CLOCK_MONOTONIC
};

}  // namespace ringside
