// A trace in Perfetto's format (protos/perfetto/trace of its repository; field numbers of version 58), for ui.perfetto.dev and
// trace_processor.
//
//   PerfettoWriter perfetto(formats, tasks, options, [&](std::string_view bytes) { return write(bytes); });
//   RS_TRY(perfetto.begin(first_ns));
//   RS_TRY(perfetto.add(record, ring));    // in time order
//   RS_TRY(perfetto.finish());
//
// Kernel events become ftrace events: in Perfetto's own messages where it has them (events.inc), else in messages that
// describe themselves, or that name each field where there are more than 31. Programs' events become track events of their
// threads: spans and events with a duration as slices, counters as counters, all others as instants, with their fields as
// annotations. A slice that overlaps another one of its thread has a track below it, "overlapping"; where 256 overlap, the next
// one is an instant, and so are spans below 400 open ones, and their ends. A loss is a slice on a track of its own, with its
// number, from the ring's last event before it to the next one; the bundle of ftrace events after it is flagged as well.
//
// A thread has one name there, the last. A number that is used again is another thread, where the trace shows it (Task::life):
// a second track of one number is another thread to the importer. One that had several names has a track `names` below its own,
// with a slice for each of them, from the first event under it to the first one under the next.
//
// Stacks are at the track events that have them, with a weight. ringside:sample, and events that can carry no stack (the
// kernel's, counters) have perf samples, with a counter for each type of event. The events that are stacks themselves, or name
// what was at their addresses, are not written again.
//
// Times are CLOCK_BOOTTIME. Memory: bounded, but for threads and tracks. Not thread-safe.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "decode/id_table.hpp"
#include "decode/role.hpp"
#include "export/exporter.hpp"
#include "export/perfetto/nesting.hpp"
#include "export/perfetto/sequence.hpp"
#include "decode/tasks.hpp"
#include "source/wall.hpp"
#include "timeline/merge.hpp"

namespace ringside {

struct PerfettoOptions {
  World world{};           // trace_processor names system calls by it
  std::optional<WallClock> wall{};  // of the trace's times; none: unknown
  bool compressed = true;
  Stacks* stacks = nullptr;  // of TraceRecord::stack; null: there are none
};

class PerfettoWriter final : public Exporter {
 public:
  PerfettoWriter(const Formats& formats, const Tasks& tasks, const PerfettoOptions& options, Put put);
  ~PerfettoWriter() override;

  result<void> begin(u64 first_ns) override;
  result<void> add(const TraceRecord& record, const RingName& ring) override;
  result<void> add_missing(u64 time, const Account& account) override;  // an instant
  result<void> put_out() override;
  result<void> finish() override;
  std::string left_out() const override;

 private:
  using Sequence = perfetto::Sequence;
  struct Event;
  struct Ring;
  struct Cpu;
  struct Samples;
  struct Lane {
    u64 track = 0;
    perfetto::Nesting nesting;
  };
  // A thread: its track, 0: none yet; and the name that it has had since a time. From its second name on, a track below its own
  // has a slice for each.
  struct Thread {
    u64 track = 0, names = 0, since = 0;
    u64 round = 0;  // 1 + Tasks::renamed() when the name was looked at
    std::string name{};
    u32 life = 0;  // Task::life: another thread of its number is another entry, with tracks of its own
  };
  // Of one name: those with an open span, by its id, and the others.
  struct AsyncTracks {
    std::unordered_map<u64, u64> open;
    std::vector<u64> free;
  };
  Event& event(const TraceRecord& record, const RingName& ring);
  void describe(Event& e, u32 cpu);
  void number(Event& e);
  Thread& thread_entry(i32 tid, const RingName& ring);
  u64 thread(i32 tid, const RingName& ring, u64 time);
  void describe_thread(const Thread& thread, i32 tid, const RingName& ring);
  void note_name(Thread& thread, i32 tid, const RingName& ring, u64 time);
  void name_slice(const Thread& thread, u64 from);
  u64 track(u64 parent, const std::string& name, bool counter);
  u64 new_track(u64 parent, const std::string& name, bool counter);
  i32 process_of(const TraceRecord& record, const RingName& ring, const Event& e) const;
  u64 process_track(i32 process);
  u64 async_track(i32 process, std::string_view name, u64 id, char kind);
  std::vector<Lane>& lanes(u64 thread);
  u64 track_with_room(u64 thread, u64 begin, u64 end);
  Cpu& cpu(u32 number);
  void packet(const std::string& bytes);
  void track_event(u64 time, u32 type, u64 track, u64 name, const std::string& rest);
  void annotate(const Event& e, Bytes payload, std::string& out);
  void own_fields(const Event& e, Bytes payload);
  void named_fields(const Event& e, Bytes payload);
  void add_kernel(const TraceRecord& record, const RingName& ring, Event& e);
  void add_program(const TraceRecord& record, const RingName& ring, Event& e);
  bool close_slice(u64 time, u64 where, u64 key);
  bool add_call(const TraceRecord& record, const Event& e, u64 thread);
  u64 message_text(const TraceRecord& record, const Event& e);
  void add_sample(const TraceRecord& record, const RingName& ring, Event& e);
  void add_stack(const TraceRecord& record, const Event& e, std::string& out);
  void add_flow(const TraceRecord& record, const Event& e, std::string& out);
  void name_task(i32 tid, const RingName& ring, u64 time);
  void name_process(i32 pid, std::string_view name);
  void lose(const TraceRecord& record, const RingName& ring);
  void lost_event(u64 time, u32 type, u64 track, const std::string& name, u64 events);
  void end_bundle(u32 number);
  void stats(u32 phase);
  result<void> flush(bool all);

  const Formats& formats_;
  const Tasks& tasks_;
  const PerfettoOptions options_;
  const u64 boot_offset_ns_;  // CLOCK_BOOTTIME less the trace's clock
  Put put_;
  std::string batch_;  // whole packets
  std::string scratch_, message_, packet_;
  std::vector<char> room_;  // for the fields of one event
  size_t used_ = 0;         // of room_
  IdTable<Event*> by_id_;
  std::vector<std::unique_ptr<Event>> events_;
  std::map<std::string, std::unique_ptr<Samples>> samples_;  // by the event's name
  std::vector<Ring> rings_;                                  // by source
  std::vector<Cpu> cpus_;
  std::map<std::pair<Tasks::Key, u32>, Thread> threads_;
  std::map<std::pair<u64, std::string>, u64> tracks_;
  std::unordered_map<i32, u64> process_tracks_;
  std::unordered_map<u64, std::vector<Lane>> lanes_;  // by the thread's track
  std::map<std::pair<i32, std::string>, AsyncTracks> async_;  // by process and name
  std::vector<u64> named_;  // threads of the kernel's events, by TID: 1 + Tasks::renamed() when names were compared
  std::unordered_map<i32, std::string> written_names_;  // theirs, and their processes
  std::unordered_map<i32, std::string> named_processes_;
  Sequence sequence_{1};
  u64 next_track_ = 1, left_out_ = 0, last_ = 0;
  u32 next_field_ = 65536, next_sequence_ = 2;
};

}  // namespace ringside
