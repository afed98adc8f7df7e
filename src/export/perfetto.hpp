// A trace in Perfetto's format (protos/perfetto/trace of its repository; field numbers of version 58), for ui.perfetto.dev and
// trace_processor.
//
//   PerfettoWriter perfetto(formats, tasks, options, [&](std::string_view bytes) { return write(bytes); });
//   RS_TRY(perfetto.begin(first_ns));
//   RS_TRY(perfetto.add(record, ring));    // in time order
//   RS_TRY(perfetto.finish());
//
// Kernel events become ftrace events: in Perfetto's own messages where it has them (perfetto_events.inc), else in messages that
// describe themselves, or that name each field where there are more than 31. Programs' events become track events of their
// threads: spans and events with a duration as slices, counters as counters, all others as instants, with their fields as
// annotations. A loss is a slice on a track of its own, with its number, from the ring's last event before it to the next one;
// the bundle of ftrace events behind it is flagged as well.
//
// Times are CLOCK_BOOTTIME. Memory: bounded, but for names. Not thread-safe.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "decode/role.hpp"
#include "export/tasks.hpp"
#include "timeline/merge.hpp"

namespace ringside {

struct PerfettoOptions {
  u64 boot_offset_ns = 0;    // CLOCK_BOOTTIME less the trace's clock
  bool compressed = true;
};

class PerfettoWriter {
 public:
  using Put = std::function<result<void>(std::string_view bytes)>;
  PerfettoWriter(const Formats& formats, const Tasks& tasks, const PerfettoOptions& options, Put put);
  ~PerfettoWriter();

  result<void> begin(u64 first_ns);
  result<void> add(const TraceRecord& record, const RingName& ring);
  result<void> finish();
  // Events that the format cannot carry: of CPUs from 1024 on.
  u64 left_out() const { return left_out_; }

 private:
  struct Event;
  struct Ring;
  Event& event(const TraceRecord& record, const RingName& ring);
  u64 thread(i32 tid, const RingName& ring);
  u64 track(u64 parent, const std::string& name, bool counter);
  u64 name_id(std::map<std::string, u64, std::less<>>& known, std::string_view name, u32 tag);
  void packet(const std::string& bytes);
  void track_event(u64 time, u32 type, u64 track, std::string_view name, const std::string& rest);
  void annotate(const Event& e, Bytes payload, std::string& out);
  void add_kernel(const TraceRecord& record, const RingName& ring, Event& e);
  void add_program(const TraceRecord& record, const RingName& ring, Event& e);
  void lose(const TraceRecord& record, const RingName& ring);
  void end_bundle(u32 cpu);
  void stats(u32 phase);
  result<void> flush(bool all);

  const Formats& formats_;
  const Tasks& tasks_;
  const PerfettoOptions options_;
  Put put_;
  std::string batch_;  // whole packets
  std::string scratch_, message_, packet_, interned_;
  std::unordered_map<u32, std::unique_ptr<Event>> events_;
  std::vector<Ring> rings_;                      // by source
  std::map<u32, std::string> bundles_;           // by CPU: events that wait for their bundle
  std::map<u32, bool> gaps_;                     // by CPU: the next bundle follows a loss
  std::map<u32, std::pair<u64, u64>> counts_;    // by CPU: events, lost
  std::map<std::pair<Tasks::Key, u32>, u64> threads_;  // tracks
  std::map<std::pair<u64, std::string>, u64> tracks_;
  std::map<i32, bool> named_;                    // threads of the kernel's events whose names were written
  std::map<std::string, u64, std::less<>> names_, categories_, annotations_;  // interned
  u64 next_track_ = 1, next_id_ = 1, left_out_ = 0;
  u32 next_field_ = 65536;
  bool interning_ = false;
};

}  // namespace ringside
