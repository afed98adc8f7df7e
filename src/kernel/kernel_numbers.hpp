// The kernel's events name threads by the numbers of the first PID namespace. Inside another one (a container) this finds the
// number of a thread, and the thread of a number.
//
// The kernel itself gives it: a signal that a thread ignores is dropped without any effect, and the event
// signal:signal_generate of an instance made for that has the number. Threads that end between two looks are shown by
// perf's samples of sched:sched_process_exit, which have both numbers.
//
//   if (KernelNumbers::differ()) { auto numbers = RS_TRY(KernelNumbers::shared()); RS_TRY(numbers->of(pid, tid)); }
//
// Thread-safety: any thread may call it at any time.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "kernel/exit_numbers.hpp"
#include "kernel/tracefs_instance.hpp"

namespace ringside {

class KernelNumbers {
 public:
  struct Thread {
    i32 pid = 0, tid = 0;  // in this namespace
  };
  // Whether this process's namespace may be another one than the first: without /proc it is unknown.
  static bool differ();
  // One for all of this process that need it; it ends with the last of them.
  static result<std::shared_ptr<KernelNumbers>> shared();

  // The kernel's number of a thread of this namespace. pid: its process.
  result<i32> of(i32 pid, i32 tid);
  // Learns all threads that are there now, and those that have ended since the last call; at most ten times a second.
  void look();
  bool tells_ended() const { return exits_.open_anywhere(); }
  // Every thread that was learned, by the kernel's number. A number that was used again names its last thread.
  std::map<i32, Thread> known();
  Thread here(i32 kernel);  // of one of them; 0: it is unknown, or in no namespace of this one's

 private:
  explicit KernelNumbers(TracefsInstance instance);
  struct Asked {
    Thread thread;
    i32 kernel = 0;  // 0: no answer
  };
  void ask(std::vector<Asked>& threads);
  void note(i32 kernel, Thread thread);

  std::mutex mutex_;
  TracefsInstance instance_;
  const i32 mark_;  // si_errno of the signals sent here: this, plus a running number
  ExitNumbers exits_;
  std::map<i32, Thread> by_kernel_;
  std::map<i32, std::pair<i32, u64>> by_tid_;  // of the living: the kernel's number, and the start that separates them
  u64 looked_ns_ = 0;
};

}  // namespace ringside
