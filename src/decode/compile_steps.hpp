// An event's print fmt, compiled from its tree into a list of steps over precomputed offsets (print_steps.hpp runs them).
#pragma once
#include "decode/formats.hpp"
#include "decode/print_tree.hpp"

namespace ringside {

// Fills type.steps and type.line, and the symbols of enum fields. What cannot be computed from a payload is shown as it is
// written, with the values of its parts: unknown_call(7, "abc"). False: that would be too much, the steps stay as they are.
bool compile_steps(const PrintTree& tree, u32 word_size, EventFormat& type);

// Makes type.line of type.steps.
void make_line(EventFormat& type);

// Prints "name=value" for every field: for events without a print fmt.
void default_steps(EventFormat& type);

}  // namespace ringside
