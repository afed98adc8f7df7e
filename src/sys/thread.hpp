// Threads: one that is started, whose failure is an error with a sentence; several that do a common work.
#pragma once
#include <exception>
#include <ringside/base/result.hpp>
#include <signal.h>
#include <thread>
#include <vector>

namespace ringside::sys {

// what: "that reads the kernel's rings".
template <class Body>
result<std::thread> start_thread(const std::string& what, Body body) {
  try {
    return std::thread(std::move(body));
  } catch (const std::system_error& e) {
    return fail(e.code().value(), "cannot start the thread " + what);
  } catch (const std::bad_alloc&) {
    return fail(ENOMEM, "cannot start the thread " + what);
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

// A thread that gets no signals: they are the main thread's.
template <class Body>
result<std::thread> quiet_thread(const std::string& what, Body body) {
  const sigset_t all = sent_signals();
  struct Mask {
    sigset_t before;
    ~Mask() { pthread_sigmask(SIG_SETMASK, &before, nullptr); }
  } mask;
  pthread_sigmask(SIG_BLOCK, &all, &mask.before);
  return start_thread(what, std::move(body));
}

// work(n) for each n below `jobs`, each on a thread of its own, n = 0 on this one. All have ended when it returns. What one
// throws is thrown here. Where a thread cannot be started, this one does its work.
template <class Work>
void parallel(u32 jobs, const Work& work) {
  std::vector<std::exception_ptr> thrown(jobs);
  const auto one = [&](u32 n) {
    try {
      work(n);
    } catch (...) {
      thrown[n] = std::current_exception();
    }
  };
  std::vector<u32> left{0};
  {
    std::vector<std::jthread> threads;
    for (u32 n = 1; n < jobs; ++n) {
      try {
        threads.emplace_back(one, n);
      } catch (const std::system_error&) {
        left.push_back(n);
      }
    }
    for (const u32 n : left) one(n);
  }
  for (const std::exception_ptr& e : thrown) {
    if (e) std::rethrow_exception(e);
  }
}

}  // namespace ringside::sys
