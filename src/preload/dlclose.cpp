// A library may come to the place of one that is gone, with the same addresses in its stacks.
#include <dlfcn.h>

#include "preload/hook.hpp"
#include "writer/stack.hpp"

HOOK int dlclose(void* library) noexcept {
  const int done = NEXT(dlclose)(library);
  ringside::code_changed();
  return done;
}
