// The data of a trace's web page: counts over time, lanes of slices, states of threads, curves of counters, heat maps of
// durations. The trace is read once, in bounded memory.
//
//   Plot plot(formats, tasks, {});
//   while (trace.next(record)) plot.add(record, source.name());
//   plot.heat_map("wakeup latency").add(time_ns, value_ns);           // from any analysis
//   write(page(plot.json({where, facts})));                           // page.hpp
//
// Lanes: a processor's shows the threads that ran, from sched:sched_switch; a thread's its states (states.hpp), its durations
// (an event with an integer field NAME_ns ends at its time and lasted that long; spans; system calls, from enter to exit) and
// its other events as instants; a ring's its losses. Counters are those of Role::counter, each thread's, or process's, by
// itself, as doubles. Bounds, each reported in notes() when it is reached: `items` slices, states and points of counters
// (lanes.hpp and curves.hpp merge those too short to see), `most_lanes` threads, `most_counters`, `most_heat_maps`,
// `most_stacks` and StackTable::most, and `longest_text` bytes of an event's text. Stacks are those of Formats::stacks() when
// the Plot is made.
#pragma once
#include <fmt/format.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "analysis/heat_map.hpp"
#include "decode/role.hpp"
#include "decode/tasks.hpp"
#include "plot/curves.hpp"
#include "plot/heap.hpp"
#include "plot/lanes.hpp"
#include "plot/open_slices.hpp"
#include "plot/stack_table.hpp"
#include "plot/states.hpp"
#include "plot/time_grid.hpp"
#include "timeline/merge.hpp"

namespace ringside::plot {

struct Options {
  u64 items = 200'000;   // slices; as many states, and points of counters
  u32 columns = 2048;  // for rates; heat maps have half as many
};

// The page's facts about the recording, as label and text.
using Facts = std::vector<std::pair<std::string, std::string>>;

// What the page says beside the events.
struct About {
  static constexpr u64 unknown = ~u64{0};
  std::string where{};     // its title
  Facts facts{};
  bool raw_times = false;  // not nanoseconds, but numbers
  u64 apart_ns = 0;        // how far apart events of two machines may be that have the same time, at most; or `unknown`
};

class Plot {
 public:
  static constexpr u32 most_lanes = 4096, most_counters = 512, most_heat_maps = 64, most_names = 4096, most_stacks = 65'536;
  static constexpr size_t longest_text = 400;

  Plot(const Formats& formats, const Tasks& tasks, const Options& options);
  ~Plot();

  // weight: how many events its stack counts for.
  void add(const TraceRecord& record, const RingName& ring, u64 weight = 1);
  // One that is not shown, but may say what the threads do that are: each record goes either here or to add().
  void see(const TraceRecord& record, const RingName& ring);
  // The heat map of that name, which the page shows before those of durations; past the bound, one that is never shown. Others
  // may be merged into it.
  static constexpr u32 heat_precision = 2;
  HeatMap& heat_map(const std::string& name) { return heat_of(name, true); }
  // What each process holds of memory becomes a counter on the lane of its first thread, and its largest call sites, too.
  HeapChanges& heap() { return heap_; }

  u64 events() const { return events_; }
  u64 lost() const { return lost_; }

  // Once, at the end.
  std::string json(const About& about);
  // After json(): the bounds that were reached.
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  struct Event;  // the role of an event type
  struct Thread;
  struct Ring;  // a source's
  struct Counter;
  struct Heat;
  struct ThreadEvent;  // an event on its thread's lane
  // A span that may end on another thread: it lies on the lane of the one that began it.
  struct AsyncOpen {
    u64 begin, lost;  // lost: lost_ then
    u32 thread;
  };
  enum class LaneKind { cpu, thread, loss };
  struct LaneName {
    LaneKind kind;
    u32 number;  // in rings_ or threads_
  };

