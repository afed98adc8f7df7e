// What a thread does, as the kernel's scheduler reports it.
#pragma once
#include <ringside/base/types.hpp>

namespace ringside {

// Runnable: woken, and not yet on a CPU. Preempted: taken off its CPU although it could run; also one that yields. Blocked: it
// waits and takes no signal: for a disk, mostly.
struct RunStates {
  enum State : u32 { unknown, running, runnable, preempted, sleeping, blocked, stopped };
};
using RunState = RunStates::State;

constexpr i64 ended_state = 0x10;  // a prev_state: nothing is known from then on

constexpr bool has_ended(i64 prev_state) { return (prev_state & 0x30) != 0; }

// Of a thread that is switched from, by the prev_state of sched_switch. The kernel's letters: S 1, D 2, T 4, t 8, X 16 and Z 32
// in either order, others beyond; 0 and what is beyond these bits: R, R+.
constexpr RunState state_after(i64 prev_state) {
  if (has_ended(prev_state)) return RunState::unknown;
  if ((prev_state & 1) != 0) return RunState::sleeping;
  if ((prev_state & 2) != 0) return RunState::blocked;
  if ((prev_state & 0xC) != 0) return RunState::stopped;
  return (prev_state & 0xFF) != 0 ? RunState::sleeping : RunState::preempted;
}

}  // namespace ringside
