// Code that is executed instruction by instruction, and something that comes between two of them as a signal handler would: the
// handler of SIGTRAP.
#pragma once
#include <ringside/base/sanitizers.hpp>

#if defined(__x86_64__) && !RINGSIDE_SANITIZED  // a sanitizer's run-time is stepped through, too
#define RS_TEST_STEPS 1
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <csetjmp>
#include <ringside/base/types.hpp>

namespace ringside::test {

inline constexpr unsigned long trap_flag = 0x100;
inline volatile int steps_to_go;  // the action comes at the last of them; 0: never
inline void (*volatile at_the_step)(ucontext_t& context);
inline sigjmp_buf back, inner_back;
inline bool goes_on_when_signals_are_on = false;
inline bool steps_without_signals = false;
inline volatile bool stopped = false;  // also for the calls of set_mask that are under way
inline volatile pid_t ends_without_signals = 0;  // this process, where it next blocks signals

// Their tables are right at each instruction, which those around the compiler's builtins are not.
[[gnu::naked, gnu::noinline]] inline u64 read_flags() {
  asm("pushfq\n\t.cfi_adjust_cfa_offset 8\n\tpopq %rax\n\t.cfi_adjust_cfa_offset -8\n\tret");
}
[[gnu::naked, gnu::noinline]] inline void write_flags(u64) {
  asm("pushq %rdi\n\t.cfi_adjust_cfa_offset 8\n\tpopfq\n\t.cfi_adjust_cfa_offset -8\n\tret");
}
inline bool steps() { return (read_flags() & trap_flag) != 0; }
inline void go_step_by_step(bool on) {
  const u64 flags = read_flags();
  write_flags(on ? flags | trap_flag : flags & ~u64{trap_flag});
}

// Calls this from code that has no tables and no frame pointer: no walk comes further.
asm(R"(
.pushsection .text.ringside_without_tables,"axG",@progbits,ringside_without_tables,comdat
.weak ringside_without_tables
.type ringside_without_tables,@function
ringside_without_tables:
 pushq %rbp
 xorl %ebp,%ebp
 call *%rdi
 popq %rbp
 ret
.size ringside_without_tables,.-ringside_without_tables
.popsection
)");
extern "C" void ringside_without_tables(void (*call)());

inline void clear_trap(ucontext_t& context) { context.uc_mcontext.gregs[REG_EFL] &= ~static_cast<greg_t>(trap_flag); }
// For the action: no further steps.
inline void stop_stepping(ucontext_t& context) {
  stopped = true;
  clear_trap(context);
}

inline void on_trap(int, siginfo_t*, void* context) {
  const int left = steps_to_go - 1;
  steps_to_go = left;
  if (left == 0) at_the_step(*static_cast<ucontext_t*>(context));
}

// For the C library's: a step while all signals are off would end the program. The steps are counted while signals are on, or,
// with steps_without_signals, always.
inline int set_mask(int how, const sigset_t* set, sigset_t* old) {
  const bool stepped = steps();
  go_step_by_step(false);
  if (ends_without_signals == getpid()) _exit(0);
  sigset_t wanted{}, now{};
  if (set != nullptr) wanted = *set;
  if (stepped && steps_without_signals) sigdelset(&wanted, SIGTRAP);
  const int error = sigprocmask(how, set != nullptr ? &wanted : nullptr, old) == 0 ? 0 : errno;
  sigprocmask(SIG_BLOCK, nullptr, &now);
  const bool can_step = sigismember(&now, SIGTRAP) == 0;
  const bool goes_on = can_step && !stopped && (stepped || goes_on_when_signals_are_on);
  goes_on_when_signals_are_on = !can_step && (stepped || goes_on_when_signals_are_on);
  go_step_by_step(goes_on);
  return error;
}

inline int nr_traps = 0;  // code may be stepped through

class Traps {
 public:
  explicit Traps(int flags = 0) {
    ++nr_traps;
    struct sigaction action {};
    action.sa_sigaction = on_trap;
    action.sa_flags = SA_SIGINFO | SA_NODEFER | flags;
    sigaction(SIGTRAP, &action, &before_);
  }
  ~Traps() {
    sigaction(SIGTRAP, &before_, nullptr);
    --nr_traps;
  }
  Traps(const Traps&) = delete;
  Traps& operator=(const Traps&) = delete;

 private:
  struct sigaction before_ {};
};

// Runs this in a thread that has an alternate stack, above its own, which the kernel disarms while a handler runs there
// (SS_AUTODISARM). False: this kernel cannot (before 4.7).
inline bool with_a_stack_that_disarms(void (*body)()) {
  constexpr size_t size = 64 << 20, high = 60 << 20;
  struct Given {
    void (*body)();
    u8* memory;
    bool armed;
  } given{body, nullptr, false};
  given.memory =
      static_cast<u8*>(mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  if (given.memory == MAP_FAILED) return false;
  pthread_attr_t low;
  pthread_attr_init(&low);
  pthread_attr_setstack(&low, given.memory, 4 << 20);
  const auto run = [](void* argument) -> void* {
    Given& mine = *static_cast<Given*>(argument);
    stack_t stack{};
    stack.ss_sp = mine.memory + high;
    stack.ss_size = size - high;
    stack.ss_flags = static_cast<int>(1u << 31);
    mine.armed = sigaltstack(&stack, nullptr) == 0;
    if (mine.armed) mine.body();
    return nullptr;
  };
  pthread_t thread;
  if (pthread_create(&thread, &low, run, &given) == 0) pthread_join(thread, nullptr);
  pthread_attr_destroy(&low);
  munmap(given.memory, size);
  return given.armed;
}

}  // namespace ringside::test
#else
#define RS_TEST_STEPS 0
#endif
