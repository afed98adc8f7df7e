// The kernel's events of a `record`: an instance of tracefs of its own, consumed by a thread of its own into the recording's
// cpuN.raw. Beside it the Recorder consumes the program's rings; they share nothing but the directory.
#pragma once
#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "kernel/kernel_source.hpp"
#include "kernel/tracefs_instance.hpp"
#include "source/recording.hpp"
#include "sys/sys.hpp"

namespace ringside::cli {

// Whether a pattern of -e may name events of the kernel: its SYSTEM says something. "*:*" and "*:read" mean the program's alone.
bool may_name_kernel(const std::string& glob);

constexpr u64 learn_every_ns = 500'000'000;  // the kernel remembers the names of 128 threads

class KernelRecorder {
 public:
  struct Options {
    std::vector<std::string> globs;
    std::string filter;
    u64 buffer_size = 4 << 20;
    u32 subbuf_size = 4096;
    bool overwrite = true;
    std::vector<i32> pids;  // only these processes; none: all, or the one that will call follow()
    bool will_follow = false;
    KernelChoice source;
  };
  // Null: none of the patterns names an event of the kernel. Enabled, but not yet on.
  static result<std::unique_ptr<KernelRecorder>> create(const Options& options, const ClockInfo& clock);
  ~KernelRecorder();

  const std::vector<EventInfo>& events() const { return events_; }  // with what the kernel may write unasked
  u64 enabled() const { return enabled_; }
  bool matched(const std::string& glob) const { return matched_.count(glob) != 0 && matched_.at(glob) != 0; }
  // Between fork and exec of the command: its events and those of all that it starts, nobody else's.
  result<void> follow(i32 pid) { return instance_.follow(pid); }

  result<void> start(RecordingWriter& writer);  // on; names the rings in the writer's meta
  // Off, everything that was written before is read; rings and counters are in the writer's meta.
  result<void> stop(RecordingWriter& writer);

  // As a flight recorder, instead of start(): armed, it writes and nobody reads. freeze() leaves the rings as they are; begin() and
  // stop() save them. Armed once more it begins anew, with empty rings. look_around(): twice a second, for the names of threads.
  result<void> arm();
  result<void> freeze() { return instance_.tracing(false); }
  result<void> begin(RecordingWriter& writer);
  void look_around();

  u64 events_so_far() const { return events_so_far_.load(std::memory_order_relaxed); }  // at any time
  u64 bytes_so_far() const { return bytes_so_far_.load(std::memory_order_relaxed); }
  u64 recorded() const { return recorded_; }  // events; after stop()
  u64 bytes() const { return bytes_; }
  u64 lost() const { return lost_; }  // in gaps
  Counters totals() const { return totals_; }
  const std::map<i32, RingName>& threads() const { return threads_; }
  const std::vector<std::string>& problems() const { return problems_; }
  bool failed() const { return failed_; }                           // now: the disk takes no more
  const std::optional<Error>& failure() const { return failure_; }  // what it said; once failed(), or after stop()

 private:
  explicit KernelRecorder(TracefsInstance instance) : instance_(std::move(instance)) {}
  result<void> open_rings();
  void consume();
  bool drain(u32 at, u64 budget);
  void learn_names();

  TracefsInstance instance_;
  ClockInfo clock_;
  KernelChoice choice_;
  std::vector<std::unique_ptr<KernelSource>> sources_;  // null: it failed
  std::vector<EventInfo> events_;
  std::map<std::string, u64> matched_;
  u64 enabled_ = 0;
  bool needs_symbols_ = false;
  std::optional<RecordingWriter> rings_;  // the cpuN.raw
  std::thread thread_;
  sys::Fd wake_;  // an eventfd
  std::atomic<bool> stopping_{false}, failed_{false};
  std::atomic<u64> events_so_far_{0}, bytes_so_far_{0};  // written by the thread alone; for a look from outside, ordering nothing
  std::map<i32, RingName> threads_;
  std::vector<std::string> problems_;
  std::optional<Error> failure_;
  u64 recorded_ = 0, bytes_ = 0, lost_ = 0;
  Counters totals_;
};

}  // namespace ringside::cli
