// What the two halves of `record --sample` share: the timers with their handler, and what the program wants of their signal.
#pragma once
#include <signal.h>

#include "preload/hook.hpp"
#include "sys/sandbox.hpp"

namespace ringside::preload {

inline constexpr int sample_signal = SIGURG;
extern constinit u64 interval_ns;  // 0: no samples are wanted
// Samples end where the program forbids itself system calls, and the handler's end is one.
void pause_samples() noexcept;
void resume_samples() noexcept;

// What the program wants for the signal.
struct SignalUse {
  struct sigaction action;
  bool taken;  // by a signalfd or sigwait of its own: it is wanted without a handler

  bool has_handler() const noexcept { return action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN; }
  bool is_wanted() const noexcept { return __atomic_load_n(&taken, __ATOMIC_RELAXED) || has_handler(); }
  void handle(int number, siginfo_t* info, void* context);
};
extern constinit SignalUse the_programs;

// Blocks the signal in this thread, whatever the program is shown. In a sandbox it does nothing.
class HoldBack {
 public:
  HoldBack() noexcept;
  ~HoldBack();
  HoldBack(const HoldBack&) = delete;
  HoldBack& operator=(const HoldBack&) = delete;
  sigset_t before{};  // the mask that comes back at the end

 private:
  const SystemCalls calls_;
};

// Does this mask represent one with the signal, which was left out?
bool hides(const sigset_t& mask) noexcept;
// Sends it again, to the thread or the process that it was sent to.
void send_again(const siginfo_t& info) noexcept;
// At a thread's beginning. hidden: the one that made it had a mask that hides the signal.
void take_over_mask(bool hidden) noexcept;
// The program waits for the signal to be sent to its handler, signalfd or sigwait: this thread's mask is what it shows.
void stop_hiding(sigset_t& mask) noexcept;

// The timer of this thread is stopped while the signal is blocked, or the alternate stack is too small: a pending signal of
// it would keep out the program's. Signals are held back.
void fit_timer(const sigset_t& mask) noexcept;
bool timer_fits(const sigset_t& mask) noexcept;  // as far as the signal is blocked
bool is_of_timer(const siginfo_t& info) noexcept;

}  // namespace ringside::preload
