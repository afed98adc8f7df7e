// Stacks of calls as events see them: a number, which is a hash of the frames. The frames themselves are in the event
// ringside:stack, written before the first event that names them, and again before the ring overwrites them.
// ringside:code_map says which file's code was at an address of a process.
#pragma once
#include "writer/unwind.hpp"

namespace ringside {

// The number of the stack that `from` begins. 0: it could not be taken, and is counted. Signal-safe.
u64 stack_of(const From& from) noexcept;

}  // namespace ringside
