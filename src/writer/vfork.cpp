// vfork, under a name of its own: vfork_name.cpp gives it the C library's. A child of vfork runs on its parent's thread, and
// the kernel has dropped that thread's registration of restartable sequences in the child: it sees a CPU number that does not
// change, and is never aborted. So until the parent goes on, the thread does not write to the rings of CPUs: the child's events
// go to a ring of their own, which the parent retires. posix_spawn's child runs no code of this library; a raw clone that
// shares memory and thread area must not write events: it cannot be detected.
#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "sys/memory_limit.hpp"
#include "sys/side_stack.hpp"
#include "writer/process.hpp"

namespace {

using ringside::u64;
using ringside::u8;
using ringside::sys::set_signal_mask;
using ringside::detail::not_attached;
using ringside::detail::this_thread;

constexpr u64 unchanged = ~u64{0};  // no mask: it would block SIGKILL

}  // namespace

extern "C" {

// Returns the thread's signal mask. Signals are off until the child has returned, and in the parent until it has its rings
// back: no handler comes in between, or leaves a part of it by longjmp.
[[gnu::visibility("hidden"), gnu::used]] u64 ringside_vfork_begins() noexcept {
  const bool silent = !ringside::begin_system_calls();  // then the child's events are refused
  const u64 mask = silent ? unchanged : set_signal_mask(~u64{0});
  int cancel = 0;
  if (!silent) pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
  if (this_thread.borrowed++ != 0) return mask;  // a child of vfork calls it
  // The child may die anywhere, also inside of the library.
  this_thread.on_cpus_before = this_thread.on_cpus_at;
  this_thread.tid_before = this_thread.tid;
  this_thread.inside_before = this_thread.inside;
  this_thread.cancel_before = static_cast<u8>(cancel);
  if (!silent) ringside::lay_own_rings_aside();
  this_thread.on_cpus_at = not_attached;
  return mask;
}
[[gnu::visibility("hidden"), gnu::used]] void ringside_vfork_child(u64 mask) noexcept {
  if (mask != unchanged) set_signal_mask(mask);
}
[[gnu::visibility("hidden"), gnu::used]] void ringside_vfork_ended(u64 mask) noexcept {
  if (this_thread.borrowed == 1) {
    ringside::sys::take_back_side_stacks();
    ringside::sys::look_again_after_vfork();
    this_thread.inside = this_thread.inside_before;
    if (mask != unchanged) ringside::take_up_own_rings();
    this_thread.tid = this_thread.tid_before;
    this_thread.on_cpus_at = this_thread.on_cpus_before;
    if (mask != unchanged) pthread_setcancelstate(this_thread.cancel_before, nullptr);
  }
  --this_thread.borrowed;
  if (mask == unchanged) return;
  set_signal_mask(mask);
  ringside::end_system_calls();
}
[[gnu::visibility("hidden"), gnu::used]] long ringside_vfork_failed(long error) noexcept {
  errno = static_cast<int>(-error);
  return -1;
}
}

// The return address and the mask stay in registers: the child's calls overwrite the stack below.
#if defined(__x86_64__)
asm(R"(
  .pushsection .text
  .globl ringside_vfork
  .hidden ringside_vfork
  .type ringside_vfork, @function
ringside_vfork:
  subq $8, %rsp
  call ringside_vfork_begins
  addq $8, %rsp
  popq %rdx
  movq %rax, %rdi
  movl $58, %eax
  syscall
  pushq %rdx
  testq %rax, %rax
  je 1f
  pushq %rax
  call ringside_vfork_ended
  popq %rax
  cmpq $-4095, %rax
  jae 2f
  ret
1: subq $8, %rsp
  call ringside_vfork_child
  addq $8, %rsp
  xorl %eax, %eax
  ret
2: movq %rax, %rdi
  subq $8, %rsp
  call ringside_vfork_failed
  addq $8, %rsp
  ret
  .size ringside_vfork, . - ringside_vfork
  .popsection
)");
#elif defined(__aarch64__)
// clone(CLONE_VM | CLONE_VFORK | SIGCHLD, 0)
asm(R"(
  .pushsection .text
  .globl ringside_vfork
  .hidden ringside_vfork
  .type ringside_vfork, @function
ringside_vfork:
  stp x29, x30, [sp, #-16]!
  bl ringside_vfork_begins
  ldp x29, x30, [sp], #16
  mov x9, x0
  mov x0, #0x4111
  mov x1, #0
  mov x2, #0
  mov x3, #0
  mov x4, #0
  mov x8, #220
  svc #0
  cbz x0, 1f
  stp x0, x30, [sp, #-16]!
  mov x0, x9
  bl ringside_vfork_ended
  ldp x0, x30, [sp], #16
  cmn x0, #4095
  b.cs ringside_vfork_failed
  ret
1: stp x29, x30, [sp, #-16]!
  mov x0, x9
  bl ringside_vfork_child
  ldp x29, x30, [sp], #16
  mov x0, #0
  ret
  .size ringside_vfork, . - ringside_vfork
  .popsection
)");
#endif
