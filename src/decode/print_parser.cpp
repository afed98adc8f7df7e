#include "decode/print_parser.hpp"

#include <algorithm>
#include <charconv>
#include <iterator>

namespace ringside {
namespace {

using TokenKind = Token::Kind;
using NodeKind = Node::Kind;
using Op = ValueOp::Op;

struct Operator {
  std::string_view sign;
  u32 looseness;  // how loosely it binds
  Op op;
};
constexpr Operator operators[] = {{"*", 1, Op::multiply},     {"/", 1, Op::divide},         {"%", 1, Op::remainder},
                                  {"+", 2, Op::add},          {"-", 2, Op::subtract},       {"<<", 3, Op::shift_left},
                                  {">>", 3, Op::shift_right}, {"<", 4, Op::less},           {">", 4, Op::greater},
                                  {"<=", 4, Op::less_equal},  {">=", 4, Op::greater_equal}, {"==", 5, Op::equal},
                                  {"!=", 5, Op::unequal},     {"&", 6, Op::bit_and},        {"^", 7, Op::bit_xor},
                                  {"|", 8, Op::bit_or},       {"&&", 9, Op::both},          {"||", 10, Op::either}};
constexpr u32 loosest_operator = 10;

// The element's type of a field's memory.
CType element_type(const Field& field) {
  const bool array = field.kind != FieldKind::integer && field.kind != FieldKind::floating;
  if (field.kind == FieldKind::text || field.kind == FieldKind::loc_text) return CType::character();
  const u32 size = array ? field.element : field.size;
  CType type = CType::integer(8 * (size == 0 ? 1 : size), field.is_signed);
  if (field.is_float || field.kind == FieldKind::floating) type.kind = CType::Kind::floating;
  return type;
}

}  // namespace

void PrintParser::parse(std::string& format, std::vector<const Node*>& arguments) {
  if (peek().kind != TokenKind::text) wrong("the format string is missing");
  format = texts();
  if (!is(",") && peek().kind != TokenKind::end) format = raw_format();
  while (take(",") && peek().kind != TokenKind::end) arguments.push_back(assignment());
  if (peek().kind != TokenKind::end) wrong("here is no argument and no end");
}

std::string PrintParser::source(size_t from) const {
  if (at_ <= from) return {};
  const std::string_view last = tokens_[at_ - 1].text;
  const size_t end = static_cast<size_t>(last.data() - text_.data()) + last.size();
  return std::string(text_.substr(here(from), end - here(from)));
}

// Kernels write the quotes within a format string as they are: it ends with one that has a comma after it, or nothing.
std::string PrintParser::raw_format() {
  constexpr std::string_view between = " \t\r\n";
  for (size_t at = text_.find('"') + 1; (at = text_.find('"', at)) != text_.npos; ++at) {
    const size_t next = text_.find_first_not_of(between, at + 1);
    if (next != text_.npos && text_[next] != ',') continue;
    const size_t begin = text_.find('"');
    tokens_ = tokens_of(text_.substr(at + 1));
    at_ = 0;
    return unquoted(text_.substr(begin, at + 1 - begin));
  }
  wrong("here is no argument and no end");
}

std::string PrintParser::texts() {
  std::string out;
  for (; peek().kind == TokenKind::text; ++at_) out += unquoted(peek().text);
  return out;
}

void PrintParser::skip_balanced() {
  u32 open = 0;
  for (;; ++at_) {
    const Token& token = peek();
    if (token.kind == TokenKind::end || token.kind == TokenKind::wrong) wrong("a bracket is not closed");
    if (token.kind != TokenKind::sign || token.text.size() != 1) continue;
    const char sign = token.text[0];
    if (sign == '(' || sign == '[' || sign == '{') ++open;
    if ((sign == ')' || sign == ']' || sign == '}') && --open == 0) break;
  }
  ++at_;
}

const Node* PrintParser::expression() {
  const Node* last = assignment();
  while (take(",")) last = assignment();
  return last;
}

const Node* PrintParser::conditional() {
  const Nested nested(*this);
  const Node* const condition = binary(loosest_operator);
  if (!take("?")) return condition;
  const Node* const then = is(":") ? condition : expression();  // a ?: b
  expect(":");
  return nodes_.choice(condition, then, conditional());
}

const Node* PrintParser::binary(u32 loosest) {
  const Node* left = unary();
  for (;;) {
    const auto* const with = std::find_if(std::begin(operators), std::end(operators),
                                          [&](const Operator& o) { return is(o.sign) && o.looseness <= loosest; });
    if (with == std::end(operators)) return left;
    ++at_;
    left = nodes_.binary(with->op, left, binary(with->looseness - 1));
  }
}

const Node* PrintParser::unary() {
  const Nested nested(*this);
  const size_t from = at_;
  if (peek().kind == TokenKind::sign && std::string_view("!~-+&*").find(peek().text) != std::string_view::npos)
    return prefix(tokens_[at_++].text);
  if (is_word("sizeof")) {
    ++at_;
    return size_of();
  }
  if (is("(") && at_type(1)) {
    ++at_;
    const CType type = type_name();
    expect(")");
    return is("{") ? compound() : nodes_.cast(unary(), type);
  }
  return postfix(primary(), from);
}

// (ktime_t) { .tv64 = x }: a struct of one member.
const Node* PrintParser::compound() {
  expect("{");
  if (take(".")) {
    take_word();
    expect("=");
  }
  Node node;
  node.kind = NodeKind::spelled;
  node.type = CType::none();
  node.text = "{...}";
  node.parts = {assignment()};
  take(",");
  expect("}");
  return postfix(nodes_.add(std::move(node)), at_);
}

const Node* PrintParser::prefix(std::string_view sign) {
  const size_t from = at_ - 1;
  const Node* const of = unary();
  if (sign == "!") return nodes_.unary(Op::boolean_not, of);
  if (sign == "~") return nodes_.unary(Op::invert, of);
  if (sign == "-") return nodes_.unary(Op::negate, of);
  if (sign == "+") return of->type.is_number() ? nodes_.cast(of, promoted(of->type)) : of;
  if (sign == "*") {
    if (of->type.is_pointer()) return nodes_.element(of, nodes_.number(0, CType::integer(32, true)));
    return spelled(source(from));
  }
  if (of->is(NodeKind::field)) return memory(of->field, of->type);
  if (of->is(NodeKind::memory)) return of;
  const bool first = of->is(NodeKind::element) && of->parts[1]->is(NodeKind::number) && of->parts[1]->value == 0;
  return first ? of->parts[0] : spelled(source(from));
}

const Node* PrintParser::primary() {
  const size_t from = at_;
  switch (peek().kind) {
    case TokenKind::number:
      return constant(tokens_[at_++].text);
    case TokenKind::character: {
      const std::string meant = unquoted(tokens_[at_++].text);
      if (meant.size() != 1) wrong("this is no character");
      return nodes_.number(static_cast<u64>(static_cast<signed char>(meant[0])), CType::integer(32, true));
    }
    case TokenKind::text: {
      Node node;
      node.kind = NodeKind::text;
      node.type = CType::text();
      node.text = texts();
      return nodes_.add(std::move(node));
    }
    case TokenKind::word: {
      const std::string_view word = tokens_[at_++].text;
      if (word == "REC") return record_member(from);
      return is("(") ? call(word, from) : name(word);
    }
    case TokenKind::sign:
      if (is("(")) return parenthesised(from);
      [[fallthrough]];
    default:
      wrong(peek().kind == TokenKind::wrong ? "a quotation has no end" : "a value is missing");
  }
}

const Node* PrintParser::parenthesised(size_t from) {
  if (peek(1).text == "{") return statements();
  ++at_;
  if (is_word("REC") && peek(1).text == ")") {
    at_ += 2;
    return record_member(from);
  }
  const Node* const of = expression();
  expect(")");
  return of;
}

const Node* PrintParser::constant(std::string_view digits) {
  u32 longs = 0;
  bool has_u = false;
  std::string_view number = digits;
  while (!number.empty() && std::string_view("uUlL").find(number.back()) != std::string_view::npos) {
    (number.back() == 'u' || number.back() == 'U' ? has_u : (++longs, has_u)) |= number.back() == 'u' || number.back() == 'U';
    number.remove_suffix(1);
  }
  int base = 10;
  if (number.starts_with("0x") || number.starts_with("0X"))
    base = 16, number.remove_prefix(2);
  else if (number.starts_with("0b") || number.starts_with("0B"))
    base = 2, number.remove_prefix(2);
  else if (number.size() > 1 && number[0] == '0')
    base = 8, number.remove_prefix(1);
  u64 value = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value, base);
  if (error != std::errc() || end != number.data() + number.size()) {
    --at_;
    wrong("this is no number");
  }
  // The first type that holds it; without u, decimal numbers are signed.
  const bool may_be_narrow = longs == 0 || (longs == 1 && scope_.word_size == 4);
  const u32 bits = may_be_narrow && value <= UINT32_MAX && (has_u || base != 10 || value <= INT32_MAX) ? 32 : 64;
  const bool fits = value <= (bits == 32 ? u64{INT32_MAX} : u64{INT64_MAX});
  return nodes_.number(value, CType::integer(bits, !has_u && fits));
}

