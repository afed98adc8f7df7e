// The CPU on which a thread runs at a time, from the kernel's sched events of the same trace: for threads whose rings are no
// CPU's. sched_switch names the threads that run from now on and no longer, sched_migrate_task the CPU that a thread runs on
// next.
//
//   running.see(record, ring);   // every record in its order; sets record.cpu where it is known
//
// What they omit stays unknown: before the first switch to a thread, after a switch from it, and after a loss in the ring of
// its CPU. Threads that the reader does not see (of other PID namespaces) have numbers that may be another thread's: unknown.
// Thread-safety: none.
#pragma once
#include <unordered_map>
#include <vector>

#include "decode/id_table.hpp"
#include "analysis/integer_at.hpp"
#include "decode/formats.hpp"
#include "decode/tasks.hpp"
#include "timeline/merge.hpp"

namespace ringside {

class RunningThreads {
 public:
  // Both must outlive it.
  RunningThreads(const Formats& formats, const Tasks& tasks) : formats_(formats), tasks_(tasks) {}

  void see(TraceRecord& record, const RingName& ring) {
    if (ring.kernel)
      learn(record, ring);
    else if (ring.cpu < 0 && record.lost == 0 && !cpus_.empty())
      record.cpu = cpu_of(record, ring);
  }

 private:
  struct Kind {
    enum : u8 { unknown, other, run, migrate } is = unknown;  // `switch` is a keyword
    IntegerAt from, to;  // prev_pid, next_pid; pid, dest_cpu
  };
  struct Where {
    i32 cpu = -1;
    bool by_migration = false;  // any CPU reports its departure
  };

  void learn(const TraceRecord& record, const RingName& ring);
  void lose(i32 cpu);
  void find(u32 id, Kind& kind) const;
  i32 cpu_of(const TraceRecord& record, const RingName& ring) const;

  const Formats& formats_;
  const Tasks& tasks_;
  IdTable<Kind> kinds_;
  std::unordered_map<Tasks::Key, Where> cpus_;
  std::vector<Tasks::Key> on_;  // the thread that was switched to, by CPU; 0: none
};

}  // namespace ringside
