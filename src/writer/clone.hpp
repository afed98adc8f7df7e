// clone() in a program that is traced: vfork.cpp gives the reason.
#pragma once
#include <sys/types.h>

#include <ringside/base/types.hpp>

namespace ringside {

using Clone = int(int (*)(void*), void*, int, void*, ...) noexcept;
// Calls the C library's clone, or the next one. Where the child shares the thread's words, its events are those of a child of
// vfork, or both processes' are refused and counted.
int clone_by(Clone* real, int (*run)(void*), void* stack, int flags, void* argument, pid_t* parent_tid, void* tls,
             pid_t* child_tid) noexcept;
// Before a clone by its number, with these flags.
void before_clone(u64 flags) noexcept;

}  // namespace ringside

#define RINGSIDE_CLONE_ARGUMENTS(last)            \
  va_list rest;                                   \
  va_start(rest, last);                           \
  pid_t* const parent_tid = va_arg(rest, pid_t*); \
  void* const tls = va_arg(rest, void*);          \
  pid_t* const child_tid = va_arg(rest, pid_t*);  \
  va_end(rest)
