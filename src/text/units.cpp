#include "text/units.hpp"

#include <fmt/format.h>

#include <cmath>
#include <vector>

namespace ringside {
namespace {

struct Number {
  std::string_view digits, unit;
};

std::optional<Number> split(std::string_view text) {
  size_t n = 0;
  bool dot = false, digit = false;
  for (; n < text.size(); ++n) {
    if (text[n] == '.' && !dot) {
      dot = true;
    } else if (text[n] >= '0' && text[n] <= '9') {
      digit = true;
    } else {
      break;
    }
  }
  if (!digit || n > 40) return std::nullopt;
  return Number{text.substr(0, n), text.substr(n)};
}

// digits[.digits] units of this size, exactly; rounded to the nearest whole number.
std::optional<u64> scaled(std::string_view digits, u64 unit) {
  __extension__ using u128 = unsigned __int128;
  const size_t dot = digits.find('.');
  u128 whole = 0, part = 0, parts = 1;
  for (const char c : digits.substr(0, dot))
    if ((whole = whole * 10 + static_cast<u32>(c - '0')) > INT64_MAX) return std::nullopt;
  const std::string_view fraction = dot == digits.npos ? "" : digits.substr(dot + 1);
  for (const char c : fraction.substr(0, 19)) part = part * 10 + static_cast<u32>(c - '0'), parts *= 10;
  const u128 all = whole * unit + (part * unit + parts / 2) / parts;
  return all > INT64_MAX ? std::nullopt : std::optional(static_cast<u64>(all));
}

}  // namespace

std::optional<u64> parse_size(std::string_view text) {
  const auto number = split(text);
  if (!number) return std::nullopt;
  std::string_view unit = number->unit;
  if (unit.empty() || unit == "b" || unit == "B") return scaled(number->digits, 1);
  u64 factor = 0;
  switch (unit.front() | 0x20) {
    case 'k':
      factor = 1024;
      break;
    case 'm':
      factor = u64{1024} * 1024;
      break;
    case 'g':
      factor = u64{1024} * 1024 * 1024;
      break;
    case 't':
      factor = u64{1024} * 1024 * 1024 * 1024;
      break;
    default:
      return std::nullopt;
  }
  unit.remove_prefix(1);
  if (unit != "" && unit != "B" && unit != "b" && unit != "iB") return std::nullopt;
  return scaled(number->digits, factor);
}

std::optional<u64> parse_time(std::string_view text) {
  const auto number = split(text);
  if (!number) return std::nullopt;
  constexpr u64 second = 1'000'000'000;
  const std::string_view unit = number->unit;
  if (unit == "ns") return scaled(number->digits, 1);
  if (unit == "us") return scaled(number->digits, 1'000);
  if (unit == "ms") return scaled(number->digits, 1'000'000);
  if (unit.empty() || unit == "s") return scaled(number->digits, second);
  if (unit == "m" || unit == "min") return scaled(number->digits, 60 * second);
  if (unit == "h") return scaled(number->digits, 3600 * second);
  return std::nullopt;
}

std::string format_size(u64 bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  auto value = static_cast<double>(bytes);
  int unit = -1;
  while (value >= 1023.95 && unit < 4) {
    value /= 1024;
    ++unit;
  }
  return fmt::format("{:.1f} {}iB", value, "KMGTP"[unit]);
}

std::string format_time(double ns, TimeUnit unit) {
  if (unit == TimeUnit::ticks)
    return format_whole(static_cast<Whole>(std::round(ns))) + (std::round(ns) == 1 ? " tick" : " ticks");
  if (ns < 999.5) return fmt::format("{:.0f} ns", ns);
  if (ns < 999.5e3) return fmt::format("{:.3g} us", ns / 1e3);
  if (ns < 999.5e6) return fmt::format("{:.3g} ms", ns / 1e6);
  return fmt::format("{:.4g} s", ns / 1e9);
}

std::string format_count(u64 count) { return format_whole(count); }

std::string digits_of(Whole value) { return fmt::format("{}", value); }

std::string format_whole(Whole value) {
  std::string digits = digits_of(value);
  const int first = value < 0 ? 1 : 0;
  for (auto at = static_cast<int>(digits.size()) - 3; at > first; at -= 3) digits.insert(static_cast<size_t>(at), 1, ',');
  return digits;
}

std::string counted(u64 count, std::string_view one, std::string_view many) {
  std::string out = format_count(count) + " ";
  return count != 1 && many.empty() ? out.append(one) + "s" : out.append(count == 1 ? one : many);
}

std::string format_rate(double per_second, std::string_view unit) {
  if (per_second < 999.5) return fmt::format("{:.0f}{}{}/s", per_second, unit.empty() ? "" : " ", unit);
  int step = -1;
  while (per_second >= 999.95 && step < 3) {
    per_second /= 1000;
    ++step;
  }
  return fmt::format("{:.1f}{}{}{}/s", per_second, unit.empty() ? "" : " ", "kMGT"[step], unit);
}

namespace {

std::string_view in_words(Refusal why) {
  switch (why) {
    case Refusal::full:
      return "refused by full rings";
    case Refusal::nested:
      return "refused as handlers had filled the ring";
    case Refusal::no_ring:
      return "that came into no ring";
    case Refusal::off:
      return "while recording was off";
    case Refusal::not_brought:
      return "of rings that the reader did not bring";
    case Refusal::unknown:
      break;
  }
  return "refused";
}

}  // namespace

std::string lost_count(const Account& account) {
  if (account.lost() == 0) return account.exact() ? "0" : "perhaps some";
  return format_count(account.lost()) + (account.exact() ? "" : " or more");
}

std::string lost_places(const Account& account) {
  std::vector<std::pair<u64, std::string_view>> places{{account.overrun, "in gaps"}};
  for (const Refusal why : all_refusals) places.emplace_back(account.refused[why], in_words(why));
  places.emplace_back(account.unrecorded, "not recorded");
  std::erase_if(places, [](const auto& place) { return place.first == 0; });
  if (account.elsewhere() == 0) return "";
  std::string out;
  for (const auto& [count, name] : places)
    out.append(out.empty() ? " (" : ", ").append(places.size() == 1 ? "" : format_count(count) + " ").append(name);
  return out.empty() ? out : out + ")";
}

namespace {

std::string refused_count(const Counters& c) {
  const std::string all = format_count(c.dropped + c.commit_overrun);
  switch (c.refusals) {
    case Refusals::by_reason:
      return "refused " + all + " = ring full " + format_count(c.dropped) + " + nested " + format_count(c.commit_overrun);
    case Refusals::in_sum: return "refused " + all;
    case Refusals::at_least: break;
  }
  return c.dropped + c.commit_overrun == 0 ? "refused: not known" : "refused " + all + " or more";
}

}  // namespace

std::string identity(const Counters& c) {
  return fmt::format("written {} = read {} + in the ring {} + overwritten {}{}; {}", format_count(c.written),
                     format_count(c.read), format_count(c.unread), format_count(c.overrun),
                     adds_up(c) ? "" : " (DOES NOT ADD UP)", refused_count(c));
}

}  // namespace ringside
