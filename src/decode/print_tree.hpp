// A print fmt as a tree with the types of C: its format string, and a node for each argument. The tree is made once for each
// event, and compiled into steps (compile_steps.hpp).
#pragma once
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "decode/formats.hpp"
#include "source/c_type.hpp"

namespace ringside {

struct Node {
  enum class Kind : u8 {
    number,   // `value`
    text,     // a string literal: `text`
    field,    // the value of a field of one number
    common,   // the value of a common field: at the offset `field`
    memory,   // the bytes of a field: an array, located data, or &field; with a part: from that element on, of
              // an array at the level `value`; flat: a pointer that a cast made
    length,   // of located data
    unary,    // `op` of one part
    binary,   // `op` of two
    choice,   // ? : with three
    cast,     // of one part to `type`
    element,  // of the memory of the first part, at the index of the second
    names,    // __print_flags (`text` is between the names) and __print_symbolic (`is_symbolic`) of one part
    list,     // __print_array of memory: its elements' number and their size (`value`)
    bytes,    // __print_hex of memory and a number of bytes; `text` is between them
    mask,     // __get_bitmask; as `is_symbolic`: __get_cpumask
    call,     // unknown: the name `text`, and its arguments
    spelled   // unknown: `text` as it is there
  };
  Kind kind = Kind::number;
  CType type{};
  ValueOp::Op op = ValueOp::Op::constant;
  bool is_symbolic = false;
  bool is_known = true;   // its value can be computed from a payload
  bool is_place = false;  // it is a text or memory
  u32 field = 0;         // index in the fields
  u32 depth = 1;         // of the tree below
  u64 value = 0;
  std::string text{};
  std::vector<const Node*> parts{};
  std::vector<std::pair<i64, std::string>> list{};  // names

  static constexpr u64 flat = 256;  // memory: no longer an array of arrays
  bool is(Kind k) const { return kind == k; }
};

// Whether its value is a whole number that can be computed from a payload.
bool is_number(const Node* node);

// Makes nodes, and owns them. Numbers are computed at once.
class Nodes {
 public:
  static constexpr u32 deepest = 200;

  const Node* add(Node node);
  const Node* number(u64 value, CType type);
  const Node* unary(ValueOp::Op op, const Node* of);
  const Node* binary(ValueOp::Op op, const Node* left, const Node* right);
  const Node* choice(const Node* condition, const Node* then, const Node* otherwise);
  const Node* cast(const Node* of, CType type);  // as (type) does
  const Node* element(const Node* of, const Node* index);
  const Node* row(const Node* of, const Node* index, u32 elements);  // of an array of arrays
  const Node* swapped(const Node* of);                               // its bytes the other way round
  const Node* counted(ValueOp::Op op, const Node* of, i32 plus);
  const Node* unknown(std::string name, std::vector<const Node*> arguments);
  bool too_deep() const { return too_deep_; }

 private:
  std::deque<Node> all_;
  bool too_deep_ = false;
};

// A print fmt, or the reason why it is none.
struct PrintTree {
  std::string format;  // the characters that its string literals mean
  std::vector<const Node*> arguments;
  Nodes nodes;
  size_t wrong_at = 0;  // in the text
  std::string wrong;    // empty: it was understood
};
// What a print fmt may name.
struct PrintScope {
  const std::vector<Field>&fields, &common;
  u32 ticks_per_second = 0;  // of the kernel's HZ; 0: unknown
  u32 word_size = 8;         // of its machine: a long's, in bytes
  bool big_endian = false;   // its machine was; the fields are little-endian here
};
PrintTree parse_print_fmt(std::string_view text, const PrintScope& scope);

}  // namespace ringside
