// A process that runs beside this thread and shares its memory, for experiments on the kernel and the processors. The program
// does not notice it: no SIGCHLD, no fork handlers, no signal handlers while it lives.
#pragma once
#include <ringside/base/types.hpp>
#include <signal.h>
#include <sys/types.h>

namespace ringside::sys {

// The process's number, and whether its parent is still there: it is killed in any case, but not if the parent dies first.
struct BesideHere {
  pid_t parent;
  bool wanted() const noexcept;
};

class Beside {
 public:
  // run: by system calls alone, because the C library takes the process for its parent. memory: shared by both (MAP_SHARED),
  // because where a sanitizer is built in all else is copied.
  Beside(void (*run)(const BesideHere&, void*), void* memory) noexcept;
  ~Beside();  // kills it
  Beside(const Beside&) = delete;
  Beside& operator=(const Beside&) = delete;
  pid_t pid() const noexcept { return pid_; }  // -1: there is none

 private:
  struct Start;
  Start* start_ = nullptr;
  pid_t pid_ = -1;
  sigset_t old_{};
};

}  // namespace ringside::sys
