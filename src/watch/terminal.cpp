#include "watch/terminal.hpp"

#include <langinfo.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <termios.h>
#include <unistd.h>

#include <clocale>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "watch/signals.hpp"

#define NCURSES_NOMACROS 1
#define NCURSES_WIDECHAR 1
#include <curses.h>
// Declared here because term.h makes macros of `lines` and other plain words.
extern "C" int setupterm(const char*, int, int*);
extern "C" char* tigetstr(const char*);

namespace ringside {
namespace {

// State that a signal handler needs to restore the terminal.
struct Saved {
  termios modes{};
  int messages = -1;  // the original stderr
  char text[256] = {};
  size_t length = 0;
  volatile sig_atomic_t active = 0;
} before_us;

volatile sig_atomic_t stop_asked = 0, continued = 0;

void remember_text(const char* capability) {
  const char* text = tigetstr(capability);
  if (text == nullptr || text == reinterpret_cast<const char*>(-1)) return;
  for (; *text != 0 && before_us.length + 1 < sizeof before_us.text; ++text) {
    if (text[0] == '$' && text[1] == '<') {  // a delay, for hardware terminals
      while (*text != 0 && *text != '>') ++text;
      if (*text == 0) return;
      continue;
    }
    before_us.text[before_us.length++] = *text;
  }
}

void on_crash(int number) {
  Terminal::restore_now();
  raise(number);  // the default action again: SA_RESETHAND
}
void on_stop(int) { stop_asked = 1; }
void on_continue(int) { continued = 1; }
void on_size(int) {}  // only makes poll() return

void handle(int number, void (*handler)(int), int flags = 0) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  sigemptyset(&action.sa_mask);
  sigaction(number, &action, nullptr);
}

constexpr int crashes[] = {SIGSEGV, SIGABRT, SIGILL, SIGFPE, SIGQUIT};

KeyCode from_curses(wint_t c, bool is_key) {
  if (!is_key) return c == '\n' ? Key::enter : c == 8 ? Key::backspace : static_cast<KeyCode>(c);
  switch (c) {
    case KEY_UP:
      return Key::up;
    case KEY_DOWN:
      return Key::down;
    case KEY_LEFT:
      return Key::left;
    case KEY_RIGHT:
      return Key::right;
    case KEY_PPAGE:
      return Key::page_up;
    case KEY_NPAGE:
      return Key::page_down;
    case KEY_HOME:
      return Key::home;
    case KEY_END:
      return Key::end;
    case KEY_DC:
      return Key::remove;
    case KEY_BACKSPACE:
      return Key::backspace;
    case KEY_ENTER:
      return Key::enter;
    case KEY_BTAB:
      return Key::tab;
    default:
      return c >= static_cast<wint_t>(KEY_F(1)) && c <= static_cast<wint_t>(KEY_F(12)) ? Key::f(static_cast<u32>(c - KEY_F(0)))
                                                                                       : Key::none;
  }
}

}  // namespace

Glyphs terminal_glyphs(bool ascii) {
  const Glyphs wanted = glyphs(ascii);
  std::setlocale(LC_CTYPE, "");
  const auto utf8 = [] { return std::strcmp(nl_langinfo(CODESET), "UTF-8") == 0; };
  if (wanted == Glyphs::unicode && !utf8()) std::setlocale(LC_CTYPE, "C.UTF-8");
  return utf8() ? wanted : Glyphs::ascii;
}

result<std::unique_ptr<Terminal>> Terminal::open(bool colours) {
  const char* const name = std::getenv("TERM");
  int found = 0;
  if (name == nullptr || *name == 0 || setupterm(name, STDOUT_FILENO, &found) != OK)
    return refuse(std::errc::not_supported,
                  std::string("the terminal is unknown (TERM is ") + (name == nullptr || *name == 0 ? "not set" : name) + ")");
  const char* const move = tigetstr("cup");
  if (move == nullptr || move == reinterpret_cast<const char*>(-1))
    return refuse(std::errc::not_supported, std::string("this terminal cannot move its cursor (TERM is ") + name + ")");
  auto terminal = std::unique_ptr<Terminal>(new Terminal);
  terminal->wake_ = sys::Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  tcgetattr(STDIN_FILENO, &before_us.modes);
  before_us.length = 0;
  for (const char* capability : {"sgr0", "cnorm", "rmkx", "rmcup"}) remember_text(capability);
  handle(SIGWINCH, on_size);
  SCREEN* const screen = newterm(name, stdout, stdin);
  if (screen == nullptr)
    return refuse(std::errc::not_supported, std::string("the terminal cannot be set up (TERM is ") + name + ")");
  before_us.active = 1;
  for (const int number : crashes) handle(number, on_crash, static_cast<int>(SA_RESETHAND | SA_NODEFER));
  handle(SIGTSTP, on_stop);
  handle(SIGCONT, on_continue);
  before_leaving(&Terminal::restore_now);
  // Messages printed meanwhile would appear in the middle of the picture: they are kept for later.
  if (isatty(STDERR_FILENO) == 1) {
    terminal->kept_ = sys::Fd(memfd_create("messages", MFD_CLOEXEC));
    terminal->stderr_ = sys::Fd(dup(STDERR_FILENO));
    if (terminal->kept_ && terminal->stderr_) {
      before_us.messages = terminal->stderr_.get();
      dup2(terminal->kept_.get(), STDERR_FILENO);
    }
  }
  raw();  // Ctrl-S and Ctrl-Z are keys, too
  noecho();
  nonl();
  set_escdelay(25);
  keypad(stdscr, TRUE);
  nodelay(stdscr, TRUE);
  intrflush(stdscr, FALSE);
  leaveok(stdscr, FALSE);
  curs_set(0);
  if (colours && has_colors()) {
    terminal->colours_ = true;
    start_color();
    use_default_colors();
    const std::pair<short, short> pairs[] = {
        {COLOR_BLACK, COLOR_GREEN}, {COLOR_BLACK, COLOR_CYAN}, {COLOR_GREEN, -1},
        {COLOR_YELLOW, -1},         {COLOR_RED, -1},           {COLOR_BLACK, COLOR_YELLOW}};
    for (short i = 0; i < 6; ++i) init_pair(static_cast<short>(i + 1), pairs[i].first, pairs[i].second);
  }
  return terminal;
}

