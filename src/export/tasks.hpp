// Names of threads: an event carries a tid, the rings' owners say what it is called.
#pragma once
#include <string>
#include <string_view>
#include <unordered_map>

#include "source/source.hpp"

namespace ringside {

struct Task {
  i32 pid = 0, tid = 0;
  std::string name, process;
};

class Tasks {
 public:
  void add(const RingName& ring) {
    if (ring.cpu < 0) add(Task{ring.pid, ring.tid, ring.task, ring.process});  // a CPU's ring names no thread
  }
  // A process is known by its first thread, also while nothing else is known of that.
  void add(Task task) {
    by_tid_.try_emplace(task.pid, Task{task.pid, task.pid, task.process, task.process});
    by_tid_[task.tid] = std::move(task);
  }
  const Task* find(i32 tid) const {
    const auto it = by_tid_.find(tid);
    return it == by_tid_.end() ? nullptr : &it->second;
  }
  // What a thread that wrote into this ring is called.
  std::string_view name(i32 tid, const RingName& ring) const {
    const Task* task = find(tid);
    return task != nullptr ? std::string_view(task->name) : tid == ring.tid ? std::string_view(ring.task) : "<...>";
  }

 private:
  std::unordered_map<i32, Task> by_tid_;
};

}  // namespace ringside
