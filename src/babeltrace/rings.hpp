// source.ringside.rings: what can be read, as messages of babeltrace2.
//
// A trace with a stream for each ring; an event class for each kind of event, with its fields; cpu, tid, pid and task of an
// event in its common context. A packet ends only where events are lost: a discarded-events message follows. Messages are in
// the order of time, so that message begins at the time of the one before it, and ends where its ring goes on.
#pragma once
#include <babeltrace2/babeltrace.h>

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "consumer/reading.hpp"

namespace ringside::babeltrace {

// A reference of babeltrace2's that is put back.
template <class T, void (*put)(const T*)>
struct Put {
  void operator()(const T* at) const { put(at); }
};
template <class T, void (*put)(const T*)>
using Ref = std::unique_ptr<T, Put<T, put>>;

struct Wanted {
  std::vector<std::string> where{}, events{};
  std::string filter{};
  double follow = 0;  // seconds; 0: what there is now; negative: until it is interrupted
  std::string totals{};  // a file for "EVENTS LOST" and, a line each, what could not be read
};

class Rings {
 public:
  // The reading's first event says nothing here: classes of streams and events are made as they come.
  Rings(bt_self_message_iterator* iterator, bt_self_component* component, std::unique_ptr<Reading> reading);
  // Up to `room` messages. 0: none now; over(): there will be none.
  size_t next(bt_message_array_const messages, size_t room);
  bool over() const { return over_; }
  Reading& reading() { return *reading_; }

 private:
  struct Stream {
    Ref<bt_stream, bt_stream_put_ref> stream;
    Ref<bt_packet, bt_packet_put_ref> packet;  // the open one
  };
  void add(const bt_message* message) { pending_.push_back(message); }
  Stream& stream(u32 source, const RingName& ring);
  void begin_stream(Stream& at, const std::string& name);
  void lose(Stream& at, u64 time, u64 events);
  void open_packet(Stream& at, u64 time);
  void close_packet(Stream& at, u64 time);
  const bt_event_class* event_class(u32 number, const EventType* type);
  void take(const TraceRecord& record, const RingName& ring, Reading::Got got);
  void fill(bt_event* event, const TraceRecord& record, const RingName& ring, const EventType* type);
  void end();

  bt_self_message_iterator* iterator_;
  std::unique_ptr<Reading> reading_;
  Ref<bt_trace_class, bt_trace_class_put_ref> trace_class_;
  Ref<bt_clock_class, bt_clock_class_put_ref> clock_;
  Ref<bt_stream_class, bt_stream_class_put_ref> stream_class_;
  Ref<bt_trace, bt_trace_put_ref> trace_;
  std::unordered_map<u32, const bt_event_class*> classes_;
  std::vector<Stream> streams_;  // by source
  std::vector<const bt_message*> pending_;
  size_t sent_ = 0;
  u64 last_ = 0;  // the latest time
  bool over_ = false;
};

}  // namespace ringside::babeltrace
