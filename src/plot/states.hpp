// What each thread does at a time, as lanes of slices: from the kernel's sched_switch, and sched_waking or sched_wakeup.
//
//   ThreadStates states(200'000);
//   states.run(thread, time, ring);                       // switched to, on the CPU of that ring
//   states.leave(thread, time, ring, prev_state, since);  // switched from
//   states.wake(thread, time, ring, waker);
//   states.lose(begin, ring);                             // events of that ring are missing from then on
//   states.finish(last);
//   for (const Slice& s : states.lanes().slices(thread)) ...   // `what` is a State
//
// A state is drawn from the event that begins it to the event that ends it. Where a loss may have taken an event of a thread,
// its state is unknown until its next event: a running thread is shown by its own CPU's ring alone, all others by any ring.
// Memory: that of Lanes. Slices that are too short to see are merged there; merged ones have no waker.
#pragma once
#include "analysis/run_state.hpp"
#include "plot/lanes.hpp"

namespace ringside::plot {

class ThreadStates {
 public:
  using State = RunState;
  using enum RunStates::State;
  // Slice::weight of a runnable one.
  static constexpr u64 no_waker = 0, by_interrupt = 1;
  static constexpr u64 by_thread(u32 thread) { return u64{thread} + 2; }

  explicit ThreadStates(u64 most) : lanes_(most) {}

  void run(u32 thread, u64 time, u32 ring) { change(thread, running, time, ring, no_waker); }
  // `since`: when it ran on this CPU at least, if no event said.
  void leave(u32 thread, u64 time, u32 ring, i64 prev_state, u64 since);
  void wake(u32 thread, u64 time, u32 ring, u64 waker);
  void lose(u64 begin, u32 ring);
  void forget(u32 thread) { now(thread).state = unknown; }  // its state has an end that no event showed
  void finish(u64 last);
  const Lanes& lanes() const { return lanes_; }

 private:
  struct Now {
    State state = unknown;
    u32 ring = 0;
    u64 since = 0, waker = no_waker;
  };
  Now& now(u32 thread) {
    if (thread >= threads_.size()) threads_.resize(thread + 1);
    return threads_[thread];
  }
  void change(u32 thread, State next, u64 time, u32 ring, u64 waker);
  void end(u32 thread, Now& n, u64 time);

  Lanes lanes_;
  std::vector<Now> threads_;
};

}  // namespace ringside::plot
