#include "consumer/trace.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <set>

#include "kernel/clock_check.hpp"
#include "kernel/kernel_source.hpp"
#include "source/trace_dat_file.hpp"
#include "sys/sys.hpp"
#include "sys/try.hpp"

namespace ringside {
namespace {

using Sources = std::vector<std::unique_ptr<Source>>;

void add_events(Trace& trace, const OpenedTrace& of, const std::vector<EventInfo>& events) {
  for (const EventInfo& e : events) {
    if (trace.formats.find(of.ids + e.number()) != nullptr) continue;
    if (!trace.formats.add(of.ids + e.number(), e.system, e.name, e.format))
      trace.notices.push_back("the format of " + e.system + ":" + e.name + " cannot be understood; its fields appear as hex");
  }
}

// Each opens one WHERE: what it is goes to `o`, its rings to `sources`, what its events mean to `trace`.
result<void> open_recorded(Trace& trace, OpenedTrace& o, Sources& sources) {
  const std::string& dir = o.where;
  auto meta = RecordingMeta::read(dir);
  if (!meta) return tl::unexpected<Error>(meta.error());
  auto rings = RS_TRY(open_recording(dir, *meta));
  o.doubts = meta->missing.doubts;
  if (!meta->complete) o.doubts.push_back("the recorder did not finish; the closing counters are missing, the events are here");
  for (std::string& doubt : o.doubts) trace.notices.push_back(doubt = dir + ": " + doubt);
  if (auto texts = read_kept(dir, "printk_formats")) trace.formats.add_strings(*texts);
  add_events(trace, o, meta->events);
  for (const RecordedRing& ring : meta->rings) {
    if (!ring.name.kernel) trace.tasks.add_recorded(ring.name, o.ids);
  }
  for (const RingName& thread : meta->threads) trace.tasks.add_recorded(thread, o.ids);
  trace.tasks.add(Task{0, 0, "<idle>", "<idle>"});
  if (auto names = read_kept(dir, "kallsyms")) trace.formats.symbols().load(std::move(*names));
  sources = std::move(rings);
  o.clock = to_string(meta->clock.kind);
  o.boot = meta->boot;
  o.recording = std::move(*meta);
  return {};
}

result<void> open_remote(Trace& trace, OpenedTrace& o, Sources& sources) {
  remote::Process::Options make;
  make.buffer.size = 4 << 20;
  make.buffer.subbuf_size = 16384;
  make.buffer.clock = calibrate(best_clock());
  o.remote = RS_TRY(remote::Process::attach(o.where, make));
  add_events(trace, o, o.remote->events());
  auto source = RS_TRY(o.remote->buffer().source(0));
  trace.tasks.add(source->name());
  sources.push_back(std::move(source));
  o.clock = to_string(make.buffer.clock.kind);
  o.boot = sys::boot_id();
  return o.remote->enable(true);
}

result<void> open_dat(Trace& trace, OpenedTrace& o, Sources& sources) {
  auto dat = open_trace_dat(o.where);
  if (!dat) return tl::unexpected<Error>(dat.error());
  if (dat->rings.empty() && !dat->problems.empty()) return refuse(std::errc::bad_message, dat->problems.front() + "; no events are left to read");
  for (const std::string& problem : dat->problems) trace.notices.push_back(problem);
  o.doubts = std::move(dat->problems);
  trace.formats.add_strings(dat->printk_formats);
  add_events(trace, o, dat->events);
  for (const RingName& thread : dat->threads) trace.tasks.add_recorded(thread, o.ids);
  trace.tasks.add(Task{0, 0, "<idle>", "<idle>"});
  trace.formats.symbols().load(std::move(dat->kallsyms));
  sources = std::move(dat->rings);
  o.recording.emplace();
  o.recording->clock = dat->clock;
  o.recording->complete = true;
  o.clock = dat->clock.kind == ClockKind::mono ? dat->clock_name : to_string(dat->clock.kind);
  // The file does not say where it was made. One that was changed since this machine started is taken to be of it.
  struct stat st {};
  timespec wall{}, up{};
  clock_gettime(CLOCK_REALTIME, &wall);
  clock_gettime(CLOCK_BOOTTIME, &up);
  if (stat(o.where.c_str(), &st) == 0 && st.st_mtim.tv_sec > wall.tv_sec - up.tv_sec) o.boot = sys::boot_id();
  return {};
}

result<void> open_instance(Trace& trace, OpenedTrace& o, Sources&) {
  struct stat st {};
  const std::string& where = o.where;
  auto instance = Instance::open(where);
  if (!instance) {
    if (auto ours = not_the_kernels(where); !ours) return ours;
    if (stat(where.c_str(), &st) == 0 && S_ISDIR(st.st_mode))
      return refuse(std::errc::invalid_argument, where + " is neither a recording (it has no meta.json) nor an instance (" +
                                                     instance.error().sentence + ")");
    if (where == default_recording)
      return refuse(std::errc::no_such_file_or_directory,
                    "there is no recording ./" + where + "; make one with: ringside record -- COMMAND");
    return tl::unexpected<Error>(instance.error());
  }
  o.instance = std::move(*instance);
  trace.tasks.are_here();
  o.clock = to_string(o.instance->clock().kind);
  o.boot = sys::boot_id();
  return {};
}

result<void> open_kernel(Trace& trace, OpenedTrace& o, Sources& sources, const EventPatterns& patterns, const KernelChoice& choice, TracefsOptions make) {
  make.clock = best_clock();
  o.kernel = std::make_unique<TracefsInstance>(RS_TRY(TracefsInstance::create(make)));
  o.where = o.kernel->dir();
  if (!make.own_events) (void)o.kernel->ignore(sys::gettid());
  add_events(trace, o, kernel_internal_events());
  for (const EventPattern& pattern : patterns) {
    auto enabled = RS_TRY(o.kernel->enable(pattern));
    if (enabled.empty())
      return refuse(std::errc::no_such_file_or_directory,
                    "the kernel has no event that matches \"" + pattern.text() + "\" (ringside list -e PATTERN shows its events)");
    add_events(trace, o, enabled);
  }
  if (auto names = sys::read_file("/proc/kallsyms")) trace.formats.symbols().load(std::move(*names));
  trace.tasks.add(Task{0, 0, "<idle>", "<idle>"});
  auto rings = open_kernel_rings(o.where, o.kernel->cpus(), calibrate(make.clock), choice);
  if (!rings) return tl::unexpected<Error>(rings.error());
  if (!rings->notice.empty()) trace.notices.push_back(rings->notice);
  for (auto& source : rings->sources) sources.push_back(std::move(source));
  o.clock = to_string(make.clock);
  o.boot = sys::boot_id();
  trace.tasks.are_here();
  return o.kernel->tracing(true);
}

result<void> open_one(Trace& trace, OpenedTrace& o, Sources& sources) {
  struct stat st {};
  const bool exists = stat(o.where.c_str(), &st) == 0;
  if (is_recording(o.where)) return open_recorded(trace, o, sources);
  if (exists && S_ISSOCK(st.st_mode)) return open_remote(trace, o, sources);
  if (exists && S_ISREG(st.st_mode)) return open_dat(trace, o, sources);
  return open_instance(trace, o, sources);
}

const ClockInfo& own_clock(const OpenedTrace& o, const Sources& sources) {
  return o.instance != nullptr ? o.instance->clock() : o.recording ? o.recording->clock : sources.front()->clock();
}

std::string microseconds(u64 ns) { return fmt::format("{:.3g} us", static_cast<double>(ns) / 1e3); }

// How each one's times become those of all.
result<void> agree_on_time(Trace& trace, const std::vector<OpenedTrace*>& all, const std::vector<Sources>& sources, bool verbose) {
  const std::string here = sys::boot_id(), tsc = to_string(ClockKind::tsc), mono = to_string(ClockKind::mono);
  const OpenedTrace* known = nullptr;  // one that knows its machine
  bool alike = true;
  for (const OpenedTrace* o : all) {
    if (o->clock == to_string(ClockKind::counter))
      return refuse(std::errc::invalid_argument, o->where + ": its clock counts events and tells no time, so it stands in no order with others; show it alone");
    alike = alike && o->clock == all.front()->clock;
    if (o->boot.empty()) continue;
    if (known == nullptr) known = o;
    if (o->boot != known->boot)
      return refuse(std::errc::invalid_argument, known->where + " and " + o->where +
                                                     " were made on different machines, or with a restart between: their clocks have nothing in common; show each alone");
  }
  const bool now_here = known != nullptr && known->boot == here && !here.empty();
  std::optional<ClockInfo> ticks;  // of the time stamp counter, for all
  u64 off = 0;
  for (size_t i = 0; i < all.size() && !ticks; ++i) {
    const OpenedTrace& o = *all[i];
    const bool dat = o.recording && o.recording->events.empty() && o.recording->rings.empty();
    if (o.clock != tsc || o.boot.empty() || (dat && now_here)) continue;
    ticks = now_here ? refined(own_clock(o, sources[i]), off) : own_clock(o, sources[i]);
  }
  for (size_t i = 0; i < all.size(); ++i) {
    OpenedTrace& o = *all[i];
    std::string how = "as it is";
    bool tell = verbose;
    if (o.boot.empty()) {
      how = "its times are used unchanged, because the file does not record its machine or boot";
      tell = true;
    } else if (o.clock == tsc) {
      if (!ticks) ticks = calibrate(ClockKind::tsc);
      u64 own = 0;
      if (now_here) (void)refined(own_clock(o, sources[i]), own);
      o.place.clock = *ticks;
      how = fmt::format("the same ticks for all{}", now_here ? fmt::format("; by its own rate it would be {} off now", microseconds(own)) : "");
    } else if (o.clock == mono) {
      if (o.recording) o.place.clock = ClockInfo{};
    } else if (!alike) {
      auto measured = now_here ? measure_clock(o.clock) : result<ClockConversion>(refuse(std::errc::not_supported, "that boot is over"));
      if (measured) o.place.clock = measured->clock;
      how = measured ? fmt::format("converted by measurement, ±{}, and at most {:.2g} us more for each second back; if it was not made since this machine started, show it alone",
                                   microseconds(measured->error_ns), measured->drift_ppm)
                     : "cannot be measured (" + measured.error().sentence + "), so its times are taken as they are";
      tell = true;
    }
    if (tell) trace.notices.push_back(fmt::format("{}: clock {}, {}", o.where, o.clock.empty() ? "unknown" : o.clock, how));
  }
  return {};
}

void add_rings(Trace& trace, OpenedTrace& o) {
  add_events(trace, o, o.instance->events());
  if (const u64 seen = o.instance->threads_seen(); seen != o.threads_seen) {
    o.threads_seen = seen;
    for (const RingName& thread : o.instance->threads()) trace.tasks.add(thread, o.ids);
  }
  for (const RingName& name : o.instance->ring_names()) {
    trace.tasks.add(name, o.ids);
    // A CPU's ring that was moved aside is open already under the CPU's number. Also one that fails: said once.
    if (!o.rings.insert({name.column(), name.cpu >= 0 ? name.tid : 0}).second) continue;
    auto source = o.instance->peek(name.ring);
    if (source)
      trace.timeline.add(std::move(*source), o.place);
    else
      trace.timeline.add_problem(source.error().sentence + "; its events are not here");
  }
}

// What a line of several shows of where it comes from.
std::string label_of(std::string where) {
  while (where.size() > 1 && where.back() == '/') where.pop_back();
  return where.substr(where.rfind('/') + 1);
}

}  // namespace

Missing Trace::missing(u64 gaps) const {
  Missing all{gaps, 0, 0, timeline.problems()};
  const auto add = [&](const OpenedTrace& o) {
    all.doubts.insert(all.doubts.end(), o.doubts.begin(), o.doubts.end());
    if (o.recording) {
      all.refused += o.recording->missing.refused;
      all.unrecorded += o.recording->missing.unrecorded;
    }
    for (const u32 cpu : o.kernel != nullptr ? o.kernel->cpus() : std::vector<u32>{}) {
      const auto counters = kernel_counters({o.where, cpu});
      if (counters) all.refused += counters->dropped + counters->commit_overrun;
      else all.doubts.push_back(counters.error().sentence);
    }
    if (o.instance == nullptr) return;
    const PastTotals past = o.instance->past();
    all.refused += o.instance->refused() + past.dropped + past.commit_overrun;
    for (const RingInfo& ring : o.instance->rings()) {
      all.refused += ring.counters.dropped + ring.counters.commit_overrun;
      if (!ring.problem.empty()) all.doubts.push_back(ring.problem);
    }
  };
  add(*this);
  std::for_each(others.begin(), others.end(), add);
  return all;
}

bool Trace::raw_times() const {
  return (recording ? recording->clock.kind : instance != nullptr ? instance->clock().kind : ClockKind::mono) == ClockKind::counter;
}

bool Trace::live() const {
  const auto lives = [](const OpenedTrace& o) { return !o.recording; };
  return lives(*this) || std::any_of(others.begin(), others.end(), lives);
}

bool Trace::has_only_just_begun() const {
  const auto began = [](const OpenedTrace& o) { return o.kernel != nullptr || o.remote != nullptr; };
  return began(*this) || std::any_of(others.begin(), others.end(), began);
}

void Trace::follow(u64 look_ahead_ns) {
  timeline.follow({look_ahead_ns, {}});
  each([&](OpenedTrace& o) {
    if (o.remote != nullptr) o.remote->patience(std::chrono::nanoseconds(look_ahead_ns));
  });
  refresh();
}

void Trace::refresh() {
  // Of rings that are made from here on, events are later than this.
  u64 until = Timeline::forever;
  each([&](OpenedTrace& o) {
    if (o.instance == nullptr) return;
    const ClockInfo by = o.place.clock.value_or(o.instance->clock());
    if (by.kind != ClockKind::counter) until = std::min(until, now_of(by));
    add_rings(*this, o);
  });
  timeline.hold_after(until);
}

void Trace::finish() {
  refresh();
  // By the clock of any that is live: they tell the same time, as well as is known.
  for (u32 i = 0; i < timeline.size(); ++i) {
    if (timeline.source(i).ended() || timeline.clock(i).kind == ClockKind::counter) continue;
    timeline.hold_after(now_of(timeline.clock(i)));
    break;
  }
  timeline.finish();
}

void Trace::stop() {
  each([](OpenedTrace& o) {
    if (o.kernel != nullptr) (void)o.kernel->tracing(false);
  });
  finish();
}

TracefsInstance* Trace::tracefs() {
  TracefsInstance* found = nullptr;
  each([&](OpenedTrace& o) { found = o.kernel != nullptr ? o.kernel.get() : found; });
  return found;
}

void Trace::learn_names(bool living) {
  const TracefsInstance* const from = tracefs();
  if (from == nullptr) return;
  const auto add = [&](i32 tid, std::string name) {
    if (tid > 0 && !name.empty()) tasks.add(Task{tid, tid, name, name});
  };
  std::error_code error;
  namespace fs = std::filesystem;
  for (fs::directory_iterator process("/proc", error), none; living && !error && process != none; process.increment(error)) {
    if (!std::isdigit(static_cast<unsigned char>(process->path().filename().native()[0]))) continue;
    std::error_code gone;
    for (fs::directory_iterator thread(process->path() / "task", gone); !gone && thread != none; thread.increment(gone)) {
      auto name = sys::read_file(thread->path() / "comm");
      if (name && !name->empty()) name->pop_back();
      if (name) add(std::atoi(thread->path().filename().c_str()), *name);
    }
  }
  for (auto& [tid, name] : sys::cmdlines_of(sys::read_file(from->dir() + "/../../saved_cmdlines"))) add(tid, std::move(name));
}

result<void> not_the_kernels(const std::string& where) {
  const std::string dir = find_kernel_instance(where);
  if (dir.empty()) return {};
  return refuse(std::errc::not_supported,
                where + " is an instance of the kernel's, and to read it is to take its events away from whoever made it; ringside stat " +
                    where + " shows its counters, cat " + dir +
                    "/trace its events, both leave them there; record -e PATTERN and top -e PATTERN make instances of their own");
}

result<Trace> open_traces(const std::vector<std::string>& wheres, const std::vector<std::string>& events, const KernelChoice& choice, bool verbose, TracefsOptions make) {
  Trace trace;
  auto patterns = RS_TRY(EventPatterns::parse(events));
  const size_t named = wheres.empty() && events.empty() ? 1 : wheres.size();
  const size_t count = named + !events.empty();
  trace.others.resize(count - 1);
  std::vector<OpenedTrace*> all{&trace};
  for (OpenedTrace& o : trace.others) all.push_back(&o);
  std::vector<Sources> sources(count);
  std::set<std::string> labels;
  for (size_t i = 0; i < count; ++i) {
    OpenedTrace& o = *all[i];
    if (i != 0) o.ids = trace.formats.more_ids();
    if (i < named) o.where = wheres.empty() ? default_recording : wheres[i];
    if (i < named && count > 1) o.place.label = labels.insert(label_of(o.where)).second ? label_of(o.where) : o.where;
    o.place.ids = o.ids;
    RS_TRY(i < named ? open_one(trace, o, sources[i]) : open_kernel(trace, o, sources[i], patterns, choice, make));
  }
  if (count > 1) {
    RS_TRY(agree_on_time(trace, all, sources, verbose));
  }
  for (size_t i = 0; i < count; ++i) {
    for (auto& source : sources[i]) trace.timeline.add(std::move(source), all[i]->place);
  }
  trace.refresh();
  return trace;
}

result<RecordFilter> RecordFilter::make(const std::string& text, const Trace& trace) {
  RecordFilter out;
  out.trace_ = &trace;
  if (text.empty()) return out;
  out.filter_ = RS_TRY(Filter::compile(text, trace.formats, trace.tasks));
  return out;
}

u32 RecordFilter::push_down(Trace& trace) const {
  u32 pushed = 0;
  const auto push = [&](OpenedTrace& o) {
    if (!filter_ || o.kernel == nullptr) return;
    for (const auto& type : trace.formats.all()) {
      if (type->id < o.ids + kernel_ids || type->id >= o.ids + 2 * kernel_ids || !filter_->kernel_may(*type)) continue;
      // What it does not understand it refuses, and lets everything through.
      pushed += o.kernel->write(("events/" + type->system + "/" + type->name + "/filter").c_str(), filter_->text()).has_value();
    }
  };
  trace.each(push);
  return pushed;
}

}  // namespace ringside
