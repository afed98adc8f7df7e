#include "decode/operators.hpp"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <iterator>
#include <ringside/base/types.hpp>
#include <utility>
#include <vector>

namespace ringside {
namespace {

struct Token {
  enum class Kind : u8 { word, text, character, sign, end };
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
    if (c == ' ' || c == '\t') {
      ++at;
      continue;
    }
    if (in_word(c)) {
      kind = Token::Kind::word;
      while (end < text.size() && in_word(text[end])) ++end;
    } else if (c == '"' || c == '\'') {
      while (end < text.size() && text[end] != c) end += text[end] == '\\' ? 2 : 1;
      if (end < text.size()) kind = c == '"' ? Token::Kind::text : Token::Kind::character;
      end = std::min(end + 1, text.size());
    } else {
      static constexpr std::string_view two[] = {"->", "<<", ">>", "<=", ">=", "==", "!=", "&&", "||", "++", "--"};
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

// The fields by the lines in front of a print fmt; false: other lines hide among these.
bool read_fields(std::string_view head, std::vector<std::string_view>& names) {
  for (size_t at = 0; at < head.size();) {
    const size_t end = std::min(head.find('\n', at), head.size());
    std::string_view line = head.substr(at, end - at);
    at = end + 1;
    line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
    if (line.empty() || line.starts_with("name:") || line.starts_with("ID:") || line.starts_with("format:")) continue;
    if (!line.starts_with("field:") || line.find_first_of("\"'\\") != line.npos) return false;
    std::string_view name = line.substr(0, line.find(';'));
    while (name.ends_with(']') && name.find('[') != name.npos) name = name.substr(0, name.rfind('['));
    while (name.ends_with(' ')) name.remove_suffix(1);
    size_t begin = name.size();
    while (begin > 0 && in_word(name[begin - 1])) --begin;
    names.push_back(name.substr(begin));
  }
  std::sort(names.begin(), names.end());
  return true;
}

class Writer {
 public:
  Writer(std::string_view text, const std::vector<std::string_view>& fields) : tokens_(tokens_of(text)), fields_(fields) {}
  // Empty: not understood.
  std::string write(std::string_view text) {
    if (!take_text() || (take(",") && !list()) || peek().kind != Token::Kind::end) return {};
    std::stable_sort(marks_.begin(), marks_.end(), [](const Mark& a, const Mark& b) {
      return a.at != b.at ? a.at < b.at : a.replaces < b.replaces;
    });
    std::string out;
    const char* from = text.data();
    for (const Mark& mark : marks_) {
      out.append(from, mark.at);
      out += mark.text;
      from = mark.at + mark.replaces;
    }
    return out.append(from, text.data() + text.size());
  }

 private:
  // What an expression is: `op` binds loosest in it (of a parenthesised one: inside; empty: no operator).
  struct Node {
    std::string_view op{};
    u32 loose = 0;
    const char *begin = nullptr, *end = nullptr;
    bool bare = true, is_negative = false, is_element = false;
    bool is_record = false;    // REC
    bool is_constant = false;  // the parser may compute it, and divide by it,
    bool is_zero = true;       // which is known not to be 0
  };
  struct Mark {
    const char* at;
    std::string text;
    size_t replaces = 0;  // characters
  };
  const Token& peek(size_t further = 0) const { return tokens_[std::min(at_ + further, tokens_.size() - 1)]; }
  bool is_text() const { return peek().kind == Token::Kind::text; }
  bool is_word() const { return peek().kind == Token::Kind::word; }
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
      out = {"?", conditional, out.begin, behind()};
      out.is_constant = true;
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
    const bool crashes = right.is_constant && right.is_zero && (op == "/" || op == "%");
    if (taken_apart || (right.is_negative && loose == 1) || crashes) mark(right, "(" + std::string(kept_type) + ")(");
    const bool constant = left.is_constant && right.is_constant;
    left = {op, loose, left.begin, behind()};
    left.is_constant = constant;
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
    return pointer || n > 2 || next.kind == Token::Kind::word || next.text == "(";
  }
  bool unary(Node& out) {
    if (++depth_ > 200) return false;
    const char* const begin = here();
    const size_t first = at_;
    if (is("!") || is("~") || is("-") || is("+") || is("&") || is("*")) {
      const bool negative = is("-") || is("+");
      ++at_;
      Node inner;
      if (!unary(inner)) return false;
      out = {{}, 0, begin, behind(), true, negative};
      out.is_constant = inner.is_constant;
    } else if (is("(") && is_cast()) {
      while (!take(")")) ++at_;
      Node inner;
      if (!unary(inner)) return false;
      out = {{}, 0, begin, behind()};
      out.is_constant = inner.is_constant;
    } else if (take("(")) {
      if (!expression(out) || !take(")")) return false;
      out.bare = out.is_negative = false;
      out.begin = begin, out.end = behind();
      if (!postfix(out, first)) return false;
    } else if (is_word()) {
      const std::string_view word = peek().text;
      ++at_;
      const bool calls = is("(");
      if (calls && !call(word)) return false;
      out = {{}, 0, begin, behind()};
      out.is_record = word == "REC";
      out.is_constant = !calls || word == "sizeof" || word == "__builtin_expect";
      out.is_zero = word != "sizeof" && std::strtoull(std::string(word).c_str(), nullptr, 0) == 0;
      if (out.is_record && !is("->") && !is(")")) return false;
      if (!postfix(out, first)) return false;
    } else if (peek().kind == Token::Kind::character || is_text()) {
      if (!take_text()) ++at_;
      out = {{}, 0, begin, behind()};
      out.is_constant = true;
    } else {
      return false;
    }
    --depth_;
    return true;
  }
  bool postfix(Node& out, size_t first) {
    if (out.is_record && take("->")) {
      if (!take_field()) return false;
      out = {{}, 0, out.begin, behind()};
    }
    const char* const begin = out.begin;
    const bool has_elements = tokens_[at_ - 1].text == ")" || tokens_[at_ - 2].text == "->";
    if (!out.is_element && has_elements && take("[")) {
      Node index;
      if (!is_simple() || !unary(index) || index.is_element || !take("]")) return false;
      out = {{}, 0, begin, behind()};
      out.is_element = true;
      // The parser has no operand behind c ? x : y[1].
      if (first != 0 && (tokens_[first - 1].text == ":" || tokens_[first - 1].text == ")")) mark(out, "(");
    }
    return !is("[") && !is("(") && !is_word();
  }
  // The parser reads the arguments of each function in a way of its own, and frees twice those that it does not expect.
  bool call(std::string_view name) {
    ++at_;
    const auto is_one_of = [&](std::initializer_list<std::string_view> all) {
      return std::find(all.begin(), all.end(), name) != all.end();
    };
    Node node;
    if (name == "sizeof") return size_of(name.data());
    if (is_one_of({"__get_str", "__get_rel_str", "__get_bitmask", "__get_rel_bitmask", "__get_cpumask", "__get_rel_cpumask",
                   "__get_dynamic_array", "__get_rel_dynamic_array", "__get_dynamic_array_len", "__get_rel_dynamic_array_len",
                   "__get_sockaddr", "__get_sockaddr_rel", "__get_rel_sockaddr"}))
      return take_field() && take(")");
    if (name == "__print_flags") return expression(node) && take(",") && take_text() && take(",") && pairs() && take(")");
    if (name == "__print_symbolic") return expression(node) && take(",") && pairs() && take(")");
    if (is_one_of({"__print_hex", "__print_hex_str"})) return arguments(2);
    if (name == "__print_array") return arguments(3);
    return name == "__builtin_expect" && unary(node) && take(",") && take_word() && take(")");
  }
  bool is_simple() const { return is("(") || is_word() || peek().kind == Token::Kind::character; }
  bool take_word() {
    if (!is_word()) return false;
    ++at_;
    return true;
  }
  bool take_text() {
    if (!is_text()) return false;
    while (is_text()) ++at_;  // "a" "b"
    return true;
  }
  bool take_field() { return std::binary_search(fields_.begin(), fields_.end(), peek().text) && take_word(); }
  // Not every version of the parser knows it.
  bool size_of(const char* begin) {
    std::string type;
    for (; is_word(); ++at_) type += (type.empty() ? "" : " ") + std::string(peek().text);
    while (type.starts_with('_')) type.erase(0, 1);
    static constexpr std::pair<std::string_view, u32> known[] = {
        {"u8", 1},  {"s8", 1},  {"char", 1}, {"bool", 1}, {"u16", 2},          {"s16", 2},          {"short", 2},
        {"u32", 4}, {"s32", 4}, {"int", 4},  {"u64", 8},  {"unsigned int", 4}, {"unsigned long", 8}, {"s64", 8},
        {"long", 8}};
    const auto size = std::find_if(std::begin(known), std::end(known), [&](const auto& one) { return one.first == type; });
    if (size == std::end(known) || !take(")")) return false;
    marks_.push_back({begin, std::to_string(size->second), static_cast<size_t>(behind() - begin)});
    return true;
  }
  bool arguments(u32 number) {
    for (Node node; number > 0; --number)
      if (!expression(node) || !take(number == 1 ? ")" : ",")) return false;
    return true;
  }
  // { 1, "one" }, { 2, "two" }
  bool pairs() {
    Node value, name;
    do {
      const bool both = take("{") && expression(value) && take(",") && unary(name) && take("}");
      if (!both || !value.is_constant || !name.is_constant) return false;
    } while (take(","));
    return true;
  }

  const std::vector<Token> tokens_;
  const std::vector<std::string_view>& fields_;
  size_t at_ = 0;
  u32 depth_ = 0;
  std::vector<Mark> marks_;
};

}  // namespace

ReadableFormat with_parentheses(std::string_view format) {
  constexpr std::string_view begin = "\nprint fmt:";
  const size_t at = format.find(begin);
  std::vector<std::string_view> fields;
  if (at == format.npos || !read_fields(format.substr(0, at), fields)) return {};
  const std::string head(format.substr(0, at + begin.size()));
  std::string_view line = format.substr(at + begin.size());
  while (line.ends_with('\n')) line.remove_suffix(1);
  const std::string written = Writer(line, fields).write(line);
  const bool understood = !written.empty();
  return {head + (understood ? written : " \"\"") + "\n", understood};
}

}  // namespace ringside
