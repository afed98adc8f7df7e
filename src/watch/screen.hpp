// The screen of `ringside watch`: the effect of each key, and the layout. No terminal in here: a frame is lines of styled text,
// for any width and height from 1 x 1 on.
//
//   WatchScreen screen(host, Glyphs::unicode);
//   screen.update();                        // a new picture, unless it is paused
//   screen.key(Key::down);
//   for (const Line& line : screen.frame(80, 24).lines) paint(line);
//
// Thread-safety: none; the host may live in another thread.
#pragma once
#include <ringside/base/result.hpp>
#include <string>
#include <vector>

#include "watch/characters.hpp"
#include "watch/model.hpp"

namespace ringside {

struct TableColumns;

// A Unicode character, or one of these.
using KeyCode = u32;
namespace Key {
inline constexpr KeyCode control(char c) { return static_cast<KeyCode>(c) & 31; }
inline constexpr KeyCode tab = 9, enter = 13, escape = 27, backspace = 127;
inline constexpr KeyCode none = 0x200000, up = 0x200001, down = 0x200002, left = 0x200003, right = 0x200004, page_up = 0x200005,
                         page_down = 0x200006, home = 0x200007, end = 0x200008, remove = 0x200009;
inline constexpr KeyCode f(u32 n) { return 0x200100 + n; }
}  // namespace Key

enum class Style : u8 { plain, bold, dim, title, selected, key, label, good, warn, bad, found };
struct Span {
  std::string text;
  Style style = Style::plain;
};
using Line = std::vector<Span>;
struct Frame {
  std::vector<Line> lines;           // the requested number, none wider than requested
  int cursor_x = -1, cursor_y = -1;  // -1: hidden
  std::string text() const;          // without styles
};

// The information around the model's picture.
struct WatchStatus {
  struct Ring {
    std::string name;
    double fill = 0;  // the share of its capacity
  };
  std::string where, clock;
  bool live = false, ended = false;  // ended: a recording was read completely
  u64 interval_ns = 0;
  double own_cpu = 0;  // as a share of one CPU
  std::vector<Ring> rings{};
};

// The origin of the numbers.
class WatchHost {
 public:
  virtual ~WatchHost() = default;
  struct View {
    WatchPicture picture;
    WatchStatus status;
  };
  virtual View view(const std::string& chosen, bool everything) = 0;  // like WatchModel::picture
  // Counts this query anew from now on; `again`: including past records that are still there.
  virtual result<void> count(const WatchQuery& query, bool again) = 0;
  virtual std::optional<WatchQuery> deeper(const std::string& id) = 0;
  virtual std::vector<std::string> fields(const std::string& id, bool numbers) = 0;
  virtual void interval(u64 ns) = 0;
};

class WatchScreen {
 public:
  WatchScreen(WatchHost& host, Glyphs glyphs) : host_(host), glyphs_(glyphs) {}

  void update();  // paused: does nothing
  void key(KeyCode code);
  Frame frame(size_t width, size_t height);
  bool quit() const { return quit_; }

 private:
  enum class Panel : u8 { stack, histogram, heat, rates, off };
  enum class Mode : u8 { table, help, filter, search, menu, key, value };
  enum class Menu : u8 { sort, key, value };
  struct Level {
    WatchQuery query;
    std::string selected;
    bool moved = false;
  };
  struct Editor {
    std::u32string text;
    size_t at = 0;
    std::string error;
  };

  void refresh();
  void table_key(KeyCode code);
  bool row_key(KeyCode code);
  bool question_key(KeyCode code);
  void next_interval(bool shorter);
  void editor_key(KeyCode code);
  void menu_key(KeyCode code);
  void help_key(KeyCode code);
  void accept();
  bool apply(const WatchQuery& query, bool again = true);
  void edit(Mode mode, const std::string& text);
  void open_menu(Menu menu);
  void choose();
  void drill();
  void back();
  void top_stacks();
  void zero();
  void move(i64 by);
  void select(size_t row);
  void find(bool next);
  bool matches(const WatchRow& row) const;
  void resort();

  std::string show(double value, Column::Unit unit) const;
  std::vector<double> rates(const WatchRow& row, size_t width) const;
  std::string spark(const WatchRow& row, size_t width) const;
  Line title(size_t width) const;
  Line totals(size_t width) const;
  Line path(size_t width) const;
  std::vector<Line> rings(size_t width, size_t height) const;
  std::vector<Line> table(size_t width, size_t height);
  Line table_header(const TableColumns& columns) const;
  Line table_row(const TableColumns& columns, const WatchRow& row, bool selected) const;
  std::string key_cells(const std::vector<std::string>& cells, size_t width) const;
  void draw_menu(std::vector<Line>& over, size_t width) const;
  std::vector<Line> panel(size_t width, size_t height) const;
  std::vector<Line> bars(size_t width, size_t height) const;
  std::vector<Line> calls(size_t width, size_t height) const;
  std::vector<Line> graph(size_t width, size_t height) const;
  std::vector<Line> help(size_t width, size_t height);
  Line footer(size_t width) const;
  std::vector<Line> prompt(size_t width, Frame& frame) const;
  Panel shown_panel() const;
  Panel next_panel() const;
  bool of_stacks() const { return view_.picture.query.by == "stack"; }

  WatchHost& host_;
  Glyphs glyphs_;
  WatchHost::View view_;
  std::vector<Level> levels_;  // the levels above this one
  std::string selected_;       // an id; without moved_, always the first row
  bool moved_ = false;
  size_t row_ = 0, top_ = 0, page_ = 1;
  bool paused_ = false, quit_ = false;
  Mode mode_ = Mode::table;
  Menu menu_ = Menu::sort;
  std::vector<std::string> choices_;
  size_t choice_ = 0, help_top_ = 0;
  Editor editor_;
  std::string message_;  // until the next key
  std::optional<WatchSort> sort_;
  bool descending_ = true;
  Panel panel_ = Panel::histogram;
};

}  // namespace ringside
