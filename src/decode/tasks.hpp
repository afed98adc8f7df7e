// Names of threads: an event carries a number, and the rings' owners give the thread's name. The number is the thread's TID, or
// a number of the instance, where the TID could be another thread's: in other PID namespaces (RingName::elsewhere).
#pragma once
#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "source/source.hpp"
#include "source/world.hpp"
#include "sys/sys.hpp"
#include "sys/text.hpp"

namespace ringside {

struct Task {
  i32 pid = 0, tid = 0;  // as recorded
  std::string name, process;
  Elsewhere elsewhere{};
  std::string cgroup{};
  bool told = false;      // only events have given its name
  bool recorded = false;  // read from a recording: it is no thread of this machine now
  i32 parent = 0;         // the process that made its process, as events give it; 0: unknown
  u32 life = 0;           // changes when another thread has the number, as far as events and changes of names show it
};

// What begins with a new thread.
enum class Birth : u8 { of_thread, of_process, either };

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
    if (ring.kernel && ring.tid > 0 && kernel_counts_apart(ring)) return add_of_kernel(ring, recorded);
    if (ring.apart) {
      any_elsewhere_ = true;
      by_key_[key_of(0, ring.numbering)] = Task{0, 0, ring.task, ring.process, {}, {}, false, recorded};
      return;
    }
    if (ring.cpu < 0)
      add(Task{ring.pid, ring.tid, ring.task, ring.process, ring.elsewhere, ring.cgroup, false, recorded},
          ring.numbering);  // a CPU's ring names no thread
  }
  // A process is identified by its first thread, even if nothing else is known of that thread.
  void add(Task task, u32 numbering = 0) {
    const Elsewhere& e = task.elsewhere;
    if (e.tid != 0) any_elsewhere_ = true;
    const auto key = [&](i32 number) { return e.tid != 0 ? key_of(number, numbering) : plain(number, numbering); };
    by_key_.try_emplace(key(task.pid), Task{task.pid,
                                            task.pid,
                                            task.process,
                                            task.process,
                                            {e.pid, e.pid, e.pid_namespace, e.here_pid, e.here_pid},
                                            task.cgroup,
                                            false,
                                            task.recorded});
    const Key own = key(task.tid);
    cgroups_.erase(own);
    by_key_[own] = std::move(task);
    if (!pending_.empty()) show_before(own);
  }
  // The threads of this WHERE are those of that one, the first of its machine: to be called before any of them. 0 are the first
  // WHERE's, and a number there is a thread's key.
  void are_of(u32 numbering, u32 machine) {
    if (machine != 0) machines_[numbering] = machine, any_elsewhere_ = true;
  }
  u32 machine(u32 numbering) const {
    const auto at = machines_.find(numbering);
    return at == machines_.end() ? 0 : at->second;
  }
  bool several_machines() const { return !machines_.empty(); }
  // The kernel's events of this WHERE are of that run of a recorder, and others of another one, with a time between that nobody
  // recorded. 0: the first WHERE's.
  void is_of_run(u32 numbering, u32 run) { runs_[numbering] = run; }
  u32 run(u32 numbering) const {
    const auto at = runs_.find(numbering);
    return at == runs_.end() ? 0 : at->second;
  }
  bool several_runs() const { return !runs_.empty(); }
  // In this numbering the kernel's events have numbers of the first PID namespace, and everything else those of another one.
  void kernel_counts_apart(u32 numbering) {
    apart_.insert(numbering);
    any_elsewhere_ = true;
    by_key_.try_emplace(key_of(0, outside(numbering)), Task{0, 0, "<idle>", "<idle>"});
  }
  bool kernel_counts_apart(const RingName& ring) const { return !apart_.empty() && apart_.count(ring.numbering) != 0; }
  // A thread of the kernel's events that is not known to be in the recorder's namespace.
  bool is_outside(i32 tid, const RingName& ring) const { return any_elsewhere_ && is_outside(key(tid, ring)); }
  // From `ns` on, a time of the trace, a thread has other names; until then those before.
  void add_change(NameChange change, u64 ns, u32 numbering) {
    RingName ring;
    ring.kernel = change.kernel;
    ring.numbering = numbering;
    const Key of = key(change.tid, ring);
    for (i32* pid : {&change.pid, &change.old_pid})
      if (change.kernel && *pid != 0) *pid = same_numbering(key(*pid, ring), of) ? number_of(key(*pid, ring)) : 0;
    if (ns <= now_) return take(of, change);
    auto& waiting = pending_[of];
    waiting.emplace(std::upper_bound(waiting.begin(), waiting.end(), ns, [](u64 at, const auto& w) { return at < w.first; }),
                    ns, std::move(change));
    due_.emplace(ns, of);
    next_due_ = due_.begin()->first;
    show_before(of);
  }
  bool has_changes() const { return now_ != 0 || !due_.empty(); }
  // The next event is of this time: names are those of then.
  void go_to(u64 ns) {
    at_ = ns;
    if (ns < next_due_ || due_.empty()) [[likely]]
      return;
    for (; !due_.empty() && due_.begin()->first <= ns; due_.erase(due_.begin())) {
      const auto at = pending_.find(due_.begin()->second);
      const NameChange change = std::move(at->second.front().second);
      at->second.pop_front();
      if (at->second.empty()) pending_.erase(at);
      at_ = due_.begin()->first;
      take(due_.begin()->second, change);
    }
    next_due_ = due_.empty() ? ~u64{0} : due_.begin()->first;
    now_ = at_ = ns;
  }
  // The thread's name from now on, as the kernel's events give it. Not `always`: only if nothing else gives it.
  void rename(Key key, std::string_view name, bool always) {
    name = name.substr(0, sys::longest_name);  // each event of the thread shows it
    const auto [at, fresh] = by_key_.try_emplace(key, unnamed(key, std::string(name)));
    Task& task = at->second;
    if (fresh) task.told = true;
    if (task.name == name && keeps_past_ && in_parts_ && in_part_.insert(key).second) remember(key, at_, nullptr, task);
    if (task.name == name || (!always && !task.told)) return;
    const Change change(*this, key, fresh ? nullptr : &task);
    task.name = name;
    if (task.pid == task.tid) task.process = name;
    ++renamed_;
  }
  // A thread begins, made by another one.
  void begin(Key key, Key maker, Birth birth) {
    const auto by = same_numbering(key, maker) ? by_key_.find(maker) : by_key_.end();
    const bool known = by != by_key_.end();
    const i32 process = known ? by->second.pid : number_of(maker), tid = number_of(key);
    const std::string name = known ? by->second.process : "";
    const auto [at, fresh] = by_key_.try_emplace(key, unnamed(key, ""));
    Task& task = at->second;
    const Change change(*this, key, fresh ? nullptr : &task);
    if (fresh) task.told = true;
    if (!fresh) ++task.life, ++renamed_;
    const i32 pid = birth == Birth::of_process || !same_numbering(key, maker) ? tid
                    : birth == Birth::either                               ? task.pid
                    : known || task.pid == tid                             ? process
                                                                           : task.pid;
    const i32 parent = pid == tid && same_numbering(key, maker) ? process : 0;
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
    const Task* const process = task == nullptr || task->parent != 0 ? task : find(with_number(own, task->pid));
    return process != nullptr ? process->parent : 0;
  }
  Key parent(Key thread) const {  // the same
    const Task* const process = find(this->process(thread));
    return process != nullptr && process->parent > 0 ? with_number(thread, process->parent) : 0;
  }
  // From here on remembers what threads were called before, for as_of(): the last 65,536 changes.
  void keep_past() { keeps_past_ = true; }
  // While `use` runs, all names are those of that time, of the trace. Before the first change that is remembered a thread has
  // the name that this change ended, or began.
  template <class Use>
  void as_of(u64 ns, const Use& use) {
    struct At {
      u64 time = 0;
      const Task* task = nullptr;
    };
    std::unordered_map<Key, At> then;
    for (const auto& [key, task] : oldest_) then[key] = {0, &task};
    for (const Past& past : past_) {
      At& at = then[past.key];
      if (at.task == nullptr || (past.time <= ns && (past.time >= at.time || at.time > ns))) at = {past.time, &past.task};
    }
    std::vector<std::pair<Key, Task>> now;
    for (const auto& [key, at] : then) now.emplace_back(key, std::exchange(by_key_[key], *at.task));
    ++renamed_;
    use();
    for (auto& [key, task] : now) by_key_[key] = std::move(task);
    ++renamed_;
  }
  // Those that read parts of the trace; each calls this before a part, and gives what it remembers at the end.
  void begin_part() { in_part_.clear(), in_parts_ = true; }
  void add_past(const Tasks& part) {
    for (const Past& past : part.past_) remember(past.key, past.time, find(past.key), past.task);
  }
  u64 renamed() const { return renamed_; }  // changes with a name or a process: for caches of them
  // The key of a thread that wrote into this ring.
  Key key(i32 tid, const RingName& ring) const {
    if (!any_elsewhere_) [[likely]]
      return tid;
    if (ring.kernel) return key_of_kernel(tid, ring);
    if (ring.apart) return key_of_apart(tid, ring);
    const Key of_its_own = key_of(tid, ring.numbering);
    return by_key_.count(of_its_own) != 0 ? of_its_own : plain(tid, ring.numbering);
  }
  const Task* find(i32 tid, const RingName& ring) const { return find(key(tid, ring)); }
  const Task* find(Key key) const {
    const auto it = by_key_.find(key);
    return it == by_key_.end() ? nullptr : &it->second;
  }
  // The name of a thread that wrote into this ring.
  std::string_view name(i32 tid, const RingName& ring) const {
    if (ring.apart && tid == 0) return ring.task;
    const Task* task = find(tid, ring);
    return task != nullptr ? std::string_view(task->name) : tid == ring.tid ? std::string_view(ring.task) : "<...>";
  }
  // The thread's process.
  Key process(i32 tid, const RingName& ring) const {
    const Key own = key(tid, ring);
    const Task* task = find(own);
    return task == nullptr ? ring.pid : with_number(own, task->pid);
  }

  // Whether any thread's number differs from the TID that the reader sees.
  bool any_elsewhere() const { return any_elsewhere_; }
  Key process(Key thread) const {
    const Task* const task = find(thread);
    return task == nullptr ? thread : with_number(thread, task->pid);
  }

  // The TID that the reader sees, where there is one.
  i32 seen(i32 tid, const RingName& ring) const {
    if (!any_elsewhere_) [[likely]]
      return tid;
    const Key own = key(tid, ring);
    const Task* task = find(own);
    return task != nullptr ? task->elsewhere.seen_tid(number_of(own)) : number_of(own);
  }
  i32 seen_process(i32 tid, const RingName& ring) const {
    const Task* task = find(tid, ring);
    return task != nullptr ? task->elsewhere.seen_pid(task->pid) : ring.pid;
  }
  // The number for people: Elsewhere::show_tid. For a process, its first thread's.
  std::string show(Key key) const {
    if (!any_elsewhere_) return std::to_string(key);
    const Task* const task = find(key);
    return (task != nullptr ? task->elsewhere : unnamed(key, "").elsewhere).show_tid(number_of(key));
  }

  // The threads live on this machine, so their cgroups can be looked up.
  void are_here() { here_ = true; }
  // Empty: unknown. Looked up once for each thread, and again when the thread is named again.
  std::string_view cgroup(i32 tid, const RingName& ring) const { return cgroup(key(tid, ring)); }
  std::string_view cgroup(Key own) const {
    const Task* task = find(own);
    if (task != nullptr && !task->cgroup.empty()) return task->cgroup;
    if (!here_ || (task != nullptr && task->recorded)) return {};
    if (cgroups_.size() >= most_cgroups && cgroups_.count(own) == 0) cgroups_.clear();
    const auto [at, fresh] = cgroups_.try_emplace(own);
    const bool away = task != nullptr && task->elsewhere.tid != 0 && task->elsewhere.here_tid == 0;
    if (fresh && !away) at->second = sys::cgroup_of(task != nullptr ? task->elsewhere.seen_tid(number_of(own)) : number_of(own));
    return at->second;
  }

 private:
  struct Past {
    u64 time = 0;
    Key key = 0;
    Task task;  // from then on
  };
  static constexpr size_t most_past = 65536;
  void remember(Key key, u64 time, const Task* before, const Task& now) {
    if (before != nullptr) oldest_.try_emplace(key, *before);
    past_.push_back({time, key, now});
    if (past_.size() <= most_past) return;
    oldest_[past_.front().key] = std::move(past_.front().task);
    past_.pop_front();
  }
  // What happens to a thread as long as this lives. before: null: it is new.
  class Change {
   public:
    Change(Tasks& tasks, Key key, const Task* before) : tasks_(tasks), key_(key) {
      if (tasks.keeps_past_ && before != nullptr) tasks.oldest_.try_emplace(key, *before);
    }
    ~Change() {
      if (!tasks_.keeps_past_) return;
      tasks_.remember(key_, tasks_.at_, nullptr, tasks_.by_key_.find(key_)->second);
      if (tasks_.in_parts_) tasks_.in_part_.insert(key_);
    }
    Change(const Change&) = delete;
    Change& operator=(const Change&) = delete;

   private:
    Tasks& tasks_;
    Key key_;
  };
  void take(Key key, i32 pid, const std::string& name, const std::string& process) {
    if (name.empty()) return;
    const auto [at, fresh] = by_key_.try_emplace(key, unnamed(key, name));
    Task& task = at->second;
    const Change change(*this, key, fresh ? nullptr : &task);
    if (pid != 0) task.pid = pid;
    task.name = name;
    if (pid != 0)
      task.process = process;
    else if (task.pid == task.tid)
      task.process = name;
    ++renamed_;
  }
  // By its names alone an exec looks like another process: only a thread of another one is certainly another.
  void take(Key key, const NameChange& change) {
    take(key, change.pid, change.task, change.process);
    const bool begins = change.kernel && change.old_task.empty();
    const auto at = by_key_.find(key);
    if (at != by_key_.end() && (begins || (change.pid != 0 && change.old_pid != 0 && change.pid != change.old_pid)))
      ++at->second.life;
  }
  // The names before the next change that is known.
  void show_before(Key key) {
    const auto at = pending_.find(key);
    if (at == pending_.end()) return;
    const NameChange& next = at->second.front().second;
    if (next.old_task.empty()) return take(key, 0, next.task, "");  // it begins: a sample may be a little older
    take(key, next.old_pid, next.old_task, next.old_process);
  }
  static constexpr size_t most_cgroups = 65536;  // a live view may run for weeks
  static Key key_of(i32 number, u32 numbering) { return (Key{numbering} + 1) << 32 | static_cast<u32>(number); }
  Key plain(i32 number, u32 numbering) const {
    const u32 of = number > 0 ? machine(numbering) : 0;
    return of == 0 ? number : key_of(number, of);
  }
  static i32 number_of(Key key) { return static_cast<i32>(static_cast<u32>(key)); }
  static bool is_plain(Key key) { return key == number_of(key); }
  static bool same_numbering(Key a, Key b) { return is_plain(a) ? is_plain(b) : !is_plain(b) && a >> 32 == b >> 32; }
  static Key with_number(Key key, i32 number) {
    return is_plain(key) ? number : (key & ~Key{0xFFFFFFFF}) | static_cast<u32>(number);
  }
  // Of a thread of the kernel's events that is in no namespace of the recorder's: numberings are even (Timeline::Origin::ids).
  static u32 outside(u32 numbering) { return numbering + 1; }
  static bool is_outside(Key key) { return !is_plain(key) && ((key >> 32) - 1) % 2 == 1; }
  static Task unnamed(Key key, std::string name) {
    const i32 number = number_of(key);
    Task task{number, number, name, std::move(name)};
    if (is_outside(key)) task.elsewhere = {number, number, World::first_pid_namespace, 0, 0};
    return task;
  }
  Key key_of_kernel(i32 number, const RingName& ring) const {
    if (number < 0 || !kernel_counts_apart(ring)) return plain(number, ring.numbering);
    const Key own = key_of(number, outside(ring.numbering));
    const auto at = here_of_.find(own);
    return at != here_of_.end() ? plain(at->second, ring.numbering) : own;
  }
  Key key_of_apart(i32 number, const RingName& ring) const {
    const Task* const here = number > 0 && ring.pid > 0 ? find(Key{number}) : nullptr;
    return here != nullptr && here->pid == ring.pid ? Key{number} : key_of(number, ring.numbering);
  }
  // A thread by the number that the kernel's events have, and by that of the recorder's namespace, if it is in there.
  void add_of_kernel(const RingName& thread, bool recorded) {
    const Elsewhere& e = thread.elsewhere;
    Task task{thread.pid, thread.tid, thread.task, thread.process, {}, thread.cgroup, false, recorded};
    if (e.here_tid == 0) {
      task.elsewhere = {thread.tid, thread.pid, World::first_pid_namespace, 0, 0};
      return add(std::move(task), outside(thread.numbering));
    }
    here_of_[key_of(thread.tid, outside(thread.numbering))] = e.here_tid;
    task.tid = e.here_tid;
    task.pid = e.here_pid;
    if (!task.name.empty() && by_key_.count(plain(task.tid, thread.numbering)) == 0) add(std::move(task), thread.numbering);
  }
  std::unordered_map<Key, Task> by_key_;
  mutable std::unordered_map<Key, std::string> cgroups_;
  std::set<u32> apart_;
  std::unordered_map<u32, u32> runs_;      // of a WHERE's numbering
  std::unordered_map<u32, u32> machines_;  // of a WHERE's numbering: that of its machine's first WHERE
  std::unordered_map<Key, i32> here_of_;  // the recorder's number of a thread of the kernel's events
  std::unordered_map<Key, std::deque<std::pair<u64, NameChange>>> pending_;  // by time
  std::multimap<u64, Key> due_;
  u64 next_due_ = ~u64{0};  // the first of them
  u64 now_ = 0;  // the last time that a name changed at
  u64 at_ = 0;   // of the last event
  std::deque<Past> past_;                 // what is remembered, by the time that it was read
  std::unordered_map<Key, Task> oldest_;  // before that
  std::unordered_set<Key> in_part_;       // named in this part
  bool keeps_past_ = false, in_parts_ = false;
  u64 renamed_ = 0;
  bool any_elsewhere_ = false, here_ = false;
};

}  // namespace ringside
