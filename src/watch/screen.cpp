#include "watch/screen.hpp"


#include <algorithm>
#include <iterator>

namespace ringside {
namespace {

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

constexpr const char* key_columns[] = {"event",  "task",       "thread",    "process", "cgroup",  "cpu",
                                       "source", "task,event", "cpu,event", "stack",   "stack[0]"};
constexpr const char* typed = "other: type it";

}  // namespace

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
  const std::string wanted = lower(utf8_of(editor_.text));
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

// From any level: its events by their stacks. On the stacks: back.
void WatchScreen::top_stacks() {
  if (of_stacks()) return levels_.empty() ? open_menu(Menu::key) : back();
  Level here{view_.picture.query, selected_, moved_};
  WatchQuery query = here.query;
  query.by = "stack";
  query.fields = false;
  if (!apply(query)) {
    message_ = editor_.error;
    return;
  }
  levels_.push_back(std::move(here));
  panel_ = Panel::stack;
  refresh();
  if (view_.picture.rows.empty() && view_.picture.all.count != 0)
    message_ = "no event here has a stack: ringside record --stack, --kstack or --sample records them";
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
  if (row_key(code) || question_key(code)) return;
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
    case 'n':
      find(true);
      break;
    case 'z':
    case Key::f(8):
      zero();
      break;
    case 's':
      top_stacks();
      break;
    case Key::tab:
    case Key::f(9):
      panel_ = next_panel();
      break;
    case '+':
    case '=':
    case '-':
      next_interval(code == '-');
      break;
    default:
      break;
  }
}

// Keys that choose a row, or go into one and back.
bool WatchScreen::row_key(KeyCode code) {
  const auto page = static_cast<i64>(std::max<size_t>(page_, 2) - 1);
  switch (code) {
    case Key::enter:
    case Key::right: drill(); return true;
    case Key::escape:
    case Key::backspace:
    case Key::left: back(); return true;
    case Key::up: move(-1); return true;
    case Key::down: move(1); return true;
    case Key::page_up: move(-page); return true;
    case Key::page_down: move(page); return true;
    case Key::home: select(0); return true;
    case Key::end: select(~size_t{0}); return true;
    default: return false;
  }
}

// Keys that change what is asked, or the order of the answer.
bool WatchScreen::question_key(KeyCode code) {
  switch (code) {
    case '\\':
    case Key::f(4): edit(Mode::filter, view_.picture.query.filter); return true;
    case '/':
    case Key::f(3): edit(Mode::search, ""); return true;
    case '>':
    case '<':
    case '.':
    case ',':
    case Key::f(6): open_menu(Menu::sort); return true;
    case 'k':
    case Key::f(2): open_menu(Menu::key); return true;
    case 'f':
    case Key::f(5): open_menu(Menu::value); return true;
    case 'I':
      if (!sort_) sort_ = view_.status.live ? WatchSort::rate : WatchSort::count;
      descending_ = !descending_;
      resort();
      update();
      return true;
    default: return false;
  }
}

void WatchScreen::next_interval(bool shorter) {
  const u64 now = view_.status.interval_ns;
  const auto* const at = shorter ? std::lower_bound(std::begin(intervals), std::end(intervals), now)
                                 : std::upper_bound(std::begin(intervals), std::end(intervals), now);
  if (shorter && at != std::begin(intervals)) host_.interval(at[-1]);
  if (!shorter && at != std::end(intervals)) host_.interval(*at);
  update();
}

namespace {

// The keys that move in a list; false: another key.
bool moves(KeyCode code, size_t& at, size_t last, size_t page) {
  switch (code) {
    case Key::up: at -= std::min<size_t>(at, 1); return true;
    case Key::down: at = std::min(at + 1, last); return true;
    case Key::page_up: at -= std::min(at, page); return true;
    case Key::page_down: at = std::min(at + page, last); return true;
    case Key::home: at = 0; return true;
    case Key::end: at = last; return true;
    default: return false;
  }
}

}  // namespace

void WatchScreen::help_key(KeyCode code) {
  if (!moves(code, help_top_, ~size_t{0} / 2, 10)) mode_ = Mode::table;
}

void WatchScreen::menu_key(KeyCode code) {
  if (moves(code, choice_, choices_.size() - 1, 8)) return;
  switch (code) {
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
  const std::string text = utf8_of(editor_.text);
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

}  // namespace ringside
