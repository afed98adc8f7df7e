#include "record/loss_watch.hpp"

#include <fmt/format.h>

#include "text/units.hpp"

namespace ringside {

std::optional<std::string> LossWatch::look(u64 now_ns, u64 lost, u64 events, const std::string& advice) {
  constexpr u64 second = 1'000'000'000;
  look_ns_ = now_ns + second;
  if (lost <= told_ || now_ns < tell_ns_) return std::nullopt;
  const bool first = told_ == 0;
  told_ = lost;
  tell_ns_ = now_ns + 60 * second;
  const double percent = 100 * static_cast<double>(lost) / static_cast<double>(lost + events);
  return fmt::format("{} lost {} ({} %){}", counted(lost, "event is", "events are"), first ? "already" : "by now",
                     percent < 10 ? fmt::format("{:.2g}", percent) : fmt::format("{:.0f}", percent), advice);
}

}  // namespace ringside
