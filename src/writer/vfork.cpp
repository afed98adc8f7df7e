// vfork, under a name of its own: vfork_name.cpp gives it the C library's. A child of vfork runs on its parent's thread, and
// the kernel has dropped that thread's registration of restartable sequences in the child: it sees a CPU number that does not
// change, and is never aborted. So until the parent goes on, the thread does not write to the rings of CPUs: the child's events
// go to a ring of their own, which the parent retires. posix_spawn's child runs no code of this library. clone() with
// CLONE_VM and CLONE_VFORK is the same; without CLONE_VFORK two processes run on one thread's words at once, which nothing
// can separate, so from then on the events of both are refused and counted.
#include <errno.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "sys/memory_limit.hpp"
#include "sys/side_stack.hpp"
#include "writer/clone.hpp"
#include "writer/process.hpp"

namespace {

using ringside::SignalsOff;
using ringside::u64;
using ringside::u8;
using ringside::detail::not_attached;
using ringside::detail::this_thread;
using ringside::sys::set_signal_mask;

constexpr u64 unchanged = ~u64{0};  // no mask: it would block SIGKILL

}  // namespace

extern "C" {

// Returns the thread's signal mask. Signals are off until the child has returned, and in the parent until it has its rings
// back: no handler comes in between, or leaves a part of it by longjmp. The parent is in SystemCalls until the child has begun.
[[gnu::visibility("hidden"), gnu::used]] u64 ringside_vfork_begins() noexcept {
  SignalsOff off;  // in a sandbox not: then the child's events are refused
  if (this_thread.borrowed++ == 0) {
    // The child may die anywhere, also inside of the library.
    this_thread.on_cpus_before = this_thread.on_cpus_at;
    this_thread.tid_before = this_thread.tid;
    this_thread.inside_before = this_thread.inside;
    this_thread.refuses_before = this_thread.refuses;
    if (off) ringside::lay_own_rings_aside(off);
    this_thread.on_cpus_at = not_attached;
  }
  if (!off) return unchanged;
  const ringside::sys::Signals before = off.keep();
  if (this_thread.borrowed == 1) this_thread.cancel_before = static_cast<u8>(before.cancel);
  this_thread.holds_calls = true;
  return before.mask;
}
// A filter for all threads of the parent (TSYNC) is none for the child.
[[gnu::visibility("hidden"), gnu::used]] void ringside_vfork_child(u64 mask) noexcept {
  if (mask == unchanged) return;
  set_signal_mask(mask);
  this_thread.holds_calls = false;
  ringside::end_system_calls();
}
[[gnu::visibility("hidden"), gnu::used]] void ringside_vfork_ended(u64 mask) noexcept {
  const bool is_last = this_thread.borrowed == 1;
  if (is_last) this_thread.refuses = this_thread.refuses_before;
  const bool held = this_thread.holds_calls;  // there was no child, or it was killed before it began
  this_thread.holds_calls = false;
  const bool may = mask != unchanged && (held || ringside::begin_system_calls());
  const int cancel = is_last ? int{this_thread.cancel_before} : PTHREAD_CANCEL_DISABLE;
  SignalsOff off({mask, cancel});
  if (!may) (void)off.keep();
  if (is_last) {
    ringside::sys::take_back_side_stacks();
    ringside::sys::look_again_after_vfork();
    this_thread.inside = this_thread.inside_before;
    if (mask != unchanged) ringside::take_up_own_rings(off);
    this_thread.tid = this_thread.tid_before;
    this_thread.on_cpus_at = this_thread.on_cpus_before;
    // A sandbox came while the child ran. The mask stays: setting it might end the program.
    if (!may && mask != unchanged) pthread_setcancelstate(cancel, nullptr);
  }
  --this_thread.borrowed;
}
[[gnu::visibility("hidden"), gnu::used]] long ringside_vfork_failed(long error) noexcept {
  errno = static_cast<int>(-error);
  return -1;
}
}

namespace {

struct Started {
  int (*run)(void*);
  void* argument;
  u64 mask;
};
int run_child(void* from) {
  const Started started = *static_cast<const Started*>(from);
  ringside_vfork_child(started.mask);
  return started.run(started.argument);
}

}  // namespace

void ringside::before_clone(u64 flags) noexcept {
  if ((flags & CLONE_VM) != 0 && (flags & CLONE_SETTLS) == 0) refuse_events_of_thread();
}

int ringside::clone_by(Clone* real, int (*run)(void*), void* stack, int flags, void* argument, pid_t* parent_tid, void* tls,
                       pid_t* child_tid) noexcept {
  constexpr int decide = CLONE_VM | CLONE_VFORK | CLONE_SETTLS | CLONE_THREAD;
  const auto clone_it = [&](int (*what)(void*), void* of) { return real(what, stack, flags, of, parent_tid, tls, child_tid); };
  if (run == nullptr || stack == nullptr) return clone_it(run, argument);
  if ((flags & decide) == (CLONE_VM | CLONE_VFORK)) {
    Started started{run, argument, ringside_vfork_begins()};
    const int child = clone_it(run_child, &started), saved = errno;
    ringside_vfork_ended(started.mask);
    errno = saved;
    return child;
  }
  const bool refused = this_thread.refuses;
  before_clone(static_cast<u32>(flags));
  const int child = clone_it(run, argument);
  if (child < 0) this_thread.refuses = refused;
  return child;
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
