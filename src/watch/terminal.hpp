// The terminal of a full-screen command, by ncurses: modes, keys, painting. The destructor restores it, or handlers do if the
// process is killed before (by a signal, by a second Ctrl-C).
//
//   auto terminal = Terminal::open(colours);
//   terminal->paint(screen.frame(terminal->width(), terminal->height()));
//   const KeyCode key = terminal->key(100);
//
// One thread uses it; wake() is for the others. Painting blocks while the terminal accepts nothing, so nothing else may depend
// on that thread.
#pragma once
#include <atomic>
#include <memory>
#include <ringside/base/result.hpp>
#include <string>

#include "watch/screen.hpp"
#include "sys/sys.hpp"

namespace ringside {

// Sets the locale, for characters of more than a byte. ASCII if requested, or if the locale does not use UTF-8.
Glyphs terminal_glyphs(bool ascii);

class Terminal {
 public:
  // Opens stdin and stdout, which must be a terminal. Error: TERM is not set or unknown.
  static result<std::unique_ptr<Terminal>> open(bool colours);
  ~Terminal();

  // Key::none after `ms`, after a change of size, or after wake().
  KeyCode key(int ms);
  void paint(const Frame& frame);
  void redraw();                       // the next paint draws everything
  void suspend();                      // like Ctrl-Z; returns when the shell continues it
  bool lost() const { return lost_; }  // its other end is gone
  size_t width() const;
  size_t height() const;

  void wake();  // from any thread
  static void
  restore_now() noexcept;  // signal-safe, from any thread: restores the modes, and the screen if that does not block

 private:
  Terminal() = default;
  void follow_size();
  sys::Fd wake_;
  sys::Fd stderr_, kept_;  // the original stderr; its replacement meanwhile
  bool colours_ = false, lost_ = false;
  int failures_ = 0;
};

}  // namespace ringside
