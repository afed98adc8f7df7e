// clone, for programs that are not linked with the library: src/writer/vfork.cpp gives the reason.
#include "writer/clone.hpp"

#include <sched.h>
#include <stdarg.h>

#include "preload/hook.hpp"

HOOK int clone(int (*run)(void*), void* stack, int flags, void* argument, ...) noexcept {
  RINGSIDE_CLONE_ARGUMENTS(argument);
  return ringside::clone_by(NEXT(clone), run, stack, flags, argument, parent_tid, tls, child_tid);
}
