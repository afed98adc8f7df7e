#include "watch/screen.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cwchar>

#include "export/units.hpp"

namespace ringside {
namespace {

struct Character {
  char32_t code = 0;
  size_t bytes = 1;
  bool valid = false;
};

Character decode(std::string_view s) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(s[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return {first, 1, true};
  const size_t n = first >= 0xF0 && first < 0xF8 ? 4 : first >= 0xE0 ? 3 : first >= 0xC2 ? 2 : 0;
  if (n == 0 || first >= 0xF8 || s.size() < n) return {};
  char32_t code = first & (0xFF >> (n + 1));
  for (size_t i = 1; i < n; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3F);
  }
  const bool valid =
      code <= 0x10FFFF && (code < 0xD800 || code > 0xDFFF) && (n != 3 || code >= 0x800) && (n != 4 || code >= 0x10000);
  return {code, n, valid};
}

void encode(char32_t code, std::string& out) {
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xC0 | code >> 6);
    out += static_cast<char>(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    out += static_cast<char>(0xE0 | code >> 12);
    out += static_cast<char>(0x80 | (code >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (code & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | code >> 18);
    out += static_cast<char>(0x80 | (code >> 12 & 0x3F));
    out += static_cast<char>(0x80 | (code >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (code & 0x3F));
  }
}

// In columns; a character that the locale does not know counts as one.
size_t width_of(char32_t code) {
  if (code < 0x300) return 1;
  const int width = wcwidth(static_cast<wchar_t>(code));
  return width < 0 ? 1 : static_cast<size_t>(width);
}

std::u32string characters(const std::string& text) {
  std::u32string out;
  for (std::string_view rest = text; !rest.empty();) {
    const Character c = decode(rest);
    if (c.valid) out += c.code;
    rest.remove_prefix(c.bytes);
  }
  return out;
}

std::string bytes(const std::u32string& text) {
  std::string out;
  for (const char32_t c : text) encode(c, out);
  return out;
}

size_t columns_of(const std::string& text) {
  size_t n = 0;
  for (const char32_t c : characters(text)) n += width_of(c);
  return n;
}

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

constexpr u64 intervals[] = {100'000'000,   200'000'000,    500'000'000,    1'000'000'000, 2'000'000'000,
                             5'000'000'000, 10'000'000'000, 30'000'000'000, 60'000'000'000};

constexpr struct {
  WatchSort by;
  const char* name;
  bool descending, value;
} sorts[] = {{WatchSort::rate, "rate", true, false},  {WatchSort::count, "count", true, false},
             {WatchSort::name, "name", false, false}, {WatchSort::mean, "mean", true, true},
             {WatchSort::p50, "p50", true, true},     {WatchSort::p99, "p99", true, true},
             {WatchSort::max, "max", true, true}};

constexpr const char* key_columns[] = {"event", "task", "thread", "process", "cgroup", "cpu", "source", "task,event", "cpu,event"};
constexpr const char* typed = "other: type it";

constexpr const char* help_lines[] = {
    "Up Down PgUp PgDn Home End   choose a row",
    "Enter            look into it: an event's tasks, a task's events, both: the",
    "                 fields; a field: its values",
    "Esc, Backspace   back",
    "Tab, F9          the lower panel: histogram, heat map over time, rates, none",
    "F2, k            another key: the columns that rows stand for",
    "F3, /            search for a row (n: the next one)",
    "F4, \\            filter, as in the kernel: prev_prio < 100 && comm ~ \"cc1*\"",
    "F5, f            a field or none: its quantiles, histogram and heat map",
    "F6, >, <, .      sort by; I: reverse the order",
    "F7, p, Space     pause: the screen stands still, counting goes on",
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

std::string fitted(const std::string& text, size_t width, Glyphs glyphs, bool right) {
  std::string out;
  size_t used = 0;
  for (std::string_view rest = text; !rest.empty();) {
    Character c = decode(rest);
    rest.remove_prefix(c.bytes);
    if (!c.valid || c.code < 0x20 || (c.code >= 0x7F && c.code < 0xA0) || (glyphs == Glyphs::ascii && c.code > 0x7E))
      c.code = '?';
    const size_t w = width_of(c.code);
    if (w == 0) continue;
    if (used + w > width) break;
    encode(c.code, out);
    used += w;
  }
  const std::string space(width - used, ' ');
  return right ? space + out : out + space;
}

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

void WatchScreen::update() {
  if (!paused_) refresh();
}

// Fetches a picture, and the values of its chosen row.
void WatchScreen::refresh() {
  for (int again = 0; again < 2; ++again) {
    const std::string asked = selected_;
    view_ = host_.view(asked, false);
    resort();
    if (selected_ == asked) break;
  }
}

void WatchScreen::resort() {
  auto& rows = view_.picture.rows;
  if (sort_ || !view_.picture.query.fields)
    view_.picture.sort(sort_.value_or(view_.status.live ? WatchSort::rate : WatchSort::count), descending_);
  if (moved_) {
    const auto at = std::find_if(rows.begin(), rows.end(), [&](const WatchRow& r) { return r.id == selected_; });
    if (at != rows.end()) row_ = static_cast<size_t>(at - rows.begin());
  } else {
    row_ = 0;
  }
  if (row_ >= rows.size()) row_ = rows.empty() ? 0 : rows.size() - 1;
  selected_ = rows.empty() ? "" : rows[row_].id;
}

void WatchScreen::select(size_t row) {
  const auto& rows = view_.picture.rows;
  if (rows.empty()) return;
  row_ = std::min(row, rows.size() - 1);
  moved_ = row_ != 0;
  selected_ = rows[row_].id;
  update();
}

void WatchScreen::move(i64 by) {
  select(by < 0 && static_cast<u64>(-by) > row_ ? 0 : static_cast<size_t>(static_cast<i64>(row_) + by));
}

bool WatchScreen::matches(const WatchRow& row) const {
  const auto lower = [](std::string s) {
    std::transform(s.begin(), s.end(), s.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return s;
  };
  const std::string wanted = lower(bytes(editor_.text));
  return !wanted.empty() && std::any_of(row.names.begin(), row.names.end(),
                                        [&](const std::string& name) { return lower(name).find(wanted) != std::string::npos; });
}

void WatchScreen::find(bool next) {
  const auto& rows = view_.picture.rows;
  for (size_t i = 0; i < rows.size(); ++i) {
    const size_t at = (row_ + i + (next ? 1 : 0)) % rows.size();
    if (!matches(rows[at])) continue;
    select(at);
    moved_ = true;
    editor_.error.clear();
    return;
  }
  editor_.error = editor_.text.empty() ? "" : "no row's name contains that";
}

bool WatchScreen::apply(const WatchQuery& query, bool again) {
  auto done = host_.count(query, again);
  if (!done) {
    editor_.error = done.error().sentence;
    return false;
  }
  paused_ = false;
  row_ = top_ = 0;
  moved_ = false;
  selected_.clear();
  refresh();
  return true;
}

void WatchScreen::drill() {
  if (view_.picture.rows.empty()) return;
  auto next = host_.deeper(selected_);
  if (!next) {
    message_ = "there is nothing below this row";
    return;
  }
  Level here{view_.picture.query, selected_, moved_};
  if (apply(*next))
    levels_.push_back(std::move(here));
  else
    message_ = editor_.error;
}

void WatchScreen::back() {
  if (levels_.empty()) return;
  Level level = std::move(levels_.back());
  levels_.pop_back();
  // The filter is not part of the drill-down.
  level.query.filter = view_.picture.query.filter;
  if (!apply(level.query)) {
    message_ = editor_.error;
    return;
  }
  moved_ = level.moved;
  selected_ = level.selected;
  resort();
  refresh();
}

void WatchScreen::zero() {
  if (!apply(view_.picture.query, false)) message_ = editor_.error;
}

void WatchScreen::edit(Mode mode, const std::string& text) {
  mode_ = mode;
  editor_ = {characters(text), 0, ""};
  editor_.at = editor_.text.size();
}

void WatchScreen::open_menu(Menu menu) {
  menu_ = menu;
  mode_ = Mode::menu;
  choices_.clear();
  choice_ = 0;
  const auto add = [&](const std::string& text, const std::string& now) {
    if (text == now) choice_ = choices_.size();
    choices_.push_back(text);
  };
  const WatchQuery& query = view_.picture.query;
  switch (menu) {
    case Menu::sort:
      for (const auto& sort : sorts) {
        if (sort.value && view_.picture.value.empty()) continue;
        if (sort_ == sort.by) choice_ = choices_.size();
        choices_.emplace_back(sort.name);
      }
      break;
    case Menu::key:
      for (const char* column : key_columns) add(column, query.by);
      for (const std::string& field : host_.fields(selected_, false)) add(field, query.by);
      choices_.emplace_back(typed);
      break;
    case Menu::value:
      add("none", query.value.empty() ? "none" : query.value);
      for (const std::string& field : host_.fields(selected_, true)) add(field, query.value);
      choices_.emplace_back(typed);
      break;
  }
}

void WatchScreen::choose() {
  mode_ = Mode::table;
  const std::string choice = choices_[choice_];
  WatchQuery query = view_.picture.query;
  if (menu_ == Menu::sort) {
    for (const auto& sort : sorts) {
      if (choice != sort.name) continue;
      sort_ = sort.by;
      descending_ = sort.descending;
    }
    resort();
    update();
    return;
  }
  if (choice == typed) {
    edit(menu_ == Menu::key ? Mode::key : Mode::value, menu_ == Menu::key ? query.by : query.value);
    return;
  }
  if (menu_ == Menu::key) {
    query.by = choice;
  } else {
    query.value = choice == "none" ? "" : choice;
    query.latency.reset();
    if (panel_ == Panel::rates || panel_ == Panel::off) panel_ = Panel::histogram;
  }
  query.fields = false;
  if (!apply(query)) message_ = editor_.error;
}

void WatchScreen::key(KeyCode code) {
  message_.clear();
  if (code == Key::control('c')) {
    quit_ = true;
    return;
  }
  switch (mode_) {
    case Mode::table:
      return table_key(code);
    case Mode::help:
      return help_key(code);
    case Mode::menu:
      return menu_key(code);
    default:
      return editor_key(code);
  }
}

void WatchScreen::table_key(KeyCode code) {
  const auto page = static_cast<i64>(std::max<size_t>(page_, 2) - 1);
  switch (code) {
    case 'q':
    case 'Q':
    case Key::f(10):
      quit_ = true;
      break;
    case 'h':
    case '?':
    case Key::f(1):
      mode_ = Mode::help;
      help_top_ = 0;
      break;
    case 'p':
    case ' ':
    case Key::f(7):
      // The present values of every row.
      if (!paused_) view_ = host_.view("", true), resort();
      paused_ = !paused_;
      update();
      break;
    case '\\':
    case Key::f(4):
      edit(Mode::filter, view_.picture.query.filter);
      break;
    case '/':
    case Key::f(3):
      edit(Mode::search, "");
      break;
    case 'n':
      find(true);
      break;
    case '>':
    case '<':
    case '.':
    case ',':
    case Key::f(6):
      open_menu(Menu::sort);
      break;
    case 'I':
      if (!sort_) sort_ = view_.status.live ? WatchSort::rate : WatchSort::count;
      descending_ = !descending_;
      resort();
      update();
      break;
    case 'k':
    case Key::f(2):
      open_menu(Menu::key);
      break;
    case 'f':
    case Key::f(5):
      open_menu(Menu::value);
      break;
    case 'z':
    case Key::f(8):
      zero();
      break;
    case Key::tab:
    case Key::f(9): {
      const bool values = !view_.picture.value.empty();
      panel_ = shown_panel() == Panel::histogram ? Panel::heat
               : shown_panel() == Panel::heat    ? Panel::rates
               : shown_panel() == Panel::rates   ? Panel::off
               : values                          ? Panel::histogram
                                                 : Panel::rates;
      break;
    }
    case '+':
    case '=':
      if (const auto* at = std::upper_bound(std::begin(intervals), std::end(intervals), view_.status.interval_ns);
          at != std::end(intervals))
        host_.interval(*at);
      update();
      break;
    case '-':
      if (const auto* at = std::lower_bound(std::begin(intervals), std::end(intervals), view_.status.interval_ns);
          at != std::begin(intervals))
        host_.interval(at[-1]);
      update();
      break;
    case Key::enter:
    case Key::right:
      drill();
      break;
    case Key::escape:
    case Key::backspace:
    case Key::left:
      back();
      break;
    case Key::up:
      move(-1);
      break;
    case Key::down:
      move(1);
      break;
    case Key::page_up:
      move(-page);
      break;
    case Key::page_down:
      move(page);
      break;
    case Key::home:
      select(0);
      break;
    case Key::end:
      select(~size_t{0});
      break;
    default:
      break;
  }
}

void WatchScreen::help_key(KeyCode code) {
  switch (code) {
    case Key::up:
      help_top_ -= help_top_ == 0 ? 0 : 1;
      break;
    case Key::down:
      ++help_top_;
      break;
    case Key::page_up:
      help_top_ -= std::min<size_t>(help_top_, 10);
      break;
    case Key::page_down:
      help_top_ += 10;
      break;
    default:
      mode_ = Mode::table;
      break;
  }
}

void WatchScreen::menu_key(KeyCode code) {
  switch (code) {
    case Key::up:
      choice_ -= choice_ == 0 ? 0 : 1;
      break;
    case Key::down:
      choice_ = std::min(choice_ + 1, choices_.size() - 1);
      break;
    case Key::page_up:
      choice_ -= std::min<size_t>(choice_, 8);
      break;
    case Key::page_down:
      choice_ = std::min(choice_ + 8, choices_.size() - 1);
      break;
    case Key::home:
      choice_ = 0;
      break;
    case Key::end:
      choice_ = choices_.size() - 1;
      break;
    case Key::enter:
      choose();
      break;
    case Key::escape:
    case 'q':
    case Key::f(10):
      mode_ = Mode::table;
      break;
    default:  // the next choice that begins with this character
      for (size_t i = 1; i <= choices_.size(); ++i) {
        const size_t at = (choice_ + i) % choices_.size();
        const std::string& choice = choices_[at];
        const size_t slash = choice.rfind('/');  // EVENT/FIELD
        if (code >= 0x20 && code < 0x7F && choice[slash == std::string::npos ? 0 : slash + 1] == static_cast<char>(code)) {
          choice_ = at;
          break;
        }
      }
      break;
  }
}

void WatchScreen::accept() {
  const std::string text = bytes(editor_.text);
  WatchQuery query = view_.picture.query;
  switch (mode_) {
    case Mode::search:
      mode_ = Mode::table;
      return;
    case Mode::filter:
      query.filter = text;
      break;
    case Mode::key:
      query.by = text;
      query.fields = false;
      break;
    case Mode::value:
      query.value = text;
      query.latency.reset();
      query.fields = false;
      break;
    default:
      return;
  }
  // A refused text stays in the editor, with the error above it.
  if (apply(query)) mode_ = Mode::table;
}

void WatchScreen::editor_key(KeyCode code) {
  auto& [text, at, error] = editor_;
  const bool search = mode_ == Mode::search;
  switch (code) {
    case Key::enter:
      accept();
      return;
    case Key::escape:
    case Key::f(10):
      mode_ = Mode::table;
      return;
    case Key::left:
    case Key::control('b'):
      at -= at == 0 ? 0 : 1;
      return;
    case Key::right:
    case Key::control('f'):
      at += at == text.size() ? 0 : 1;
      return;
    case Key::home:
    case Key::control('a'):
      at = 0;
      return;
    case Key::end:
    case Key::control('e'):
      at = text.size();
      return;
    case Key::up:
    case Key::down:
    case Key::page_up:
    case Key::page_down:
      return;
    case Key::f(3):
      if (search) find(true);
      return;
    case Key::backspace:
      if (at != 0) text.erase(--at, 1);
      break;
    case Key::remove:
    case Key::control('d'):
      if (at < text.size()) text.erase(at, 1);
      break;
    case Key::control('u'):
      text.erase(0, at);
      at = 0;
      break;
    case Key::control('k'):
      text.erase(at);
      break;
    case Key::control('w'):
      while (at != 0 && text[at - 1] == ' ') text.erase(--at, 1);
      while (at != 0 && text[at - 1] != ' ') text.erase(--at, 1);
      break;
    default:
      if (code < 0x20 || code > 0x10FFFF || text.size() >= 4000) return;
      text.insert(at++, 1, static_cast<char32_t>(code));
      break;
  }
  error.clear();
  if (search) find(false);
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
  line.push_back(p.missing.nothing() ? Span{"none lost", Style::good} : Span{lost_count(p.missing) + " lost", Style::bad});
  if (p.evicted_keys != 0) line.push_back({fmt::format("  {} keys given up", format_count(p.evicted_keys)), Style::warn});
  if (p.without != 0) line.push_back({fmt::format("  {} without key", format_count(p.without)), Style::warn});
  line.push_back({"  in " + format_time(p.seconds * 1e9)});
  return line;
}

Line WatchScreen::path(size_t) const {
  const WatchQuery& q = view_.picture.query;
  Line line{{" "}};
  for (const WatchOnly& only : q.only) {
    line.push_back(
        {only.column == "event" || only.column == "task" ? only.shown : only.column + " " + only.shown, Style::bold});
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
  constexpr size_t cell = 26, name = 10, length = 8;
  const size_t in_line = std::max<size_t>(width / cell, 1);
  const size_t lines = std::min((all.size() + in_line - 1) / in_line, height);
  for (size_t l = 0; l < lines; ++l) {
    Line line;
    for (size_t i = l * in_line; i < std::min((l + 1) * in_line, all.size()); ++i) {
      if (l + 1 == lines && i + 1 == (l + 1) * in_line && i + 1 < all.size()) {
        line.push_back({fmt::format(" ({} more rings)", all.size() - i), Style::dim});
        break;
      }
      line.push_back({" " + fitted(all[i].name, name, glyphs_) + " "});
      line.push_back({bar(all[i].fill, length, glyphs_), all[i].fill > .9 ? Style::warn : Style::good});
      line.push_back({fmt::format("{:4.0f} %", all[i].fill * 100)});
    }
    out.push_back(std::move(line));
  }
  return out;
}

std::vector<Line> WatchScreen::table(size_t width, size_t height) {
  const WatchPicture& p = view_.picture;
  std::vector<Line> out;
  if (height == 0) return out;
  const bool values = !p.value.empty();
  // The columns that fit, the most important first.
  struct Number {
    const char* title;
    size_t width;
    WatchSort sort;
    bool shown;
  };
  Number numbers[] = {{"COUNT", 13, WatchSort::count, false}, {"RATE", 9, WatchSort::rate, false},
                      {"MEAN", 10, WatchSort::mean, false},   {"P50", 10, WatchSort::p50, false},
                      {"P99", 10, WatchSort::p99, false},     {"MAX", 10, WatchSort::max, false},
                      {"SHARE", 8, WatchSort::count, false}};
  enum { count, rate, mean, p50, p99, max, share };
  size_t longest = 8;
  for (const WatchRow& row : p.rows) {
    size_t n = row.names.size() - 1;
    for (const std::string& name : row.names) n += columns_of(name);
    longest = std::max(longest, n);
  }
  size_t names = std::min(longest, std::max<size_t>(std::min<size_t>(width, 24), width / 3));
  size_t room = width > names + 1 ? width - names - 1 : 0, curve = 0;
  const auto take = [&](int which) {
    if (room < numbers[which].width) return;
    numbers[which].shown = true;
    room -= numbers[which].width;
  };
  take(count);
  take(rate);
  if (values) take(p99);
  if (room >= 9) room -= curve = 9;
  if (values)
    for (const int which : {p50, max}) take(which);
  take(share);
  if (values && width >= 110) take(mean);
  const size_t more_names = std::min(longest - names, curve == 0 || room < 8 ? room : room / 2);
  names += more_names;
  room -= more_names;
  if (curve != 0) {
    const size_t more = std::min(room, WatchModel::slots - curve);
    curve += more;
    room -= more;
  } else {
    names += room;
  }
  names = std::min(names, width);
  const WatchSort by = sort_.value_or(view_.status.live ? WatchSort::rate : WatchSort::count);

  const auto key_cells = [&](const std::vector<std::string>& cells) {
    std::string text;
    if (cells.size() < 2) {
      text = cells.empty() ? "" : cells[0];
    } else {
      const size_t first = (names - std::min<size_t>(names, 1)) / 2;
      text = fitted(cells[0], first, glyphs_) + " " + cells[1];
    }
    return fitted(text, names, glyphs_);
  };
  std::vector<std::string> titles;
  for (std::string title : p.columns) {
    std::transform(title.begin(), title.end(), title.begin(),
                   [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    titles.push_back(std::move(title));
  }
  Line header{{key_cells(titles), sort_ == WatchSort::name ? Style::selected : Style::label}};
  const auto head = [&](int which) {
    const Number& n = numbers[which];
    if (n.shown)
      header.push_back(
          {fitted(n.title, n.width, glyphs_, true), n.sort == by && which != share ? Style::selected : Style::label});
  };
  head(count);
  head(rate);
  if (curve != 0)
    header.push_back({" " + fitted(view_.status.live ? "LAST INTERVALS" : "OVER TIME", curve - 1, glyphs_), Style::label});
  for (const int which : {mean, p50, p99, max, share}) head(which);
  header.push_back({std::string(room + 1, ' '), Style::label});
  out.push_back(std::move(header));

  const size_t lines = height - 1;
  page_ = std::max<size_t>(lines, 1);
  if (row_ < top_) top_ = row_;
  if (row_ >= top_ + lines && lines != 0) top_ = row_ - lines + 1;
  if (top_ + lines > p.rows.size()) top_ = p.rows.size() > lines ? p.rows.size() - lines : 0;
  for (size_t i = 0; i < lines; ++i) {
    const size_t at = top_ + i;
    if (at >= p.rows.size()) {
      out.push_back(i == 0 ? Line{{view_.status.live ? " nothing yet" : " nothing", Style::dim}} : Line{});
      continue;
    }
    const WatchRow& row = p.rows[at];
    const bool selected = at == row_;
    const bool found = mode_ == Mode::search && matches(row);
    const auto style = [&](Style s) { return selected ? Style::selected : s; };
    Line line{{key_cells(row.names), style(found ? Style::found : Style::plain)}};
    const auto cell = [&](int which, const std::string& text, Style s) {
      if (numbers[which].shown) line.push_back({fitted(text, numbers[which].width, glyphs_, true), style(s)});
    };
    const auto value = [&](int which, double v) { cell(which, row.values == 0 ? "" : show(v, row.unit), Style::plain); };
    cell(count, format_count(row.count), Style::plain);
    cell(rate, format_rate(row.rate, ""), Style::bold);
    if (curve != 0) line.push_back({" " + spark(row, curve - 1), style(Style::good)});
    value(mean, row.mean);
    value(p50, row.p50);
    value(p99, row.p99);
    value(max, row.max);
    cell(share, fmt::format("{:.1f} %", row.share * 100), Style::plain);
    line.push_back({std::string(room + 1, ' '), style(Style::plain)});
    out.push_back(std::move(line));
  }
  if (mode_ == Mode::menu) {
    // The menu is a column on the left, over the rows.
    size_t wide = 12;
    for (const std::string& c : choices_) wide = std::max(wide, columns_of(c));
    wide = std::min(wide + 2, width);
    const size_t first = choice_ >= lines && lines != 0 ? choice_ - lines + 1 : 0;
    const char* const what = menu_ == Menu::sort ? " Sort by" : menu_ == Menu::key ? " A row for each" : " Histogram of";
    for (size_t i = 0; i < out.size(); ++i) {
      const size_t at = first + i - 1;
      Span span{i == 0                 ? fitted(what, wide, glyphs_)
                : at < choices_.size() ? fitted(" " + choices_[at], wide, glyphs_)
                                       : std::string(wide, ' '),
                i == 0          ? Style::title
                : at == choice_ ? Style::selected
                                : Style::plain};
      out[i].insert(out[i].begin(), {std::move(span), {i == 0 ? " " : glyphs_ == Glyphs::unicode ? "│" : "|", Style::dim}});
    }
  }
  return out;
}

WatchScreen::Panel WatchScreen::shown_panel() const {
  return panel_ != Panel::off && view_.picture.value.empty() ? Panel::rates : panel_;
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
  if (which == Panel::rates) {
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
  } else if (which == Panel::heat && found != p.values.end() && height > 3) {
    const Column::Unit unit = row->unit;
    const std::string picture =
        heat_map(found->second->heat, width, glyphs_, height - 3, [&](double v) { return show(v, unit); });
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
  out.push_back({{name, Style::bold}, {fitted(bytes(editor_.text.substr(from)), room, glyphs_)}});
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