Terminal::~Terminal() {
  if (!lost_) {
    move(LINES - 1, 0);
    clrtoeol();
    refresh();
    endwin();
  }
  if (before_us.active != 0) tcsetattr(STDIN_FILENO, TCSANOW, &before_us.modes);
  before_us.active = 0;
  before_leaving(nullptr);
  for (const int number : crashes) handle(number, SIG_DFL);
  for (const int number : {SIGTSTP, SIGCONT, SIGWINCH}) handle(number, SIG_DFL);
  if (!stderr_) return;
  before_us.messages = -1;
  dup2(stderr_.get(), STDERR_FILENO);
  lseek(kept_.get(), 0, SEEK_SET);
  char text[4096];
  for (int part = 0; part < 16 && !lost_; ++part) {
    const ssize_t n = read(kept_.get(), text, sizeof text);
    if (n <= 0 || write(STDERR_FILENO, text, static_cast<size_t>(n)) < 0) break;
  }
}

void Terminal::restore_now() noexcept {
  if (before_us.active == 0) return;
  before_us.active = 0;
  if (before_us.messages >= 0) dup2(before_us.messages, STDERR_FILENO);
  tcsetattr(STDIN_FILENO, TCSANOW, &before_us.modes);
  pollfd out{STDOUT_FILENO, POLLOUT, 0};
  if (poll(&out, 1, 0) == 1 && (out.revents & POLLOUT) != 0) (void)!write(STDOUT_FILENO, before_us.text, before_us.length);
}

size_t Terminal::width() const { return static_cast<size_t>(COLS); }
size_t Terminal::height() const { return static_cast<size_t>(LINES); }

void Terminal::follow_size() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row == 0 || size.ws_col == 0) return;
  if (size.ws_row != LINES || size.ws_col != COLS) {
    resizeterm(size.ws_row, size.ws_col);
    redraw();
  }
}

void Terminal::wake() {
  eventfd_write(wake_.get(), 1);
}

KeyCode Terminal::key(int ms) {
  for (bool waited = false;; waited = true) {
    if (stop_asked != 0) {
      stop_asked = 0;
      suspend();
    }
    if (continued != 0) {
      continued = 0;
      reset_prog_mode();
      redraw();
    }
    follow_size();
    wint_t c = 0;
    const int got = get_wch(&c);
    if (got != ERR) {
      failures_ = 0;
      return from_curses(c, got == KEY_CODE_YES);
    }
    if (waited) return Key::none;
    pollfd from[] = {{STDIN_FILENO, POLLIN, 0}, {wake_.get(), POLLIN, 0}};
    if (poll(from, 2, ms) <= 0) continue;
    if (from[1].revents != 0) {
      u64 count = 0;
      (void)!read(wake_.get(), &count, sizeof count);
    }
    int there = 0;
    if ((from[0].revents & (POLLHUP | POLLERR | POLLNVAL)) != 0) lost_ = true;
    // Readable, but no bytes: the end.
    if ((from[0].revents & POLLIN) != 0 && ioctl(STDIN_FILENO, FIONREAD, &there) == 0 && there == 0 && ++failures_ > 20)
      lost_ = true;
    if (lost_) return Key::none;
  }
}

void Terminal::redraw() { clearok(stdscr, TRUE); }

void Terminal::suspend() {
  endwin();
  handle(SIGTSTP, SIG_DFL);
  kill(0, SIGTSTP);  // stops the whole process group
  handle(SIGTSTP, on_stop);
  reset_prog_mode();
  redraw();
}

void Terminal::paint(const Frame& frame) {
  const auto attributes_of = [&](Style style) -> attr_t {
    const auto pair = [&](short n, attr_t otherwise) { return colours_ ? static_cast<attr_t>(COLOR_PAIR(n)) : otherwise; };
    switch (style) {
      case Style::plain:
        return A_NORMAL;
      case Style::bold:
        return A_BOLD;
      case Style::dim:
        return A_DIM;
      case Style::title:
        return pair(1, A_REVERSE);
      case Style::label:
        return pair(1, A_REVERSE);
      case Style::selected:
        return pair(2, A_REVERSE | A_BOLD);
      case Style::key:
        return A_NORMAL;
      case Style::good:
        return pair(3, A_NORMAL);
      case Style::warn:
        return pair(4, A_BOLD) | A_BOLD;
      case Style::bad:
        return pair(5, A_BOLD) | A_BOLD;
      case Style::found:
        return pair(6, A_UNDERLINE);
    }
    return A_NORMAL;
  };
  erase();
  for (size_t y = 0; y < frame.lines.size(); ++y) {
    move(static_cast<int>(y), 0);
    for (const Span& span : frame.lines[y]) {
      attrset(static_cast<int>(attributes_of(span.style)));
      addstr(span.text.c_str());
    }
  }
  attrset(A_NORMAL);
  curs_set(frame.cursor_y >= 0 ? 1 : 0);
  if (frame.cursor_y >= 0) move(frame.cursor_y, frame.cursor_x);
  refresh();
}

}  // namespace ringside
