// While it lives, no signal handler runs in this thread, and no thread cancels it. By the system call: the C library's functions
// take four sets of 128 bytes of the caller's stack, and may be the program's hooks. SIGTRAP stays on: nothing here raises it,
// and a program that steps through its own code would be killed.
#pragma once
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <ringside/base/types.hpp>

namespace ringside::sys {

class SignalsOff {
 public:
  SignalsOff() noexcept {
    const u64 all = ~(u64{1} << (SIGTRAP - 1));
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &before_, sizeof before_);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_);
  }
  ~SignalsOff() {
    pthread_setcancelstate(cancel_, nullptr);
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before_, nullptr, sizeof before_);
  }
  SignalsOff(const SignalsOff&) = delete;
  SignalsOff& operator=(const SignalsOff&) = delete;

 private:
  u64 before_ = 0;  // the kernel's 64 signals
  int cancel_ = 0;
};

}  // namespace ringside::sys
