// A record as the kernel's own text line, so that grep and existing scripts work:
//
//                cc1plus-4711    [003]  1234.567890: malloc: size=32 ptr=0x55d0c0ffee duration_ns=41
//   CPU:3 [LOST 1234 EVENTS]
//
// The task is 16 wide and right-aligned, then come -tid, the CPU ([---]: unknown), seconds.microseconds, the event and its
// fields. A gap of a ring that is no CPU's names the ring: RING:3 [LOST 1234 EVENTS]. The part before the time is cached
// for some hundred threads.
//
// After the kernel's own text of a system call come its name, unless the event's name has it, and the name of its error:
//   sys_exit: NR 257 = -2 # openat ENOENT
// and its paths and the files of its descriptors, where a recording has them:
//   sys_enter: NR 0 (3, 7ffd31c3e0a8, 340, 0, 0, 0) # read 3</etc/passwd>
//
// The stack of a program's event is under it, as the kernel's stacks are in its file `trace` with the option sym-offset:
//    => parse+0x1d/0x40 [app] parse.c:12
// Those of the kernel are events, whose line says <stack trace>.
#pragma once
#include <optional>
#include <vector>

#include "decode/formats.hpp"
#include "decode/id_table.hpp"
#include "decode/syscalls.hpp"
#include "decode/tasks.hpp"
#include "source/wall.hpp"
#include "timeline/merge.hpp"

namespace ringside {

class TextLines {
 public:
  // raw_times: the clock counts no seconds, so times are printed as plain numbers.
  // as_tracefs: like the file `trace`: where the CPU is, N of per_cpu/cpuN; then a column of flags, which mean nothing here;
  // markers by their text alone.
  TextLines(const Formats& formats, const Tasks& tasks, bool raw_times = false, bool as_tracefs = false)
      : formats_(formats), tasks_(tasks), raw_times_(raw_times), as_tracefs_(as_tracefs) {}

  void print(const TraceRecord& record, const RingName& ring, fmt::memory_buffer& out);
  // Whether an event is the stack of another one.
  static bool is_stack(const EventType* type) {
    return type != nullptr && type->of_ftrace && (type->name == "kernel_stack" || type->name == "user_stack");
  }
  // All its addresses, by name where that is known, a line each.
  static void append_addresses(const Formats& formats, const EventType& type, const TraceRecord& record,
                               fmt::memory_buffer& out);
  // A column of process IDs, as the kernel's option record-tgid adds it. Before the first line.
  void show_processes(bool show) { processes_ = show; }
  // The time of day before each line, instead of the clock's. Before the first line.
  void show_wall(const std::optional<WallClock>& wall) { wall_ = wall; }
  // Without tasks, a line is upstream's for remote buffers: "[003]\t 1234.567890: selftest id=1". Before the first line.
  void show_tasks(bool show) { with_tasks_ = show; }

 private:
  struct Prefix {
    i32 tid = -1;
    u32 source = 0;
    i32 cpu = -1;
    u64 renamed = 0;  // Tasks::renamed
    CopiedText text;
  };
  struct Event {
    const EventType* type = nullptr;
    CopiedText head;  // its name, and what is between it and the fields
    bool of_stack = false;
  };
  bool print_marker(const EventType& type, Bytes payload, fmt::memory_buffer& out) const;
  void print_stack(const EventType& type, const TraceRecord& record, fmt::memory_buffer& out) const;
  void append_call(const EventType& type, const TraceRecord& record, fmt::memory_buffer& out);
  static constexpr size_t time_room = 64;
  // "seconds.micros: ", rounded as the kernel rounds, seconds at least 5 wide. Returns the end; up to time_room bytes change.
  char* put_time(u64 ns, char* to);
  const Event& event(u32 number);
  const CopiedText& prefix(const TraceRecord& record, i32 tid, const RingName& ring);

  const Formats& formats_;
  const Tasks& tasks_;
  std::optional<WallClock> wall_{};
  bool raw_times_, as_tracefs_, processes_ = false, with_tasks_ = true;
  SyscallReader syscalls_;
  u64 second_at_ = 0;  // the ns at which it begins
  const CopiedText no_task_;
  CopiedText seconds_;       // "12345." of that second; empty: there was none yet
  IdObjects<Event> events_;  // by number
  std::vector<Prefix> prefixes_ = std::vector<Prefix>(509);
};

}  // namespace ringside
