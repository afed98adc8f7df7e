// An event's print fmt, compiled from libtraceevent's tree into a list of steps over precomputed offsets. To run them
// (print_steps.hpp) is about ten times as fast as to walk the tree for every event.
#pragma once
#include "decode/formats.hpp"

namespace ringside {

// Fills type.steps, and the symbols of enum fields. False: the print fmt has an unsupported part (steps stay empty).
bool compile_steps(const tep_event& event, EventFormat& type);

// Prints "name=value" for every field: for events without a print fmt.
void default_steps(EventFormat& type);

}  // namespace ringside
