// Names of threads: an event carries a number, and the rings' owners give the thread's name. The number is the thread's TID, or
// a number of the instance, where the TID could be another thread's: in other PID namespaces (RingName::elsewhere).
#pragma once
#include <string>
#include <string_view>
#include <unordered_map>

#include "source/source.hpp"
#include "sys/sys.hpp"
#include "sys/text.hpp"

namespace ringside {

struct Task {
  i32 pid = 0, tid = 0;  // as recorded
  std::string name, process;
  Elsewhere elsewhere{};
  std::string cgroup{};
  bool told = false;      // only events have told its name
  bool recorded = false;  // read from a recording: it is no thread of this machine now
  i32 parent = 0;         // the process that made its process, as events tell it; 0: unknown
};

// What begins with a new thread.
enum class Birth : u8 { thread, process, either };

class Tasks {
 public:
  // Identifies a thread among all known ones: its number and, with elsewhere, the source of that number.
  using Key = i64;

  // Adds a recording's ring: its threads are not looked up on this machine.
  void add_recorded(RingName ring, u32 numbering) {
    ring.numbering = numbering;
    add(ring, true);
  }
  void add(RingName ring, u32 numbering) {
    ring.numbering = numbering;
    add(ring);
  }
  void add(const RingName& ring, bool recorded = false) {
    if (ring.cpu < 0)
      add(Task{ring.pid, ring.tid, ring.task, ring.process, ring.elsewhere, ring.cgroup, false, recorded},
          ring.numbering);  // a CPU's ring names no thread
  }
  // A process is identified by its first thread, even if nothing else is known of that thread.
  void add(Task task, u32 numbering = 0) {
    const Elsewhere& e = task.elsewhere;
    if (e.tid != 0) any_elsewhere_ = true;
    const auto key = [&](i32 number) { return e.tid != 0 ? key_of(number, numbering) : number; };
    by_key_.try_emplace(key(task.pid), Task{task.pid,
                                            task.pid,
                                            task.process,
                                            task.process,
                                            {e.pid, e.pid, e.pid_namespace, e.here_pid, e.here_pid},
                                            task.cgroup,
                                            false,
                                            task.recorded});
    cgroups_.erase(key(task.tid));
    by_key_[key(task.tid)] = std::move(task);
  }
  // The thread's name from now on, as the kernel's events tell it: a TID of this machine. Not `always`: only if nothing else
  // tells it.
  void rename(i32 tid, std::string_view name, bool always) {
    name = name.substr(0, sys::longest_name);  // each event of the thread shows it
    const auto [at, fresh] = by_key_.try_emplace(tid, Task{tid, tid, "", std::string(name)});
    Task& task = at->second;
    if (fresh) task.told = true;
    if (task.name == name || (!always && !task.told)) return;
    task.name = name;
    if (task.pid == tid) task.process = name;
    ++renamed_;
  }
  // A thread begins, made by another one: both TIDs of this machine.
  void begin(i32 tid, i32 maker, Birth birth) {
    const auto by = by_key_.find(maker);
    const bool known = by != by_key_.end();
    const i32 process = known ? by->second.pid : maker;
    const std::string name = known ? by->second.process : "";
    const auto [at, fresh] = by_key_.try_emplace(tid, Task{tid, tid, "", ""});
    Task& task = at->second;
    if (fresh) task.told = true;
    const i32 pid = birth == Birth::process    ? tid
                    : birth == Birth::either   ? task.pid
                    : known || task.pid == tid ? process
                                               : task.pid;
    const i32 parent = pid == tid ? process : 0;
    if (task.pid == pid && task.parent == parent) return;
    task.pid = pid;
    task.parent = parent;
    if (pid == process) task.process = name;
    ++renamed_;
  }
  // The process that made this thread's process; 0: unknown.
  i32 parent(i32 tid, const RingName& ring) const {
    const Key own = key(tid, ring);
    const Task* const task = find(own);
    const Task* const process = task == nullptr || task->parent != 0 ? task : find(own - tid + task->pid);
    return process != nullptr ? process->parent : 0;
  }
  u64 renamed() const { return renamed_; }  // changes with a name or a process: for caches of them
  // The key of a thread that wrote into this ring.
  Key key(i32 tid, const RingName& ring) const {
    if (!any_elsewhere_ || ring.kernel) [[likely]]  // kernel events have TIDs only
      return tid;
    const Key of_its_own = key_of(tid, ring.numbering);
    return by_key_.count(of_its_own) != 0 ? of_its_own : tid;
  }
  const Task* find(i32 tid, const RingName& ring) const { return find(key(tid, ring)); }
  const Task* find(Key key) const {
    const auto it = by_key_.find(key);
    return it == by_key_.end() ? nullptr : &it->second;
  }
  // The name of a thread that wrote into this ring.
  std::string_view name(i32 tid, const RingName& ring) const {
    const Task* task = find(tid, ring);
    return task != nullptr ? std::string_view(task->name) : tid == ring.tid ? std::string_view(ring.task) : "<...>";
  }
  // The thread's process.
  Key process(i32 tid, const RingName& ring) const {
    const Key own = key(tid, ring);
    const Task* task = find(own);
    return task == nullptr ? ring.pid : own == tid ? task->pid : key_of(task->pid, ring.numbering);
  }

  // Whether any thread's number differs from the TID that the reader sees.
  bool any_elsewhere() const { return any_elsewhere_; }
  // The TID that the reader sees, where there is one.
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
  // The number for people: Elsewhere::show_tid. For a process, its first thread's.
  std::string show(Key key) const {
    const Task* task = any_elsewhere_ ? find(key) : nullptr;
    const auto number = static_cast<i32>(key & 0xFFFFFFFF);
    return task != nullptr ? task->elsewhere.show_tid(number) : std::to_string(number);
  }

  // The threads live on this machine, so their cgroups can be looked up.
  void are_here() { here_ = true; }
  // Empty: unknown. Looked up once for each thread, and again when the thread is named again.
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
  u64 renamed_ = 0;
  bool any_elsewhere_ = false, here_ = false;
};

}  // namespace ringside
