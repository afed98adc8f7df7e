// Names of threads: an event carries a number, the rings' owners say what it is called. The number is the thread's TID, or one of the
// instance's, where that could be another thread's: in other PID namespaces (RingName::elsewhere).
#pragma once
#include <string>
#include <string_view>
#include <unordered_map>

#include "source/source.hpp"
#include "sys/sys.hpp"

namespace ringside {

struct Task {
  i32 pid = 0, tid = 0;  // as recorded
  std::string name, process;
  Elsewhere elsewhere{};
  std::string cgroup{};
  bool recorded = false;  // the machine's threads of today are others
};

class Tasks {
 public:
  // A thread among all that are known: its number; with elsewhere, also whose numbers those are.
  using Key = i64;

  // What is of recordings: their threads are not looked for on this machine.
  void add_recorded(RingName ring, u32 numbering) {
    ring.numbering = numbering;
    add(ring, true);
  }
  void add(RingName ring, u32 numbering) {
    ring.numbering = numbering;
    add(ring);
  }
  void add(const RingName& ring, bool recorded = false) {
    if (ring.cpu < 0) add(Task{ring.pid, ring.tid, ring.task, ring.process, ring.elsewhere, ring.cgroup, recorded}, ring.numbering);  // a CPU's ring names no thread
  }
  // A process is known by its first thread, also while nothing else is known of that.
  void add(Task task, u32 numbering = 0) {
    const Elsewhere& e = task.elsewhere;
    if (e.tid != 0) any_elsewhere_ = true;
    const auto key = [&](i32 number) { return e.tid != 0 ? key_of(number, numbering) : number; };
    by_key_.try_emplace(key(task.pid), Task{task.pid, task.pid, task.process, task.process, {e.pid, e.pid, e.pid_namespace, e.here_pid, e.here_pid}, task.cgroup, task.recorded});
    cgroups_.erase(key(task.tid));
    by_key_[key(task.tid)] = std::move(task);
  }
  // Of a thread that wrote into this ring.
  Key key(i32 tid, const RingName& ring) const {
    if (!any_elsewhere_ || ring.kernel) [[likely]]  // the kernel's have no others
      return tid;
    const Key of_its_own = key_of(tid, ring.numbering);
    return by_key_.count(of_its_own) != 0 ? of_its_own : tid;
  }
  const Task* find(i32 tid, const RingName& ring) const { return find(key(tid, ring)); }
  const Task* find(Key key) const {
    const auto it = by_key_.find(key);
    return it == by_key_.end() ? nullptr : &it->second;
  }
  // What a thread that wrote into this ring is called.
  std::string_view name(i32 tid, const RingName& ring) const {
    const Task* task = find(tid, ring);
    return task != nullptr ? std::string_view(task->name) : tid == ring.tid ? std::string_view(ring.task) : "<...>";
  }
  // The process that it is of.
  Key process(i32 tid, const RingName& ring) const {
    const Key own = key(tid, ring);
    const Task* task = find(own);
    return task == nullptr ? ring.pid : own == tid ? task->pid : key_of(task->pid, ring.numbering);
  }

  // Does any thread bear a number that is not the one that the reader knows it by?
  bool any_elsewhere() const { return any_elsewhere_; }
  // The numbers that the reader knows, where he can.
  i32 seen(i32 tid, const RingName& ring) const {
    if (!any_elsewhere_) [[likely]]
      return tid;
    const Task* task = find(tid, ring);
    return task != nullptr ? task->elsewhere.seen_tid(tid) : tid;
  }
  i32 seen_process(i32 tid, const RingName& ring) const {
    const Task* task = find(tid, ring);
    return task != nullptr ? task->elsewhere.seen_pid(task->pid) : ring.pid;
  }
  // As people read it: Elsewhere::show_tid. Of a process by its first thread.
  std::string show(Key key) const {
    const Task* task = any_elsewhere_ ? find(key) : nullptr;
    const auto number = static_cast<i32>(key & 0xFFFFFFFF);
    return task != nullptr ? task->elsewhere.show_tid(number) : std::to_string(number);
  }

  // The threads of what is read live here, so their cgroups can be looked up.
  void are_here() { here_ = true; }
  // Empty: unknown. Looked up once for each thread, and again when its name is told anew.
  std::string_view cgroup(i32 tid, const RingName& ring) const {
    const Key own = key(tid, ring);
    const Task* task = find(own);
    if (task != nullptr && !task->cgroup.empty()) return task->cgroup;
    if (!here_ || (task != nullptr && task->recorded)) return {};
    if (cgroups_.size() >= most_cgroups && cgroups_.count(own) == 0) cgroups_.clear();
    const auto [at, fresh] = cgroups_.try_emplace(own);
    const bool away = task != nullptr && task->elsewhere.tid != 0 && task->elsewhere.here_tid == 0;
    if (fresh && !away) at->second = sys::cgroup_of(task != nullptr ? task->elsewhere.seen_tid(tid) : tid);
    return at->second;
  }

 private:
  static constexpr size_t most_cgroups = 65536;  // a live view may run for weeks
  static Key key_of(i32 number, u32 numbering) { return (Key{numbering} + 1) << 32 | static_cast<u32>(number); }
  std::unordered_map<Key, Task> by_key_;
  mutable std::unordered_map<Key, std::string> cgroups_;
  bool any_elsewhere_ = false, here_ = false;
};

}  // namespace ringside
