#include "consumer/window.hpp"

#include "analysis/names.hpp"
#include "export/units.hpp"
#include "sys/try.hpp"

namespace ringside {

result<Moment> Moment::parse(std::string_view text) {
  Moment moment;
  moment.given = true;
  moment.relative = !text.empty() && text.front() == '+';
  const auto time = ringside::parse_time(text.substr(moment.relative ? 1 : 0));
  if (!time)
    return refuse(std::errc::invalid_argument,
                  in_quotes(text) + " is no time; write 12358.4s as report prints it, or +300ms after the first event");
  moment.ns = *time;
  return moment;
}

result<void> Window::parse_time(std::string_view text) {
  const bool comma = text.find(',') != std::string_view::npos;
  const size_t between = text.find(comma ? "," : "..");
  const std::string_view first = text.substr(0, between),
                         last = between == std::string_view::npos ? "" : text.substr(between + (comma ? 1 : 2));
  if (between == std::string_view::npos || (first.empty() && last.empty()))
    return refuse(std::errc::invalid_argument,
                  in_quotes(text) + " is no range; write 12.5s..13s, +0.5s..+1s, 12.5s.. or ..+1s");
  if (!first.empty()) from = RS_TRY(Moment::parse(first));
  if (!last.empty()) until = RS_TRY(Moment::parse(last));
  if (from.given && until.given && from.relative == until.relative && from.ns > until.ns)
    return refuse(std::errc::invalid_argument, in_quotes(text) + " ends before it begins");
  return {};
}

}  // namespace ringside
