#include "source/wall.hpp"

#include <sys/timex.h>
#include <time.h>

#include <algorithm>
#include <cstdio>

#include "clock/clock.hpp"

namespace ringside {
namespace {

constexpr i64 second = 1'000'000'000, minute = 60 * second, hour = 60 * minute, day = 24 * hour;

// Takes digits off the front; -1: there are fewer.
i64 take_digits(std::string_view& text, size_t count) {
  if (text.size() < count) return -1;
  i64 value = 0;
  for (size_t n = 0; n < count; ++n) {
    if (text[n] < '0' || text[n] > '9') return -1;
    value = 10 * value + (text[n] - '0');
  }
  text.remove_prefix(count);
  return value;
}
bool take(std::string_view& text, char c) {
  if (!text.starts_with(c)) return false;
  text.remove_prefix(1);
  return true;
}

// "14:05", "14:05:02", "14:05:02.5": ns of the day; -1: it is none.
i64 take_time(std::string_view& text) {
  const i64 hours = take_digits(text, 2);
  if (hours < 0 || hours > 23 || !take(text, ':')) return -1;
  const i64 minutes = take_digits(text, 2);
  if (minutes < 0 || minutes > 59) return -1;
  i64 ns = hours * hour + minutes * minute;
  if (!take(text, ':')) return ns;
  const i64 seconds = take_digits(text, 2);
  if (seconds < 0 || seconds > 60) return -1;
  ns += seconds * second;
  if (!take(text, '.')) return ns;
  i64 digit = second / 10;
  for (; !text.empty() && text[0] >= '0' && text[0] <= '9'; text.remove_prefix(1), digit /= 10) ns += (text[0] - '0') * digit;
  return ns;
}

tm parts_of(i64 seconds) {
  const time_t at = seconds;
  tm parts{};
  localtime_r(&at, &parts);
  return parts;
}

}  // namespace

WallClock WallClock::measure() {
  WallClock out;
  u64 best = ~u64{0};
  for (int n = 0; n < 10; ++n) {
    const u64 before = now_of({});
    timespec t{};
    clock_gettime(CLOCK_REALTIME, &t);
    const u64 after = now_of({});
    if (after - before >= best) continue;
    best = after - before;
    out.offset_ns = t.tv_sec * second + t.tv_nsec - static_cast<i64>(before + best / 2);
  }
  timex kernel{};
  const int state = adjtimex(&kernel);
  if (state >= 0 && (kernel.status & STA_UNSYNC) == 0)
    out.error_ns = std::min<u64>(static_cast<u64>(kernel.maxerror) * 1000 + best, unknown_error);
  return out;
}

std::string wall_second(i64 seconds) {
  const tm parts = parts_of(seconds);
  char text[32];
  return {text, strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts)};
}

std::string wall_text(i64 ns) {
  const i64 seconds = ns >= 0 ? ns / second : -((-ns + second - 1) / second);
  const long zone = parts_of(seconds).tm_gmtoff;
  char rest[32];
  std::snprintf(rest, sizeof rest, ".%09lld%c%02ld:%02ld", static_cast<long long>(ns - seconds * second), zone < 0 ? '-' : '+',
                std::abs(zone) / 3600, std::abs(zone) / 60 % 60);
  return wall_second(seconds) + rest;
}

result<WallTime> parse_wall(std::string_view text) {
  const auto none = [&] {
    return refuse(std::errc::invalid_argument,
                  "\"" + std::string(text.substr(0, 64)) + "\" is no time of day; write 14:05:02.5 or 2026-11-28T14:05:02.5");
  };
  std::string_view rest = text;
  WallTime out;
  if (rest.size() < 5 || rest[4] != '-') {
    out.ns = take_time(rest);
    if (out.ns < 0 || !rest.empty()) return none();
    return out;
  }
  tm parts{};
  const i64 year = take_digits(rest, 4);
  (void)take(rest, '-');
  const i64 month = take_digits(rest, 2);
  const bool dashed = take(rest, '-');
  const i64 of_month = take_digits(rest, 2);
  if (year < 0 || month < 1 || month > 12 || !dashed || of_month < 1 || of_month > 31) return none();
  const i64 time = rest.empty() ? 0 : take(rest, 'T') || take(rest, ' ') ? take_time(rest) : -1;
  if (time < 0) return none();
  parts.tm_year = static_cast<int>(year - 1900);
  parts.tm_mon = static_cast<int>(month - 1);
  parts.tm_mday = static_cast<int>(of_month);
  parts.tm_hour = static_cast<int>(time / hour);
  parts.tm_min = static_cast<int>(time % hour / minute);
  parts.tm_sec = static_cast<int>(time % minute / second);
  parts.tm_isdst = -1;
  out.has_date = true;
  if (rest.empty()) {
    out.ns = static_cast<i64>(mktime(&parts)) * second + time % second;
    return out;
  }
  out.ns = static_cast<i64>(timegm(&parts)) * second + time % second;
  if (take(rest, 'Z') && rest.empty()) return out;
  const bool east = take(rest, '+');
  if (!east && !take(rest, '-')) return none();
  const i64 zone = take_time(rest);
  if (zone < 0 || !rest.empty()) return none();
  out.ns += east ? -zone : zone;
  return out;
}

i64 wall_on_day_of(i64 time_of_day, i64 begin) {
  tm parts = parts_of(begin / second);
  const auto on = [&](int later) {
    tm at = parts;
    at.tm_mday += later;
    at.tm_hour = static_cast<int>(time_of_day / hour);
    at.tm_min = static_cast<int>(time_of_day % hour / minute);
    at.tm_sec = static_cast<int>(time_of_day % minute / second);
    at.tm_isdst = -1;
    return static_cast<i64>(mktime(&at)) * second + time_of_day % second;
  };
  const i64 same = on(0);
  return same < begin - day / 2 ? on(1) : same;
}

}  // namespace ringside
