// A library may come to the place of one that is gone, with the same addresses in its stacks.
#include <dlfcn.h>
#include <link.h>

#include "preload/hook.hpp"
#include "writer/stack.hpp"

namespace {

int note_unloaded(dl_phdr_info* info, size_t, void* to) {
  *static_cast<unsigned long long*>(to) = info->dlpi_subs;
  return 1;  // all objects have the same number
}

// How many objects were ever unloaded: most calls of dlclose unload none.
unsigned long long unloaded() noexcept {
  unsigned long long number = 0;
  dl_iterate_phdr(note_unloaded, &number);
  return number;
}

}  // namespace

HOOK int dlclose(void* library) noexcept {
  const unsigned long long before = unloaded();
  const int done = NEXT(dlclose)(library);
  if (unloaded() != before) ringside::code_changed();
  return done;
}
