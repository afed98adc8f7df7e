// The kernel's events that threads of this process cause while they read: system calls, page faults, wake-ups. They are left
// out where they are read, not where the kernel writes them: set_event_notrace_pid would also lose the events of interrupts that
// hit these threads, and those of the scheduler.
#pragma once
#include <algorithm>
#include <memory>
#include <ringside/base/types.hpp>
#include <vector>

#include "source/source.hpp"

namespace ringside {

class KernelNumbers;

class OwnTasks {
 public:
  // events: those that may come. The scheduler's stay.
  void add_events(const std::vector<EventInfo>& events);
  void add(i32 tid);       // a thread of this process
  void add_all_threads();  // that there are now; reads /proc, at most ten times a second
  bool causes_events = true;  // false: tracing is off
  bool has(Bytes payload) const {
    struct {
      u16 type;
      u8 flags, preempt_count;
      i32 pid;
    } common{};
    if (payload.size < sizeof common) return false;
    __builtin_memcpy(&common, payload.data, sizeof common);
    return (common.flags & in_interrupt) == 0 && std::binary_search(tids_.begin(), tids_.end(), common.pid) &&
           !std::binary_search(kept_.begin(), kept_.end(), common.type);
  }

 private:
  static constexpr u8 in_interrupt = 0x08 | 0x10 | 0x40;  // TRACE_FLAG_HARDIRQ, _SOFTIRQ, _NMI of the kernel's trace_events.h
  std::vector<i32> tids_;                                 // the kernel's numbers of them
  std::shared_ptr<KernelNumbers> numbers_;
  std::vector<u16> kept_;
  u64 looked_ns_ = 0;
};

}  // namespace ringside
