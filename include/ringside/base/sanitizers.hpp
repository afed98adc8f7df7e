// Which sanitizers the compiler builds in, each 1 or 0. GCC has a macro for each, Clang a question.
#pragma once

#if defined(__has_feature)
#define RINGSIDE_BUILDS_IN(sanitizer) __has_feature(sanitizer)
#else
#define RINGSIDE_BUILDS_IN(sanitizer) 0
#endif

#if defined(__SANITIZE_ADDRESS__) || RINGSIDE_BUILDS_IN(address_sanitizer)
#define RINGSIDE_ASAN 1
#else
#define RINGSIDE_ASAN 0
#endif

#if defined(__SANITIZE_THREAD__) || RINGSIDE_BUILDS_IN(thread_sanitizer)
#define RINGSIDE_TSAN 1
#else
#define RINGSIDE_TSAN 0
#endif

// Any whose run-time takes memory, keeps a state for each thread, and is stepped through where the program is.
#if RINGSIDE_ASAN || RINGSIDE_TSAN || defined(__SANITIZE_HWADDRESS__) || RINGSIDE_BUILDS_IN(hwaddress_sanitizer) || \
    RINGSIDE_BUILDS_IN(memory_sanitizer) || RINGSIDE_BUILDS_IN(safe_stack)
#define RINGSIDE_SANITIZED 1
#else
#define RINGSIDE_SANITIZED 0
#endif
