#include "sys/beside.hpp"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <iterator>
#include <ringside/base/sanitizers.hpp>

// clone() by the name that no run-time of a sanitizer intercepts, in a program that has one.
extern "C" {
[[gnu::weak]] decltype(clone) __clone;
}

namespace ringside::sys {

struct Beside::Start {
  void (*run)(const BesideHere&, void*);
  void* memory;
  alignas(64) u8 stack[64 << 10];
};

bool BesideHere::wanted() const noexcept { return getppid() == parent; }  // which is 1 in some containers, 0 in others

Beside::Beside(void (*run)(const BesideHere&, void*), void* memory) noexcept {
  // A copy of a large process takes milliseconds. The sanitizers' run-times keep their state by thread, and would take the child
  // for its parent. Neither descriptors nor directory are shared: exec in another thread would find them in use.
  constexpr int sharing = RINGSIDE_SANITIZED ? 0 : CLONE_VM;
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old_);
  void* const at = mmap(nullptr, sizeof(Start), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return;
  start_ = static_cast<Start*>(at);
  start_->run = run;
  start_->memory = memory;
  const auto make = __clone != nullptr ? __clone : clone;
  pid_ = make(
      [](void* from) {
        const Start& start = *static_cast<const Start*>(from);
        start.run({getppid()}, start.memory);
        return 0;
      },
      std::end(start_->stack), sharing, start_);
}

Beside::~Beside() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    while (waitpid(pid_, nullptr, __WALL) < 0 && errno == EINTR) {
    }
  }
  pthread_sigmask(SIG_SETMASK, &old_, nullptr);
  if (start_ != nullptr) munmap(start_, sizeof(Start));
}

}  // namespace ringside::sys
