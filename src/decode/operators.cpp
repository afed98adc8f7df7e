#include "decode/operators.hpp"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <ringside/base/types.hpp>
#include <utility>
#include <vector>

namespace ringside {
namespace {

struct Token {
  enum class Kind : u8 { word, text, sign, end };
  Kind kind = Kind::end;
  std::string_view text;  // within the format
};

bool in_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

std::vector<Token> tokens_of(std::string_view text) {
  std::vector<Token> out;
  for (size_t at = 0; at < text.size();) {
    const char c = text[at];
    size_t end = at + 1;
    Token::Kind kind = Token::Kind::sign;
    if (std::isspace(static_cast<unsigned char>(c)) != 0) {
      ++at;
      continue;
    }
    if (in_word(c)) {
      kind = Token::Kind::word;
      while (end < text.size() && in_word(text[end])) ++end;
    } else if (c == '"' || c == '\'') {
      kind = Token::Kind::text;
      while (end < text.size() && text[end] != c) end += text[end] == '\\' ? 2 : 1;
      end = std::min(end + 1, text.size());
    } else {
      static constexpr std::string_view two[] = {"->", "<<", ">>", "<=", ">=", "==", "!=", "&&", "||"};
      if (std::find(std::begin(two), std::end(two), text.substr(at, 2)) != std::end(two)) end = at + 2;
    }
    out.push_back({kind, text.substr(at, end - at)});
    at = end;
  }
  out.push_back({Token::Kind::end, text.substr(text.size())});
  return out;
}

// How loosely a binary operator binds; 0: none.
u32 looseness(std::string_view op) {
  static constexpr std::pair<std::string_view, u32> all[] = {
      {"*", 1},  {"/", 1},  {"%", 1},  {"+", 2}, {"-", 2}, {"<<", 3}, {">>", 3}, {"<", 4},   {">", 4},
      {"<=", 4}, {">=", 4}, {"==", 5}, {"!=", 5}, {"&", 6}, {"^", 7},  {"|", 8},  {"&&", 9}, {"||", 10}};
  for (const auto& [name, loose] : all)
    if (name == op) return loose;
  return 0;
}
constexpr u32 loosest = 10, conditional = 11;

class Writer {
 public:
  explicit Writer(std::string_view text) : tokens_(tokens_of(text)) {}
  // Empty: nothing to change, or not understood.
  std::string write(std::string_view text) {
    if (!list() || peek().kind != Token::Kind::end || marks_.empty()) return {};
    std::stable_sort(marks_.begin(), marks_.end(), [](const Mark& a, const Mark& b) { return a.at < b.at; });
    std::string out;
    const char* from = text.data();
    for (const Mark& mark : marks_) {
      out.append(from, mark.at);
      out += mark.text;
      from = mark.at;
    }
    return out.append(from, text.data() + text.size());
  }

 private:
  // What an expression is: `op` binds loosest in it (of a parenthesised one: inside; empty: no operator).
  struct Node {
    std::string_view op{};
    u32 loose = 0;
    bool bare = true, is_negative = false;
    const char *begin = nullptr, *end = nullptr;
  };
  struct Mark {
    const char* at;
    std::string text;
  };
  const Token& peek(size_t further = 0) const { return tokens_[std::min(at_ + further, tokens_.size() - 1)]; }
  bool is(std::string_view sign) const { return peek().kind == Token::Kind::sign && peek().text == sign; }
  bool take(std::string_view sign) {
    if (!is(sign)) return false;
    ++at_;
    return true;
  }
  const char* here() const { return peek().text.data(); }
  const char* behind() const { return at_ == 0 ? here() : tokens_[at_ - 1].text.data() + tokens_[at_ - 1].text.size(); }

