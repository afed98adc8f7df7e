#include "consumer/trace.hpp"

#include <sys/stat.h>

#include <algorithm>

#include "kernel/kernel_source.hpp"
#include "source/trace_dat_file.hpp"
#include "sys/sys.hpp"

namespace ringside {
namespace {

void add_events(Trace& trace, const std::vector<EventInfo>& events) {
  for (const EventInfo& e : events) {
    if (trace.formats.find(e.number()) != nullptr) continue;
    if (!trace.formats.add(e.number(), e.system, e.name, e.format))
      trace.notices.push_back("the format of " + e.system + ":" + e.name + " cannot be understood; its fields appear as hex");
  }
}

result<Trace> open_recorded(const std::string& dir) {
  auto meta = RecordingMeta::read(dir);
  if (!meta) return tl::unexpected<Error>(meta.error());
  auto sources = open_recording(dir, *meta);
  if (!sources) return tl::unexpected<Error>(sources.error());
  Trace trace;
  trace.where = dir;
  if (!meta->complete) trace.notices.push_back(dir + ": the recorder did not finish; the closing counters are missing, the events are here");
  if (auto texts = sys::read_file(dir + "/printk_formats")) trace.formats.add_strings(*texts);
  add_events(trace, meta->events);
  for (const RecordedRing& ring : meta->rings) {
    if (!ring.name.kernel) trace.tasks.add(ring.name);
  }
  for (const RingName& thread : meta->threads) trace.tasks.add(thread);
  trace.tasks.add(Task{0, 0, "<idle>", "<idle>"});
  if (auto names = sys::read_file(dir + "/kallsyms")) trace.formats.symbols().load(std::move(*names));
  for (auto& source : *sources) {
    trace.rings.push_back(source->name().ring);
    trace.timeline.add(std::move(source));
  }
  trace.recording = std::move(*meta);
  return trace;
}

result<Trace> open_remote(const std::string& socket) {
  remote::Process::Options make;
  make.buffer.size = 4 << 20;
  make.buffer.subbuf_size = 16384;
  make.buffer.clock = calibrate(best_clock());
  auto process = remote::Process::attach(socket, make);
  if (!process) return tl::unexpected<Error>(process.error());
  Trace trace;
  trace.where = socket;
  trace.remote = std::move(*process);
  add_events(trace, trace.remote->events());
  auto source = trace.remote->buffer().source(0);
  if (!source) return tl::unexpected<Error>(source.error());
  trace.tasks.add((*source)->name());
  trace.rings.push_back(0);
  trace.timeline.add(std::move(*source));
  if (auto on = trace.remote->enable(true); !on) return tl::unexpected<Error>(on.error());
  return trace;
}

result<Trace> open_dat(const std::string& path) {
  auto dat = open_trace_dat(path);
  if (!dat) return tl::unexpected<Error>(dat.error());
  
  if (dat->rings.empty() && !dat->problems.empty()) return refuse(std::errc::bad_message, dat->problems.front() + "; no events are left to read");
  Trace trace;
  trace.where = path;
  trace.notices = std::move(dat->problems);
  trace.formats.add_strings(dat->printk_formats);
  add_events(trace, dat->events);
  for (const RingName& thread : dat->threads) trace.tasks.add(thread);
  trace.tasks.add(Task{0, 0, "<idle>", "<idle>"});
  trace.formats.symbols().load(std::move(dat->kallsyms));
  for (auto& source : dat->rings) trace.timeline.add(std::move(source));
  trace.recording.emplace();
  trace.recording->clock = dat->clock;
  trace.recording->complete = true;
  return trace;
}

}  // namespace

bool Trace::raw_times() const {
  return (recording ? recording->clock.kind : instance != nullptr ? instance->clock().kind : ClockKind::mono) == ClockKind::counter;
}

void Trace::refresh() {
  if (instance == nullptr) return;
  add_events(*this, instance->events());
  for (const RingInfo& info : instance->rings()) {
    tasks.add(info.name);
    if (std::find(rings.begin(), rings.end(), info.name.ring) != rings.end()) continue;
    auto source = instance->peek(info.name.ring);
    if (!source) {
      notices.push_back(source.error().sentence);
      rings.push_back(info.name.ring);  // said once
      continue;
    }
    rings.push_back(info.name.ring);
    timeline.add(std::move(*source));
  }
}

result<void> not_the_kernels(const std::string& where) {
  const std::string dir = find_kernel_instance(where);
  if (dir.empty()) return {};
  return refuse(std::errc::not_supported,
                where + " is an instance of the kernel's, and to read it is to take its events away from whoever made it; ringside stat " +
                    where + " shows its counters, cat " + dir +
                    "/trace its events, both leave them there; record -e PATTERN and top -e PATTERN make instances of their own");
}

result<Trace> open_trace(const std::string& where) {
  struct stat st {};
  const bool exists = stat(where.c_str(), &st) == 0;
  if (is_recording(where)) return open_recorded(where);
  if (exists && S_ISSOCK(st.st_mode)) return open_remote(where);
  if (exists && S_ISREG(st.st_mode)) return open_dat(where);
  auto instance = Instance::open(where);
  if (!instance) {
    if (auto ours = not_the_kernels(where); !ours) return tl::unexpected<Error>(ours.error());
    if (exists && S_ISDIR(st.st_mode))
      return refuse(std::errc::invalid_argument, where + " is neither a recording (it has no meta.json) nor an instance (" +
                                                     instance.error().sentence + ")");
    if (where == default_recording)
      return refuse(std::errc::no_such_file_or_directory,
                    "there is no recording ./" + where + "; make one with: ringside record -- COMMAND");
    return tl::unexpected<Error>(instance.error());
  }
  Trace trace;
  trace.where = where;
  trace.instance = std::move(*instance);
  // Conversion from ticks is right within 20 ppm; what the opening itself takes is more than that.
  if (trace.instance->clock().kind != ClockKind::counter) trace.until_ns = sys::now_ns() + 10'000'000;
  trace.refresh();
  return trace;
}

result<Trace> open_kernel(const std::vector<std::string>& globs, const KernelChoice& choice, TracefsOptions make) {
  make.clock = best_clock();
  auto instance = TracefsInstance::create(make);
  if (!instance) return tl::unexpected<Error>(instance.error());
  Trace trace;
  trace.kernel = std::make_unique<TracefsInstance>(std::move(*instance));
  trace.where = trace.kernel->dir();
  (void)trace.kernel->ignore(sys::gettid());
  add_events(trace, kernel_internal_events());
  for (const std::string& glob : globs) {
    auto enabled = trace.kernel->enable(glob);
    if (!enabled) return tl::unexpected<Error>(enabled.error());
    if (enabled->empty())
      return refuse(std::errc::no_such_file_or_directory,
                    "the kernel has no event that matches \"" + glob + "\" (ringside list -e PATTERN shows its events)");
    add_events(trace, *enabled);
  }
  if (auto names = sys::read_file("/proc/kallsyms")) trace.formats.symbols().load(std::move(*names));
  trace.tasks.add(Task{0, 0, "<idle>", "<idle>"});
  const ClockInfo clock = calibrate(make.clock);
  auto rings = open_kernel_rings(trace.where, trace.kernel->cpus(), clock, choice);
  if (!rings) return tl::unexpected<Error>(rings.error());
  if (!rings->notice.empty()) trace.notices.push_back(rings->notice);
  for (auto& source : rings->sources) trace.timeline.add(std::move(source));
  if (auto on = trace.kernel->tracing(true); !on) return tl::unexpected<Error>(on.error());
  return trace;
}

result<RecordFilter> RecordFilter::make(const std::string& text, const Trace& trace) {
  RecordFilter out;
  out.trace_ = &trace;
  if (text.empty()) return out;
  auto filter = Filter::compile(text, trace.formats, trace.tasks);
  if (!filter) return tl::unexpected<Error>(filter.error());
  out.filter_ = std::move(*filter);
  return out;
}

}  // namespace ringside
