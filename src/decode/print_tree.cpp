#include "decode/print_tree.hpp"

#include <algorithm>

#include "decode/compute.hpp"

namespace ringside {

namespace {

using Op = ValueOp::Op;
using NodeKind = Node::Kind;

bool is_comparison(Op op) { return op >= Op::both && op <= Op::greater_equal; }
bool is_shift(Op op) { return op == Op::shift_left || op == Op::shift_right; }

// Whether it is the place of something, which only the kernel knew as a number.
bool is_place(const Node& node) {
  switch (node.kind) {
    case NodeKind::text:
    case NodeKind::memory:
    case NodeKind::names:
    case NodeKind::list:
    case NodeKind::bytes:
    case NodeKind::mask:
      return true;
    case NodeKind::choice:
      return node.parts[1]->is_place || node.parts[2]->is_place;
    case NodeKind::cast:
      return node.parts[0]->is_place;
    default:
      return false;
  }
}

}  // namespace

bool is_number(const Node* node) { return node->is_known && node->type.value().is_number() && !node->is_place; }

const Node* Nodes::add(Node node) {
  for (const Node* part : node.parts) {
    node.depth = std::max(node.depth, part->depth + 1);
    node.is_known = node.is_known && (part->is_known || node.kind == NodeKind::call);
  }
  node.is_known = node.is_known && node.kind != NodeKind::call && node.kind != NodeKind::spelled;
  node.is_place = is_place(node);
  too_deep_ = too_deep_ || node.depth > deepest;
  all_.push_back(std::move(node));
  return &all_.back();
}

const Node* Nodes::number(u64 value, CType type) {
  Node node;
  node.value = converted(value, type);
  node.type = type;
  return add(std::move(node));
}

const Node* Nodes::unknown(std::string name, std::vector<const Node*> arguments) {
  Node node;
  node.kind = NodeKind::call;
  node.type = CType::none();
  node.text = std::move(name);
  node.parts = std::move(arguments);
  return add(std::move(node));
}

const Node* Nodes::cast(const Node* of, CType type) {
  if (type.kind == CType::Kind::unknown && !type.is_pointer())
    return of;  // a type of the kernel's: most often of the same size
  if (of->is(NodeKind::number) && type.value().is_number()) return number(of->value, type);
  // The address of memory stays it.
  const bool to_pointer = type.is_pointer() && (of->is(NodeKind::memory) || of->type.is_text());
  if (to_pointer && !of->is(NodeKind::memory) && of->type.is_pointer()) return of;
  if (to_pointer) {
    Node node = *of;
    node.type = type;
    if (of->is(NodeKind::memory)) node.value |= Node::flat;
    return add(std::move(node));
  }
  Node node;
  node.kind = NodeKind::cast;
  node.type = type;
  node.parts = {of};
  node.is_known = is_number(of) && type.value().is_number();
  return add(std::move(node));
}

const Node* Nodes::unary(Op op, const Node* of) {
  Node node;
  node.kind = NodeKind::unary;
  node.op = op;
  node.type = op == Op::boolean_not ? CType::integer(32, true) : promoted(of->type);
  const bool counts = is_number(of);
  if (counts && op != Op::boolean_not) of = cast(of, node.type);
  if (of->is(NodeKind::number)) return number(computed(op, of->value), node.type);
  node.parts = {of};
  node.is_known = counts;
  return add(std::move(node));
}

const Node* Nodes::binary(Op op, const Node* left, const Node* right) {
  const bool counts = is_number(left) && is_number(right);
  Node node;
  node.kind = NodeKind::binary;
  node.op = op;
  CType with = is_shift(op) ? promoted(left->type) : common_type(left->type, right->type);
  if (counts && op != Op::both && op != Op::either) {
    left = cast(left, with);
    right = is_shift(op) ? cast(right, promoted(right->type)) : cast(right, with);
  }
  node.type = is_comparison(op) ? CType::integer(32, true) : with;
  node.value = (with.is_signed ? 0 : ValueOp::is_unsigned) | (with.bits == 32 ? ValueOp::is_narrow : 0);
  if (counts && left->is(NodeKind::number) && right->is(NodeKind::number))
    return number(computed(op, static_cast<i64>(node.value), left->value, right->value), node.type);
  node.parts = {left, right};
  node.is_known = counts;
  return add(std::move(node));
}

const Node* Nodes::choice(const Node* condition, const Node* then, const Node* otherwise) {
  const auto is_null = [](const Node* node) {
    return node->is(NodeKind::number) && node->value == 0 &&
           (!node->type.is_pointer() || node->type.kind == CType::Kind::nothing);
  };
  Node node;
  node.kind = NodeKind::choice;
  if (then->type.is_number() && otherwise->type.is_number()) {
    node.type = common_type(then->type, otherwise->type);
    then = cast(then, node.type);
    otherwise = cast(otherwise, node.type);
  } else if (is_null(then)) {
    node.type = otherwise->type;
  } else if (is_null(otherwise)) {
    node.type = then->type;
  } else if (then->type.is_pointer() && otherwise->type.is_pointer()) {
    node.type = then->type.kind == CType::Kind::nothing ? then->type : otherwise->type;
  } else {
    node.type = then->type.kind == CType::Kind::unknown ? otherwise->type : then->type;
  }
  if (condition->is(NodeKind::number)) return condition->value != 0 ? then : otherwise;
  node.parts = {condition, then, otherwise};
  return add(std::move(node));
}

const Node* Nodes::swapped(const Node* of) {
  if (of->is(NodeKind::number)) return number(computed(Op::swap, of->value, of->type.bits), of->type);
  Node node;
  node.kind = NodeKind::unary;
  node.op = Op::swap;
  node.type = of->type;
  node.parts = {of};
  return add(std::move(node));
}

const Node* Nodes::counted(Op op, const Node* of, i32 plus) {
  const CType type = CType::integer(32, true);
  const Node* count = nullptr;
  if (of->is(NodeKind::number)) {
    count = number(computed(op, of->value), type);
  } else {
    Node node;
    node.kind = NodeKind::unary;
    node.op = op;
    node.type = type;
    node.parts = {of};
    count = add(std::move(node));
  }
  return plus == 0 ? count : binary(Op::add, count, number(static_cast<u64>(i64{plus}), type));
}

const Node* Nodes::row(const Node* of, const Node* index, u32 elements) {
  const CType type = CType::integer(64, true);
  const Node* const first = binary(Op::multiply, cast(index, type), number(elements, type));
  Node node = *of;
  ++node.value;
  node.parts = {of->parts.empty() ? first : binary(Op::add, of->parts[0], first)};
  return add(std::move(node));
}

const Node* Nodes::element(const Node* of, const Node* index) {
  if (of->is(NodeKind::memory) && !of->parts.empty()) {  // of a row
    index = binary(Op::add, of->parts[0], cast(index, CType::integer(64, true)));
  }
  Node node;
  node.kind = NodeKind::element;
  node.parts = {of, index};
  node.type = of->type.is_pointer() ? of->type.pointee() : CType::none();
  node.is_known = of->is(NodeKind::memory) && node.type.is_number() && is_number(index);
  return add(std::move(node));
}

}  // namespace ringside
