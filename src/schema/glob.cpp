#include "schema/glob.hpp"

#include <ringside/base/types.hpp>

namespace ringside {
namespace {

// Matches one character against the element at pattern[p], which is no star, and moves p past it. A bracket without an end
// means itself.
bool one_matches(std::string_view pattern, size_t& p, char c) {
  const char at = pattern[p++];
  if (at == '?') return true;
  if (at == '\\' && p < pattern.size()) return pattern[p++] == c;
  if (at != '[') return at == c;
  size_t i = p;
  const bool inverted = i < pattern.size() && (pattern[i] == '!' || pattern[i] == '^');
  if (inverted) ++i;
  const auto value = static_cast<u8>(c);
  bool found = false;
  for (const size_t first = i; i < pattern.size(); ++i) {
    if (pattern[i] == ']' && i != first) {
      p = i + 1;
      return found != inverted;
    }
    const auto low = static_cast<u8>(pattern[i]);
    auto high = low;
    if (i + 2 < pattern.size() && pattern[i + 1] == '-' && pattern[i + 2] != ']') high = static_cast<u8>(pattern[i += 2]);
    found = found || (low <= value && value <= high);
  }
  return c == '[';
}

}  // namespace

bool glob_matches(std::string_view pattern, std::string_view text) {
  size_t p = 0, t = 0, star = std::string_view::npos, star_text = 0;
  for (;;) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = ++p;
      star_text = t;
      continue;
    }
    if (t == text.size() && p == pattern.size()) return true;
    if (t < text.size() && p < pattern.size() && one_matches(pattern, p, text[t])) {
      ++t;
      continue;
    }
    // Only the last star can take more: the earlier stars have matched as early as possible.
    if (star == std::string_view::npos || star_text >= text.size()) return false;
    p = star;
    t = ++star_text;
  }
}

}  // namespace ringside
