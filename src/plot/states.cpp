#include "plot/states.hpp"

#include <algorithm>

namespace ringside::plot {

// Times that go back add nothing.
void ThreadStates::end(u32 thread, Now& n, u64 time) {
  if (n.state != unknown && time > n.since)
    lanes_.add(thread, {.begin = n.since, .end = time, .what = n.state, .ring = n.ring, .weight = n.waker},
               [] { return std::string(); });
  n = {unknown, n.ring, std::max(n.since, time), no_waker};
}

void ThreadStates::change(u32 thread, State next, u64 time, u32 ring, u64 waker) {
  Now& n = now(thread);
  end(thread, n, time);
  n = {next, ring, n.since, waker};
}

void ThreadStates::leave(u32 thread, u64 time, u32 ring, i64 prev_state, u64 since) {
  Now& n = now(thread);
  if (n.state != running) {
    if (since < time) end(thread, n, since);
    n = {running, ring, std::max(n.since, since), no_waker};
  }
  change(thread, state_after(prev_state), time, ring, no_waker);
}

void ThreadStates::wake(u32 thread, u64 time, u32 ring, u64 waker) {
  const State s = now(thread).state;
  // A thread that runs on was woken before it slept; the second event of a wake-up says nothing new.
  if (s == running || s == runnable || s == preempted) return;
  change(thread, runnable, time, ring, waker);
}

void ThreadStates::lose(u64 begin, u32 ring) {
  for (u32 thread = 0; thread < threads_.size(); ++thread) {
    Now& n = threads_[thread];
    if (n.state != unknown && (n.state != running || n.ring == ring)) end(thread, n, begin);
  }
}

void ThreadStates::finish(u64 last) {
  for (u32 thread = 0; thread < threads_.size(); ++thread) end(thread, threads_[thread], last);
  lanes_.finish();
}

}  // namespace ringside::plot
