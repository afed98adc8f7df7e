// How bytes and foreign texts are shown.
#pragma once
#include <algorithm>
#include <ringside/base/types.hpp>
#include <string>
#include <string_view>

namespace ringside::sys {

// These would break a line or control the terminal.
inline bool is_control(char c) { return static_cast<u8>(c) < 0x20 || c == 0x7F; }
inline bool has_control(std::string_view text) {
  size_t at = 0;
  constexpr u64 each = 0x0101010101010101, high = each * 0x80;
  for (; at + 8 <= text.size(); at += 8) {
    u64 word;
    __builtin_memcpy(&word, text.data() + at, sizeof word);
    // The highest bit of a byte: it is below 0x20, or of one that the xor makes 0. (A borrow reaches only bytes above such a one.)
    const u64 is_last = word ^ each * 0x7F;
    if ((((word - each * 0x20) & ~word) | ((is_last - each) & ~is_last)) & high) return true;
  }
  for (; at < text.size(); ++at)
    if (is_control(text[at])) return true;
  return false;
}

// A thread, a file, a function may have any name; a line must stay one line.
inline std::string printable(std::string_view text) {
  std::string out(text);
  std::replace_if(out.begin(), out.end(), is_control, '?');
  return out;
}

// For a terminal: a line that is longer than it is wide ends at its edge.
inline std::string unwrapped(const std::string& text) { return "\033[?7l" + text + "\033[?7h"; }

// As build ids are written.
inline std::string hex(Bytes bytes) {
  constexpr char digits[] = "0123456789abcdef";
  std::string out;
  for (size_t i = 0; i < bytes.size; ++i) {
    out += digits[bytes.data[i] >> 4];
    out += digits[bytes.data[i] & 15];
  }
  return out;
}

}  // namespace ringside::sys
