// Stacks of calls as events see them: a number, which is a hash of the frames. The frames themselves are in the event
// ringside:stack, written before the first event that names them, and again before the ring overwrites them.
// ringside:code_map says which file's code was at an address of a process.
#pragma once
#include "writer/unwind.hpp"

namespace ringside {

// The event ringside:sample, of a program's own timers and of the kernel's samples.
inline constexpr const char* sample_fields =
    "\tfield:ringside_stack stack;\toffset:8;\tsize:8;\tsigned:0;\n"
    "\tfield:u32 count;\toffset:16;\tsize:4;\tsigned:0;\n";
inline constexpr const char* sample_print = "\"stack=0x%llx count=%u\", REC->stack, REC->count";

// The number of the stack that `from` begins. 0: it could not be taken, and is counted. Signal-safe.
u64 stack_of(const From& from) noexcept;

// Code was unloaded, and other code may take its place: a stack that is known is no longer so. Signal-safe.
void code_changed() noexcept;

}  // namespace ringside