u32 PrintParser::field_index(std::string_view wanted) {
  for (u32 i = 0; i < scope_.fields.size(); ++i)
    if (scope_.fields[i].name == wanted) return i;
  --at_;
  wrong("the event has no field " + std::string(wanted));
}

const Node* PrintParser::field(u32 index) {
  const Field& of = scope_.fields[index];
  if (of.kind != FieldKind::integer && of.kind != FieldKind::floating) return memory(index, element_type(of));
  Node node;
  node.kind = NodeKind::field;
  node.field = index;
  node.type = element_type(of);
  if (of.is_bool) node.type.is_bool = true;
  if (of.is_char) node.type.is_char = true;
  return nodes_.add(std::move(node));
}

const Node* PrintParser::memory(u32 index, CType of) {
  Node node;
  node.kind = NodeKind::memory;
  node.field = index;
  node.type = of.pointer();
  return nodes_.add(std::move(node));
}

const Node* PrintParser::spelled(std::string text) {
  Node node;
  node.kind = NodeKind::spelled;
  node.type = CType::none();
  node.text = std::move(text);
  return nodes_.add(std::move(node));
}

const Node* PrintParser::record_member(size_t from) {
  expect("->");
  const std::string_view wanted = take_word();
  for (const Field& common : scope_.common) {
    if (common.name != wanted || common.kind != FieldKind::integer) continue;
    Node node;
    node.kind = NodeKind::common;
    node.field = common.offset;
    node.type = element_type(common);
    return nodes_.add(std::move(node));
  }
  for (const std::string_view prefix : {"__data_loc_", "__rel_loc_"}) {  // the word that says where the data is
    if (!wanted.starts_with(prefix)) continue;
    Node node;
    node.kind = NodeKind::common;
    node.field = scope_.fields[field_index(wanted.substr(prefix.size()))].offset;
    node.type = CType::integer(32, false);
    return nodes_.add(std::move(node));
  }
  if (wanted == "ent" && is(".")) {
    ++at_;
    const std::string common = "common_" + std::string(take_word());
    for (const Field& one : scope_.common) {
      if (one.name != common) continue;
      Node node;
      node.kind = NodeKind::common;
      node.field = one.offset;
      node.type = element_type(one);
      return nodes_.add(std::move(node));
    }
    return spelled(source(from));
  }
  return field(field_index(wanted));
}

