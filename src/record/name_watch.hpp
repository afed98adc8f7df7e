// When threads got their names, of a recording of the kernel's events, which carry none: a second instance of the kernel's with
// task:task_newtask and task:task_rename alone, which the recorder reads and keeps to itself.
#pragma once
#include <deque>
#include <memory>
#include <unordered_set>
#include <vector>

#include "analysis/integer_at.hpp"
#include "decode/formats.hpp"
#include "kernel/kernel_source.hpp"
#include "kernel/tracefs_instance.hpp"

namespace ringside {

class NameWatch {
 public:
  // It records nothing yet. pids: only these processes; will_follow: none until follow(). Neither: all.
  static result<std::unique_ptr<NameWatch>> create(const ClockInfo& clock, const std::vector<i32>& pids, bool will_follow);
  ~NameWatch();
  result<void> remove();  // the kernel's instance; the names stay
  const std::string& dir() const { return instance_.dir(); }
  result<void> follow(i32 pid) { return instance_.follow(pid, false); }
  result<void> on() { return instance_.tracing(true); }
  void take();  // what the kernel has noted since
  const std::deque<NameChange>& names() const { return names_; }

 private:
  NameWatch(TracefsInstance instance) : instance_(std::move(instance)) {}
  struct Kind {
    u16 id = 0;
    IntegerAt tid, flags;  // flags: of clone(), in task_newtask
    const Field *name = nullptr, *old_name = nullptr;
  };
  result<void> learn(const char* event, Kind& kind, const char* name, const char* other);
  void note(u64 time, Bytes payload);

  TracefsInstance instance_;
  Formats formats_;
  Kind begun_, renamed_;
  std::vector<std::unique_ptr<KernelSource>> sources_;
  std::deque<NameChange> names_;
  std::unordered_set<i32> noted_;  // the threads in them
};

}  // namespace ringside
