// mlockall, for programs that are not linked with the library: src/writer/mlockall.cpp gives the reason.
#include "writer/mlockall.hpp"

#include <sys/mman.h>

#include "preload/hook.hpp"

// Another preloaded library's takes the place of this one.
HOOK int mlockall(int flags) noexcept {
  const auto real = NEXT(mlockall);
  const bool is_plain = real == nullptr || ringside::preload::is_the_c_librarys(reinterpret_cast<const void*>(real));
  return is_plain ? ringside::lock_all(flags) : real(flags);
}
