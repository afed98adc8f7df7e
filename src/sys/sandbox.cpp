#include "sys/sandbox.hpp"

#include <sched.h>
#include <time.h>

namespace ringside {

constinit thread_local detail::ThisThread detail::this_thread{};

constinit u32 sandbox = 0, calling = 0;

bool begin_system_calls() noexcept {
  __atomic_fetch_add(&calling, 1u, __ATOMIC_SEQ_CST);
  if (!no_system_calls()) return true;
  __atomic_fetch_sub(&calling, 1u, __ATOMIC_RELEASE);
  return false;
}

void wait_for_system_calls() noexcept {
  const auto is_quiet = [] { return static_cast<i32>(__atomic_load_n(&calling, __ATOMIC_SEQ_CST)) <= 0; };
  for (int tries = 0; tries < 100 && !is_quiet(); ++tries) sched_yield();
  for (int ms = 0; ms < 1000 && !is_quiet(); ++ms) {
    const timespec nap{0, 1'000'000};
    nanosleep(&nap, nullptr);
  }
}

}  // namespace ringside
