// Stacks of the library's own. A call of the library may come from a handler on a small alternate stack, or from a coroutine, so
// it takes little of its caller's stack: the steps that need more (paths, files, texts) run here.
//
// A process keeps some of these stacks for all its threads. Where they are in use, a call maps one and unmaps it again. Each
// lies above a page that faults.
#pragma once
#include <memory>
#include <type_traits>

namespace ringside::sys {

// Runs step(context) on such a stack. False: there is no memory for one, or the program
// has forbidden itself system calls, and it did not run. Signals are off (SignalsOff), so
// nothing leaves it by longjmp; the step throws nothing. Built with a sanitizer, which takes a stack for its thread's, it runs
// where it is called.
bool run_on_side_stack(void (*step)(void*) noexcept, void* context) noexcept;

template <class Step>
bool on_side_stack(Step&& step) noexcept {
  auto* const context = std::addressof(step);
  using Context = decltype(context);
  return run_on_side_stack([](void* at) noexcept { (**static_cast<Context*>(at))(); }, const_cast<void*>(static_cast<const void*>(&context)));
}

}  // namespace ringside::sys
