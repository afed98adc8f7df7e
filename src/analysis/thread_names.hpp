// Names of threads at each moment of a trace, from the changes that its writers and its recorder have noted (NameChange), and
// from the kernel's events that have names: switches and wake-ups, forks, exec,
// task:task_rename. And the process of a thread and its parent, from task:task_newtask; sched:sched_process_fork does not keep
// threads and processes apart, and names the parent alone. A short-lived thread has its name from its fork or first switch on,
// a thread that executes another program the program's from there on.
//
// Before the first such event a thread has the name that look_ahead() found: the one that this event mentions, or ends
// (task_rename's oldcomm). It is <...> before an exec that nothing precedes: no event has the name of the program before.
// Without look_ahead(), as in a live trace, a thread has the name that it was recorded with, or has now. Then a trace without
// exec and task_rename does not say when a name ends, and events name only threads that have no other name.
//
//   names.look_ahead(*source, origin, 0, ~u64{0}, over, firsts);   // each ring by itself
//   names.begin(firsts);
//   names.see(record, ring);   // every record in its order, before it is used
//
// Thread-safety: none.
#pragma once
#include <algorithm>
#include <array>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "analysis/integer_at.hpp"
#include "decode/formats.hpp"
#include "decode/id_table.hpp"
#include "decode/tasks.hpp"
#include "timeline/merge.hpp"

namespace ringside {

// Columns that such events fill: their values depend on what was before.
constexpr std::string_view told_by_events[] = {"comm", "COMM", "task", "thread", "process", "cgroup"};
inline bool is_told(std::string_view column) {
  return std::find(std::begin(told_by_events), std::end(told_by_events), column) != std::end(told_by_events);
}

class ThreadNames {
 public:
  // Both must outlive it.
  ThreadNames(const Formats& formats, Tasks& tasks) : formats_(formats), tasks_(tasks) {}

  void see(const TraceRecord& record, const RingName& ring) {
    tasks_.go_to(record.time);
    if (!ring.kernel || record.lost != 0) return;
    const Kind& kind = kind_of(record.number());
    if (kind.threads != 0) learn(record, ring, kind);
  }
  struct Mention {
    u64 time = 0;
    std::string name{};  // empty: unknown
  };
  using Firsts = std::unordered_map<Tasks::Key, Mention>;  // of each thread, the earliest in [from, until] or soon after
  bool tells() const;                                      // the trace has such events
  // Reads a ring of its own. Times are the timeline's. over: asked now and then; true ends it.
  void look_ahead(Source& source, const Timeline::Origin& origin, u64 from, u64 until, const std::function<bool()>& over,
                  Firsts& firsts);
  // Before the first record: these are the names until events give others.
  void begin(const Firsts& firsts);
  // From now on a later part of the trace is read, with nothing of what is between.
  void skip() {
    std::fill(told_.begin(), told_.end(), Told());
    tasks_.begin_part();
    in_parts_ = true;
  }
  // Takes over the last names of the parts, of which each thread reads some.
  void add(const ThreadNames& parts);

 private:
  struct Kind {
    bool known = false, is_path = false;
    enum : u8 { no_birth, by_fork, by_newtask } birth = no_birth;
    u8 threads = 0;
    IntegerAt tid[2];
    const Field* name[2] = {};
    const Field* before[2] = {};
    IntegerAt flags;  // task_newtask: clone_flags
  };
  // The last names of some threads: most events bring nothing new.
  struct Told {
    i32 tid = 0;
    u32 length = 0;
    std::array<char, 16> name{};
  };

  const Kind& kind_of(u32 id) {
    Kind& kind = kinds_.at(id, formats_.version());
    if (!kind.known) [[unlikely]]
      find(id, kind);
    return kind;
  }
  void find(u32 id, Kind& kind);
  void learn(const TraceRecord& record, const RingName& ring, const Kind& kind);
  void learn_birth(const TraceRecord& record, const RingName& ring, const Kind& kind);

  const Formats& formats_;
  Tasks& tasks_;
  IdTable<Kind> kinds_;
  bool tells_changes_ = false;  // the trace has exec or task_rename
  std::vector<Told> told_ = std::vector<Told>(1021);
  bool in_parts_ = false;
  bool begun_ = false;
  Firsts last_;  // of parts: the last mentions
};

}  // namespace ringside
