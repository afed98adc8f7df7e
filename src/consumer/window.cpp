#include "consumer/window.hpp"

#include <algorithm>
#include <charconv>

#include "analysis/names.hpp"
#include "sys/try.hpp"
#include "text/units.hpp"

namespace ringside {

namespace {

// Below the second: "12.345678", "12.345678s", "14:05:02.345678Z".
bool has_six_digits(std::string_view text) {
  const size_t point = text.find('.');
  if (point == std::string_view::npos) return false;
  const std::string_view below = text.substr(point + 1);
  const size_t digits = std::min(below.find_first_not_of("0123456789"), below.size());
  const std::string_view after = below.substr(digits);
  const bool of_seconds = after.empty() || after == "s" || text.find(':') != std::string_view::npos;
  return digits == 6 && of_seconds;
}

}  // namespace

result<Moment> Moment::parse(std::string_view text) {
  Moment moment;
  moment.given = true;
  moment.relative = !text.empty() && text.front() == '+';
  moment.in_us = !moment.relative && has_six_digits(text);
  if (text.find(':') != std::string_view::npos || (text.size() >= 10 && text[4] == '-')) {
    const WallTime wall = RS_TRY(parse_wall(text));
    moment.ns = static_cast<u64>(wall.ns);
    (wall.has_date ? moment.of_date : moment.of_day) = true;
    return moment;
  }
  const std::string_view amount = text.substr(moment.relative ? 1 : 0);
  u64 number = 0;
  const auto [end, code] = std::from_chars(amount.data(), amount.data() + amount.size(), number);
  if (code == std::errc() && end == amount.data() + amount.size()) moment.number = number;
  const auto time = ringside::parse_time(amount);
  if (!time && !moment.number)
    return refuse(std::errc::invalid_argument,
                  in_quotes(text) +
                      " is no time; write 12358.4s as report prints it, +300ms after the first event, or a time of "
                      "day: 14:05:02.5");
  moment.ns = time.value_or(~u64{0});
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
  const bool one_kind = from.relative == until.relative && from.of_day == until.of_day && from.of_date == until.of_date;
  if (from.given && until.given && one_kind && !from.of_day && from.ns > until.ns)
    return refuse(std::errc::invalid_argument, in_quotes(text) + " ends before it begins");
  if (from.in_us) from.ns -= std::min<u64>(from.ns, 500);
  if (until.in_us) until.ns += std::min<u64>(~until.ns, 499);
  return {};
}

void Window::resolve(const WallClock& wall, u64 begin) {
  const bool after_from = until.relative && (from.of_day || from.of_date);
  for (Moment* moment : {&from, &until}) {
    if (!moment->of_day && !moment->of_date) continue;
    auto ns = static_cast<i64>(moment->ns);
    if (moment->of_day) ns = wall_on_day_of(ns, wall.of(begin));
    ns -= wall.offset_ns;
    moment->ns = ns < 0 ? 0 : static_cast<u64>(ns);
    moment->of_day = moment->of_date = false;
  }
  if (after_from) until.ns += from.ns, until.relative = false;
}

result<void> Window::count_ticks() {
  for (Moment* moment : {&from, &until}) {
    if (!moment->given) continue;
    if (!moment->number)
      return refuse(std::errc::invalid_argument,
                    "the clock of this trace counts ticks and no seconds; --time takes them as report prints them: 1000..2000");
    moment->ns = *moment->number;
  }
  return {};
}

}  // namespace ringside
