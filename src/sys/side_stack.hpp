// Stacks of the library's own. A call of the library may come from a handler on a small alternate stack, or from a coroutine, so
// it takes little of its caller's stack: the steps that need more (paths, files, texts) run here.
//
// A process keeps some of these stacks for all its threads. Where they are in use, a call maps one and unmaps it again. Each
// lies above a page that faults.
#pragma once
#include <memory>
#include <type_traits>

namespace ringside::sys {

// Runs step(context) on such a stack. False: there is no memory for one, or the program has forbidden itself system calls, and it
// did not run. Signals are off (SignalsOff), so nothing leaves it by longjmp; the step throws nothing. Built with a sanitizer,
// which takes a stack for its thread's, it runs where it is called.
bool run_on_side_stack(void (*step)(void*) noexcept, void* context) noexcept;
// The same on a stack that map_side_stacks() has mapped, without a system call, and with signals on: a handler that leaves it by
// longjmp keeps it. False: all are in use.
bool run_on_mapped_side_stack(void (*step)(void*) noexcept, void* context) noexcept;
void map_side_stacks() noexcept;
// A child of vfork on this thread has ended, perhaps killed on such a stack: it is free again.
void take_back_side_stacks() noexcept;

template <class Step>
bool run_step(bool (*run)(void (*)(void*) noexcept, void*) noexcept, Step& step) noexcept {
  auto* context = std::addressof(step);
  using Context = decltype(context);
  return run([](void* at) noexcept { (**static_cast<Context*>(at))(); }, &context);
}
template <class Step>
bool on_side_stack(Step&& step) noexcept {
  return run_step(run_on_side_stack, step);
}
template <class Step>
bool on_mapped_side_stack(Step&& step) noexcept {
  return run_step(run_on_mapped_side_stack, step);
}

}  // namespace ringside::sys
