// Finds threads of other PID namespaces in this /proc: a container's TIDs as the host sees them (NSpid).
//
// Finds them by namespace, PID and TID there. Scans /proc once for each `seen`, a number that moves on whenever new threads may
// be there, and only for an unknown thread. Results stay, also when the thread has ended.
#pragma once
#include <compare>
#include <map>
#include <unordered_map>

#include "source/source.hpp"

namespace ringside {

class PidMap {
 public:
  // The start time of the thread, in its own time namespace: a TID may be used again. 0: not known.
  struct Start {
    u64 time_namespace = 0, start = 0;
    auto operator<=>(const Start&) const = default;
  };
  // Fills in here_tid and here_pid.
  void find(Elsewhere& thread, const Start& start, u64 seen);

 private:
  struct Key {
    u64 pid_namespace;
    i32 pid, tid;
    Start start;
    auto operator<=>(const Key&) const = default;
  };
  struct Process {
    i32 here = 0;
    bool listed = false;
    std::unordered_map<i32, i32> threads;  // TID there to TID here; once `listed`
  };
  void scan();

  std::map<Key, Elsewhere> known_;
  std::map<std::pair<u64, i32>, Process> processes_;  // by namespace and PID there
  u64 scanned_for_ = ~u64{0};
};

}  // namespace ringside
