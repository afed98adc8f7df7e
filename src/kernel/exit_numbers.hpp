// Both numbers of each thread that ends: the kernel's, and the one in this PID namespace. perf_event_open of
// sched:sched_process_exit on each CPU: the event has the first, and the sample of it the second.
#pragma once
#include <functional>
#include <vector>

#include "sys/sys.hpp"

namespace ringside {

class ExitNumbers {
 public:
  void open();  // where perf is refused, nothing is reported
  bool open_anywhere() const { return !rings_.empty(); }
  // Those since the last call, of this namespace.
  void take(const std::function<void(i32 kernel, i32 pid, i32 tid)>& use);

 private:
  struct Ring {
    sys::Fd event;
    sys::Region region;
  };
  std::vector<Ring> rings_;
};

}  // namespace ringside
