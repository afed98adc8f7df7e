#include "decode/compile_value.hpp"

namespace ringside {
namespace {

using NodeKind = Node::Kind;
using Op = ValueOp::Op;

constexpr size_t longest_code = 4096;  // a variable of ({ ... }) may be there often

i64 signed_size(u32 size, bool is_signed) { return is_signed ? -i64{size} : i64{size}; }

class ValueCompiler {
 public:
  ValueCompiler(const std::vector<Field>& fields, std::vector<ValueOp>& code) : fields_(fields), code_(code) {}
  bool walk(const Node* node, size_t depth) {
    if (depth >= ValueOp::deepest || code_.size() >= longest_code || !is_number(node)) return false;
    const CType type = node->type.value();
    switch (node->kind) {
      case NodeKind::number:
        return push(Op::constant, static_cast<i64>(node->value));
      case NodeKind::field:
        return fields_[node->field].kind == FieldKind::integer && push(Op::field, 0, node->field);
      case NodeKind::common:
        return push(Op::load, signed_size(type.size(), type.is_signed), node->field);
      case NodeKind::length:
        return push(Op::length, 0, node->field);
      case NodeKind::cast: {
        const CType from = node->parts[0]->type;
        if (!walk(node->parts[0], depth)) return false;
        return type.holds(from) || (type.is_bool ? to_bool() : keep(type));
      }
      case NodeKind::unary:
        return unary(node, depth);
      case NodeKind::binary:
        return walk(node->parts[0], depth) && walk(node->parts[1], depth + 1) && push(node->op, static_cast<i64>(node->value));
      case NodeKind::element: {
        const u32 field = node->parts[0]->field, turned = fields_[field].turned;
        const Op op = turned != 0 && turned != type.size() ? Op::big_element : Op::element;
        return walk(node->parts[1], depth) && push(op, signed_size(type.size(), type.is_signed), field);
      }
      case NodeKind::choice:
        return choice(node, depth);
      default:
        return false;
    }
  }

 private:
  bool push(Op op, i64 value = 0, u32 field = 0) {
    code_.push_back({op, field, value});
    return true;
  }
  bool to_bool() { return push(Op::constant, 0) && push(Op::unequal); }
  bool keep(const CType& type) { return push(Op::cast, type.is_signed ? -i64{type.bits} : i64{type.bits}); }
  bool unary(const Node* node, size_t depth) {
    if (!walk(node->parts[0], depth)) return false;
    const CType type = node->type;
    push(node->op, type.bits);
    const bool overflows = node->op == Op::negate || (node->op == Op::invert && !type.is_signed);
    return !overflows || type.bits == 64 || keep(type);
  }
  bool choice(const Node* node, size_t depth) {
    if (!walk(node->parts[0], depth)) return false;
    const size_t skip = code_.size();
    push(Op::jump_if_zero);
    if (!walk(node->parts[1], depth)) return false;
    const size_t over = code_.size();
    push(Op::jump);
    code_[skip].value = static_cast<i64>(code_.size() - skip);
    if (!walk(node->parts[2], depth)) return false;
    code_[over].value = static_cast<i64>(code_.size() - over);
    return true;
  }

  const std::vector<Field>& fields_;
  std::vector<ValueOp>& code_;
};

}  // namespace

bool compile_value(const Node* node, const std::vector<Field>& fields, std::vector<ValueOp>& code) {
  code.clear();
  return ValueCompiler(fields, code).walk(node, 0);
}

const Field* plain_field(const Node* node, const std::vector<Field>& fields) {
  while (node->is(NodeKind::cast) && node->type.holds(node->parts[0]->type)) node = node->parts[0];
  return node->is(NodeKind::field) ? &fields[node->field] : nullptr;
}

}  // namespace ringside
