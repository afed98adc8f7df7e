// A program that forbids itself system calls: from then on the library makes none in it (writer/sandbox.hpp). Programs do that
// by prctl, or by syscall, as the C library has no call for seccomp. A filter is not read: any may end a program for any call.
#include <errno.h>
#include <linux/seccomp.h>
#include <stdarg.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "preload/hook.hpp"
#include "preload/name.hpp"
#include "preload/sample.hpp"
#include "writer/sandbox.hpp"

using namespace ringside;

namespace {

#if defined(__x86_64__)
long by_kernel(long number, long a, long b, long c, long d, long e, long f) noexcept {
  register long r10 asm("r10") = d, r8 asm("r8") = e, r9 asm("r9") = f;
  long result;
  asm volatile("syscall"
               : "=a"(result)
               : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
               : "rcx", "r11", "memory");
  return result;
}
#elif defined(__aarch64__)
long by_kernel(long number, long a, long b, long c, long d, long e, long f) noexcept {
  register long x8 asm("x8") = number, x0 asm("x0") = a, x1 asm("x1") = b, x2 asm("x2") = c, x3 asm("x3") = d, x4 asm("x4") = e,
                   x5 asm("x5") = f;
  asm volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
  return x0;
}
#else
long by_kernel(long number, long a, long b, long c, long d, long e, long f) noexcept {
  const long result = syscall(number, a, b, c, d, e, f);
  return result < 0 ? -errno : result;
}
#endif

long result_of(long answer) noexcept {
  if (answer >= -4095 && answer < 0) return errno = static_cast<int>(-answer), -1;
  return answer;
}

// On x86-64 strict mode forbids reading the processor's counter, too, and with it any clock: no event has a time.
constexpr bool strict_has_no_clock =
#if defined(__x86_64__)
    true;
#else
    false;
#endif

// Without a filter's address it is a question whether the kernel has filters.
bool confines(long number, long what, long mode, long filter) noexcept {
  if (number == SYS_prctl)
    return what == PR_SET_SECCOMP && (mode == SECCOMP_MODE_STRICT || (mode == SECCOMP_MODE_FILTER && filter != 0));
  return what == SECCOMP_SET_MODE_STRICT || (what == SECCOMP_SET_MODE_FILTER && filter != 0);
}

}  // namespace

extern "C" {

// syscall(), for these two numbers.
[[gnu::visibility("hidden"), gnu::used]] long ringside_confining_call(long number, long a, long b, long c, long d, long e,
                                                                      long f) noexcept {
  if (!confines(number, a, b, c) || no_system_calls()) return result_of(by_kernel(number, a, b, c, d, e, f));
  if (detail::this_thread.borrowed != 0) {  // a child of vfork: its parent goes on
    detail::this_thread.inside = true;
    return result_of(by_kernel(number, a, b, c, d, e, f));
  }
  const Opened* const in = opened_now();
  const bool strict = number == SYS_prctl ? b == SECCOMP_MODE_STRICT : a == SECCOMP_SET_MODE_STRICT;
  preload::pause_samples();
  (void)enter_sandbox(in == nullptr || (strict && strict_has_no_clock) ? 0 : in->words.control->budget);
  const long answer = by_kernel(number, a, b, c, d, e, f);
  if (answer != 0) {  // or the number of a thread that could not take the filter
    leave_sandbox();
    preload::resume_samples();
  }
  return result_of(answer);
}
[[gnu::visibility("hidden"), gnu::used]] long ringside_call_failed(long answer) noexcept { return result_of(answer); }
}

HOOK int prctl(int option, ...) noexcept {
  va_list arguments;
  va_start(arguments, option);
  long more[4];
  for (long& one : more) one = va_arg(arguments, long);
  va_end(arguments);
  const long done = ringside_confining_call(SYS_prctl, option, more[0], more[1], more[2], more[3], 0);
  if (option == PR_SET_NAME && done == 0) preload::thread_was_named(reinterpret_cast<const char*>(more[0]));
  return static_cast<int>(done);
}

// What the C library does, but for two numbers. A child that shares memory comes back here, too, so nothing is kept on the
// stack.
#if defined(__x86_64__)
asm(R"(
  .pushsection .text
  .globl syscall
  .type syscall, @function
syscall:
  .cfi_startproc
  cmpq $317, %rdi
  je ringside_confining_call
  cmpq $157, %rdi
  je ringside_confining_call
  movq %rdi, %rax
  movq %rsi, %rdi
  movq %rdx, %rsi
  movq %rcx, %rdx
  movq %r8, %r10
  movq %r9, %r8
  movq 8(%rsp), %r9
  syscall
  cmpq $-4095, %rax
  jae 1f
  ret
1: movq %rax, %rdi
  jmp ringside_call_failed
  .cfi_endproc
  .size syscall, . - syscall
  .popsection
)");
static_assert(SYS_seccomp == 317 && SYS_prctl == 157);
#elif defined(__aarch64__)
asm(R"(
  .pushsection .text
  .globl syscall
  .type syscall, @function
syscall:
  .cfi_startproc
  cmp x0, #277
  b.eq 1f
  cmp x0, #167
  b.eq 1f
  mov x8, x0
  mov x0, x1
  mov x1, x2
  mov x2, x3
  mov x3, x4
  mov x4, x5
  mov x5, x6
  svc #0
  cmn x0, #4095
  b.cs 2f
  ret
1: b ringside_confining_call
2: b ringside_call_failed
  .cfi_endproc
  .size syscall, . - syscall
  .popsection
)");
static_assert(SYS_seccomp == 277 && SYS_prctl == 167);
#endif
