// What needs system calls is done before a program forbids them to itself, or is refused and counted.
#pragma once
#include "sys/sandbox.hpp"

namespace ringside {

// Takes the memory of this process's rings, `most` bytes at most. Answers 0 (ready), or an errno (shut). 0 bytes: shut, also
// where it is ready by now. Not for signal handlers.
int enter_sandbox(u64 most) noexcept;
// The kernel has refused the program's sandbox: all as before.
void leave_sandbox(Sandbox before) noexcept;

}  // namespace ringside
