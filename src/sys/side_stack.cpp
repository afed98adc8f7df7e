#include "sys/side_stack.hpp"

#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <ringside/base/sanitizers.hpp>

#include "sys/sandbox.hpp"
#include "sys/sys.hpp"

// ringside_switch_stack(step, context, top): calls step(context) with the stack pointer `top`, a multiple of 16, and comes back
// to this one. The frame pointer leads from one to the other: for debuggers and for walks over the stack.
#if RINGSIDE_SANITIZED
#define RINGSIDE_SIDE_STACKS 0
#elif defined(__x86_64__)
#define RINGSIDE_SIDE_STACKS 1
asm(R"(
  .pushsection .text
  .globl ringside_switch_stack
  .hidden ringside_switch_stack
  .type ringside_switch_stack, @function
ringside_switch_stack:
  .cfi_startproc
  endbr64
  pushq %rbp
  .cfi_def_cfa_offset 16
  .cfi_offset %rbp, -16
  movq %rsp, %rbp
  .cfi_def_cfa_register %rbp
  movq %rdx, %rsp
  movq %rdi, %rax
  movq %rsi, %rdi
  call *%rax
  movq %rbp, %rsp
  popq %rbp
  .cfi_def_cfa %rsp, 8
  ret
  .cfi_endproc
  .size ringside_switch_stack, . - ringside_switch_stack
  .popsection
)");
#elif defined(__aarch64__)
#define RINGSIDE_SIDE_STACKS 1
asm(R"(
  .pushsection .text
  .globl ringside_switch_stack
  .hidden ringside_switch_stack
  .type ringside_switch_stack, @function
ringside_switch_stack:
  .cfi_startproc
  stp x29, x30, [sp, #-16]!
  .cfi_def_cfa_offset 16
  .cfi_offset x29, -16
  .cfi_offset x30, -8
  mov x29, sp
  .cfi_def_cfa_register x29
  mov sp, x2
  mov x9, x0
  mov x0, x1
  blr x9
  mov sp, x29
  ldp x29, x30, [sp], #16
  .cfi_def_cfa sp, 0
  ret
  .cfi_endproc
  .size ringside_switch_stack, . - ringside_switch_stack
  .popsection
)");
#elif defined(__riscv) && __riscv_xlen == 64
#define RINGSIDE_SIDE_STACKS 1
asm(R"(
  .pushsection .text
  .globl ringside_switch_stack
  .hidden ringside_switch_stack
  .type ringside_switch_stack, @function
ringside_switch_stack:
  .cfi_startproc
  addi sp, sp, -16
  .cfi_def_cfa_offset 16
  sd ra, 8(sp)
  sd s0, 0(sp)
  .cfi_offset ra, -8
  .cfi_offset s0, -16
  addi s0, sp, 16
  .cfi_def_cfa s0, 0
  mv sp, a2
  mv t0, a0
  mv a0, a1
  jalr t0
  addi sp, s0, -16
  .cfi_def_cfa sp, 16
  ld ra, 8(sp)
  ld s0, 0(sp)
  addi sp, sp, 16
  .cfi_def_cfa_offset 0
  ret
  .cfi_endproc
  .size ringside_switch_stack, . - ringside_switch_stack
  .popsection
)");
#elif defined(__arm__)
#define RINGSIDE_SIDE_STACKS 1
asm(R"(
  .pushsection .text
  .globl ringside_switch_stack
  .hidden ringside_switch_stack
  .type ringside_switch_stack, %function
  .arm
ringside_switch_stack:
  .fnstart
  push {r4, lr}
  .save {r4, lr}
  mov r4, sp
  .setfp r4, sp
  mov sp, r2
  mov r3, r0
  mov r0, r1
  blx r3
  mov sp, r4
  pop {r4, pc}
  .fnend
  .size ringside_switch_stack, . - ringside_switch_stack
  .popsection
)");
#else
#define RINGSIDE_SIDE_STACKS 0
#endif

#if RINGSIDE_SIDE_STACKS
extern "C" void ringside_switch_stack(void (*step)(void*) noexcept, void* context, void* top) noexcept;
#endif

namespace ringside::sys {

#if RINGSIDE_SIDE_STACKS
namespace {

// The most that a step takes is 25 KiB: it opens and makes an instance. Below is a page that faults.
u64 mapped_size() noexcept { return (u64{64} << 10) + page_bytes(); }

// holder: the process (this_process) that uses it. A word of another process was copied by fork, from a thread that is not here.
struct Kept {
  std::atomic<u64> holder{0};
  std::atomic<const int*> thread{nullptr};  // of the holder: its errno, which a child of vfork has, too
  u8* memory = nullptr;                     // stored by the first holder

  bool take(u64 process) noexcept {
    u64 now = holder.load(std::memory_order_relaxed);
    if (now == process || !holder.compare_exchange_strong(now, process, std::memory_order_acquire, std::memory_order_relaxed))
      return false;
    thread.store(&errno, std::memory_order_relaxed);
    return true;
  }
  void give_back() noexcept {
    thread.store(nullptr, std::memory_order_relaxed);
    holder.store(0, std::memory_order_release);
  }
};
constinit Kept kept[8];

u8* map_stack() noexcept {
  void* const at = raw_mmap(nullptr, static_cast<size_t>(mapped_size()), MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
  if (at == MAP_FAILED) return nullptr;
  syscall(SYS_mprotect, at, static_cast<size_t>(page_bytes()), long{PROT_NONE});
  return static_cast<u8*>(at);
}

bool run_on(u8* memory, void (*step)(void*) noexcept, void* context) noexcept {
  if (memory == nullptr) return false;
  ringside_switch_stack(step, context, memory + mapped_size());
  return true;
}

}  // namespace

bool run_on_side_stack(void (*step)(void*) noexcept, void* context) noexcept {
  const SystemCalls calls;
  if (!calls) return false;
  const u64 own = this_process();
  for (Kept& one : kept) {
    if (!one.take(own)) continue;
    if (one.memory == nullptr) one.memory = map_stack();
    const bool ran = run_on(one.memory, step, context);
    one.give_back();
    return ran;
  }
  u8* const memory = map_stack();
  const bool ran = run_on(memory, step, context);
  if (memory != nullptr) raw_munmap(memory, static_cast<size_t>(mapped_size()));
  return ran;
}

void map_side_stacks() noexcept {
  for (Kept& one : kept) {
    if (!one.take(this_process())) continue;
    if (one.memory == nullptr) one.memory = map_stack();
    one.give_back();
  }
}

bool run_on_mapped_side_stack(void (*step)(void*) noexcept, void* context) noexcept {
  const u64 any = ~u64{0};  // asking which process this is may take a system call
  for (Kept& one : kept) {
    if (one.holder.load(std::memory_order_relaxed) != 0 || !one.take(any)) continue;
    const bool ran = run_on(one.memory, step, context);
    one.give_back();
    return ran;
  }
  return false;
}

void take_back_side_stacks() noexcept {
  for (Kept& one : kept) {
    if (one.thread.load(std::memory_order_relaxed) == &errno) one.give_back();
  }
}
#else
bool run_on_side_stack(void (*step)(void*) noexcept, void* context) noexcept {
  const SystemCalls calls;
  if (calls) step(context);
  return bool{calls};
}
bool run_on_mapped_side_stack(void (*step)(void*) noexcept, void* context) noexcept {
  step(context);
  return true;
}
void map_side_stacks() noexcept {}
void take_back_side_stacks() noexcept {}
#endif

}  // namespace ringside::sys
