// A number of a print fmt, compiled for the stack machine of print_steps.cpp.
#pragma once
#include "decode/print_tree.hpp"

namespace ringside {

// False: the node is no known number, or the machine's stack is too small for it.
bool compile_value(const Node* node, const std::vector<Field>& fields, std::vector<ValueOp>& code);

// The field whose value this is, without any computing; null: it must be computed.
const Field* plain_field(const Node* node, const std::vector<Field>& fields);

}  // namespace ringside
