// A tracefs instance of this process: made and set up here, removed with the object.
//
//   auto mine = must(TracefsInstance::create({}));            // /sys/kernel/tracing/instances/ringside-PID, nothing enabled
//   must(mine.enable(EventPattern("sched:sched_*")));
//   must(mine.tracing(true));
//
// The top-level buffer and other instances are never touched. As long as the object lives, a file of the instance is open, so
// the kernel refuses to remove it, from any PID namespace. If a run cannot remove its instance (SIGKILL), the next run removes
// it: every instance with a name given here that the kernel allows to remove. tracefs is mounted if it is not and this process
// may.
#pragma once
#include <functional>
#include <memory>
#include <ringside/thread.hpp>
#include <string>
#include <vector>

#include "kernel/kernel_events.hpp"
#include "schema/event_pattern.hpp"
#include "source/source.hpp"
#include "sys/sys.hpp"

struct tracefs_instance;

namespace ringside {

struct TracefsOptions {
  std::string prefix = "ringside-";  // followed by the pid, and .N if that is taken
  u64 buffer_size = 4 << 20;         // bytes of events for each CPU
  u32 subbuf_size = 4096;            // 4 to 512 KiB; always 4 KiB before Linux 6.8
  bool overwrite = true;             // a full ring loses the oldest events; false: it refuses new ones
  ClockKind clock = ClockKind::tsc;
  bool own_events = false;           // also what the opening thread causes itself
  bool only_followed = false;  // no events but of processes given to follow()
  bool files = false;          // of a live reading: FileCalls beside it
  int buffer_percent = 0;  // how full a ring must be to wake its waiters; 0: any event
};

// Calls of the kernel's functions: names, with * and ?.
struct FunctionChoice {
  std::vector<std::string> functions{};   // none: no calls
  std::string tracer = "function_graph";  // or function: without the ends of calls
  u32 depth = 0;                          // at most this many below each other; 0: any
};

// The directory of tracefs, mounted if necessary; an error contains a remedy.
result<std::string> tracefs_dir();

class KernelNumbers;

class TracefsInstance {
 public:
  static result<TracefsInstance> create(const TracefsOptions& options);
  TracefsInstance(TracefsInstance&& other) noexcept;
  TracefsInstance& operator=(TracefsInstance&&) = delete;
  ~TracefsInstance();  // tracing off, everything removed; sources on it must be gone before (else the kernel answers EBUSY)

  const std::string& dir() const { return dir_; }  // full path
  const std::vector<u32>& cpus() const { return cpus_; }

  // Enables the pattern's events and returns them (none: no such event). With a filter in the kernel's language
  // ("prev_pid != 0 && comm ~ \"a*\"") only events that pass it; an event that lacks a field of the filter is an error. Its
  // clauses may be of some events alone (schema/filter_clauses.hpp).
  result<std::vector<EventInfo>> enable(const EventPattern& pattern, const std::string& filter = "");
  result<void> tracing(bool on);
  // From now on, records only events of this thread and its descendants. Another call adds a thread. Safe between fork and
  // exec of a program with one thread. In another PID namespace than the first an error says if that thread cannot be found.
  result<void> follow(i32 pid, bool also = true) { return follow_thread(pid, pid, also); }  // also: besides those before
  result<void> follow_process(i32 pid);            // all threads that it has now, and what they start
  // After each of the chosen events the kernel writes its stack (ftrace:kernel_stack); if all are chosen, also the user's
  // (ftrace:user_stack), as far as frame pointers lead.
  result<void> record_stacks(const std::vector<EventInfo>& events, const std::function<bool(const EventInfo&)>& chosen,
                             bool all, const std::string& filter);
  // From now on calls of these functions are events, too, of the followed threads if there are any.
  result<void> trace_functions(const FunctionChoice& choice);
  // Records no events of this thread (a recorder's own). Before follow(): later ones of its children are not recorded either.
  result<void> ignore_own();
  result<void> follow_none();  // the same, and none of any other process until follow()
  result<void> remove();  // like the destructor; if it fails, the next create() after this process's death removes the instance
  // Recording begins when this thread's next read() of one byte returns. False: this kernel cannot do that. While it waits, all
  // system calls of the machine take the slow way; to forget it takes up to 0.1 s, as the kernel waits for all processors.
  bool begin_after_read(i32 number);
  void forget_read();
  // In another PID namespace than the first: which thread of this one the kernel's events mean. Null: it is unknown, or the
  // kernel's numbers are this process's.
  KernelNumbers* numbers();
  result<i32> number_of(i32 pid, i32 tid);  // by which the kernel's events name a thread of this namespace
  result<void> write(const char* file, const std::string& text, bool append = false);

 private:
  TracefsInstance(tracefs_instance* handle, std::string dir, sys::Fd held);
  result<void> set_up(const TracefsOptions& options);
  result<void> follow_thread(i32 pid, i32 tid, bool also);
  std::string last_error() const;

  tracefs_instance* handle_;
  std::string dir_;
  sys::Fd held_;
  std::vector<u32> cpus_;
  std::shared_ptr<KernelNumbers> numbers_;
  bool traces_functions_ = false;
};

// The directories of all instances, not only of those made here.
std::vector<std::string> kernel_instances();

// The directory of an instance by name or by path; empty: there is none.
std::string find_kernel_instance(const std::string& where);

// Removes instances "PREFIXPID", and those of the commands, that no process holds; returns their number.
u32 remove_stale_instances(const std::string& prefix = "ringside-");

}  // namespace ringside
