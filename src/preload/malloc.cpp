// The group malloc. reallocarray, strdup, operator new and the C library's other callers of malloc need no hooks of their own.
#include <malloc.h>

#include <cstdlib>
#include <cstring>

#include "preload/hook.hpp"

using namespace ringside::preload;
using ringside::u64;

namespace {

// Memory that dlsym itself allocates before the C library's malloc is known. Never freed.
alignas(16) constinit char early[65536];
constinit size_t early_used = 0;

void* early_alloc(size_t size) noexcept {
  const size_t need = (size + 31) & ~size_t{15};
  const size_t at = __atomic_fetch_add(&early_used, need, __ATOMIC_RELAXED);
  if (need < size || at + need > sizeof early) return nullptr;
  memcpy(early + at, &size, sizeof size);
  return early + at + 16;
}
bool is_early(const void* p) noexcept { return p >= early && p < early + sizeof early; }
size_t early_size(const void* p) noexcept {
  size_t size;
  memcpy(&size, static_cast<const char*>(p) - 16, sizeof size);
  return size;
}

// An allocation that shares the event of malloc.
template <class Real>
void* allocated(size_t size, Real real) noexcept {
  return hooked(groups.malloc, real, [=](void* p, u64 ns) { libc::malloc(size, p, ns); });
}

}  // namespace

HOOK void* malloc(size_t size) noexcept {
  const auto real = NEXT(malloc);
  if (real == nullptr) return early_alloc(size);
  return allocated(size, [=] { return real(size); });
}

// This library's own requests (--wrap): the spare memory of its C++ library does not concern the program.
extern "C" void* __wrap_malloc(size_t size) {
  const auto real = NEXT(malloc);
  return real != nullptr ? real(size) : early_alloc(size);
}

HOOK void* calloc(size_t n, size_t size) noexcept {
  const auto real = NEXT(calloc);
  if (real == nullptr) {
    size_t bytes;
    return __builtin_mul_overflow(n, size, &bytes) ? nullptr : early_alloc(bytes);  // still zero: never freed
  }
  return hooked(groups.malloc, [=] { return real(n, size); }, [=](void* p, u64 ns) { libc::calloc(n, size, p, ns); });
}

HOOK void* realloc(void* old, size_t size) noexcept {
  const auto real = NEXT(realloc);
  if (real == nullptr || is_early(old)) {
    void* const p = real == nullptr ? early_alloc(size) : malloc(size);
    if (p != nullptr && old != nullptr) memcpy(p, old, early_size(old) < size ? early_size(old) : size);
    return p;
  }
  return hooked(groups.malloc, [=] { return real(old, size); }, [=](void* p, u64 ns) { libc::realloc(old, size, p, ns); });
}

HOOK void free(void* p) noexcept {
  if (p == nullptr || is_early(p)) return;
  const auto real = NEXT(free);
  if (real == nullptr) return;
  const int left = errno;
  if (wanted(groups.malloc)) libc::free(p);  // before the call: afterwards another thread may get the address
  errno = left;
  real(p);
}

HOOK int posix_memalign(void** to, size_t alignment, size_t size) noexcept {
  return hooked(groups.malloc, [=] { return NEXT(posix_memalign)(to, alignment, size); },
                [=](int r, u64 ns) { libc::malloc(size, r == 0 ? *to : nullptr, ns); });
}
HOOK void* aligned_alloc(size_t alignment, size_t size) noexcept {
  return allocated(size, [=] { return NEXT(aligned_alloc)(alignment, size); });
}
HOOK void* memalign(size_t alignment, size_t size) noexcept {
  return allocated(size, [=] { return NEXT(memalign)(alignment, size); });
}
HOOK void* valloc(size_t size) noexcept {
  return allocated(size, [=] { return NEXT(valloc)(size); });
}
HOOK void* pvalloc(size_t size) noexcept {
  return allocated(size, [=] { return NEXT(pvalloc)(size); });
}
