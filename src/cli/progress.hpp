// A line on the terminal that is overwritten, and removed at the end.
#pragma once
#include <unistd.h>

#include <string>

#include "cli/command.hpp"
#include "sys/sys.hpp"
#include "sys/text.hpp"

namespace ringside::cli {

class Progress {
 public:
  explicit Progress(bool quiet) : on_(!quiet && on_terminal(STDERR_FILENO)), start_(sys::now_ns()), next_(start_ + every) {}
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress() { clear(); }
  // line(seconds since the start): made only when it is shown, four times a second.
  template <class Line>
  void update(Line line) {
    const u64 now = on_ ? sys::now_ns() : 0;
    if (now < next_) return;
    next_ = now + every;
    write(line(static_cast<double>(now - start_) / 1e9));
  }
  void clear() {
    if (shown_) write("");
    shown_ = false;
  }

 private:
  static constexpr u64 every = 250'000'000;
  void write(const std::string& text) {
    const std::string line = "\r\033[K" + sys::unwrapped(text);
    shown_ = ::write(STDERR_FILENO, line.data(), line.size()) > 0;
  }
  bool on_, shown_ = false;
  u64 start_, next_;
};

}  // namespace ringside::cli
