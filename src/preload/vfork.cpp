// vfork, for programs that are not linked with the library: src/writer/vfork.cpp gives the reason. Another preloaded library's
// takes the place of the kernel's call: it returns twice, in one process after the other, or it is a fork.
#include <errno.h>
#include <unistd.h>

#include "preload/hook.hpp"
#include "sys/sys.hpp"

using ringside::u64;
using ringside::detail::this_thread;

extern "C" {

// Null: the library's own, which asks the kernel.
[[gnu::visibility("hidden"), gnu::used]] constinit void* ringside_other_vfork = nullptr;

[[gnu::visibility("hidden")]] u64 ringside_vfork_begins() noexcept;
[[gnu::visibility("hidden")]] void ringside_vfork_child(u64 mask) noexcept;
[[gnu::visibility("hidden")]] void ringside_vfork_ended(u64 mask) noexcept;

// By the depth of children of children. The child's calls overwrite the stack of its parent's call.
struct Kept {
  void* returns;
  u64 mask;
};
[[gnu::tls_model("initial-exec")]] static constinit thread_local u64 parent = 0;  // sys::this_process
constexpr ringside::u32 most_depth = 4;
constexpr u64 no_mask = ~u64{0};  // ringside_vfork_begins, in a sandbox
[[gnu::tls_model("initial-exec")]] static constinit thread_local Kept kept[most_depth]{};

[[gnu::visibility("hidden"), gnu::used]] void* ringside_vfork_of_another() noexcept {
  return this_thread.borrowed < most_depth ? ringside_other_vfork : nullptr;
}
[[gnu::visibility("hidden"), gnu::used]] void ringside_vfork_keep(void* returns, u64 mask) noexcept {
  kept[this_thread.borrowed - 1] = {returns, mask};
  if (mask != no_mask) parent = ringside::sys::this_process();
}
[[gnu::visibility("hidden"), gnu::used]] Kept ringside_vfork_kept() noexcept { return kept[this_thread.borrowed - 1]; }
[[gnu::visibility("hidden"), gnu::used]] void ringside_vfork_by_child(u64 mask) noexcept {
  ringside_vfork_child(mask);
  if (mask == no_mask || ringside::sys::this_process() == parent) return;  // in a sandbox nothing is asked for
  // A child of fork: what it has is its own.
  this_thread.borrowed = 0;
  this_thread.inside = this_thread.inside_before;
  this_thread.refuses = this_thread.refuses_before;
}
[[gnu::visibility("hidden"), gnu::used]] void ringside_vfork_by_ended(u64 mask) noexcept {
  const int error = errno;
  ringside_vfork_ended(mask);
  errno = error;
}
}

void ringside::preload::find_other_vfork() noexcept {
  void* const found = reinterpret_cast<void*>(NEXT(vfork));
  if (found != nullptr && !is_the_c_librarys(found)) ringside_other_vfork = found;
}

#if defined(__x86_64__)
asm(R"(
  .pushsection .text
  .globl vfork
  .type vfork, @function
vfork:
  subq $8, %rsp
  call ringside_vfork_of_another
  addq $8, %rsp
  testq %rax, %rax
  je ringside_vfork
  subq $8, %rsp
  call ringside_vfork_begins
  addq $8, %rsp
  popq %rdi
  movq %rax, %rsi
  call ringside_vfork_keep
  call *ringside_other_vfork(%rip)
  subq $16, %rsp
  movl %eax, (%rsp)
  call ringside_vfork_kept
  movl (%rsp), %ecx
  addq $16, %rsp
  pushq %rax
  movq %rdx, %rdi
  testl %ecx, %ecx
  je 1f
  pushq %rcx
  call ringside_vfork_by_ended
  popq %rax
  ret
1: subq $8, %rsp
  call ringside_vfork_by_child
  addq $8, %rsp
  xorl %eax, %eax
  ret
  .size vfork, . - vfork
  .popsection
)");
#elif defined(__aarch64__)
asm(R"(
  .pushsection .text
  .globl vfork
  .type vfork, @function
vfork:
  stp x29, x30, [sp, #-16]!
  bl ringside_vfork_of_another
  ldp x29, x30, [sp], #16
  cbz x0, 2f
  stp x29, x30, [sp, #-16]!
  bl ringside_vfork_begins
  ldp x29, x30, [sp], #16
  stp x29, x30, [sp, #-16]!
  mov x1, x0
  mov x0, x30
  bl ringside_vfork_keep
  ldp x29, x30, [sp], #16
  adrp x16, ringside_other_vfork
  ldr x16, [x16, :lo12:ringside_other_vfork]
  blr x16
  stp x29, x0, [sp, #-16]!
  bl ringside_vfork_kept
  mov x30, x0
  ldp x29, x0, [sp], #16
  cbz w0, 1f
  stp x0, x30, [sp, #-16]!
  mov x0, x1
  bl ringside_vfork_by_ended
  ldp x0, x30, [sp], #16
  ret
1: stp x29, x30, [sp, #-16]!
  mov x0, x1
  bl ringside_vfork_by_child
  ldp x29, x30, [sp], #16
  mov x0, #0
  ret
2: b ringside_vfork
  .size vfork, . - vfork
  .popsection
)");
#endif
