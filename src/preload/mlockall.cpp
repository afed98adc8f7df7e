// mlockall, for programs that are not linked with the library: src/writer/mlockall.cpp gives the reason.
#include "writer/mlockall.hpp"

#include <gnu/libc-version.h>
#include <sys/mman.h>

#include "preload/hook.hpp"
#include "writer/unwind.hpp"

namespace {

bool is_the_c_librarys(const void* function) noexcept {
  ringside::MappedObject c_library;
  const auto at = reinterpret_cast<ringside::u64>(function);
  return ringside::find_object(reinterpret_cast<ringside::u64>(&gnu_get_libc_version), c_library) && at >= c_library.start &&
         at < c_library.end;
}

}  // namespace

// Another preloaded library's takes the place of this one.
HOOK int mlockall(int flags) noexcept {
  const auto real = NEXT(mlockall);
  const bool is_plain = real == nullptr || is_the_c_librarys(reinterpret_cast<const void*>(real));
  return is_plain ? ringside::lock_all(flags) : real(flags);
}
