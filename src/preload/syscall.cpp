// syscall: what the next definition does, which may be another preloaded library's; two numbers confine (seccomp.cpp), and
// three make a process that may share this thread's words. A child that shares memory comes back here, too, so nothing is kept
// on the stack. The library's own calls go by the kernel (--wrap).
#include <errno.h>
#include <linux/sched.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "preload/hook.hpp"
#include "writer/clone.hpp"

extern "C" {

[[gnu::section("ringside_next"), gnu::visibility("hidden"), gnu::used]] constinit ringside::preload::Next ringside_next_syscall{
    "syscall", nullptr};
static_assert(offsetof(ringside::preload::Next, found) == 8);

// A clone by its number. Whether it fails is not known here.
[[gnu::visibility("hidden"), gnu::used]] void ringside_before_clone(long number, const void* first) noexcept {
  ringside::u64 flags = reinterpret_cast<ringside::u64>(first);
#if defined(SYS_vfork)
  if (number == SYS_vfork) flags = CLONE_VM | CLONE_VFORK;
#endif
  if (number == SYS_clone3) {
    if (first == nullptr) return;
    flags = static_cast<const clone_args*>(first)->flags;
  }
  ringside::before_clone(flags);
}
[[gnu::visibility("hidden"), gnu::used]] long ringside_call_failed(long error) noexcept {
  errno = static_cast<int>(-error);
  return -1;
}
}

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
  cmpq $56, %rdi
  je 2f
  cmpq $58, %rdi
  je 2f
  cmpq $435, %rdi
  je 2f
1: movq ringside_next_syscall+8(%rip), %r11
  xorl %eax, %eax
  testq %r11, %r11
  je __wrap_syscall
  jmp *%r11
2: pushq %rdi
  .cfi_adjust_cfa_offset 8
  pushq %rsi
  .cfi_adjust_cfa_offset 8
  pushq %rdx
  .cfi_adjust_cfa_offset 8
  pushq %rcx
  .cfi_adjust_cfa_offset 8
  pushq %r8
  .cfi_adjust_cfa_offset 8
  pushq %r9
  .cfi_adjust_cfa_offset 8
  subq $8, %rsp
  .cfi_adjust_cfa_offset 8
  call ringside_before_clone
  addq $8, %rsp
  .cfi_adjust_cfa_offset -8
  popq %r9
  .cfi_adjust_cfa_offset -8
  popq %r8
  .cfi_adjust_cfa_offset -8
  popq %rcx
  .cfi_adjust_cfa_offset -8
  popq %rdx
  .cfi_adjust_cfa_offset -8
  popq %rsi
  .cfi_adjust_cfa_offset -8
  popq %rdi
  .cfi_adjust_cfa_offset -8
  jmp 1b
  .cfi_endproc
  .size syscall, . - syscall

  .globl __wrap_syscall
  .hidden __wrap_syscall
  .type __wrap_syscall, @function
__wrap_syscall:
  .cfi_startproc
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
  .size __wrap_syscall, . - __wrap_syscall
  .popsection
)");
static_assert(SYS_seccomp == 317 && SYS_prctl == 157 && SYS_clone == 56 && SYS_vfork == 58 && SYS_clone3 == 435);
#elif defined(__aarch64__)
asm(R"(
  .pushsection .text
  .globl syscall
  .type syscall, @function
syscall:
  .cfi_startproc
  cmp x0, #277
  b.eq 3f
  cmp x0, #167
  b.eq 3f
  cmp x0, #220
  b.eq 2f
  cmp x0, #435
  b.eq 2f
1: adrp x16, ringside_next_syscall
  add x16, x16, :lo12:ringside_next_syscall
  ldr x16, [x16, #8]
  cbz x16, 4f
  br x16
2: stp x29, x30, [sp, #-80]!
  .cfi_def_cfa_offset 80
  .cfi_offset x29, -80
  .cfi_offset x30, -72
  stp x0, x1, [sp, #16]
  stp x2, x3, [sp, #32]
  stp x4, x5, [sp, #48]
  str x6, [sp, #64]
  bl ringside_before_clone
  ldp x0, x1, [sp, #16]
  ldp x2, x3, [sp, #32]
  ldp x4, x5, [sp, #48]
  ldr x6, [sp, #64]
  ldp x29, x30, [sp], #80
  .cfi_def_cfa_offset 0
  .cfi_restore x29
  .cfi_restore x30
  b 1b
3: b ringside_confining_call
4: b __wrap_syscall
  .cfi_endproc
  .size syscall, . - syscall

  .globl __wrap_syscall
  .hidden __wrap_syscall
  .type __wrap_syscall, @function
__wrap_syscall:
  .cfi_startproc
  mov x8, x0
  mov x0, x1
  mov x1, x2
  mov x2, x3
  mov x3, x4
  mov x4, x5
  mov x5, x6
  svc #0
  cmn x0, #4095
  b.cs 1f
  ret
1: b ringside_call_failed
  .cfi_endproc
  .size __wrap_syscall, . - __wrap_syscall
  .popsection
)");
static_assert(SYS_seccomp == 277 && SYS_prctl == 167 && SYS_clone == 220 && SYS_clone3 == 435);
#else
extern "C" long __real_syscall(long number, ...) noexcept;
extern "C" long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f) noexcept {
  return __real_syscall(number, a, b, c, d, e, f);
}
#endif
