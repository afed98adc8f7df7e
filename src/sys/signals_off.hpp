// While it lives, no signal handler runs in this thread, and no thread cancels it. By the system call: the C library's functions
// take four sets of 128 bytes of the caller's stack, and may be the program's hooks. In a sandbox it does nothing, and says so:
// code that depends on it, or makes system calls, ends there.
#pragma once
#include <pthread.h>

#include "sys/sandbox.hpp"

namespace ringside::sys {

// Sets this thread's mask, of the kernel's 64 signals, and returns the one before. It stands in a file of its own: a test that
// steps through the code brings another one.
u64 set_signal_mask(u64 mask) noexcept;

class SignalsOff {
 public:
  SignalsOff() noexcept {
    if (!calls_) return;
    before_ = set_signal_mask(~u64{0});
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_);
  }
  ~SignalsOff() {
    if (!calls_) return;
    pthread_setcancelstate(cancel_, nullptr);
    set_signal_mask(before_);
  }
  SignalsOff(const SignalsOff&) = delete;
  SignalsOff& operator=(const SignalsOff&) = delete;
  explicit operator bool() const noexcept { return bool{calls_}; }

 private:
  const SystemCalls calls_;
  int cancel_ = 0;
  u64 before_ = 0;
};

}  // namespace ringside::sys
