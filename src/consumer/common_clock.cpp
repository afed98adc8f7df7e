#include "consumer/common_clock.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "consumer/trace.hpp"
#include "kernel/clock_check.hpp"
#include "sys/sys.hpp"
#include "sys/text.hpp"
#include "sys/try.hpp"

namespace ringside {
namespace {

std::string microseconds(u64 ns) { return fmt::format("{:.3g} us", static_cast<double>(ns) / 1e3); }

// Of what was shipped: each row has its time of day.
result<void> agree_on_time_of_day(Trace& trace) {
  for (const auto& input : trace.inputs) {
    const Input& o = *input;
    if (o.time_of_day() == nullptr)
      return refuse(
          std::errc::invalid_argument,
          o.where +
              " has times of a clock that began with its machine, and what was shipped has times of day; show each alone");
    trace.notices.push_back(o.origin.label + ": times of day, " +
                            (o.time_of_day()->error_ns >= o.time_of_day()->unknown
                                 ? "by a clock that is not synchronised: how far they are off is not known"
                                 : "±" + microseconds(o.time_of_day()->error_ns)));
  }
  return {};
}

}  // namespace

result<void> agree_on_time(Trace& trace, bool verbose) {
  const auto is_shipped = [](const auto& input) { return input->time_of_day() != nullptr; };
  if (std::any_of(trace.inputs.begin(), trace.inputs.end(), is_shipped)) return agree_on_time_of_day(trace);
  const std::string here = sys::boot_id(), mono = to_string(ClockKind::mono);
  const auto in_ticks = [](const Input& o) {
    return o.clock == to_string(ClockKind::tsc) || o.clock == to_string(ClockKind::cntvct);
  };
  const Input* known = nullptr;  // one whose machine is known
  bool alike = true;
  for (const auto& input : trace.inputs) {
    const Input& o = *input;
    if (o.clock == to_string(ClockKind::counter))
      return refuse(
          std::errc::invalid_argument,
          o.where + ": its clock counts ticks and has no rate, so its events have no order with others; show it alone");
    alike = alike && o.clock == trace.first().clock;
    if (o.boot.empty()) continue;
    if (known == nullptr) known = &o;
    if (o.boot != known->boot)
      return refuse(std::errc::invalid_argument, known->where + " and " + o.where +
                                                     " were made on different machines, or with a restart between: their "
                                                     "clocks have nothing in common; show each alone");
  }
  const bool now_here = known != nullptr && known->boot == here && !here.empty();
  std::map<std::string, ClockInfo> ticks;  // for each counter of processors, of all
  u64 off = 0;
  for (const auto& input : trace.inputs) {
    const Input& o = *input;
    const bool dat = o.recording() != nullptr && o.recording()->events.empty() && o.recording()->rings.empty();
    if (!in_ticks(o) || ticks.count(o.clock) != 0 || o.boot.empty() || (dat && now_here)) continue;
    ticks[o.clock] = now_here ? refined(o.own_clock(), off) : o.own_clock();
  }
  for (const auto& input : trace.inputs) {
    Input& o = *input;
    std::string how = "as it is";
    bool tell = verbose;
    if (o.boot.empty()) {
      how = fmt::format("its times are used unchanged, because the file does not record its {}boot",
                        o.world.host.empty() ? "machine or " : "");
      tell = true;
    } else if (in_ticks(o)) {
      if (ticks.count(o.clock) == 0) ticks[o.clock] = calibrate(o.own_clock().kind);
      u64 own = 0;
      if (now_here) (void)refined(o.own_clock(), own);
      o.origin.clock = ticks[o.clock];
      how = fmt::format("the same ticks for all{}",
                        now_here ? fmt::format("; by its own rate it would be {} off now", microseconds(own)) : "");
    } else if (o.clock == mono) {
      if (o.recording() != nullptr) o.origin.clock = ClockInfo{};
    } else if (!alike) {
      auto measured =
          now_here ? measure_clock(o.clock) : result<ClockConversion>(refuse(std::errc::not_supported, "that boot is over"));
      if (measured) o.origin.clock = measured->clock;
      how = measured ? fmt::format(
                           "converted by measurement, ±{}, and at most {:.2g} us more for each second back; if it was not made "
                           "since this machine started, show it alone",
                           microseconds(measured->error_ns), measured->drift_ppm)
                     : "cannot be measured (" + measured.error().sentence + "), so its times are taken as they are";
      tell = true;
    }
    if (tell)
      trace.notices.push_back(fmt::format("{}: clock {}, {}", o.where, o.clock.empty() ? "unknown" : o.clock, how));
    const World &first = trace.first().world, &own = o.world;
    if (trace.tasks.machine(o.origin.ids) != 0 && !first.host.empty() && !own.host.empty())
      trace.notices.push_back(
          fmt::format("{} is of {}, {}, and {} of {}, {}: unless one is a guest of the other, their clocks have nothing in "
                      "common, and times between their events mean nothing; no pair of events spans both",
                      trace.first().where, sys::printable(first.host), sys::printable(first.release), o.where,
                      sys::printable(own.host), sys::printable(own.release)));
  }
  return {};
}

}  // namespace ringside