const Node* PrintParser::postfix(const Node* of, size_t from) {
  for (bool unknown = false;;) {
    if (take("[")) {
      const Node* const index = expression();
      expect("]");
      unknown = unknown || (of->is_known && !of->type.is_pointer());
      if (unknown) continue;
      const bool memory = of->is(NodeKind::memory);
      const u32 stride =
          memory && of->value < scope_.fields[of->field].strides.size() ? scope_.fields[of->field].strides[of->value] : 0;
      of = stride != 0 ? nodes_.row(of, index, stride) : nodes_.element(of, index);
    } else if (is(".") || is("->")) {
      ++at_;
      const std::string_view member = take_word();
      if (!unknown && of->is(NodeKind::spelled) && of->parts.size() == 1) {
        of = of->parts[0];
        continue;
      }
      // The first member of a struct, of which the format gives the bytes alone.
      unknown = unknown || !of->is(NodeKind::memory) || (member != "b" && member != "s6_addr" && member != "s_addr");
    } else if (is("(")) {
      skip_balanced();
      unknown = true;
    } else {
      return unknown ? spelled(source(from)) : of;
    }
  }
}

const Node* PrintParser::name(std::string_view word) {
  for (auto local = locals_.rbegin(); local != locals_.rend(); ++local)
    if (local->first == word) return local->second;
  if (word == "NULL") return nodes_.number(0, CType{CType::Kind::nothing, 0, false, false, false, 1, 8});
  if (word == "true" || word == "false") return nodes_.number(word == "true", CType::integer(32, true));
  if (word == "HZ" && scope_.ticks_per_second != 0) return nodes_.number(scope_.ticks_per_second, CType::integer(32, true));
  return spelled(std::string(word));
}

PrintTree parse_print_fmt(std::string_view text, const PrintScope& scope) {
  PrintTree tree;
  try {
    PrintParser(text, scope, tree.nodes).parse(tree.format, tree.arguments);
  } catch (const PrintParser::Wrong& wrong) {
    tree.wrong_at = wrong.at;
    tree.wrong = wrong.why;
  }
  if (tree.wrong.empty() && tree.nodes.too_deep()) tree.wrong = "the expression is nested too deeply";
  return tree;
}

}  // namespace ringside
