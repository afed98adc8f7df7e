// The kernel's events of a recording: an instance of tracefs of its own, consumed by a thread of its own into the recording's cpuN.raw.
// It shares nothing with the other feeds but the directory.
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
#include "kernel/tracefs_instance.hpp"
#include "record/recording_run.hpp"
#include "sys/sys.hpp"

namespace ringside {

// As a recorder: run.add(), then on(). As a flight recorder: arm(), and nobody reads until freeze() leaves the rings as they are; then a
// run of its own saves them. Armed once more it begins with empty rings.
class KernelFeed final : public Feed {
 public:
  struct Options {
    EventPatterns events;  // those that mean the kernel's are enabled
    std::string filter;
    u64 buffer_size = 4 << 20;
    u32 subbuf_size = 4096;
    bool overwrite = true;
    std::vector<i32> pids;  // only these processes; none: all, or the one that will call follow()
    bool will_follow = false;
    KernelChoice source;
    std::function<void(const std::string&)> notice;  // what a person should know
  };
  // Null: none of the patterns names an event of the kernel. Enabled, but not yet on.
  static result<std::unique_ptr<KernelFeed>> create(const Options& options, const ClockInfo& clock);
  ~KernelFeed() override;

  const std::vector<EventInfo>& events() const { return events_; }  // with what the kernel may write unasked
  u64 enabled() const { return enabled_; }
  bool matched(const EventPattern& pattern) const { return matched_.count(pattern.text()) != 0; }
  // Between fork and exec of the command: its events and those of all that it starts, nobody else's.
  result<void> follow(i32 pid) { return instance_.follow(pid); }

  result<void> on();      // its thread reads from now on
  result<void> arm();
  result<void> freeze() { return instance_.tracing(false); }
  void learn_names();     // of a flight recorder, every learn_every_ns: the kernel remembers those of 128 threads
  static constexpr u64 learn_every_ns = 500'000'000;

  result<void> begin(RecordingRun& run) override;
  bool poll(RecordingRun& run) override;
  void describe(RecordingMeta& meta) override;
  Books close(RecordingRun& run) override;
  u64 events_so_far() const override { return events_so_far_.load(std::memory_order_relaxed); }
  u64 bytes_so_far() const override { return bytes_so_far_.load(std::memory_order_relaxed); }

 private:
  KernelFeed(TracefsInstance instance, const Options& options, const ClockInfo& clock)
      : instance_(std::move(instance)), clock_(clock), choice_(options.source), notice_(options.notice) {}
  result<void> open_rings();
  void consume();
  void stop_thread();
  bool take(u32 at, u64 most);

  TracefsInstance instance_;
  ClockInfo clock_;
  KernelChoice choice_;
  std::function<void(const std::string&)> notice_;
  std::vector<std::unique_ptr<KernelSource>> sources_;  // null: it has ended
  std::vector<EventInfo> events_;
  std::set<std::string> matched_;  // patterns
  u64 enabled_ = 0;
  bool needs_symbols_ = false;
  std::map<i32, RingName> threads_;  // the thread's while it runs
  sys::Fd wake_;                     // an eventfd
  std::thread thread_;
  std::atomic<bool> stopping_{false}, failed_{false};
  std::atomic<u64> events_so_far_{0}, bytes_so_far_{0};  // written by the thread alone; for a look from outside, ordering nothing
  // Of one recording: the cpuN.raw. The thread's while it runs, as books_.
  std::optional<RecordingWriter> rings_;
  Faults faults_;
};

}  // namespace ringside