  bool list() {
    Node node;
    do {
      if (!expression(node)) return false;
    } while (take(","));
    return true;
  }
  bool expression(Node& out) {
    if (++depth_ > 200 || !binary(out, loosest)) return false;
    if (take("?")) {
      Node then, otherwise;
      if (!expression(then) || !take(":") || !expression(otherwise)) return false;
      out = {"?", conditional, true, false, out.begin, behind()};
    }
    --depth_;
    return true;
  }
  bool binary(Node& left, u32 most) {
    if (!unary(left)) return false;
    for (;;) {
      const u32 loose = peek().kind == Token::Kind::sign ? looseness(peek().text) : 0;
      if (loose == 0 || loose > most) return true;
      const std::string_view op = peek().text;
      ++at_;
      Node right;
      if (!binary(right, loose - 1)) return false;
      join(left, op, loose, right);
    }
  }
  void join(Node& left, std::string_view op, u32 loose, const Node& right) {
    static constexpr std::string_view any_order[] = {"+", "*", "&", "|", "^", "&&", "||"};
    const bool alike = left.op == op && std::find(std::begin(any_order), std::end(any_order), op) != std::end(any_order);
    if (left.bare && left.loose == loose && !alike) mark(left, "(");
    const bool taken_apart = !right.bare && right.loose > loose;
    if (taken_apart || (right.is_negative && loose == 1)) mark(right, "(" + std::string(kept_type) + ")(");
    left = {op, loose, true, false, left.begin, behind()};
  }
  void mark(const Node& node, const std::string& open) {
    marks_.push_back({node.begin, open});
    marks_.push_back({node.end, ")"});
  }
  bool is_cast() const {
    size_t n = 1;
    for (; peek(n).kind == Token::Kind::word; ++n) {}
    bool pointer = false;
    for (; n > 1 && peek(n).text == "*"; ++n) pointer = true;
    if (n == 1 || peek(n).text != ")") return false;
    const Token& next = peek(n + 1);
    return pointer || next.kind == Token::Kind::word || next.text == "(";
  }
  bool unary(Node& out) {
    if (++depth_ > 200) return false;
    const char* const begin = here();
    if (is("!") || is("~") || is("-") || is("+") || is("&") || is("*")) {
      const bool negative = is("-") || is("+");
      ++at_;
      Node inner;
      if (!unary(inner)) return false;
      out = {{}, 0, true, negative, begin, behind()};
    } else if (is("(") && is_cast()) {
      while (!take(")")) ++at_;
      Node inner;
      if (!unary(inner)) return false;
      out = {{}, 0, true, false, begin, behind()};
    } else if (take("(")) {
      if (!expression(out) || !take(")")) return false;
      out.bare = out.is_negative = false;
      out.begin = begin, out.end = behind();
      if (!postfix(out)) return false;
    } else if (peek().kind == Token::Kind::word) {
      ++at_;
      out = {{}, 0, true, false, begin, behind()};
      if (!postfix(out)) return false;
    } else if (peek().kind == Token::Kind::text) {
      while (peek().kind == Token::Kind::text || peek().kind == Token::Kind::word) ++at_;  // "a" "b", "%" PRIu64
      out = {{}, 0, true, false, begin, behind()};
    } else if (is("{")) {
      i32 open = 0;
      do {
        open += is("{") ? 1 : is("}") ? -1 : 0;
        if (peek().kind == Token::Kind::end) return false;
        ++at_;
      } while (open != 0);
      out = {{}, 0, true, false, begin, behind()};
    } else {
      return false;
    }
    --depth_;
    return true;
  }
  bool postfix(Node& out) {
    for (;;) {
      Node inner;
      if (take("[")) {
        if (!expression(inner) || !take("]")) return false;
      } else if (take("->") || take(".")) {
        if (peek().kind != Token::Kind::word) return false;
        ++at_;
      } else if (take("(")) {
        if (!is(")") && !list()) return false;
        if (!take(")")) return false;
      } else {
        return true;
      }
      out = {{}, 0, true, false, out.begin, behind()};
    }
  }

  const std::vector<Token> tokens_;
  size_t at_ = 0;
  u32 depth_ = 0;
  std::vector<Mark> marks_;
};

}  // namespace

std::string with_parentheses(std::string_view format) {
  constexpr std::string_view begin = "print fmt:";
  const size_t at = format.find(begin);
  if (at == format.npos) return std::string(format);
  const std::string_view line = format.substr(at + begin.size());
  const std::string written = Writer(line).write(line);
  return written.empty() ? std::string(format) : std::string(format.substr(0, at + begin.size())) + written;
}

}  // namespace ringside
