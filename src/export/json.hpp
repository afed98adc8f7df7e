// A record as one JSON object on a line:
//
//   {"ts":1234567890123,"cpu":1,"ring":3,"pid":4700,"tid":4711,"task":"cc1plus","event":"libc:malloc","fields":{"size":32,"ptr":94...}}
//   {"ts":1234567890123,"cpu":null,"ring":3,"lost":1234}
//
// and, behind the last one, what is missing without a gap:
//
//   {"ts":1234567890123,"cpu":null,"lost":80,"refused":77,"unrecorded":3,"doubts":[]}
//
// The event's stack is "stack", its functions, innermost first, where a Reading joins stacks. System calls have "syscall" and,
// if they failed, "error" after their fields: the names; where files are known, "file", and "files" as text lines have them. A
// CPU that is unknown is null. "ring" is N of per_cpu/cpuN; before it "buffer", if a trace.dat names it. Times are nanoseconds.
// Enums appear by name; bytes of a text that are no UTF-8 become U+FFFD; numbers that JSON cannot express (NaN, infinities) are
// null.
#pragma once
#include <optional>
#include <vector>

#include "decode/formats.hpp"
#include "decode/id_table.hpp"
#include "decode/syscalls.hpp"
#include "decode/tasks.hpp"
#include "source/account.hpp"
#include "source/wall.hpp"
#include "timeline/merge.hpp"

namespace ringside {

class JsonLines {
 public:
  JsonLines(const Formats& formats, const Tasks& tasks) : formats_(formats), tasks_(tasks) {}
  // "wall": the time of day, behind "ts".
  void show_wall(const std::optional<WallClock>& wall) { wall_ = wall; }
  void print(const TraceRecord& record, const RingName& ring, fmt::memory_buffer& out);

 private:
  // Parts that repeat from line to line, ready to copy: the names of an event and its fields, some hundred threads.
  struct Event {
    std::string name;   // "libc:malloc","fields":{
    LineTemplate rest;  // "size":32,"ptr":94...}; other() is a field
  };
  struct Thread {
    i32 tid = -1;
    u32 source = 0;
    i32 cpu = -1;
    u64 renamed = 0;   // Tasks::renamed
    std::string text;  // ,"cpu":1,"ring":3,"pid":4700,"tid":4711,"task":"cc1plus","event":
  };
  static Event describe(u32 id, const EventType* type);
  const std::string& thread(const TraceRecord& record, i32 tid, const RingName& ring);

  const Formats& formats_;
  const Tasks& tasks_;
  IdObjects<Event> events_;
  std::vector<Thread> threads_ = std::vector<Thread>(509);
  SyscallReader syscalls_;
  std::optional<WallClock> wall_{};
};

// --json-safe: whole numbers beyond 2^53, which JavaScript rounds, are texts. Set once, before the first output.
inline bool json_safe = false;
inline bool needs_text(i64 value, bool is_signed) {
  constexpr u64 most = u64{1} << 53;
  const u64 size = is_signed && value < 0 ? ~static_cast<u64>(value) + 1 : static_cast<u64>(value);
  return json_safe && size > most;
}

void append_json_missing(u64 time, const Account& account, fmt::memory_buffer& out);
// A field's, as its event's line has it.
void append_json_value(Bytes payload, const Field& field, fmt::memory_buffer& out);
std::string as_utf8(std::string_view bytes);  // those that are no UTF-8 become U+FFFD
void append_json_text(std::string_view text, fmt::memory_buffer& out);  // with its quotes

}  // namespace ringside
