// The calls of a print fmt: those of the kernel's macros, and of functions that compute a number.
#include <algorithm>
#include <iterator>

#include "decode/print_parser.hpp"

namespace ringside {
namespace {

using NodeKind = Node::Kind;
using Op = ValueOp::Op;
constexpr CType s32_type = CType::integer(32, true), u32_type = CType::integer(32, false), s64_type = CType::integer(64, true),
                u64_type = CType::integer(64, false);
constexpr u64 ns_in_s = 1'000'000'000;

bool is_located(const Field& field) { return field.kind == FieldKind::loc_text || field.kind == FieldKind::loc_array; }

// What a function does with the order of bytes.
struct Turn {
  u32 bits = 0;  // of its number; 0: it does nothing of the kind
  enum class From : u8 { always, big, little } from = From::always;
  bool reads = false;  // it takes an address
  bool swaps(bool big_endian) const { return from == From::always || (from == From::big) != big_endian; }
};

// __fswab32, __builtin_bswap32, cpu_to_be32, le32_to_cpu, ntohl; __le16_to_cpup, get_unaligned_be32.
Turn turn_of(std::string_view function) {
  static constexpr std::string_view swabs[] = {"__fswab",     "__swab",           "swab",
                                               "__arch_swab", "___constant_swab", "__builtin_bswap"};
  for (const u32 bits : {16U, 32U, 64U}) {
    const std::string number = std::to_string(bits);
    for (const std::string_view prefix : swabs)
      if (function == std::string(prefix) + number) return {bits};
    for (const Turn::From from : {Turn::From::big, Turn::From::little}) {
      const std::string order = (from == Turn::From::big ? "be" : "le") + number;
      std::string_view plain = function;
      if (plain.starts_with("__")) plain.remove_prefix(2);
      if (plain == "cpu_to_" + order || plain == order + "_to_cpu") return {bits, from};
      if (plain == order + "_to_cpup" || function == "get_unaligned_" + order) return {bits, from, true};
    }
  }
  if (function == "ntohs" || function == "htons") return {16, Turn::From::big};
  if (function == "ntohl" || function == "htonl") return {32, Turn::From::big};
  return {};
}

}  // namespace

std::vector<const Node*> PrintParser::arguments() {
  std::vector<const Node*> out;
  if (take(")")) return out;
  do {
    out.push_back(assignment());
  } while (take(","));
  expect(")");
  return out;
}

const Node* PrintParser::call(std::string_view function, size_t from) {
  ++at_;
  if (const Node* const known = kernel_call(function); known != nullptr) return known;
  const size_t inside = at_;
  std::vector<const Node*> given;
  try {
    given = arguments();
  } catch (const Wrong&) {  // types, most often
    at_ = inside - 1;
    skip_balanced();
    return spelled(source(from));
  }
  const Node* const value = value_call(function, given);
  return value != nullptr ? value : nodes_.unknown(std::string(function), std::move(given));
}

const Node* PrintParser::kernel_call(std::string_view function) {
  const auto is_one_of = [&](std::initializer_list<std::string_view> all) {
    return std::find(all.begin(), all.end(), function) != all.end();
  };
  if (is_one_of({"__get_str", "__get_rel_str"})) return located(true);
  if (is_one_of(
          {"__get_dynamic_array", "__get_rel_dynamic_array", "__get_sockaddr", "__get_rel_sockaddr", "__get_sockaddr_rel"}))
    return located(false);
  if (is_one_of({"__get_dynamic_array_len", "__get_rel_dynamic_array_len"})) {
    const u32 index = field_index(take_word());
    expect(")");
    if (!is_located(scope_.fields[index])) return nodes_.number(scope_.fields[index].size, s32_type);
    Node node;
    node.kind = NodeKind::length;
    node.field = index;
    node.type = u32_type;
    return nodes_.add(std::move(node));
  }
  if (is_one_of({"__get_bitmask", "__get_rel_bitmask", "__get_cpumask", "__get_rel_cpumask"})) {
    Node node;
    node.kind = NodeKind::mask;
    node.field = field_index(take_word());
    node.type = CType::text();
    node.is_symbolic = function.find("cpumask") != function.npos;
    expect(")");
    return nodes_.add(std::move(node));
  }
  if (is_one_of({"__print_flags", "__print_flags_u64"})) return names(true, function.ends_with("_u64"));
  if (is_one_of({"__print_symbolic", "__print_symbolic_u64"})) return names(false, function.ends_with("_u64"));
  if (is_one_of({"__print_array", "__print_dynamic_array"})) return print_array(function == "__print_dynamic_array");
  if (function == "__builtin_choose_expr") {
    const Node* const condition = assignment();
    expect(",");
    const Node* const then = assignment();
    expect(",");
    const Node* const otherwise = assignment();
    expect(")");
    return condition->is(NodeKind::number) && condition->value == 0 ? otherwise : then;
  }
  return nullptr;
}

// The memory of a field named alone, or computed.
const Node* PrintParser::located(bool text) {
  const u32 index = field_index(take_word());
  expect(")");
  const Node* const of = field(index);
  const Node* const bytes = of->is(NodeKind::memory) ? of : memory(index, of->type);
  return text ? nodes_.cast(bytes, CType::text()) : bytes;
}

// __print_flags(value, "|", { 1, "A" }, ...), __print_symbolic(value, { 1, "A" }, ...)
// is_wide: the value is an u64 everywhere; else an unsigned long.
const Node* PrintParser::names(bool flags, bool is_wide) {
  Node node;
  node.kind = NodeKind::names;
  node.type = CType::text();
  node.is_symbolic = !flags;
  node.value = is_wide;
  node.parts = {nodes_.cast(assignment(), u64_type)};
  if (flags) {
    expect(",");
    const Node* const between = assignment();
    if (!between->is(NodeKind::text) && !between->is(NodeKind::number)) wrong("the text between the flags is missing");
    node.text = between->text;
  }
  while (take(",")) {
    if (!is("{")) {  // a name that means pairs
      if (assignment()->is_known) wrong("'{' is missing");
      continue;
    }
    expect("{");
    if (take("}")) continue;
    const Node* const value = assignment();
    expect(",");
    const Node* const name = assignment();
    take(",");
    expect("}");
    const bool constant = value->is(NodeKind::number), ends = name->is(NodeKind::number);
    if (value->is_known && !constant) wrong("a name's value is not constant");
    if (!name->is(NodeKind::text) && !ends) wrong("a name is missing");
    if (constant && !ends)
      node.list.emplace_back(static_cast<i64>(value->value), name->text);  // else the kernel's compiler knows it
  }
  expect(")");
  return nodes_.add(std::move(node));
}

// The bytes at an address; null: they are not in the event.
const Node* PrintParser::memory_of(const Node* argument, CType type) {
  if (argument->is(NodeKind::cast) && argument->parts[0]->is(NodeKind::memory)) argument = argument->parts[0];
  return argument->is(NodeKind::memory) ? nodes_.cast(argument, type) : nullptr;
}

const Node* PrintParser::print_array(bool dynamic) {
  Node node;
  node.kind = NodeKind::list;
  node.type = CType::text();
  const size_t from = at_ - 2;
  const Node *array = nullptr, *count = nullptr;
  if (dynamic) {
    const u32 index = field_index(take_word());
    array = field(index);
    Node length;
    length.kind = NodeKind::length;
    length.field = index;
    length.type = u32_type;
    if (is_located(scope_.fields[index])) count = nodes_.add(std::move(length));
  } else {
    array = assignment();
    expect(",");
    count = assignment();
  }
  expect(",");
  const Node* const size = assignment();
  expect(")");
  const bool fits =
      size->is(NodeKind::number) && (size->value == 1 || size->value == 2 || size->value == 4 || size->value == 8);
  if (!array->is(NodeKind::memory) || !fits) return spelled(source(from));
  if (dynamic && count != nullptr) count = nodes_.binary(Op::divide, count, size);
  node.value = size->value;
  if (count != nullptr) node.parts = {nodes_.cast(count, s32_type)};
  node.parts.push_back(array);
  return nodes_.add(std::move(node));
}

const Node* PrintParser::value_call(std::string_view function, const std::vector<const Node*>& given) {
  const auto as = [&](CType type) { return nodes_.cast(given[0], type); };
  const CType ulong_type = CType::integer(8 * scope_.word_size, false);
  const auto number = [&](u64 value, CType type) { return nodes_.number(value, type); };
  if ((function == "__print_hex" || function == "__print_hex_str") && given.size() >= 2) {
    if (!given[0]->is(NodeKind::memory)) return nullptr;
    Node node;
    node.kind = NodeKind::bytes;
    node.type = CType::text();
    node.text = function == "__print_hex" ? " " : "";
    node.parts = {nodes_.cast(given[1], s32_type), given[0]};
    return nodes_.add(std::move(node));
  }
  if (function == "__print_hex_dump" && given.size() == 7 && given[4]->is(NodeKind::memory)) {
    Node node;  // one event is one line
    node.kind = NodeKind::bytes;
    node.type = CType::text();
    node.text = " ";
    node.parts = {nodes_.cast(given[5], s32_type), given[4]};
    return nodes_.add(std::move(node));
  }
  if (function == "__builtin_expect" && given.size() == 2) return as(CType::integer(8 * scope_.word_size, true));
  if (function == "__event_in_hardirq" || function == "__event_in_softirq" || function == "__event_in_irq") {
    constexpr u32 hardirq = 8, softirq = 16;  // of common_flags
    for (const Field& common : scope_.common) {
      if (common.name != "common_flags") continue;
      Node flags;
      flags.kind = NodeKind::common;
      flags.field = common.offset;
      flags.type = CType::integer(8 * common.size, false);
      const u32 mask = function == "__event_in_irq" ? hardirq | softirq : function == "__event_in_hardirq" ? hardirq : softirq;
      return nodes_.binary(Op::bit_and, nodes_.add(std::move(flags)), number(mask, s32_type));
    }
    return nullptr;
  }
  if (given.size() != 1) {
    if ((function == "div_u64" || function == "div64_u64" || function == "div64_ul") && given.size() == 2)
      return nodes_.binary(Op::divide, as(u64_type), nodes_.cast(given[1], u64_type));
    if ((function == "div_s64" || function == "div64_s64") && given.size() == 2)
      return nodes_.binary(Op::divide, as(s64_type), nodes_.cast(given[1], s64_type));
    return nullptr;
  }
  if (function == "__builtin_constant_p") return number(0, s32_type);
  const Turn turn = turn_of(function);
  const CType of_bits = CType::integer(turn.bits, false);
  if (turn.reads) {
    const Node* const bytes = memory_of(given[0], of_bits.pointer());
    if (bytes == nullptr) return nullptr;
    const Node* const value = nodes_.element(bytes, number(0, s32_type));
    return turn.swaps(scope_.big_endian) ? nodes_.swapped(value) : value;
  }
  if (!given[0]->type.value().is_number() || given[0]->is(NodeKind::memory)) return nullptr;
  if (turn.bits != 0) return turn.swaps(scope_.big_endian) ? nodes_.swapped(as(of_bits)) : as(of_bits);
  if (function == "__print_ns_to_secs") return nodes_.binary(Op::divide, as(u64_type), number(ns_in_s, u64_type));
  if (function == "__print_ns_without_secs")
    return nodes_.cast(nodes_.binary(Op::remainder, as(u64_type), number(ns_in_s, u64_type)), u32_type);
  if (function == "ERR_PTR" || function == "PTR_ERR") return as(CType::integer(8 * scope_.word_size, true));
  if (function == "ktime_to_ns" || function == "ns_to_ktime") return as(s64_type);
  if (function == "ktime_to_us") return nodes_.binary(Op::divide, as(s64_type), number(1000, s64_type));
  if (function == "ktime_to_ms") return nodes_.binary(Op::divide, as(s64_type), number(1'000'000, s64_type));
  if (function == "fls" || function == "__ilog2_u32")
    return nodes_.counted(Op::bit_length, as(u32_type), function == "fls" ? 0 : -1);
  if (function == "fls64" || function == "__ilog2_u64")
    return nodes_.counted(Op::bit_length, as(u64_type), function == "fls64" ? 0 : -1);
  if (function == "fls_long" || function == "__fls")
    return nodes_.counted(Op::bit_length, as(ulong_type), function == "fls_long" ? 0 : -1);
  if (function == "hweight32" || function == "__builtin_popcount") return nodes_.counted(Op::ones, as(u32_type), 0);
  if (function == "hweight64" || function == "__builtin_popcountll") return nodes_.counted(Op::ones, as(u64_type), 0);
  if (function == "hweight_long" || function == "__builtin_popcountl") return nodes_.counted(Op::ones, as(ulong_type), 0);
  if (function == "__builtin_clz")
    return nodes_.binary(Op::subtract, number(32, s32_type), nodes_.counted(Op::bit_length, as(u32_type), 0));
  if (function == "__builtin_clzl")
    return nodes_.binary(Op::subtract, number(ulong_type.bits, s32_type), nodes_.counted(Op::bit_length, as(ulong_type), 0));
  if (function == "__builtin_clzll")
    return nodes_.binary(Op::subtract, number(64, s32_type), nodes_.counted(Op::bit_length, as(u64_type), 0));
  const u32 hz = scope_.ticks_per_second;
  if (hz != 0 && (function == "jiffies_to_msecs" || function == "jiffies_to_usecs")) {
    const u32 in_a_second = function == "jiffies_to_msecs" ? 1000 : 1'000'000;
    if (in_a_second % hz == 0)
      return nodes_.cast(nodes_.binary(Op::multiply, as(u64_type), number(in_a_second / hz, u64_type)), u32_type);
  }
  return nullptr;
}

}  // namespace ringside
