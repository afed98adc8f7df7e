// While it lives, no signal handler runs in this thread, and no thread cancels it. By the system call: the C library's functions
// take four sets of 128 bytes of the caller's stack, and may be the program's hooks. In a sandbox it does nothing, and says so:
// code that depends on it, or makes system calls, ends there.
#pragma once
#include <pthread.h>

#include "sys/sandbox.hpp"

namespace ringside::sys {

// Sets this thread's mask, of the kernel's 64 signals, and returns the one before. It is in a file of its own: a test that
// steps through the code brings another one.
u64 set_signal_mask(u64 mask) noexcept;

// How a thread takes signals and cancellation.
struct Signals {
  u64 mask = 0;
  int cancel = PTHREAD_CANCEL_ENABLE;
  bool went_off = false;  // in one word with `cancel`: it lies on small stacks
};

class SignalsOff {
 public:
  SignalsOff() noexcept {
    before_.went_off = begin_system_calls();
    if (!before_.went_off) return;
    before_.mask = set_signal_mask(~u64{0});
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_.cancel);
  }
  // Takes over what keep() has left, where this thread is in SystemCalls.
  explicit SignalsOff(const Signals& before) noexcept : before_{before.mask, before.cancel, true} {}
  ~SignalsOff() {
    if (!before_.went_off) return;
    pthread_setcancelstate(before_.cancel, nullptr);
    set_signal_mask(before_.mask);
    end_system_calls();
  }
  SignalsOff(const SignalsOff&) = delete;
  SignalsOff& operator=(const SignalsOff&) = delete;
  explicit operator bool() const noexcept { return before_.went_off; }
  // Signals stay off, and this thread in SystemCalls, until another one takes over.
  Signals keep() noexcept {
    before_.went_off = false;
    return before_;
  }

 private:
  Signals before_;
};

}  // namespace ringside::sys
