// sink.ringside.recording: what babeltrace2 reads (CTF of LTTng-UST, ...) as a recording, so that every command can read it.
//
// A ring for each stream and CPU. An event keeps its fields and its context: structures by member (a_b), texts, arrays of
// numbers; what is none of these (variants, options, structures below 8 others) as text. Thread, process and CPU come from the
// context where it has them: vtid, vpid, procname, cpu_id; tid, pid, task, cpu. Discarded events are losses. Discarded packets,
// and discarded events without a number, are losses of at least one event, and doubts. Times are those of the first event's
// clock, in ns; those of other clocks are moved to it, as the clocks' offsets say.
#pragma once
#include <babeltrace2/babeltrace.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "source/packer.hpp"
#include "source/recording.hpp"

namespace ringside::babeltrace {

class Recorder {
 public:
  static result<std::unique_ptr<Recorder>> create(const std::string& dir);
  result<void> take(const bt_message* message);
  result<void> finish();

 private:
  static constexpr u32 subbuf_size = 65536;
  // A member of an event, at its place in the payload.
  struct Member {
    enum class Kind : u8 { integer, real, text, array, other } kind = Kind::other;
    u8 scope = 0;  // of the context that streams share, of the event's own, of the payload
    u8 size = 0;   // of a number, of an array's elements
    bool is_signed = false, is_float = false;
    std::vector<u64> path;  // indexes of structures' members
    u32 offset = 0;
  };
  struct Kind {
    u16 id = 0;
    u32 size = 0;  // of the payload without texts and arrays
    std::vector<Member> members;
  };
  struct Ring {
    RingName name;
    Packer packer{subbuf_size};
  };
  struct Stream {
    std::map<i32, u32> rings;      // by CPU
    u64 lost = 0;                  // before its next event
    std::string name;              // known when anything was lost
    u64 packets = 0;               // that were discarded, with any number of events
    bool more_packets = false;     // and others, whose number is unknown
    bool more_events = false;      // events, whose number is unknown
    void lose(u64 events) { lost += std::min(events, ~lost); }
  };

  __extension__ using i128 = __int128;
  struct Clock {
    u64 frequency = 0;
    i128 ahead = 0;  // ns to add to its times: its origin is so much later than the first clock's
  };

  explicit Recorder(RecordingWriter writer) : writer_(std::move(writer)) {}
  result<const Clock*> clock(const bt_clock_class* of);
  result<u64> time_of(const bt_message* message, const bt_stream* stream);
  // The texts of an event's format, while it is made.
  struct Layout {
    Kind& kind;
    std::set<std::string> taken;  // names of fields
    std::string fields{}, print{}, values{};
  };
  const Kind& kind(const bt_event_class* of);
  static void add_members(const bt_field_class* structure, u8 scope, const std::string& prefix, const std::vector<u64>& path,
                          Layout& layout);
  result<Ring*> ring(const bt_stream* of, i32 cpu);
  Stream& losing(const bt_stream* of);
  void discarded_events(const bt_message* message);
  void discarded_packets(const bt_message* message);
  void tell_doubts();
  result<void> event(const bt_message* message);
  void name_thread(i32 tid, i32 pid, const char* name, u64 time);
  void take_world(const bt_trace* of);
  void fill(const bt_event* event, const Kind& kind, i32 tid);
  result<void> append(Ring& ring, u64 time);
  result<void> flush(Ring& ring);

  RecordingWriter writer_;
  std::unordered_map<const bt_clock_class*, Clock> clocks_;
  i128 first_offset_ = 0;  // ns, of the first clock
  std::unordered_map<const bt_event_class*, Kind> kinds_;
  std::unordered_map<const bt_stream*, Stream> streams_;
  std::vector<Ring> rings_;
  std::map<i32, std::string> names_;  // of threads
  std::vector<u8> payload_;
  u64 begin_ = ~u64{0}, last_ = 0;
  u64 cut_ = 0;  // texts and arrays that were too long
};

}  // namespace ringside::babeltrace
