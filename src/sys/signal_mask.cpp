#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "sys/signals_off.hpp"

namespace ringside::sys {

u64 set_signal_mask(u64 mask) noexcept {
  u64 before = 0;
  syscall(SYS_rt_sigprocmask, SIG_SETMASK, &mask, &before, sizeof before);
  return before;
}

}  // namespace ringside::sys
