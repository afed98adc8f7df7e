// The part that an event plays on a timeline, by the names of its fields.
//
//   span      track_event_type ('B', 'E', 'I'), slice_name, perhaps track_name: Perfetto's convention for kernel track events;
//             with an integer async_id, begin and end of one name and id belong together in a process, on any thread
//   counter   counter_value, an integer or a floating number, perhaps track_name: the same
//   duration  an integer NAME_ns: it ended at its time, and lasted that long
//   call      ftrace:funcgraph_entry and _exit: the begin and the end of a call of the function at `func`
//   instant   all others
//
// An integer flow_id connects it with the other events that have the same one. A counter with an integer scope_tgid is that of
// a process, all threads together: of that number, or of the writer's with 0. Without it each thread has its own.
#pragma once
#include "decode/formats.hpp"

namespace ringside {

enum class Role : u8 { instant, duration, span, counter, call };

struct EventRole {
  Role role = Role::instant;
  const Field* value = nullptr;  // duration: the ns; span: the type; counter: the value; call: the function
  const Field* name = nullptr;   // span: slice_name
  const Field* track = nullptr;  // span, counter: track_name; null: there is none
  const Field* process = nullptr;  // counter: scope_tgid; null: it is its thread's
  const Field* async = nullptr;  // span: async_id; null: it begins and ends on its thread
  const Field* weight = nullptr;  // what its stack weighs: the duration, else the first field of bytes; null: there is none
  const Field* flow = nullptr;    // flow_id; null: there is none
  bool begins = false;            // of a call
};

EventRole role_of(const EventType& type);
// The function of a call, by its name, or its address.
std::string function_of(const EventRole& role, u32 id, Bytes payload, const Formats& formats);

// Whether the event's line shows this field with [ns] after it, as sched_stat_runtime does.
bool prints_ns(const EventType& type, std::string_view field);
// Whether an event type prints a field as an address: %p, %pS.
bool prints_address(const EventType& type, std::string_view field);
// Whether a field of this name has nanoseconds, or bytes.
bool counts_ns(std::string_view field);
bool counts_bytes(std::string_view field);

}  // namespace ringside
