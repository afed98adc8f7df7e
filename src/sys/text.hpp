// How bytes and foreign texts are shown.
#pragma once
#include <algorithm>
#include <cstring>
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
    // The highest bit of a byte: it is below 0x20, or of one that the xor makes 0. (A borrow reaches only bytes above such a
    // one.)
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

// Names that files and traces bring: of functions, symbols, threads, events. Many addresses and events may share one, and each
// shows it; so it has a most length. A longer one is cut, and ends in a mark unlike those of others with the same beginning.
inline constexpr size_t longest_name = 1024;
inline constexpr size_t most_of_a_name = size_t{1} << 16;  // that is looked at
inline std::string_view name_at(const char* text) { return {text, strnlen(text, most_of_a_name)}; }
inline std::string cut_mark(std::string_view name) {
  u64 hash = 0xCBF29CE484222325;
  for (const char c : name.substr(0, most_of_a_name)) hash = (hash ^ static_cast<u8>(c)) * 0x100000001B3;
  std::string mark = "...#";
  for (u32 shift = 64; shift != 32; shift -= 4) mark += "0123456789abcdef"[hash >> (shift - 4) & 15];
  return mark;
}
inline std::string kept_name(std::string_view name) {
  if (name.size() <= longest_name) return std::string(name);
  const std::string mark = cut_mark(name);
  return std::string(name.substr(0, longest_name - mark.size())) + mark;
}
inline std::string shown_name(std::string_view name) { return printable(kept_name(name)); }
// The same for a name that is in `text`, which is changed.
inline std::string_view cut_name(std::string& text, std::string_view name) {
  if (name.size() <= longest_name) return name;
  const std::string mark = cut_mark(name);
  text.replace(static_cast<size_t>(name.data() - text.data()) + longest_name - mark.size(), mark.size(), mark);
  return name.substr(0, longest_name);
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
