// How WatchScreen draws itself.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "text/units.hpp"
#include "watch/screen.hpp"
#include "watch/table_columns.hpp"

namespace ringside {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> out;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    out.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

// Left and right on one line; the right one is cut first.
Line both(Line left, const Line& right, size_t width, Style between) {
  size_t used = 0, wanted = 0;
  for (const Span& s : left) used += columns_of(s.text);
  for (const Span& s : right) wanted += columns_of(s.text);
  if (used + wanted + 1 > width) return left;
  left.push_back({std::string(width - used - wanted, ' '), between});
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

constexpr const char* help_lines[] = {
    "Up Down PgUp PgDn Home End   choose a row",
    "Enter            look into it: an event's tasks, a task's events, both: the",
    "                 fields; a field: its values",
    "Esc, Backspace   back",
    "s                top stacks: a row for each stack, of what is chosen here; s: back",
    "Tab, F9          the lower panel: stack, histogram, heat map over time, rates, none",
    "F2, k            another key: the columns that make the rows",
    "F3, /            search for a row (n: the next one)",
    "F4, \\            filter, as in the kernel: prev_prio < 100 && comm ~ \"cc1*\"",
    "F5, f            a field or none: its quantiles, histogram and heat map",
    "F6, >, <, .      sort by; I: reverse the order",
    "F7, p, Space     pause: the screen is frozen, counting goes on",
    "F8, z            count from zero",
    "+ -              a longer or shorter interval",
    "Ctrl-L           draw the screen anew",
    "F10, q, Ctrl-C   end, with a table of the whole",
    "",
    "Rates are for the last interval, the small curves for those before it, the newest",
    "on the right; for a recording, for all of its time. lost: events that nobody read.",
    "New questions to a recording or an instance read it again; the kernel's events and",
    "those of an external writer count from now on.",
};

}  // namespace

std::string Frame::text() const {
  std::string out;
  for (const Line& line : lines) {
    std::string one;
    for (const Span& span : line) one += span.text;
    one.erase(one.find_last_not_of(' ') + 1);
    out += one + "\n";
  }
  return out;
}

std::string WatchScreen::show(double value, Column::Unit unit) const {
  if (unit == Column::Unit::ns) return format_time(value);
  if (unit == Column::Unit::bytes) return value < 0 ? fmt::format("{:.0f} B", value) : format_size(static_cast<u64>(value));
  if (std::abs(value) < 1e5) return fmt::format("{:.5g}", value);
  return fmt::format("{:.3g}", value);
}

// For a live source the newest rates, for a recording all of its time in any width.
std::vector<double> WatchScreen::rates(const WatchRow& row, size_t width) const {
  std::vector<double> out = row.rates;
  if (out.size() <= width) return out;
  if (view_.status.live) {
    out.erase(out.begin(), out.end() - static_cast<std::ptrdiff_t>(width));
    return out;
  }
  std::vector<double> narrow(width);
  for (size_t i = 0; i < width; ++i) {
    const size_t from = i * out.size() / width, to = std::max(from + 1, (i + 1) * out.size() / width);
    for (size_t k = from; k < to; ++k) narrow[i] += out[k] / static_cast<double>(to - from);
  }
  return narrow;
}

std::string WatchScreen::spark(const WatchRow& row, size_t width) const {
  const std::vector<double> shown = rates(row, width);
  const std::string space(width - shown.size(), ' ');
  return view_.status.live ? space + sparkline(shown, glyphs_) : sparkline(shown, glyphs_) + space;
}

Line WatchScreen::title(size_t width) const {
  const WatchStatus& s = view_.status;
  const std::string left = " ringside watch  ";
  size_t room = width - std::min(width, left.size() + 1);
  Line right;
  // Parts that still leave room for the source's name; the pause is always shown.
  const auto add = [&](const std::string& text, Style style, size_t rest) {
    if (room < columns_of(text) + rest) return;
    room -= columns_of(text);
    right.push_back({text, style});
  };
  if (paused_) add("PAUSED ", Style::warn, 0);
  add(s.live    ? fmt::format("live, every {} ", format_time(static_cast<double>(s.interval_ns)))
      : s.ended ? "recording "
                : "reading it ",
      Style::title, 12);
  add(fmt::format(" own CPU {:.0f} % ", s.own_cpu * 100), Style::title, 12);
  if (!s.clock.empty()) add(" clock " + s.clock + " ", Style::title, 12);
  return both({{left, Style::title}, {fitted(s.where, std::min(columns_of(s.where), room), glyphs_), Style::title}}, right,
              width, Style::title);
}

Line WatchScreen::totals(size_t) const {
  const WatchPicture& p = view_.picture;
  Line line{{" " + format_count(p.all.count), Style::bold},
            {" events  "},
            {format_rate(p.all.rate, ""), Style::bold},
            {"  "},
            {spark(p.all, 12), Style::good},
            {"  "}};
  line.push_back(p.account.none_lost() ? Span{"none lost", Style::good} : Span{lost_count(p.account) + " lost", Style::bad});
  if (p.evicted_keys != 0) line.push_back({fmt::format("  {} keys given up", format_count(p.evicted_keys)), Style::warn});
  if (p.without != 0) line.push_back({fmt::format("  {} without key", format_count(p.without)), Style::warn});
  line.push_back({"  in " + format_time(p.seconds * 1e9)});
  return line;
}

Line WatchScreen::path(size_t) const {
  const WatchQuery& q = view_.picture.query;
  Line line{{" "}};
  for (const WatchOnly& only : q.only) {
    const std::string shown =
        only.column == "stack" ? only.shown.substr(0, only.shown.find(" < ")) : only.shown;  // the innermost function
    line.push_back({only.column == "event" || only.column == "task" ? shown : only.column + " " + shown, Style::bold});
    line.push_back({" > ", Style::dim});
  }
  line.push_back({q.fields ? "fields" : "by " + q.by});
  if (q.latency && !q.fields)
    line.push_back({"  latency " + q.latency->start + " -> " + q.latency->end});
  else if (!q.value.empty() && !q.fields)
    line.push_back({"  value " + q.value});
  if (!q.filter.empty()) line.push_back({"  filter " + q.filter, Style::warn});
  if (view_.picture.keys > view_.picture.rows.size())
    line.push_back(
        {fmt::format("  the {} largest of {}", view_.picture.rows.size(), format_count(view_.picture.keys)), Style::dim});
  return line;
}

std::vector<Line> WatchScreen::rings(size_t width, size_t height) const {
  const auto& all = view_.status.rings;
  std::vector<Line> out;
  if (all.empty() || height == 0) return out;
  constexpr size_t cell = 31, name = 10, length = 8;
  const size_t in_line = std::max<size_t>(width / cell, 1);
  const size_t lines = std::min((all.size() + in_line - 1) / in_line, height);
  for (size_t l = 0; l < lines; ++l) {
    Line line;
    for (size_t i = l * in_line; i < std::min((l + 1) * in_line, all.size()); ++i) {
      if (l + 1 == lines && i + 1 == (l + 1) * in_line && i + 1 < all.size()) {
        line.push_back({fmt::format(" ({})", counted(all.size() - i, "more ring")), Style::dim});
        break;
      }
      line.push_back({" " + fitted(all[i].name, name, glyphs_) + " "});
      line.push_back({bar(all[i].fill, length, glyphs_), all[i].fill > .9 ? Style::warn : Style::good});
      line.push_back({fmt::format("{:4.0f} % full", all[i].fill * 100)});
    }
    out.push_back(std::move(line));
  }
  return out;
}

std::string WatchScreen::key_cells(const std::vector<std::string>& cells, size_t width) const {
  if (cells.size() < 2) return fitted(cells.empty() ? "" : cells[0], width, glyphs_);
  const size_t first = (width - std::min<size_t>(width, 1)) / 2;
  return fitted(fitted(cells[0], first, glyphs_) + " " + cells[1], width, glyphs_);
}

Line WatchScreen::table_header(const TableColumns& c) const {
  const WatchSort by = sort_.value_or(view_.status.live ? WatchSort::rate : WatchSort::count);
  std::vector<std::string> titles;
  for (std::string title : view_.picture.columns) {
    std::transform(title.begin(), title.end(), title.begin(),
                   [](unsigned char l) { return static_cast<char>(std::toupper(l)); });
    titles.push_back(std::move(title));
  }
  Line header{{key_cells(titles, c.names), sort_ == WatchSort::name ? Style::selected : Style::label}};
  const auto head = [&](TableColumns::Which which) {
    const TableColumns::Number& n = c.numbers[which];
    if (!n.shown) return;
    header.push_back(
        {fitted(n.title, n.width, glyphs_, true), n.sort == by && which != c.share ? Style::selected : Style::label});
  };
  head(c.count);
  head(c.rate);
  if (c.curve != 0)
    header.push_back({" " + fitted(view_.status.live ? "LAST INTERVALS" : "OVER TIME", c.curve - 1, glyphs_), Style::label});
  for (const auto which : {c.mean, c.p50, c.p99, c.max, c.share}) head(which);
  header.push_back({std::string(c.rest + 1, ' '), Style::label});
  return header;
}

Line WatchScreen::table_row(const TableColumns& c, const WatchRow& row, bool selected) const {
  const bool found = mode_ == Mode::search && matches(row);
  const auto style = [&](Style s) { return selected ? Style::selected : s; };
  Line line{{key_cells(row.names, c.names), style(found ? Style::found : Style::plain)}};
  const auto cell = [&](TableColumns::Which which, const std::string& text, Style s) {
    if (c.numbers[which].shown) line.push_back({fitted(text, c.numbers[which].width, glyphs_, true), style(s)});
  };
  const auto value = [&](TableColumns::Which which, double v) {
    cell(which, row.values == 0 ? "" : show(v, row.unit), Style::plain);
  };
  cell(c.count, format_count(row.count), Style::plain);
  cell(c.rate, format_rate(row.rate, ""), Style::bold);
  if (c.curve != 0) line.push_back({" " + spark(row, c.curve - 1), style(Style::good)});
  value(c.mean, row.mean);
  value(c.p50, row.p50);
  value(c.p99, row.p99);
  value(c.max, row.max);
  cell(c.share, fmt::format("{:.1f} %", row.share * 100), Style::plain);
  line.push_back({std::string(c.rest + 1, ' '), style(Style::plain)});
  return line;
}

// The menu is a column on the left, over the table.
void WatchScreen::draw_menu(std::vector<Line>& over, size_t width) const {
  const size_t lines = over.size() - 1;
  size_t wide = 12;
  for (const std::string& c : choices_) wide = std::max(wide, columns_of(c));
  wide = std::min(wide + 2, width);
  const size_t first = choice_ >= lines && lines != 0 ? choice_ - lines + 1 : 0;
  const char* const what = menu_ == Menu::sort ? " Sort by" : menu_ == Menu::key ? " A row for each" : " Histogram of";
  for (size_t i = 0; i < over.size(); ++i) {
    const size_t at = first + i - 1;
    Span span{i == 0                 ? fitted(what, wide, glyphs_)
              : at < choices_.size() ? fitted(" " + choices_[at], wide, glyphs_)
                                     : std::string(wide, ' '),
              i == 0          ? Style::title
              : at == choice_ ? Style::selected
                              : Style::plain};
    over[i].insert(over[i].begin(), {std::move(span), {i == 0 ? " " : glyphs_ == Glyphs::unicode ? "│" : "|", Style::dim}});
  }
}

std::vector<Line> WatchScreen::table(size_t width, size_t height) {
  const WatchPicture& p = view_.picture;
  std::vector<Line> out;
  if (height == 0) return out;
  size_t longest = 8;
  for (const WatchRow& row : p.rows) {
    size_t n = row.names.size() - 1;
    for (const std::string& name : row.names) n += columns_of(name);
    longest = std::max(longest, n);
  }
  const TableColumns columns(width, longest, !p.value.empty());
  out.push_back(table_header(columns));

  const size_t lines = height - 1;
  page_ = std::max<size_t>(lines, 1);
  if (row_ < top_) top_ = row_;
  if (row_ >= top_ + lines && lines != 0) top_ = row_ - lines + 1;
  if (top_ + lines > p.rows.size()) top_ = p.rows.size() > lines ? p.rows.size() - lines : 0;
  for (size_t at = top_; at < top_ + lines; ++at) {
    if (at < p.rows.size())
      out.push_back(table_row(columns, p.rows[at], at == row_));
    else
      out.push_back(at == top_ ? Line{{view_.status.live ? " nothing yet" : " nothing", Style::dim}} : Line{});
  }
  if (mode_ == Mode::menu) draw_menu(out, width);
  return out;
}

WatchScreen::Panel WatchScreen::shown_panel() const {
  const bool values = !view_.picture.value.empty();
  const Panel panel = panel_ == Panel::stack && !of_stacks() ? Panel::histogram : panel_;
  return !values && (panel == Panel::histogram || panel == Panel::heat) ? Panel::rates : panel;
}

WatchScreen::Panel WatchScreen::next_panel() const {
  const Panel first = view_.picture.value.empty() ? Panel::rates : Panel::histogram;
  switch (shown_panel()) {
    case Panel::stack:
      return first;
    case Panel::histogram:
      return Panel::heat;
    case Panel::heat:
      return Panel::rates;
    case Panel::rates:
      return Panel::off;
    case Panel::off:
      break;
  }
  return of_stacks() ? Panel::stack : first;
}

// The functions of the chosen stack, the innermost first.
std::vector<Line> WatchScreen::calls(size_t width, size_t height) const {
  std::vector<Line> out;
  if (view_.picture.rows.empty() || height == 0) return out;
  const auto& stack = view_.picture.rows[row_].stack;
  for (size_t i = 0; i < stack.size() && i < height; ++i) {
    const bool more = i + 1 == height && stack.size() > height;
    out.push_back({{fitted(more ? fmt::format("    and {} more", stack.size() - i) : (i == 0 ? "    " : " => ") + stack[i],
                           width, glyphs_),
                    i == 0 ? Style::bold
                    : more ? Style::dim
                           : Style::plain}});
  }
  return out;
}

std::vector<Line> WatchScreen::bars(size_t width, size_t height) const {
  const auto& values = view_.picture.values;
  const auto found = values.find(selected_);
  std::vector<Line> out;
  if (found == values.end() || height == 0) return out;
  const Column::Unit unit = view_.picture.rows[row_].unit;
  std::array<u64, 66> powers{};  // [0]: below zero, [1]: zero, [n]: from 2^(n-2) on
  found->second->histogram.each(
      [&](i64 low, i64, u64 n) { powers[low < 0 ? 0 : 1 + static_cast<size_t>(std::bit_width(static_cast<u64>(low)))] += n; });
  size_t first = 0, last = powers.size();
  while (first < last && powers[first] == 0) ++first;
  while (last > first && powers[last - 1] == 0) --last;
  const size_t step = (last - first + height - 1) / height;
  const auto edge = [&](size_t i) { return i == 0 ? "-" : show(i == 1 ? 0 : std::exp2(static_cast<double>(i) - 2), unit); };
  u64 most = 1;
  std::vector<u64> counts;
  for (size_t i = first; i < last; i += step) {
    u64 n = 0;
    for (size_t k = i; k < std::min(i + step, last); ++k) n += powers[k];
    counts.push_back(n);
    most = std::max(most, n);
  }
  const size_t number = format_count(most).size();
  for (size_t i = 0; i < counts.size(); ++i) {
    const std::string label = fitted(edge(first + i * step), 10, glyphs_, true) + " - " +
                              fitted(edge(first + (i + 1) * step), 10, glyphs_, true) + " ";
    const size_t room = width > label.size() + number + 2 ? width - label.size() - number - 2 : 0;
    out.push_back({{label},
                   {bar(static_cast<double>(counts[i]) / static_cast<double>(most), room, glyphs_), Style::good},
                   {" " + fitted(format_count(counts[i]), number, glyphs_, true)}});
  }
  return out;
}

// The rates of a row as a curve of `height` lines.
std::vector<Line> WatchScreen::graph(size_t width, size_t height) const {
  std::vector<Line> out;
  if (view_.picture.rows.empty() || height == 0 || width < 14) return out;
  constexpr size_t label = 10;
  const size_t room = width - label - 2;
  const std::vector<double> shown = rates(view_.picture.rows[row_], room);
  const size_t wide =
      shown.empty() ? 1 : std::clamp<size_t>(room / std::max<size_t>(shown.size(), view_.status.live ? 60 : 1), 1, 8);
  double top = 0;
  for (const double r : shown) top = std::max(top, r);
  for (size_t line = 0; line < height; ++line) {
    std::vector<double> part;
    for (const double r : shown) {
      const double level =
          top > 0 ? std::clamp(r / top * static_cast<double>(height) - static_cast<double>(height - 1 - line), 0., 1.) : 0;
      part.insert(part.end(), wide, level);
    }
    const std::string text = line == 0 ? format_rate(top, "") : line + 1 == height ? "0" : "";
    out.push_back({{fitted(text, label, glyphs_, true)},
                   {glyphs_ == Glyphs::unicode ? "│" : "|", Style::dim},
                   {sparkline(part, glyphs_, 1), Style::good}});
  }
  return out;
}

std::vector<Line> WatchScreen::panel(size_t width, size_t height) const {
  std::vector<Line> out;
  if (height == 0) return out;
  const WatchPicture& p = view_.picture;
  const Panel which = shown_panel();
  const WatchRow* row = p.rows.empty() ? nullptr : &p.rows[row_];
  std::string of;
  if (row != nullptr) {
    for (const std::string& name : row->names) of += (of.empty() ? "" : ", ") + name;
  }
  const auto found = p.values.find(selected_);
  const std::string value = p.query.fields ? "" : p.value + " of ";
  std::string text;
  if (which == Panel::stack) {
    text = row == nullptr ? " Stack" : fmt::format(" Stack: {}, {:.1f} %", counted(row->count, "event"), row->share * 100);
  } else if (which == Panel::rates) {
    text = fmt::format(
        " Rate of {}{}", of,
        p.slot_seconds > 0 && view_.status.live ? fmt::format(", {} an interval", format_time(p.slot_seconds * 1e9)) : "");
  } else {
    const bool shared = which == Panel::heat && found != p.values.end() && found->second->heat_of_all;
    text = (which == Panel::heat ? " Heat map, " : " Histogram, ") + value + (shared ? "all rows" : of);
    if (row != nullptr && row->values != 0)
      text += fmt::format(": {} mean {} p50 {} p99 {} max {}", format_count(row->values), show(row->mean, row->unit),
                          show(row->p50, row->unit), show(row->p99, row->unit), show(row->max, row->unit));
  }
  out.push_back({{fitted(text, width, glyphs_), Style::label}});
  std::vector<Line> body;
  if (which == Panel::rates) {
    body = graph(width, height - 1);
  } else if (which == Panel::stack) {
    body = calls(width, height - 1);
  } else if (which == Panel::heat && found != p.values.end() && height > 3) {
    const Column::Unit unit = row->unit;
    const std::string picture =
        heat_map(found->second->heat, width, glyphs_, TimeUnit::ns, height - 3, [&](double v) { return show(v, unit); });
    for (const std::string& line : lines_of(picture)) body.push_back({{line}});
  } else if (which == Panel::histogram) {
    body = bars(width, height - 1);
  }
  if (body.empty()) body.push_back({{" no values", Style::dim}});
  body.resize(height - 1);
  out.insert(out.end(), body.begin(), body.end());
  return out;
}

std::vector<Line> WatchScreen::help(size_t width, size_t height) {
  std::vector<Line> out{{{fitted(" ringside watch: keys", width, glyphs_), Style::title}}};
  const size_t lines = height > 2 ? height - 2 : 0, all = std::size(help_lines);
  help_top_ = std::min(help_top_, all > lines ? all - lines : 0);
  for (size_t i = 0; i < lines; ++i)
    out.push_back(help_top_ + i < all ? Line{{" " + std::string(help_lines[help_top_ + i])}} : Line{});
  out.push_back({{fitted(help_top_ + lines < all ? " Down: more; any other key: back" : " any key: back", width, glyphs_),
                  Style::label}});
  return out;
}

Line WatchScreen::footer(size_t width) const {
  if (!message_.empty()) return {{fitted(" " + message_.substr(0, message_.find('\n')), width, glyphs_), Style::bad}};
  constexpr const char* labels[] = {"Help", "Key", "Search", "Filter", "Field", "SortBy", "Pause", "Zero", "Panel", "Quit"};
  Line line;
  const size_t each = std::max<size_t>(width / std::size(labels), 8);
  for (u32 i = 0; i < std::size(labels); ++i) {
    const std::string name = "F" + std::to_string(i + 1);
    line.push_back({name, Style::key});
    line.push_back({fitted(i == 6 && paused_ ? "Go on" : labels[i], each - name.size(), glyphs_), Style::label});
  }
  return line;
}

// The editor's line, with its error above.
std::vector<Line> WatchScreen::prompt(size_t width, Frame& frame) const {
  std::vector<Line> out;
  for (const std::string& line : lines_of(editor_.error)) out.push_back({{fitted(" " + line, width, glyphs_), Style::bad}});
  const std::string name = mode_ == Mode::search   ? " Search: "
                           : mode_ == Mode::filter ? " Filter: "
                           : mode_ == Mode::key    ? " A row for each: "
                                                   : " Histogram of: ";
  // The part of the text around the cursor.
  const size_t room = width > name.size() + 1 ? width - name.size() - 1 : 1;
  size_t from = 0, x = 0;
  const auto measure = [&] {
    x = 0;
    for (size_t i = from; i < editor_.at; ++i) x += width_of(editor_.text[i]);
    return x;
  };
  while (from < editor_.at && measure() > room) ++from;
  out.push_back({{name, Style::bold}, {fitted(utf8_of(editor_.text.substr(from)), room, glyphs_)}});
  frame.cursor_x = static_cast<int>(std::min(name.size() + x, width - 1));
  return out;
}

Frame WatchScreen::frame(size_t width, size_t height) {
  Frame frame;
  width = std::max<size_t>(width, 1);
  height = std::max<size_t>(height, 1);
  auto& lines = frame.lines;
  if (mode_ == Mode::help) {
    lines = help(width, height);
  } else {
    const size_t foot = height >= 3 ? 1 : 0;
    if (height >= 4) lines.push_back(title(width));
    if (height >= 8) lines.push_back(totals(width));
    if (height >= 16) lines.push_back(path(width));
    if (height >= 16) {
      for (Line& line : rings(width, height >= 40 ? 3 : 1)) lines.push_back(std::move(line));
    }
    size_t left = height - lines.size() - foot;
    const size_t below = height >= 18 && shown_panel() != Panel::off ? std::max<size_t>(8, left * 9 / 20) : 0;
    left -= below;
    for (Line& line : table(width, left)) lines.push_back(std::move(line));
    for (Line& line : panel(width, below)) lines.push_back(std::move(line));
    if (foot != 0) lines.push_back(footer(width));
  }
  lines.resize(height);
  if (mode_ != Mode::table && mode_ != Mode::help && mode_ != Mode::menu) {
    std::vector<Line> under = prompt(width, frame);
    if (under.size() > height) under.erase(under.begin(), under.end() - static_cast<std::ptrdiff_t>(height));
    std::move(under.begin(), under.end(), lines.end() - static_cast<std::ptrdiff_t>(under.size()));
    frame.cursor_y = static_cast<int>(height) - 1;
  }
  for (Line& line : lines) {
    size_t used = 0;
    for (Span& span : line) {
      const size_t w = columns_of(span.text);
      span.text = fitted(span.text, std::min(w, width - used), glyphs_);
      used += std::min(w, width - used);
    }
    const Style last = line.empty() ? Style::plain : line.back().style;
    if (last == Style::title || last == Style::label) line.push_back({std::string(width - used, ' '), last});
  }
  return frame;
}

}  // namespace ringside
