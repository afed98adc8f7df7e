// Invariants, checked while the program runs.
//
//   RINGSIDE_CHECK(condition, "words")         always; for code off the hot paths
//   RINGSIDE_DEBUG_CHECK(condition, "words")   in builds without NDEBUG; elsewhere the condition is compiled, and not evaluated
//
// If the condition is false: one line "file:line: words" on standard error, then abort(). Safe in signal handlers: one
// write(2), no allocation. Freestanding code traps instead.
//
// For what this program alone can break. What a file, another process or memory shared with one can cause is an error with a
// sentence, or Got::corrupt; never a check.
#pragma once
#include <ringside/base/types.hpp>

namespace ringside::detail {

#if __STDC_HOSTED__
// write(2), under a name that no header of the C library declares.
extern "C" long ringside_write_line(int fd, const void* from, size_t size) __asm__("write");

[[noreturn, gnu::cold, gnu::noinline, gnu::visibility("hidden")]] inline void check_failed(const char* where,
                                                                                           const char* words) noexcept {
  char line[512];
  size_t size = 0;
  const auto add = [&](const char* text) {
    while (*text != 0 && size != sizeof line - 1) line[size++] = *text++;
  };
  add(where);
  add(words);
  line[size++] = '\n';
  (void)!ringside_write_line(2, line, size);
  __builtin_abort();
}
#else
[[noreturn, gnu::always_inline]] inline void check_failed(const char*, const char*) noexcept { __builtin_trap(); }
#endif

}  // namespace ringside::detail

#define RINGSIDE_CHECK_TEXT(x) RINGSIDE_CHECK_TEXT_(x)
#define RINGSIDE_CHECK_TEXT_(x) #x
#define RINGSIDE_CHECK(condition, words) \
  ((condition) ? void() : ::ringside::detail::check_failed(__FILE__ ":" RINGSIDE_CHECK_TEXT(__LINE__) ": ", words))
#ifdef NDEBUG
#define RINGSIDE_DEBUG_CHECK(condition, words) (void)sizeof((condition) ? 1 : 0)
#else
#define RINGSIDE_DEBUG_CHECK(condition, words) RINGSIDE_CHECK(condition, words)
#endif
