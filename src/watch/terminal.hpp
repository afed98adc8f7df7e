// The terminal of a full-screen command, by ncurses: modes, keys, painting. It is put back as it was by the destructor, and,
// whatever happens in between (signals that kill, a second Ctrl-C), by handlers.
//
//   auto terminal = Terminal::open(colours);
//   terminal->paint(screen.frame(terminal->width(), terminal->height()));
//   const KeyCode key = terminal->key(100);
//
// One thread uses it; wake() is for the others. Painting blocks as long as the terminal takes nothing: nothing else may depend
// on that thread.
#pragma once
#include <atomic>
#include <memory>
#include <ringside/base/result.hpp>
#include <string>

#include "watch/screen.hpp"
#include "sys/sys.hpp"

namespace ringside {

// Sets the locale, for characters of more than a byte. ASCII if that is wanted, or if it is not one of UTF-8.
Glyphs terminal_glyphs(bool ascii);

class Terminal {
 public:
  // Of stdin and stdout, which must be one. Error: TERM is not set, or nothing is known about it.
  static result<std::unique_ptr<Terminal>> open(bool colours);
  ~Terminal();

  // Key::none after `ms`, when the size has changed, or after wake().
  KeyCode key(int ms);
  void paint(const Frame& frame);
  void redraw();                       // the next time everything, whatever stands there
  void suspend();                      // as Ctrl-Z; comes back when the shell says so
  bool lost() const { return lost_; }  // its other end is gone
  size_t width() const;
  size_t height() const;

  void wake();  // from any thread
  static void
  restore_now() noexcept;  // signal-safe; from any thread: the modes as they were, the screen if that does not block

 private:
  Terminal() = default;
  void follow_size();
  sys::Fd wake_;
  sys::Fd stderr_, kept_;  // as it was; where it goes meanwhile
  bool colours_ = false, lost_ = false;
  int failures_ = 0;
};

}  // namespace ringside
