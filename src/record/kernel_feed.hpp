// Records the kernel's events: its own thread consumes its own tracefs instance into the recording's cpuN.raw. It shares only
// the directory with the other feeds.
#pragma once
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "kernel/kernel_source.hpp"
#include "kernel/own_tasks.hpp"
#include "kernel/probe_group.hpp"
#include "kernel/tracefs_instance.hpp"
#include "record/name_watch.hpp"
#include "record/recording_run.hpp"
#include "source/selection.hpp"
#include "sys/sys.hpp"

namespace ringside {

// As a recorder: run.add(), then on(). As a flight recorder: arm(), and nothing reads until freeze() stops the rings; then a
// run of its own saves them. Armed again, it begins with empty rings.
class KernelFeed final : public Feed {
 public:
  struct Options {
    EventPatterns events;  // of the kernel
    std::vector<ProbePoint> probes;
    FunctionChoice functions;
    std::string filter;
    EventPatterns stacks;  // these events get a stack: the kernel's, and, if it is all, the user's, too
    u64 buffer_size = 4 << 20;
    u32 subbuf_size = 4096;
    bool overwrite = true;
    std::vector<i32> pids;  // only these processes; none: all, or the one given to follow()
    bool will_follow = false;
    KernelChoice source;
    std::function<void(const std::string&)> notice;  // takes messages for the user
  };
  // The events are enabled, but tracing is not yet on. ENOENT: a pattern matches none.
  static result<std::unique_ptr<KernelFeed>> create(const Options& options, const ClockInfo& clock);
  ~KernelFeed() override;

  const std::vector<EventInfo>& events() const { return events_; }  // including those that the kernel may write unasked
  u64 enabled() const { return enabled_; }
  // Between fork and exec of the command: records only its events and those of its descendants.
  result<void> follow(i32 pid);

  std::vector<std::pair<u32, Counters>> counters() const;  // of each CPU's ring, now

  result<void> on();      // its thread reads from now on
  // The same, but recording begins with the execve() of this child, which is its next call after the read() of one byte in
  // which it waits. has_executed(): when it has.
  result<void> on_at_exec(i32 child);
  result<void> has_executed();
  result<void> arm();
  result<void> freeze() { return instance_.tracing(false); }
  void learn_names();     // a flight recorder calls it every learn_every_ns: the kernel keeps the names of 128 threads
  static constexpr u64 learn_every_ns = 500'000'000;

  result<void> begin(RecordingRun& run) override;
  bool poll(RecordingRun& run) override;
  void describe(RecordingMeta& meta) override;
  Counters close(RecordingRun& run) override;
  u64 events_so_far() const override { return events_so_far_.load(std::memory_order_relaxed); }
  u64 taken_until() const override { return taken_until_.load(std::memory_order_acquire); }
  u64 lost_so_far() const override;
  u64 bytes_so_far() const override { return bytes_so_far_.load(std::memory_order_relaxed); }

 private:
  KernelFeed(TracefsInstance instance, const Options& options, const ClockInfo& clock)
      : instance_(std::move(instance)), clock_(clock), choice_(options.source), notice_(options.notice) {}
  result<void> open_rings();
  result<void> start_thread();
  const ProbeGroup::Event* probe_of(u16 id);
  void name_probes();
  void learn_numbers(KernelNumbers& numbers);
  void consume();
  void stop_thread();
  Drained take(u32 at, u64 most);
  Drained take_without_own(u32 at, u32 ring, u64 most);
  void take_all(u32 at);

  std::optional<ProbeGroup> probes_;  // outlives the instance, which has them enabled
  TracefsInstance instance_;
  ClockInfo clock_;
  KernelChoice choice_;
  std::function<void(const std::string&)> notice_;
  std::vector<std::unique_ptr<KernelSource>> sources_;  // null: the source has ended
  std::optional<OwnTasks> own_;                         // if all processes are recorded
  std::vector<Selection> without_own_;                  // for each source
  std::vector<EventInfo> events_;
  u64 enabled_ = 0;
  bool needs_symbols_ = false;
  std::map<i32, RingName> threads_;  // owned by the thread while it runs
  std::unique_ptr<NameWatch> names_;  // as well; null: when threads got their names is unknown
  sys::Fd wake_;                     // an eventfd
  std::thread thread_, clean_up_;
  std::atomic<bool> stopping_{false}, failed_{false};
  std::atomic<u64> events_so_far_{0}, bytes_so_far_{0},
      taken_until_{0};  // only the thread writes them; for looks from outside, without ordering
  // The cpuN.raw of one recording. Owned by the thread while it runs, like taken_.
  std::optional<RecordingWriter> rings_;
  Faults faults_;
  bool closed_ = false;           // since the last begin()
  bool another_follows_ = false;  // if that recording fails
};

}  // namespace ringside
