// The sources of a consumer's sub-buffers. No code above this header knows whether the bytes come from a mapped ring, a
// recording or the kernel.
#pragma once
#include <chrono>
#include "clock/clock.hpp"
#include <memory>
#include <optional>
#include <ringside/base/result.hpp>
#include <ringside/base/types.hpp>
#include <string>
#include <vector>

namespace ringside {

// One sub-buffer's worth of events, in place; valid until the source's next call.
struct SubBufferView {
  const u8* sub_buffer = nullptr;  // its 16-byte header; events start at sub_buffer + 16
  u32 begin = 0;                   // data offset of the first event not yet seen (0: the start)
  u32 end = 0;                     // data offset after the last committed event
  u64 lost_before = 0;             // events lost just before `begin`
  u64 time = 0;                    // running time before `begin` (the header's time stamp when begin == 0)
  bool lost_at_least = false;      // nobody has counted them: more may be lost than `lost_before`
};

// The numbers of the kernel's per_cpu/cpuN/stats, plus those that user space adds.
// What the refused events of Counters are.
enum class Refusals : u8 {
  by_reason,  // as `dropped` and `commit_overrun` say
  in_sum,     // all are in `dropped`: an external writer gives no reasons
  at_least,   // the same, and there may be more: an external writer that ended without a word, or never counts
};
constexpr std::string_view to_string(Refusals r) {
  return r == Refusals::by_reason ? "by reason" : r == Refusals::in_sum ? "in sum" : "at least";
}

struct Counters {
  u64 written = 0;         // events committed since the ring was made or reset
  u64 read = 0;            // consumed
  u64 overrun = 0;         // overwritten before they were read
  u64 unread = 0;          // still in the ring: written - read - overrun
  Refusals refusals = Refusals::by_reason;
  u64 dropped = 0;         // refused: ring full (discard mode)
  u64 commit_overrun = 0;  // refused: nested writers filled the ring
  u64 bytes = 0;           // bytes of unread events, headers included
  u64 unfinished_bytes = 0;  // reserved and never published (still being written, or the writer died)
  u64 oldest_time = 0;     // clock ticks
  u64 resident_bytes = 0;  // memory of both regions
  u64 subbuf_size = 0, nr_subbufs = 0;
  u64 capacity_bytes = 0;  // of events, the reader page not counted
};

// The kernel, a program and each external writer number their events independently. Above the sources, an event's number is its
// id, plus one of these for the kernel's and for the first writer's; the second's follow.
inline constexpr u32 kernel_ids = 1u << 16, apart_ids = 2u << 16;
inline constexpr u8 most_apart = 14;  // external writers of one recording
constexpr u32 ids_apart(u8 writer) { return writer == 0 ? 0 : apart_ids + ((writer - 1u) << 16); }

// A thread whose numbers in events are not those of its PID namespace, or not those of the reader's.
struct Elsewhere {
  i32 tid = 0, pid = 0;            // in its namespace; 0: the numbers in its events are its own and the reader's
  u64 pid_namespace = 0;           // the inode of that; 0: unknown
  i32 here_tid = 0, here_pid = 0;  // as the reader sees it; 0: the reader does not see it, or it is gone

  // The number by which the reader knows it; if there is none, the recorded one.
  i32 seen_tid(i32 recorded) const { return here_tid != 0 ? here_tid : recorded; }
  i32 seen_pid(i32 recorded) const { return here_pid != 0 ? here_pid : recorded; }
  // "81234"; "81234(7)": 7 in its container; "7@4026532278": 7 in that PID namespace, invisible from here; "7@?".
  std::string show_tid(i32 recorded) const { return show(recorded, tid, here_tid); }

