// clone, for programs that are linked with the library. In its own file, because the preloaded library exports its own
// definition. The run-times of sanitizers have theirs.
#include <sched.h>
#include <stdarg.h>

#include <ringside/base/sanitizers.hpp>

#include "writer/clone.hpp"

#if !RINGSIDE_SANITIZED && defined(__GLIBC__)
extern "C" {
ringside::Clone __clone;

int clone(int (*run)(void*), void* stack, int flags, void* argument, ...) noexcept {
  RINGSIDE_CLONE_ARGUMENTS(argument);
  return ringside::clone_by(__clone, run, stack, flags, argument, parent_tid, tls, child_tid);
}
}
#endif
