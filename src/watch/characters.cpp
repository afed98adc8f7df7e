#include "watch/characters.hpp"

#include <cwchar>
#include <string_view>

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

}  // namespace

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

std::string utf8_of(const std::u32string& text) {
  std::string out;
  for (const char32_t c : text) encode(c, out);
  return out;
}

size_t columns_of(const std::string& text) {
  size_t n = 0;
  for (const char32_t c : characters(text)) n += width_of(c);
  return n;
}

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

}  // namespace ringside
