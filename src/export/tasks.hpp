// Names of threads: an event carries a tid, the rings' owners say what it is called.
#pragma once
#include <string>
#include <unordered_map>

#include "source/source.hpp"

namespace ringside {

struct Task {
  i32 pid = 0, tid = 0;
  std::string name, process;
};

class Tasks {
 public:
  void add(const RingName& ring) { by_tid_[ring.tid] = {ring.pid, ring.tid, ring.task, ring.process}; }
  void add(Task task) { by_tid_[task.tid] = std::move(task); }
  const Task* find(i32 tid) const {
    const auto it = by_tid_.find(tid);
    return it == by_tid_.end() ? nullptr : &it->second;
  }

 private:
  std::unordered_map<i32, Task> by_tid_;
};

}  // namespace ringside
