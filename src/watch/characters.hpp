// UTF-8 text in the columns of a terminal.
#pragma once
#include <string>

#include "watch/picture.hpp"

namespace ringside {

std::u32string characters(const std::string& text);  // without those that are no UTF-8
std::string utf8_of(const std::u32string& text);
// In columns; a character that the locale does not know counts as one.
size_t width_of(char32_t code);
size_t columns_of(const std::string& text);

// Text of exactly `width` columns: cut, or filled with spaces; it has no control characters. ASCII: other characters become
// '?'.
std::string fitted(const std::string& text, size_t width, Glyphs glyphs, bool right = false);

}  // namespace ringside
