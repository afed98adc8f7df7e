// Starts a std::thread; a failure is an error with a sentence.
#pragma once
#include <ringside/base/result.hpp>
#include <signal.h>
#include <thread>

namespace ringside::sys {

// what: "that reads the kernel's rings".
template <class Body>
result<std::thread> start_thread(const std::string& what, Body body) {
  try {
    return std::thread(std::move(body));
  } catch (const std::system_error& e) {
    return fail(e.code().value(), "cannot start the thread " + what);
  }
}

// All signals that other processes or threads send. A thread's own faults are left out: a blocked SIGBUS kills, even if a
// handler could repair it.
inline sigset_t sent_signals() noexcept {
  sigset_t all;
  sigfillset(&all);
  for (const int own : {SIGBUS, SIGSEGV, SIGILL, SIGFPE, SIGTRAP, SIGSYS}) sigdelset(&all, own);
  return all;
}

}  // namespace ringside::sys
