// What needs system calls is done before a program forbids them to itself, or is refused and counted.
#pragma once
#include "sys/sandbox.hpp"

namespace ringside {

// Takes the memory of this process's rings, `most` bytes at most. Answers 0 (ready), or an errno (shut). 0 bytes: shut, also
// where it is ready by now. Not for signal handlers.
int enter_sandbox(u64 most) noexcept;

// A program may have two copies of the library: the one that it is linked with, and the preloaded one, which alone sees how the
// program confines itself. Each says to the preloaded one (by the function of that name) how it is confined, too, when it opens
// an instance.
struct Confined {
  // Before the call that forbids system calls, or any clock. Answers what it was before.
  Sandbox (*enter)(bool clock) noexcept;
  // The kernel has refused it: all as before.
  void (*leave)(Sandbox before) noexcept;
};
extern const Confined confined;  // this copy
inline constexpr const char* confine_together = "ringside_confine_together_1";
void tell_preloaded_copy() noexcept;

}  // namespace ringside
