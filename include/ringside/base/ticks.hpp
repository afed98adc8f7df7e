// The clocks that rings know, and the counter of this processor that an instruction reads. Freestanding.
#pragma once
#include <ringside/base/types.hpp>

namespace ringside {

// The numbers are in instances, recordings and descriptors. tsc: the ticks of x86's time stamp counter; mono: CLOCK_MONOTONIC
// in ns; counter: each reading of a ring adds one; cntvct: the ticks of arm64's virtual counter.
enum class ClockKind : u32 { tsc, mono, counter, cntvct };
inline constexpr u32 last_clock_kind = 3;

constexpr bool counts_ticks(ClockKind kind) noexcept { return kind == ClockKind::tsc || kind == ClockKind::cntvct; }

// Does an instruction of this processor read it?
constexpr bool is_instruction([[maybe_unused]] ClockKind kind) noexcept {
#if defined(__x86_64__)
  return kind == ClockKind::tsc;
#elif defined(__aarch64__)
  return kind == ClockKind::cntvct;
#else
  return false;
#endif
}

// Can a program of this processor read it at all? Signal-safe. An unknown clock: no.
constexpr bool is_readable_here(u32 kind) noexcept {
  return kind <= last_clock_kind &&
         (!counts_ticks(static_cast<ClockKind>(kind)) || is_instruction(static_cast<ClockKind>(kind)));
}

// The counter, on processors that have one; otherwise 0.
RINGSIDE_INLINE u64 read_ticks() noexcept {
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
  u64 ticks;
  asm volatile("isb\n\tmrs %0, cntvct_el0" : "=r"(ticks)::"memory");  // without isb it may be read early
  return ticks;
#else
  return 0;
#endif
}

// Reads the counter, if that is the clock. On x86-64 it is read in any case, because a branch before it costs more.
RINGSIDE_INLINE bool ticks_of(ClockKind kind, u64& ticks) noexcept {
#if defined(__x86_64__)
  ticks = read_ticks();
  return is_instruction(kind);
#else
  if (!is_instruction(kind)) return false;
  ticks = read_ticks();
  return true;
#endif
}

}  // namespace ringside
