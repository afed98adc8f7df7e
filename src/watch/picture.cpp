#include "watch/picture.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>

#include "text/units.hpp"

namespace ringside {
namespace {

constexpr const char* eighths_across[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉", "█"};
constexpr const char* eighths_up[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
constexpr const char* ascii_up[] = {" ", "_", ".", "-", "~", "=", "+", "*", "#"};
constexpr const char* shades[] = {" ", "░", "▒", "▓", "█"};
constexpr const char* ascii_shades[] = {" ", ".", ":", "-", "=", "+", "*", "#", "%", "@"};

std::string padded(const std::string& text, size_t width, bool right = false) {
  const std::string space(width - std::min(width, text.size()), ' ');
  return right ? space + text : text + space;
}

}  // namespace

Glyphs glyphs(bool ascii) {
  if (ascii) return Glyphs::ascii;
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(name);
    if (value == nullptr || *value == 0) continue;
    std::string locale(value);
    std::transform(locale.begin(), locale.end(), locale.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return locale.find("utf-8") != std::string::npos || locale.find("utf8") != std::string::npos ? Glyphs::unicode
                                                                                                 : Glyphs::ascii;
  }
  return Glyphs::unicode;
}

size_t terminal_width() {
  winsize size{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col != 0 ? size.ws_col : 80;
}

size_t terminal_height() {
  winsize size{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row != 0 ? size.ws_row : 24;
}

std::string bar(double share, size_t width, Glyphs glyphs) {
  const bool some = share > 0;
  share = some ? std::min(share, 1.0) : 0;
  const size_t steps = glyphs == Glyphs::unicode ? 8 : 1;
  auto filled = static_cast<size_t>(std::lround(share * static_cast<double>(width * steps)));
  if (some && filled == 0) filled = 1;
  filled = std::min(filled, width * steps);
  std::string out;
  for (size_t i = 0; i < filled / steps; ++i) out += glyphs == Glyphs::unicode ? "█" : "#";
  if (filled % steps != 0) out += eighths_across[filled % steps];
  return out + std::string(width - (filled + steps - 1) / steps, ' ');
}

std::string sparkline(const std::vector<double>& values, Glyphs glyphs, double top) {
  if (!(top > 0)) {
    for (const double v : values) top = std::max(top, std::isfinite(v) ? v : 0);
  }
  std::string out;
  for (const double v : values) {
    const double share = v > 0 && top > 0 ? std::min(v / top, 1.0) : 0;
    const auto step = static_cast<size_t>(std::ceil(share * 8));
    out += (glyphs == Glyphs::unicode ? eighths_up : ascii_up)[step];
  }
  return out;
}

std::string shade(u64 count, u64 most, Glyphs glyphs) {
  const size_t steps = glyphs == Glyphs::unicode ? std::size(shades) : std::size(ascii_shades);
  const char* const* all = glyphs == Glyphs::unicode ? shades : ascii_shades;
  if (count == 0) return all[0];
  if (count >= most || most <= 1) return all[steps - 1];
  const double share = std::log2(static_cast<double>(count) + 1) / std::log2(static_cast<double>(most) + 1);
  return all[std::clamp<size_t>(static_cast<size_t>(std::ceil(share * static_cast<double>(steps - 1))), 1, steps - 1)];
}

std::string time_bars(const Histogram& histogram, size_t width, Glyphs glyphs, TimeUnit unit) {
  std::array<u64, 65> powers{};
  histogram.each([&](i64 low, i64, u64 count) { powers[low < 0 ? 0 : std::bit_width(static_cast<u64>(low))] += count; });
  size_t first = 0, last = powers.size();
  while (first < last && powers[first] == 0) ++first;
  while (last > first && powers[last - 1] == 0) --last;
  if (first == last) return "";
  const u64 most = *std::max_element(powers.begin(), powers.end());
  std::vector<std::string> labels;
  size_t label_width = 0;
  const size_t count_width = format_count(most).size();
  for (size_t i = first; i < last; ++i) {
    const auto edge = [&](size_t power) {
      return padded(format_time(power == 0 ? 0 : std::exp2(static_cast<double>(power - 1)), unit),
                    unit == TimeUnit::ns ? 8 : format_time(static_cast<double>(histogram.max()), unit).size(), true);
    };
    labels.push_back(edge(i) + " - " + edge(i + 1));
    label_width = std::max(label_width, labels.back().size());
  }
  const size_t room = width > label_width + count_width + 12 ? width - label_width - count_width - 4 : 8;
  std::string out;
  for (size_t i = first; i < last; ++i) {
    out += labels[i - first] + "  " + bar(static_cast<double>(powers[i]) / static_cast<double>(most), room, glyphs) + "  " +
           padded(format_count(powers[i]), count_width, true) + "\n";
  }
  return out;
}

std::string heat_map(const HeatMap& heat, size_t width, Glyphs glyphs, TimeUnit unit, size_t height,
                     const std::function<std::string(double)>& other_label) {
  const u32 rows = heat.rows();
  if (rows == 0) return "";
  const auto label = [&](double value) { return other_label ? other_label(value) : format_time(value, unit); };
  const size_t label_width =
      unit == TimeUnit::ns ? 9 : std::max<size_t>(9, label(static_cast<double>(heat.high(rows - 1))).size() + 1);
  HeatMap narrow = heat;
  narrow.narrow(width > label_width + 12 ? width - label_width - 2 : 10);
  u32 first = rows;
  for (size_t c = 0; c < narrow.columns(); ++c) {
    for (u32 row = 0; row < first; ++row) {
      if (narrow.count(c, row) != 0) first = row;
    }
  }
  const u32 base = rows - first > height ? rows - static_cast<u32>(height) : first;  // lower rows are added to it
  const auto cell = [&](size_t c, u32 row) {
    u64 n = narrow.count(c, row);
    for (u32 below = first; row == base && below < base; ++below) n += narrow.count(c, below);
    return n;
  };
  u64 most = 0;
  for (size_t c = 0; c < narrow.columns(); ++c) {
    for (u32 row = base; row < rows; ++row) most = std::max(most, cell(c, row));
  }
  std::string out;
  const char* edge = glyphs == Glyphs::unicode ? "│" : "|";
  for (u32 row = rows; row-- > base;) {
    const std::string low = row == base && base != first ? "<" + label(static_cast<double>(heat.high(row)))
                                                         : label(static_cast<double>(heat.low(row)));
    out += padded(low, label_width, true) + edge;
    for (size_t c = 0; c < narrow.columns(); ++c) out += shade(cell(c, row), most, glyphs);
    out += std::string(edge) + "\n";
  }
  const auto at = [unit](u64 ns) {
    return unit == TimeUnit::ticks ? std::to_string(ns)
                                   : fmt::format("{}.{:03} s", ns / 1'000'000'000, ns % 1'000'000'000 / 1'000'000);
  };
  const std::string from = at(narrow.begin_ns(0)), to = at(narrow.begin_ns(narrow.columns() - 1) + (narrow.column_ns() - 1));
  out += std::string(label_width + 1, ' ') + from;
  if (from.size() + to.size() < narrow.columns()) out += std::string(narrow.columns() - from.size() - to.size(), ' ') + to;
  return out + fmt::format("\n{}a column is {}, the darkest {} in one\n", std::string(label_width + 1, ' '),
                           format_time(static_cast<double>(narrow.column_ns()), unit), format_count(most));
}

}  // namespace ringside
