// What a consumer reads from: a recording's directory, a trace.dat file or a live (or dead) instance, opened the same way.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "analysis/filter.hpp"
#include "decode/formats.hpp"
#include "export/tasks.hpp"
#include "instance/instance.hpp"
#include "kernel/kernel_source.hpp"
#include "kernel/tracefs_instance.hpp"
#include "remote/process.hpp"
#include "source/recording.hpp"
#include "timeline/merge.hpp"

namespace ringside {

inline constexpr const char* default_recording = "ringside.data";

struct Trace {
  std::string where;
  std::vector<std::string> notices;  // what a person should know of it; nothing is wrong
  std::optional<RecordingMeta> recording;  // else `instance`
  std::unique_ptr<Instance> instance;
  std::unique_ptr<TracefsInstance> kernel;  // in front of the timeline: its sources must go first
  std::unique_ptr<remote::Process> remote;   // alike
  Formats formats;
  Tasks tasks;
  Timeline timeline;
  std::vector<u32> rings;  // of the timeline's sources

  u64 until_ns = ~u64{0};  // of a live instance: when it was opened; its writers may be faster than we are

  // The next record up to `until_ns`.
  bool next(TraceRecord& record) { return timeline.next(record) && record.time <= until_ns; }

  bool raw_times() const;  // its clock counts no seconds

  // Picks up events and rings that appeared in a live instance since.
  void refresh();
};

// An error if `where` is an instance of the kernel's: whoever reads its rings takes the events away from those who made it.
result<void> not_the_kernels(const std::string& where);

// DIR, FILE.dat or INSTANCE, or the socket of an external writer. Instances are peeked at: nothing is consumed.
result<Trace> open_trace(const std::string& where);

// Events of the kernel, live, from an instance made for it. A pattern that names none is an error.
result<Trace> open_kernel(const std::vector<std::string>& globs, const KernelChoice& choice, TracefsOptions make = {});

// What a filter's text makes of a trace's records: all, where there is none. The trace must stay where it is.
class RecordFilter {
 public:
  static result<RecordFilter> make(const std::string& text, const Trace& trace);
  bool wants(const TraceRecord& record) {
    return !filter_ || filter_->matches(record, trace_->timeline.source(record.source).name());
  }

 private:
  const Trace* trace_ = nullptr;
  std::optional<Filter> filter_;
};

}  // namespace ringside
