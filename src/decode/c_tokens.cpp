#include "decode/c_tokens.hpp"

#include <algorithm>
#include <iterator>

namespace ringside {
namespace {

bool is_decimal_digit(char c) { return c >= '0' && c <= '9'; }
bool in_c_word(char c) {
  return is_decimal_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '$';
}
int hex_digit(char c) {
  return is_decimal_digit(c) ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

size_t sign_length(std::string_view text) {
  static constexpr std::string_view all[] = {"<<=", ">>=", "...", "->", "<<", ">>", "<=", ">=", "==", "!=", "&&",
                                             "||",  "++",  "--",  "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^="};
  for (const std::string_view sign : all)
    if (text.starts_with(sign)) return sign.size();
  return 1;
}

}  // namespace

std::vector<Token> tokens_of(std::string_view text) {
  std::vector<Token> out;
  for (size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
      ++at;
      continue;
    }
    size_t end = at + 1;
    Token::Kind kind = Token::Kind::sign;
    if (in_c_word(c)) {
      kind = is_decimal_digit(c) ? Token::Kind::number : Token::Kind::word;
      while (end < text.size() && in_c_word(text[end])) ++end;
    } else if (c == '"' || c == '\'') {
      while (end < text.size() && text[end] != c) end += text[end] == '\\' ? 2 : 1;
      kind = end >= text.size() ? Token::Kind::wrong : c == '"' ? Token::Kind::text : Token::Kind::character;
      end = std::min(end + 1, text.size());
    } else {
      end = at + sign_length(text.substr(at));
    }
    out.push_back({kind, text.substr(at, end - at)});
    at = end;
  }
  out.push_back({Token::Kind::end, text.substr(text.size())});
  return out;
}

std::string unquoted(std::string_view quoted) {
  const std::string_view text = quoted.size() >= 2 ? quoted.substr(1, quoted.size() - 2) : std::string_view();
  std::string out;
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] != '\\' || at + 1 == text.size()) {
      out += text[at];
      continue;
    }
    const char c = text[++at];
    constexpr std::string_view letters = "abefnrtv", means = "\a\b\x1b\f\n\r\t\v";
    if (const size_t letter = letters.find(c); letter != letters.npos) {
      out += means[letter];
    } else if (c == 'x' || (c >= '0' && c <= '7')) {
      const int base = c == 'x' ? 16 : 8;
      u32 value = 0;
      size_t digits = c == 'x' ? at + 1 : at;
      const size_t most = c == 'x' ? text.size() : std::min(at + 3, text.size());
      for (; digits < most && hex_digit(text[digits]) >= 0 && hex_digit(text[digits]) < base; ++digits)
        value = value * static_cast<u32>(base) + static_cast<u32>(hex_digit(text[digits]));
      out += static_cast<char>(value);
      at = digits - 1;
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace ringside
