// A stack that control can be moved to and from within one OS thread. ucontext makes it; the switches use _setjmp, which, other
// than swapcontext, does not ask the kernel for the signal mask each time. Sanitizers and fortified builds, which inspect
// long jumps, get swapcontext. A fiber may be abandoned at any point and prepared again; what its frames owned is leaked.
#pragma once
#include <setjmp.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <cstdlib>
#include <ringside/base/sanitizers.hpp>
#include <ringside/base/types.hpp>

#if RINGSIDE_SANITIZED || (defined(_FORTIFY_SOURCE) && _FORTIFY_SOURCE > 0)
#define RS_MODEL_SWAPCONTEXT 1
#endif

namespace ringside::model {

class Fiber {
 public:
  Fiber() = default;
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;
  ~Fiber() {
    if (stack_ != nullptr) munmap(stack_, stack_size);
  }

  // The next jump to it calls entry(argument), which must not return.
  void prepare(void (*entry)(void*), void* argument) {
    if (stack_ == nullptr) {
      stack_ = mmap(nullptr, stack_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (stack_ == MAP_FAILED || mprotect(stack_, page_size, PROT_NONE) != 0) abort();  // the lowest page is the guard
    }
    entry_ = entry;
    argument_ = argument;
    entered_ = false;
    getcontext(&context_);
    context_.uc_stack.ss_sp = stack_;
    context_.uc_stack.ss_size = stack_size;
    context_.uc_link = nullptr;
    makecontext(&context_, &begin, 0);
  }

  [[gnu::noinline]] static void jump(Fiber& from, Fiber& to) {
#if defined(RS_MODEL_SWAPCONTEXT)
    entering = &to;
    swapcontext(&from.context_, &to.context_);
#else
    if (_setjmp(from.place_) != 0) return;
    if (to.entered_) _longjmp(to.place_, 1);
    to.entered_ = true;
    entering = &to;
    setcontext(&to.context_);
#endif
  }

  void is_running() { entered_ = true; }  // for the fiber that the thread came with

 private:
  static constexpr size_t stack_size = 256 * 1024;

  static void begin() {
    entering->entry_(entering->argument_);
    abort();
  }

  inline static Fiber* entering = nullptr;

  void* stack_ = nullptr;
  void (*entry_)(void*) = nullptr;
  void* argument_ = nullptr;
  bool entered_ = false;
  ucontext_t context_ = {};
  [[maybe_unused]] jmp_buf place_ = {};
};

}  // namespace ringside::model
