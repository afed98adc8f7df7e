// What the two halves of `record --sample` share: the timers with their handler, and what the program wants of their signal.
#pragma once
#include <signal.h>

#include "preload/hook.hpp"

namespace ringside::preload {

inline constexpr int sample_signal = SIGURG;
extern constinit u64 interval_ns;  // 0: no samples are wanted

// What the program wants for the signal.
struct SignalUse {
  struct sigaction action;

  bool has_handler() const noexcept { return action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN; }
  void handle(int number, siginfo_t* info, void* context);
};
extern constinit SignalUse the_programs;
// The program wants the signal blocked in this thread. It is so while the program has a handler for it, else it is only told so.
[[gnu::tls_model("initial-exec")]] extern constinit thread_local bool they_block;

bool is_of_timer(const siginfo_t& info) noexcept;
// At a thread's beginning: `inherited` is they_block of the one that made it.
void take_over_mask(bool inherited) noexcept;

}  // namespace ringside::preload