  Event& event(u32 id, const EventType* type);
  u32 name(const std::string& text, u32 event);
  HeatMap& heat_of(const std::string& name, bool asked = false);
  u32 thread(i32 tid, const RingName& ring, u64 time, std::string_view comm = {});
  void rename(Thread& thread, u64 time);
  u32 call_of(const Event& event, Bytes payload);
  u32 lane(u32& known, LaneName name);
  std::string text(const EventType* type, Bytes payload) const;
  void lose(const TraceRecord& record, Ring& ring);
  void end_run(Ring& ring, u32 source, u64 time);
  void switch_task(const TraceRecord& record, const Event& e, Ring& ring, const RingName& name);
  void wake_task(const TraceRecord& record, const Event& e, const RingName& name);
  u32 known_thread(i32 tid, const RingName& ring) const;
  void begin_run(u32 run);
  bool count_on(const TraceRecord& record, const Event& e, const RingName& ring, i32 tid);
  void drop_call(u32 thread);
  template <class MakeText>
  void add_slice(const ThreadEvent& at, u64 begin, u32 what, MakeText make_text);
  void add_slice(const ThreadEvent& at, u64 begin, u32 what);
  bool begin_slice(const ThreadEvent& at, const OpenSlices::Key& key, u32 what);
  bool end_slice(const ThreadEvent& at, const OpenSlices::Key& key);
  void on_span(const ThreadEvent& at);
  void on_async(const ThreadEvent& at, Tasks::Key process);
  void on_call(const ThreadEvent& at);
  void on_enter(const ThreadEvent& at);
  void on_exit(const ThreadEvent& at);
  u64 begin_of(const TraceRecord& record, Event& e);
  void on_thread(const TraceRecord& record, Event& e, const EventType* type, const RingName& name, i32 tid);
  void count_stack(const TraceRecord& record, const Event& e, u64 weight);
  void finish();
  void add_heap();
  u32 add_thread(Tasks::Key key, i32 tid, std::string_view name);
  u32 thread_of_process(Tasks::Key process);
  u32 counter(std::string name, u32 thread, u32 event);
  void print_lanes(fmt::memory_buffer& out, u64 origin);
  void print_counters(fmt::memory_buffer& out, u64 origin) const;
  void print_types(fmt::memory_buffer& out) const;
  void print_rates(fmt::memory_buffer& out, u64 origin) const;
  void print_rings(fmt::memory_buffer& out) const;
  void print_threads(fmt::memory_buffer& out, u64 origin) const;
  void print_heat(fmt::memory_buffer& out, u64 origin) const;
  void print_stack_counts(fmt::memory_buffer& out, u64 origin);
  void print_stacks(fmt::memory_buffer& out) const;

  const Formats& formats_;
  const Tasks& tasks_;
  Options options_;
  TimeGrid rates_;  // row 0: lost events; then the events, in the order in which they came
  StackTable stacks_;
  StackCounts stack_counts_;
  std::unordered_map<u64, u32> stack_rows_;          // of stack_counts_, by event and stack
  std::vector<std::pair<u32, u32>> counted_stacks_;  // by row: event, stack
  Lanes lanes_;
  ThreadStates states_;
  Curves curves_;
  Heap heap_;
  std::vector<Counter> counters_;
  std::unordered_map<std::string, u32> counter_numbers_;
  std::vector<LaneName> lane_names_;
  std::vector<std::unique_ptr<Event>> by_id_;
  std::vector<Event*> events_seen_;  // by index
  std::vector<std::pair<std::string, u32>> names_;  // names of slices, with their event
  std::unordered_map<std::string, u32> name_numbers_;
  std::vector<Thread> threads_;
  std::unordered_map<Tasks::Key, u32> thread_numbers_;
  std::vector<Ring> rings_;
  OpenSlices open_;
  u64 took_ = 0;                                                 // of the last slice that ended
  std::map<std::tuple<Tasks::Key, u32, u64>, AsyncOpen> async_;  // by process, name and id
  std::vector<Heat> heat_maps_;
  std::vector<HeatMap*> call_heat_;  // of system calls, by name
  std::vector<std::string> notes_;
  std::string first_unseen_;  // where the first switch is missing
  u64 events_ = 0, lost_ = 0, first_ = ~u64{0}, last_ = 0, cut_ = 0, unpaired_ = 0, backward_ = 0, shared_gaps_ = 0,
      unseen_ = 0, uncounted_stacks_ = 0;
  u32 run_ = 0;  // Tasks::run() of the kernel's last event
  bool too_many_threads_ = false, too_many_counters_ = false, too_many_heat_maps_ = false, too_many_names_ = false,
       any_site_ = false;
};

}  // namespace ringside::plot
