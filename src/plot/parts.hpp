// What a Plot keeps, for plot.cpp, which collects it, and data.cpp, which prints it.
#pragma once
#include "plot/plot.hpp"

namespace ringside::plot {

constexpr u32 none = ~u32{0};

struct Plot::Event {
  enum class Role { instant, duration, run, wake, span, counter, enter, exit, call };
  u32 index = 0, lane_name = 0;  // index: of its name; events of several machines share it
  u64 count = 0;  // of all events of this name, in the first one of them
  std::string full;
  Role role = Role::instant;
  const EventType* type = nullptr;
  // duration: its length; counter: its value; wake: pid; run: prev_pid, next_pid; span: type, slice_name; enter, exit of
  // raw_syscalls: the call's number
  const Field *first = nullptr, *second = nullptr;
  const Field *first_text = nullptr,
              *second_text = nullptr;  // run: prev_comm, next_comm; wake: comm; span, counter: track_name
  const Field* async = nullptr;        // span: async_id
  const Field* process = nullptr;      // counter: scope_tgid
  const Field* state = nullptr;                               // run: prev_state
  EventRole call_role{};                                      // of a call of a function
  u32 call = none;                                            // enter, exit: the name of the system call
  HeatMap* heat = nullptr;
};

struct Plot::Thread {
  static constexpr size_t most_names = 8;
  Tasks::Key key = 0;
  i32 tid = 0, pid = 0, parent = 0;
  std::string name, process, shown;                // name: the last one; shown: its TID for people
  std::vector<std::pair<u64, std::string>> names;  // from when on; empty: one name all the time
  u64 renamed = 0, events = 0;                     // renamed: Tasks::renamed() when its name was read
  u32 lane = none;
  const Event* call = nullptr;  // the system call it is in
  u64 call_begin = 0, call_gaps = 0;
  u32 call_ring = 0, call_name = none;
  std::string call_payload;
  Bytes entered() const { return {reinterpret_cast<const u8*>(call_payload.data()), call_payload.size()}; }
};

struct Plot::Counter {
  std::string name;
  u32 thread = 0;
  u32 event = 0;  // its index
};

struct Plot::Heat {
  std::string name;
  bool asked = false;  // by an analysis
  std::unique_ptr<HeatMap> map;
};

struct Plot::Ring {
  RingName name;
  bool seen = false, switched = false;
  u64 last = 0, since = 0, events = 0, lost = 0, gaps = 0;
  u32 running = none;  // thread, if not idle
  u32 cpu_lane = none, loss_lane = none;
};

}  // namespace ringside::plot