 private:
  std::string show(i32 recorded, i32 there, i32 here) const {
    if (there == 0 || here == there) return std::to_string(there == 0 ? recorded : here);
    if (here != 0) return std::to_string(here) + "(" + std::to_string(there) + ")";
    return std::to_string(there) + "@" + (pid_namespace != 0 ? std::to_string(pid_namespace) : "?");
  }
};

struct RingName {
  u32 ring = 0;  // N of per_cpu/cpuN
  i32 pid = 0, tid = 0;
  std::string task, process;  // comm of thread and of process
  bool kernel = false;        // a CPU's ring in the kernel: no thread of its own
  std::string buffer{};       // for a trace.dat: the instance, if it was not the top one
  i32 cpu = -1;               // the CPU, if it is a program's ring of a CPU; then pid is 0, and tid is no thread's
  Elsewhere elsewhere{};
  // Of an external writer, a guest or firmware: a number in its events is that of a thread here only if it is one of process
  // `pid`.
  u8 apart = 0;               // which external writer of the recording, from 1
  u32 numbering = 0;          // the WHERE that these numbers belong to, if there are several: Timeline::Origin::ids
  std::string cgroup{};       // as the reader sees it; empty: unknown
  std::string show_tid() const { return elsewhere.show_tid(tid); }
  bool of_a_thread() const { return !kernel && cpu < 0; }  // does it hold the events of one thread only?
  i32 its_cpu() const { return kernel ? static_cast<i32>(ring) : cpu; }  // -1: it holds events of several CPUs
  u32 place() const { return cpu >= 0 ? static_cast<u32>(cpu) : ring; }   // N of the place where it is found: per_cpu/cpuN
  u32 ids() const { return kernel ? kernel_ids : ids_apart(apart); }
};

// A thread of this number is called otherwise from a moment on: it has named itself, its process has executed another program,
// or another thread has the number now. What is empty, or 0, is unknown.
struct NameChange {
  u64 time = 0;  // in ticks of the trace's clock
  i32 tid = 0, pid = 0, old_pid = 0;
  bool kernel = false;  // the number is one of the kernel's events
  std::string task, process, old_task, old_process;
};
inline constexpr size_t most_name_changes = 65536;  // that a recorder keeps of the kernel: the newest

// The common_type of an event.
inline u16 event_id(Bytes payload) {
  u16 id = 0;
  if (payload.size >= sizeof id) __builtin_memcpy(&id, payload.data, sizeof id);
  return id;
}

// An event of a source, with its tracefs format text.
struct EventInfo {
  u16 id = 0;
  std::string system, name, format;
  bool enabled = false;
  bool kernel = false;
  u8 apart = 0;          // of an external writer: see RingName
  std::string folder{};  // of an instance's: below events/SYSTEM
  u32 number() const { return id + (kernel ? kernel_ids : ids_apart(apart)); }
};

// Other events refer to these.
inline bool is_about_stacks(const EventInfo& e) {
  return e.system == "ringside" && (e.name == "stack" || e.name == "code_map");
}
// Has it the number of a stack as a field?
inline bool has_stack(const EventInfo& e) { return e.format.find("field:ringside_stack ") != std::string::npos; }

// All sub-buffers of a source, back to back in a file. Its path may name another file by now.
struct SubBufferFile {
  std::string path;
  u64 size = 0, device = 0, inode = 0;
};

class Source {
 public:
  explicit Source(RingName name = {}, const ClockInfo& clock = {}) : name_(std::move(name)), clock_(clock) {}
  virtual ~Source() = default;
  // The next committed events that no reader has consumed; nullopt: nothing new now. They count as consumed when the next ones
  // are asked for or the source is closed: if a reader is killed, the next one gets them. (The kernel, and sources other than
  // rings, count at once.)
  virtual result<std::optional<SubBufferView>> next() = 0;
  virtual void consume() {}   // counts them as consumed now
  virtual void put_back() {}  // the next reader gets them again
  virtual Counters counters() const = 0;
  // Of a source that consumes nothing, beside others that do. passed: events of its ring, since that was made or emptied last,
  // that will not be handed out: they were, or others have consumed or overwritten them. given: those that it has handed out,
  // or reported as lost, since it was opened. None: nobody takes its events away.
  struct Passed {
    u64 passed = 0, given = 0;
  };
  virtual std::optional<Passed> passed() const { return std::nullopt; }
  const RingName& name() const { return name_; }
  const ClockInfo& clock() const { return clock_; }
  virtual std::optional<SubBufferFile> sub_buffer_file() const {
    return std::nullopt;
  }  // for callers that would rather copy the whole of it
  // Sources in files can go on with any sub-buffer, or, where they are compressed, with some. Their number is 0 where they
  // cannot, or where they are not in the order of time. In a file that its recorder cuts, a time stamp may be 0.
  virtual u64 sub_buffers() const { return 0; }
  virtual u64 time_stamp(u64 /*index*/) const { return 0; }  // of its header, in ticks
  virtual u64 place_bytes() const { return counters().subbuf_size; }  // of events between two of them, about
  virtual void seek(u64 /*index*/) {}                        // next() goes on with it
  virtual bool ended() const = 0;  // the writer is gone for good: once next() returns nullopt, nothing more will come
  // After next() returned nullopt: later events are at most this many ns older than the moment of that call. An event is on its
  // way from its writer's clock read to its commit: unknown, if the writer was seen in the middle of one. The default is for
  // writers that cannot be seen: a preempted thread, or a virtual processor that waits.
  static constexpr u64 unknown = ~u64{0};
  virtual u64 lag_ns() const { return ended() ? 0 : 10'000'000; }

 protected:
  RingName name_;
  ClockInfo clock_;
};

}  // namespace ringside
