// Names of types, and ({ ... }).
#include <algorithm>
#include <iterator>

#include "decode/print_parser.hpp"

namespace ringside {
namespace {

using TokenKind = Token::Kind;

template <size_t n>
bool is_one_of(std::string_view word, const std::string_view (&all)[n]) {
  return std::find(std::begin(all), std::end(all), word) != std::end(all);
}

constexpr std::string_view qualifiers[] = {"const",  "volatile", "static",  "register", "extern",   "inline",
                                           "__user", "__iomem",  "__force", "__rcu",    "__percpu", "auto"};
constexpr std::string_view basic[] = {"void",   "char",     "short",      "int",   "long",
                                      "signed", "unsigned", "__signed__", "float", "double"};
constexpr std::string_view tagged[] = {"struct", "union", "enum"};
constexpr std::string_view typeofs[] = {"typeof", "__typeof__", "__typeof", "typeof_unqual", "__typeof_unqual__"};

bool begins_type(std::string_view word) {
  return is_one_of(word, qualifiers) || is_one_of(word, basic) || is_one_of(word, tagged) || is_one_of(word, typeofs) ||
         named_type(word, 8) != nullptr;
}

}  // namespace

// An unknown name is a type's where it is alone in parentheses, with a value after them.
bool PrintParser::at_type(size_t further) const {
  const Token& first = peek(further);
  if (first.kind != TokenKind::word || first.text == "REC") return false;
  for (const Local& local : locals_)
    if (local.first == first.text) return false;
  if (begins_type(first.text)) return true;
  size_t n = further + 1;
  while (peek(n).text == "*") ++n;
  if (peek(n).text != ")") return false;
  if (n > further + 1) return true;
  const Token& next = peek(n + 1);
  if (next.kind == TokenKind::word || next.kind == TokenKind::number || next.kind == TokenKind::character ||
      next.kind == TokenKind::text || next.text == "(" || next.text == "~" || next.text == "!")
    return true;
  return first.text.ends_with("_t") && std::string_view("-+*&").find(next.text) != std::string_view::npos;
}

CType PrintParser::specifiers() {
  u32 longs = 0;
  bool is_short = false, has_sign = false, is_unsigned = false, any = false;
  CType type = CType::integer(32, true);
  for (; peek().kind == TokenKind::word; ++at_) {
    const std::string_view word = peek().text;
    if (is_one_of(word, qualifiers)) continue;
    if (is_one_of(word, tagged)) {
      ++at_;
      if (peek(0).text == "{") {
        skip_balanced();
        --at_;  // its last bracket is the word
      } else if (peek().kind != TokenKind::word) {
        wrong("the name of a type is missing");
      }
      type = word == "enum" ? CType::integer(32, false) : CType::none();
    } else if (is_one_of(word, typeofs)) {
      ++at_;
      expect("(");
      type = at_type() ? type_name() : expression()->type;
      if (!is(")")) wrong("')' is missing");
    } else if (word == "long") {
      ++longs;
    } else if (word == "short") {
      is_short = true;
    } else if (word == "unsigned" || word == "signed" || word == "__signed__") {
      has_sign = true;
      is_unsigned = word == "unsigned";
    } else if (word == "char") {
      type = CType::character();
    } else if (word == "void") {
      type = {CType::Kind::nothing, 0, false, false, false, 0, 8};
    } else if (word == "float" || word == "double") {
      type = {CType::Kind::floating, static_cast<u8>(word == "float" ? 32 : 64), true, false, false, 0, 8};
    } else if (word != "int") {
      if (any) break;
      const CType* const named = named_type(word, scope_.word_size);
      type = named != nullptr ? *named : CType::none();
    }
    any = true;
  }
  if (!any) wrong("the name of a type is missing");
  if (is_short) type = CType::integer(16, true);
  if (longs != 0 && type.kind == CType::Kind::integer) type = CType::integer(longs == 1 ? 8 * scope_.word_size : 64, true);
  if (has_sign && type.kind == CType::Kind::integer) type = CType::integer(type.bits, !is_unsigned);
  type.word = static_cast<u8>(scope_.word_size);
  return type;
}

CType PrintParser::type_name() {
  CType type = specifiers();
  for (;;) {
    if (take("*"))
      ++type.stars;
    else if (peek().kind == TokenKind::word && is_one_of(peek().text, qualifiers))
      ++at_;
    else
      return type;
  }
}

const Node* PrintParser::size_of() {
  const size_t from = at_ - 1;
  u32 size = 0;
  const bool names_type = is("(") && (at_type(1) || (peek(1).kind == TokenKind::word && peek(1).text != "REC" &&
                                                     peek(2).text == ")" && name(peek(1).text)->is(Node::Kind::spelled)));
  if (names_type) {
    ++at_;
    size = type_name().size();
    expect(")");
  } else {
    const Node* const of = unary();
    const bool memory = of->is(Node::Kind::memory);
    size = memory                     ? scope_.fields[of->field].size
           : of->is(Node::Kind::text) ? static_cast<u32>(of->text.size() + 1)
                                      : of->type.size();
  }
  return size != 0 ? nodes_.number(size, CType::integer(8 * scope_.word_size, false)) : spelled(source(from));
}

// ({ int x = a; int y = b; x < y ? x : y; }) as min() makes it. What else the kernel writes there is not known here.
const Node* PrintParser::statements() {
  const size_t from = at_, known = locals_.size();
  const Node* result = nullptr;
  try {
    at_ += 2;
    while (!is("}")) statement(result);
    ++at_;
    expect(")");
  } catch (const Wrong&) {
    result = nullptr;
  }
  locals_.resize(known);
  if (result != nullptr) return result;
  at_ = from;
  skip_balanced();
  return spelled("({...})");
}

void PrintParser::statement(const Node*& result) {
  if (take(";")) return;
  result = nullptr;
  if (is_word("do") || is_word("_Static_assert") || is_word("static_assert") || is_word("extern") || is_word("typedef"))
    return skip_statement();
  if (is_word("__auto_type") || (at_type() && !(peek(1).text == "(" && !begins_type(peek().text)))) return declaration();
  if (peek().kind == TokenKind::word && peek(1).kind == TokenKind::word && peek(2).text == "=") return declaration();
  result = expression();
  expect(";");
}

// A check of the compiler's: do { ... } while (0);
void PrintParser::skip_statement() {
  while (!is(";")) {
    if (is("(") || is("{") || is("["))
      skip_balanced();
    else if (peek().kind == TokenKind::end || is("}") || is(")"))
      wrong("';' is missing");
    else
      ++at_;
  }
  ++at_;
}

void PrintParser::declaration() {
  const bool of_value = is_word("__auto_type") || is_word("auto");
  if (of_value) ++at_;
  const CType base = of_value ? CType::none() : specifiers();
  do {
    CType type = base;
    for (; take("*"); ++type.stars) {
    }
    while (is_word("const")) ++at_;
    const std::string_view named = take_word();
    expect("=");
    if (locals_.size() >= most_locals) wrong("there are too many variables");
    const Node* const value = assignment();
    locals_.emplace_back(named, of_value ? value : nodes_.cast(value, type));
  } while (take(","));
  expect(";");
}

}  // namespace ringside
