// Whether a sanitizer is at work, whose run-time takes memory, and is stepped through where the program is.
#pragma once

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define RS_TEST_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define RS_TEST_SANITIZED 1
#endif
#endif
#ifndef RS_TEST_SANITIZED
#define RS_TEST_SANITIZED 0
#endif

// The thread sanitizer, of GCC or of Clang.
#if defined(__SANITIZE_THREAD__)
#define RS_TEST_THREADS 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define RS_TEST_THREADS 1
#endif
#endif
#ifndef RS_TEST_THREADS
#define RS_TEST_THREADS 0
#endif
