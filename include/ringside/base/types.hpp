// Integers by size, and the few helpers that every room needs. Freestanding.
#pragma once
#include <stddef.h>
#include <stdint.h>

namespace ringside {

using u8 = uint8_t;
using u16 = uint16_t;
using u32 = uint32_t;
using u64 = uint64_t;
using i32 = int32_t;
using i64 = int64_t;

inline constexpr u32 page_size =
    4096;  // what files and sub-buffers are counted in; the kernel's pages may be larger: sys::page_bytes
#if defined(__x86_64__) || defined(__i386__)
inline constexpr u32 largest_page = 4096;  // of any kernel for this processor: what has a page of its own is aligned to it
#else
inline constexpr u32 largest_page = 65536;
#endif

// A range of bytes that is owned elsewhere.
struct Bytes {
  const u8* data = nullptr;
  size_t size = 0;
};

template <class T>
constexpr T align_up(T value, T alignment) noexcept {
  return (value + alignment - 1) & ~(alignment - 1);
}

constexpr bool is_power_of_two(u64 v) noexcept { return v != 0 && (v & (v - 1)) == 0; }

}  // namespace ringside

// Headers that trace.hpp includes compile as C++17, too: no concepts, no attributes of C++20.
#define RINGSIDE_LIKELY(condition) __builtin_expect((condition), 1)
#define RINGSIDE_UNLIKELY(condition) __builtin_expect((condition), 0)
#if __cplusplus >= 202002L
#define RINGSIDE_CONSTINIT constinit
#elif defined(__clang__)
#define RINGSIDE_CONSTINIT [[clang::require_constant_initialization]]
#else
#define RINGSIDE_CONSTINIT __constinit
#endif

#define RINGSIDE_INLINE [[gnu::always_inline]] inline
#define RINGSIDE_NOINLINE [[gnu::noinline, gnu::cold]]
// A function whose code exists once: neither inlined nor copied for some of its arguments.
#if defined(__clang__)
#define RINGSIDE_ONE_COPY [[gnu::noinline]]
#else
#define RINGSIDE_ONE_COPY [[gnu::noinline, gnu::noclone]]
#endif
