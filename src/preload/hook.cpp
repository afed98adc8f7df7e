// The selection of hooks that record, and the addresses of the C library's functions.
#include "preload/hook.hpp"

#include <dlfcn.h>
#include <gnu/libc-version.h>

#include <cstdlib>
#include <cstring>

#include "writer/unwind.hpp"

extern "C" {
[[gnu::visibility("hidden")]] extern ringside::preload::Next __start_ringside_next[], __stop_ringside_next[];
}

namespace ringside::preload {

constinit Groups groups{};

namespace {

[[gnu::tls_model("initial-exec")]] constinit thread_local bool looking = false;

// Runs before every ordinary constructor: from here on the hooks record.
[[gnu::constructor(101)]] void start() {
  for (Next* next = __start_ringside_next; next != __stop_ringside_next; ++next) look_up(*next);
  dlerror();  // the program must not see that one is missing
  find_other_vfork();
  if (MappedObject mine; find_object(reinterpret_cast<u64>(&groups), mine))
    leave_out(mine.start, mine.end);  // stacks begin at the program's call
  const char* list = sys::environment("RINGSIDE_LIBC");
  if (list == nullptr) return;
  const auto has = [list](const char* group) { return strstr(list, group) != nullptr; };
  groups = {has("malloc"), has("io"), has("mutex") || has("lock"), has("lock")};
}

}  // namespace

bool is_the_c_librarys(const void* function) noexcept {
  MappedObject c_library;
  const auto at = reinterpret_cast<u64>(function);
  return find_object(reinterpret_cast<u64>(&gnu_get_libc_version), c_library) && at >= c_library.start && at < c_library.end;
}

void* look_up(Next& next) noexcept {
  void* found = __atomic_load_n(&next.found, __ATOMIC_RELAXED);
  if (found != nullptr || looking) return found;
  looking = true;
  if (next.version != nullptr) found = dlvsym(RTLD_NEXT, next.name, next.version);
  if (found == nullptr) found = dlsym(RTLD_NEXT, next.name);
  looking = false;
  __atomic_store_n(&next.found, found, __ATOMIC_RELAXED);
  return found;
}

}  // namespace ringside::preload
