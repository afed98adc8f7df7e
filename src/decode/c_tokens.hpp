// The words and signs of a print fmt.
#pragma once
#include <ringside/base/types.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace ringside {

struct Token {
  enum class Kind : u8 { word, number, text, character, sign, end, wrong };
  Kind kind = Kind::end;
  std::string_view text;  // within the print fmt
};

// The last is an end; wrong: a quotation without an end.
std::vector<Token> tokens_of(std::string_view text);

// What is between quotes, with its escapes resolved.
std::string unquoted(std::string_view quoted);

}  // namespace ringside
