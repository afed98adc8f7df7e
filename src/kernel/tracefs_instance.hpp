// An instance of tracefs that is ours: made here, set up here, gone with the object.
//
//   auto mine = must(TracefsInstance::create({}));            // /sys/kernel/tracing/instances/ringside-PID, nothing enabled
//   must(mine.enable(EventPattern("sched:sched_*")));
//   must(mine.tracing(true));
//
// The top-level buffer and other people's instances are never touched. From when it is made to its end a file of it is open: so the
// kernel refuses to remove it, whoever asks from whatever PID namespace. What an earlier run could not remove (SIGKILL) the next one
// removes: of the names that are given here, whatever the kernel lets go. tracefs is mounted if it is not and we may.
#pragma once
#include <memory>
#include <ringside/thread.hpp>
#include <string>
#include <vector>

#include "schema/event_pattern.hpp"
#include "source/source.hpp"
#include "sys/sys.hpp"

struct tracefs_instance;

namespace ringside {

struct TracefsOptions {
  std::string prefix = "ringside-";  // the pid is put behind it, and .N if that is taken
  u64 buffer_size = 4 << 20;         // bytes of events for each CPU
  u32 subbuf_size = 4096;            // 4 to 512 KiB; always 4 KiB before Linux 6.8
  bool overwrite = true;             // a full ring loses the oldest events; false: refuses the new
  ClockKind clock = ClockKind::tsc;
  bool own_events = false;           // also those of the thread that opens it, and of interrupts that come while it runs
  int buffer_percent = 0;  // how full a ring is when its waiters wake; 0: any event
};

struct KernelEvent {
  std::string system, name;
};

// The directory of tracefs, mounted if need be; an error says what to do.
result<std::string> tracefs_dir();

// All events that can be enabled, as available_events lists them.
result<std::vector<KernelEvent>> kernel_events();
bool names_some(const EventPattern& pattern, const std::vector<KernelEvent>& known);
// The same, where the pattern may mean the program's events alone.
bool means_kernel(const EventPattern& pattern, const std::vector<KernelEvent>& known);

// id, system, name and format text of one event, of the `ftrace` ones, too (print, raw_data, ...).
result<EventInfo> kernel_event(const KernelEvent& event);
// The events that the kernel writes on its own account: they have formats, but cannot be enabled.
std::vector<EventInfo> kernel_internal_events();

class TracefsInstance {
 public:
  static result<TracefsInstance> create(const TracefsOptions& options);
  TracefsInstance(TracefsInstance&& other) noexcept;
  TracefsInstance& operator=(TracefsInstance&&) = delete;
  ~TracefsInstance();  // tracing off, everything removed; sources on it must be gone before (else the kernel answers EBUSY)

  const std::string& dir() const { return dir_; }  // full path
  const std::vector<u32>& cpus() const { return cpus_; }

  // Enables the pattern's events; answers which events these are (none: no such event). With a filter in the kernel's language
  // ("prev_pid != 0 && comm ~ \"a*\"") only events that pass it; events without a field of the filter's are an error.
  result<std::vector<EventInfo>> enable(const EventPattern& pattern, const std::string& filter = "");
  result<void> tracing(bool on);
  // From now on only events of this process and of what it starts. Again: one more process. Safe between fork and exec
  // of a program with one thread.
  result<void> follow(i32 pid);
  // No events of this thread (a recorder's own). Before follow(): later ones of those it starts are not recorded either.
  result<void> ignore(i32 tid) { return write("set_event_notrace_pid", std::to_string(tid), true); }
  bool tracing_on() const;
  result<void> remove();  // as the destructor does; what it cannot remove, the next create() does when this process is dead
  result<void> write(const char* file, const std::string& text, bool append = false);

 private:
  TracefsInstance(tracefs_instance* handle, std::string dir, sys::Fd held);
  result<void> set_up(const TracefsOptions& options);
  std::string last_error() const;

  tracefs_instance* handle_;
  std::string dir_;
  sys::Fd held_;
  std::vector<u32> cpus_;
};

// The directories of all instances, whoever made them.
std::vector<std::string> kernel_instances();

// The directory of an instance by name or by path; empty: there is none.
std::string find_kernel_instance(const std::string& where);

// Removes instances "PREFIXPID", and those of the commands, that nobody holds; answers how many.
u32 remove_stale_instances(const std::string& prefix = "ringside-");

}  // namespace ringside
