#include "consumer/trace.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <map>
#include <ringside/abi/sub_buffer.hpp>
#include <set>

#include "analysis/names.hpp"
#include "export/units.hpp"
#include "kernel/clock_check.hpp"
#include "kernel/kernel_source.hpp"
#include "source/trace_dat_file.hpp"
#include "sys/beneath.hpp"
#include "sys/sys.hpp"
#include "sys/text.hpp"
#include "sys/try.hpp"

namespace ringside {
namespace {

void add_events(Trace& trace, const OpenedTrace& of, const std::vector<EventInfo>& events) {
  for (const EventInfo& e : events) {
    if (trace.formats.find(of.ids + e.number()) == nullptr) trace.formats.add(of.ids + e.number(), e.system, e.name, e.format);
  }
}

// jiffies_to_msecs() in a print fmt needs the kernel's HZ, which no format tells: events of this boot are of this kernel.
void use_ticks(Trace& trace) {
  const std::string boot = sys::boot_id();
  for (const OpenedTrace& o : trace.opened)
    if (o.boot != boot) return;
  timespec tick{};
  if (clock_getres(CLOCK_MONOTONIC_COARSE, &tick) != 0 || tick.tv_sec != 0 || tick.tv_nsec <= 0) return;
  trace.formats.use_ticks(static_cast<u32>((1'000'000'000 + tick.tv_nsec / 2) / tick.tv_nsec));
}

// The kernel's names, if they are here: some MiB, which most commands do not need.
void load_names(Trace& trace, const std::string& dir) {
  const auto at = std::make_shared<sys::Fd>(::open(dir.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!*at || faccessat(at->get(), "kallsyms", F_OK, AT_SYMLINK_NOFOLLOW) != 0) return;
  trace.formats.symbols().load_later([at] { return sys::read_beneath(at->get(), "kallsyms").value_or(""); });
}

// Each opens one WHERE: its kind and its rings go to `o`, the meaning of its events to `trace`.
result<void> open_recorded(Trace& trace, OpenedTrace& o, const std::string& dir) {
  auto meta = RS_TRY(RecordingMeta::read(dir));
  o.doubts = meta.missing.doubts;
  std::vector<std::string> problems;
  auto rings = RS_TRY(open_recording(dir, meta, &problems));
  for (std::string& problem : problems) trace.timeline.add_problem(std::move(problem));
  if (!meta.complete) o.doubts.emplace_back(recorder_did_not_finish);
  for (std::string& doubt : o.doubts) trace.notices.push_back(doubt = o.where.text + ": " + doubt);
  if (const Removed gone = meta.removed(); gone.events != 0)
    trace.notices.push_back(o.where.text + " begins later than its recording did: " + format_count(gone.events) +
                            " older events went, as --max-size " + format_size(meta.max_size) + " wanted");
  if (auto texts = read_kept(dir, "printk_formats")) trace.formats.add_strings(*texts);
  add_events(trace, o, meta.events);
  for (const RecordedRing& ring : meta.rings) {
    if (!ring.name.kernel) trace.tasks.add_recorded(ring.name, o.ids);
  }
  for (const RingName& thread : meta.threads) trace.tasks.add_recorded(thread, o.ids);
  if (o.ctf == nullptr) trace.tasks.add(Task{0, 0, "<idle>", "<idle>"});  // its events may tell no thread
  load_names(trace, dir);
  o.sources = std::move(rings);
  o.clock = to_string(meta.clock.kind);
  o.boot = meta.boot;
  o.recording = std::move(meta);
  return {};
}

result<void> open_ctf(Trace& trace, OpenedTrace& o) {
  if (o.ctf == nullptr) o.ctf = RS_TRY(CtfAsRecording::convert(o.where.text));
  return open_recorded(trace, o, o.ctf->recording());
}

result<void> open_shipped(Trace& trace, OpenedTrace& o) {
  RS_TRY(open_recorded(trace, o, o.shipped->recording()));
  for (const std::string& remark : o.shipped->remarks()) trace.notices.push_back(o.machine.host + ": " + remark);
  return {};
}

result<void> open_remote(Trace& trace, OpenedTrace& o) {
  remote::Process::Options make;
  make.buffer.size = 4 << 20;
  make.buffer.subbuf_size = 16384;
  make.buffer.clock = calibrate(best_clock());
  o.remote = RS_TRY(remote::Process::attach(o.where.text, make));
  add_events(trace, o, o.remote->events());
  auto source = RS_TRY(o.remote->buffer().source(0));
  trace.tasks.add(source->name());
  o.sources.push_back(std::move(source));
  o.clock = to_string(make.buffer.clock.kind);
  o.boot = sys::boot_id();
  return o.remote->enable(true);
}

// Its rings follow with the first refresh().
result<void> open_served_rings(OpenedTrace& o) {
  o.server = RS_TRY(ServedConnection::connect(o.where.text));
  o.clock = to_string(o.server->clock().kind);
  o.boot = sys::boot_id();
  return {};
}

result<void> open_dat(Trace& trace, OpenedTrace& o) {
  auto dat = RS_TRY(open_trace_dat(o.where.text));
  if (dat.rings.empty() && !dat.problems.empty())
    return refuse(std::errc::bad_message, dat.problems.front() + "; no events are left to read");
  for (const std::string& problem : dat.problems) trace.notices.push_back(problem);
  o.doubts = std::move(dat.problems);
  for (const std::string& doubt : dat.missing.doubts)
    trace.notices.push_back(o.doubts.emplace_back(o.where.text + ": " + sys::printable(doubt)));
  trace.formats.add_strings(dat.printk_formats);
  add_events(trace, o, dat.events);
  for (const RingName& thread : dat.threads) trace.tasks.add_recorded(thread, o.ids);
  trace.tasks.add(Task{0, 0, "<idle>", "<idle>"});
  if (!dat.kallsyms.empty()) trace.formats.symbols().load(std::move(dat.kallsyms));
  o.sources = std::move(dat.rings);
  o.recording.emplace();
  o.recording->clock = dat.clock;
  o.recording->complete = true;
  o.recording->missing.refused = dat.missing.refused;
  o.recording->missing.unrecorded = dat.missing.unrecorded;
  o.clock = dat.clock.kind == ClockKind::mono ? dat.clock_name : to_string(dat.clock.kind);
  if (dat.unshifted) return {};
  // The file does not say which machine it was made on. If it was changed since this machine started, assume this one; a
  // guest's times are its host's by now.
  struct stat st {};
  timespec wall{}, up{};
  clock_gettime(CLOCK_REALTIME, &wall);
  clock_gettime(CLOCK_BOOTTIME, &up);
  if (stat(o.where.text.c_str(), &st) == 0 && st.st_mtim.tv_sec > wall.tv_sec - up.tv_sec) o.boot = sys::boot_id();
  return {};
}

// Does it name events of the kernel?
bool is_event(const std::string& text) {
  const auto patterns = EventPatterns::parse(text);
  if (!patterns) return false;
  const auto known = kernel_events();
  return known && std::any_of(patterns->begin(), patterns->end(), [&](const auto& p) { return names_some(p, *known); });
}

result<void> open_instance(Trace& trace, OpenedTrace& o) {
  const std::string& where = o.where.text;
  auto instance = Instance::open(where);
  if (!instance) {
    std::error_code none;
    if (std::filesystem::is_directory(where, none))
      return refuse(std::errc::invalid_argument, where + " is neither a recording (it has no meta.json) nor an instance (" +
                                                     instance.error().sentence + ")");
    if (where == default_recording) {
      const auto names = Instance::list();
      return refuse(std::errc::no_such_file_or_directory,
                    "there is no recording ./" + where + "; make one with: ringside record -- COMMAND" +
                        (names.empty() ? "" : "; or name an instance: " + short_list(names)));
    }
    if (std::filesystem::exists(where, none))
      return refuse(std::errc::invalid_argument, where + " is neither a recording nor a trace.dat nor an instance");
    if (instance.error().code == std::errc::no_such_file_or_directory && where.find('/') == std::string::npos)
      return refuse(std::errc::no_such_file_or_directory,
                    "there is no recording, trace.dat or instance " + where +
                        (is_event(where) ? "; an event of this name is chosen by -e " + where : Instance::where_else(where)));
    return tl::unexpected<Error>(instance.error());
  }
  o.instance = std::move(*instance);
  trace.tasks.are_here();
  o.clock = to_string(o.instance->clock().kind);
  o.boot = sys::boot_id();
  return {};
}

result<void> open_kernel(Trace& trace, OpenedTrace& o, const EventPatterns& patterns, const KernelChoice& choice,
                         TracefsOptions make) {
  make.clock = best_clock();
  o.kernel = std::make_unique<TracefsInstance>(RS_TRY(TracefsInstance::create(make)));
  o.where = {o.kernel->dir(), Where::Kind::kernel, o.kernel->dir()};
  if (!make.own_events) (void)o.kernel->ignore(sys::gettid());
  if (make.only_followed) RS_TRY(o.kernel->write("set_event_pid", std::to_string(getpid())));  // this one is ignored
  add_events(trace, o, kernel_internal_events());
  for (const EventPattern& pattern : patterns) {
    auto enabled = RS_TRY(o.kernel->enable(pattern));
    if (enabled.empty())
      return refuse(std::errc::no_such_file_or_directory, "the kernel has no event that matches \"" + pattern.text() +
                                                              "\" (ringside list -e PATTERN shows its events)");
    add_events(trace, o, enabled);
  }
  trace.formats.symbols().load_later([] { return sys::read_file("/proc/kallsyms").value_or(""); });
  trace.tasks.add(Task{0, 0, "<idle>", "<idle>"});
  auto rings = RS_TRY(open_kernel_rings(o.kernel->dir(), o.kernel->cpus(), calibrate(make.clock), choice));
  if (!rings.notice.empty()) trace.notices.push_back(rings.notice);
  for (auto& source : rings.sources) o.sources.push_back(std::move(source));
  o.clock = to_string(make.clock);
  o.boot = sys::boot_id();
  trace.tasks.are_here();
  return o.kernel->tracing(true);
}

result<void> open_one(Trace& trace, OpenedTrace& o) {
  switch (o.where.kind) {
    case Where::Kind::recording: return open_recorded(trace, o, o.where.text);
    case Where::Kind::ctf: return open_ctf(trace, o);
    case Where::Kind::shipped: return open_shipped(trace, o);
    case Where::Kind::writer: return open_remote(trace, o);
    case Where::Kind::trace_dat: return open_dat(trace, o);
    case Where::Kind::served: return open_served_rings(o);
    case Where::Kind::kernel: return tl::unexpected<Error>(o.where.not_to_be_read());
    case Where::Kind::instance:
    case Where::Kind::nothing: break;
  }
  return open_instance(trace, o);
}

ClockInfo own_clock(const OpenedTrace& o) {
  if (o.server != nullptr) return o.server->clock();
  return o.instance != nullptr ? o.instance->clock() : o.recording ? o.recording->clock : o.sources.front()->clock();
}

std::string microseconds(u64 ns) { return fmt::format("{:.3g} us", static_cast<double>(ns) / 1e3); }

// Of what was shipped: each row has its time of day.
result<void> agree_on_time_of_day(Trace& trace) {
  for (const OpenedTrace& o : trace.opened) {
    if (o.shipped == nullptr)
      return refuse(
          std::errc::invalid_argument,
          o.where.text +
              " has times of a clock that began with its machine, and what was shipped has times of day; show each alone");
    trace.notices.push_back(o.origin.label + ": times of day, " +
                            (o.machine.error_ns >= o.machine.unknown
                                 ? "by a clock that is not synchronised: how far they are off is not known"
                                 : "±" + microseconds(o.machine.error_ns)));
  }
  return {};
}

// Decides how each one's times are converted to the common time.
result<void> agree_on_time(Trace& trace, bool verbose) {
  const auto is_shipped = [](const OpenedTrace& o) { return o.shipped != nullptr; };
  if (std::any_of(trace.opened.begin(), trace.opened.end(), is_shipped)) return agree_on_time_of_day(trace);
  const std::string here = sys::boot_id(), mono = to_string(ClockKind::mono);
  const auto in_ticks = [](const OpenedTrace& o) {
    return o.clock == to_string(ClockKind::tsc) || o.clock == to_string(ClockKind::cntvct);
  };
  const OpenedTrace* known = nullptr;  // one whose machine is known
  bool alike = true;
  for (const OpenedTrace& o : trace.opened) {
    if (o.clock == to_string(ClockKind::counter))
      return refuse(
          std::errc::invalid_argument,
          o.where.text + ": its clock counts events and tells no time, so it stands in no order with others; show it alone");
    alike = alike && o.clock == trace.first().clock;
    if (o.boot.empty()) continue;
    if (known == nullptr) known = &o;
    if (o.boot != known->boot)
      return refuse(std::errc::invalid_argument, known->where.text + " and " + o.where.text +
                                                     " were made on different machines, or with a restart between: their "
                                                     "clocks have nothing in common; show each alone");
  }
  const bool now_here = known != nullptr && known->boot == here && !here.empty();
  std::map<std::string, ClockInfo> ticks;  // for each counter of processors, of all
  u64 off = 0;
  for (const OpenedTrace& o : trace.opened) {
    const bool dat = o.recording && o.recording->events.empty() && o.recording->rings.empty();
    if (!in_ticks(o) || ticks.count(o.clock) != 0 || o.boot.empty() || (dat && now_here)) continue;
    ticks[o.clock] = now_here ? refined(own_clock(o), off) : own_clock(o);
  }
  for (OpenedTrace& o : trace.opened) {
    std::string how = "as it is";
    bool tell = verbose;
    if (o.boot.empty()) {
      how = "its times are used unchanged, because the file does not record its machine or boot";
      tell = true;
    } else if (in_ticks(o)) {
      if (ticks.count(o.clock) == 0) ticks[o.clock] = calibrate(own_clock(o).kind);
      u64 own = 0;
      if (now_here) (void)refined(own_clock(o), own);
      o.origin.clock = ticks[o.clock];
      how = fmt::format("the same ticks for all{}",
                        now_here ? fmt::format("; by its own rate it would be {} off now", microseconds(own)) : "");
    } else if (o.clock == mono) {
      if (o.recording) o.origin.clock = ClockInfo{};
    } else if (!alike) {
      auto measured =
          now_here ? measure_clock(o.clock) : result<ClockConversion>(refuse(std::errc::not_supported, "that boot is over"));
      if (measured) o.origin.clock = measured->clock;
      how = measured ? fmt::format(
                           "converted by measurement, ±{}, and at most {:.2g} us more for each second back; if it was not made "
                           "since this machine started, show it alone",
                           microseconds(measured->error_ns), measured->drift_ppm)
                     : "cannot be measured (" + measured.error().sentence + "), so its times are taken as they are";
      tell = true;
    }
    if (tell)
      trace.notices.push_back(fmt::format("{}: clock {}, {}", o.where.text, o.clock.empty() ? "unknown" : o.clock, how));
  }
  return {};
}

// Its rings can come while it is read.
bool has_coming_rings(const OpenedTrace& o) { return o.instance != nullptr || (o.server != nullptr && !o.server->gone()); }

// What a server tells of its instance's events and rings.
result<std::vector<RingName>> ask_server(Trace& trace, OpenedTrace& o) {
  RS_TRY(o.server->greet());
  if (o.server->hello().nr_events != o.events_seen) {
    const auto events = RS_TRY(served_events(*o.server));
    add_events(trace, o, events);
    o.events_seen = events.size();
  }
  return served_rings(*o.server);
}

// Events that never came into a ring. A ring that is not open here is among the problems.
result<u64> refused_at(ServedConnection& server) {
  const Counters past = RS_TRY(server.counters(std::nullopt));
  u64 refused = past.dropped + past.commit_overrun;
  for (const RingName& name : RS_TRY(served_rings(server)))
    if (const auto ring = server.counters(name.ring)) refused += ring->dropped + ring->commit_overrun;
  return refused;
}

std::vector<RingName> ask_instance(Trace& trace, OpenedTrace& o) {
  add_events(trace, o, o.instance->events());
  if (const u64 seen = o.instance->threads_seen(); seen != o.threads_seen) {
    o.threads_seen = seen;
    for (const RingName& thread : o.instance->threads()) trace.tasks.add(thread, o.ids);
  }
  return o.instance->ring_names();
}

void add_rings(Trace& trace, OpenedTrace& o) {
  const auto names = o.instance != nullptr ? result<std::vector<RingName>>(ask_instance(trace, o)) : ask_server(trace, o);
  if (!names) return trace.timeline.add_problem(names.error().sentence);
  for (const RingName& name : *names) {
    trace.tasks.add(name, o.ids);
    // A CPU's ring that was moved aside is open already under the CPU's number. A ring that fails is noted, too, so it is
    // reported once.
    if (!o.rings.insert({name.place(), name.cpu >= 0 ? name.tid : 0}).second) continue;
    auto source = o.instance != nullptr ? o.instance->peek(name.ring) : served_source(o.server, name.ring);
    if (source)
      trace.timeline.add(std::move(*source), o.origin);
    else
      trace.timeline.add_problem(source.error().sentence + "; its events are not here");
  }
}

// The label in a line: which of several WHEREs it comes from.
std::string label_of(std::string where) {
  while (where.size() > 1 && where.back() == '/') where.pop_back();
  return where.substr(where.rfind('/') + 1);
}

}  // namespace

Missing Trace::missing(u64 gaps) const {
  Missing all{gaps, 0, 0, timeline.problems()};
  for (const OpenedTrace& o : opened) {
    all.doubts.insert(all.doubts.end(), o.doubts.begin(), o.doubts.end());
    if (o.recording) {
      all.refused += o.recording->missing.refused;
      all.unrecorded += o.recording->missing.unrecorded;
      all.refused_at_least = all.refused_at_least || o.recording->missing.refused_at_least;
      all.off += o.recording->missing.off;
    }
    for (const u32 cpu : o.kernel != nullptr ? o.kernel->cpus() : std::vector<u32>{}) {
      const auto counters = kernel_counters({o.kernel->dir(), cpu});
      if (counters) all.refused += counters->dropped + counters->commit_overrun;
      else all.doubts.push_back(counters.error().sentence);
    }
    if (o.server != nullptr) {
      if (const auto refused = refused_at(*o.server)) all.refused += *refused;
      else all.doubts.push_back(refused.error().sentence);
    }
    if (o.remote != nullptr) {
      all.refused += o.remote->buffer().refused();
      all.refused_at_least = all.refused_at_least || !o.remote->buffer().refused_is_exact();
    }
    if (o.instance == nullptr) continue;
    const PastTotals past = o.instance->past();
    all.off += o.instance->refused_off();
    all.refused += o.instance->refused() + past.dropped + past.commit_overrun;
    for (const RingInfo& ring : o.instance->rings()) {
      all.refused += ring.counters.dropped + ring.counters.commit_overrun;
      if (!ring.problem.empty()) all.doubts.push_back(ring.problem);
    }
  }
  return all;
}

void Trace::read_again(const std::function<void(u32, Bytes)>& use) const {
  for (const OpenedTrace& o : opened) {
    std::vector<std::unique_ptr<Source>> sources;
    if (o.where.is(Where::Kind::recording) || o.shipped != nullptr) {
      if (auto again = open_recording(o.shipped != nullptr ? o.shipped->recording() : o.where.text, *o.recording)) {
        for (auto& source : *again) sources.push_back(std::move(source));
      }
    } else if (o.where.is(Where::Kind::trace_dat)) {
      if (auto again = open_trace_dat(o.where.text)) sources = std::move(again->rings);
    } else if (o.instance != nullptr) {
      for (const RingName& name : o.instance->ring_names()) {
        if (auto source = o.instance->peek(name.ring)) sources.push_back(std::move(*source));
      }
    }
    for (const auto& source : sources) {
      if (source->name().kernel) continue;
      const u32 ids = source->name().ids() + o.origin.ids;
      for (auto view = source->next(); view && *view; view = source->next()) {
        abi::EventCursor cursor((*view)->sub_buffer + abi::header_size, (*view)->begin, (*view)->end, (*view)->time);
        while (cursor.next()) {
          TraceRecord record;
          record.ids = ids;
          record.payload = cursor.payload();
          use(record.number(), record.payload);
        }
      }
    }
  }
}

bool Trace::tallied() const {
  return std::any_of(opened.begin(), opened.end(),
                     [](const OpenedTrace& o) { return o.shipped != nullptr && o.shipped->tallied(); });
}

bool Trace::raw_times() const {
  const OpenedTrace& o = first();
  return (o.kernel != nullptr || o.remote != nullptr ? ClockKind::mono : own_clock(o).kind) == ClockKind::counter;
}

u64 Trace::now() const {
  u64 now = Timeline::forever;
  const auto ask = [&](const ClockInfo& clock) {
    if (clock.kind != ClockKind::counter) now = std::min(now, now_of(clock));
  };
  for (u32 i = 0; i < timeline.size(); ++i) ask(timeline.clock(i));
  for (const OpenedTrace& o : opened) {
    if (has_coming_rings(o)) ask(o.origin.clock.value_or(own_clock(o)));
  }
  return now == Timeline::forever ? 0 : now;
}

bool Trace::live() const {
  return std::any_of(opened.begin(), opened.end(), [](const OpenedTrace& o) { return !o.recording; });
}

bool Trace::has_only_just_begun() const {
  return std::any_of(opened.begin(), opened.end(),
                     [](const OpenedTrace& o) { return o.kernel != nullptr || o.remote != nullptr; });
}

bool Trace::consumes() const {
  return has_only_just_begun() ||
         std::any_of(opened.begin(), opened.end(), [](const OpenedTrace& o) { return o.server != nullptr; });
}

void Trace::follow(u64 look_ahead_ns) {
  timeline.follow({look_ahead_ns, {}});
  for (OpenedTrace& o : opened) {
    if (o.remote != nullptr) o.remote->patience(std::chrono::nanoseconds(look_ahead_ns));
  }
  refresh();
}

void Trace::refresh() {
  // A ring that is overwritten faster than it is read shows its first sub-buffer, and no more.
  if (!timeline.following()) {
    for (OpenedTrace& o : opened)
      if (has_coming_rings(o)) add_rings(*this, o);
    timeline.prefetch();
  }
  // Events of rings that are made from here on are later than this.
  u64 until = Timeline::forever;
  for (OpenedTrace& o : opened) {
    if (!has_coming_rings(o)) continue;
    const ClockInfo by = o.origin.clock.value_or(own_clock(o));
    if (by.kind != ClockKind::counter) until = std::min(until, now_of(by));
    add_rings(*this, o);
  }
  timeline.hold_after(until);
}

void Trace::grow(const RecordingMeta& now) {
  OpenedTrace& o = opened.front();
  const bool same = o.recording && o.recording->events.size() == now.events.size() &&
                    o.recording->threads.size() == now.threads.size() && o.recording->rings.size() == now.rings.size() &&
                    o.recording->complete == now.complete;
  if (same) return;
  add_events(*this, o, now.events);
  for (const RecordedRing& ring : now.rings) {
    if (!ring.name.kernel) tasks.add_recorded(ring.name, o.ids);
    if (o.rings.insert({ring.name.ring, ring.name.kernel ? 1 : 0}).second)
      timeline.add(std::make_unique<GrowingSource>(o.where.text, ring, now.clock));
  }
  for (const RingName& thread : now.threads) tasks.add_recorded(thread, o.ids);
  o.doubts = now.missing.doubts;
  o.recording = now;
}

void Trace::finish() {
  refresh();
  // By the clock of any live one: all show the same time, as far as known.
  for (u32 i = 0; i < timeline.size(); ++i) {
    if (timeline.source(i).ended() || timeline.clock(i).kind == ClockKind::counter) continue;
    timeline.hold_after(now_of(timeline.clock(i)));
    break;
  }
  timeline.finish();
}

void Trace::stop() {
  if (TracefsInstance* const kernel = tracefs()) (void)kernel->tracing(false);
  finish();
}

namespace {

std::vector<std::pair<i32, std::string>> names_of_late(const TracefsInstance& kernel) {
  return sys::cmdlines_of(sys::read_file(kernel.dir() + "/../../saved_cmdlines"));
}

}  // namespace

void Trace::learn_names() {
  if (tracefs() == nullptr) return;
  for (const auto& [tid, name] : names_of_late(*tracefs())) {
    const Task* const known = tasks.find(Tasks::Key{tid});
    if (tid <= 0 || name.empty() || (known != nullptr && known->name == name)) continue;  // there may be thousands
    tasks.add(Task{tid, tid, name, name});
  }
}

bool Trace::learn_name(i32 tid) {
  char living[17] = {};
  if (sys::pids_are_the_kernels()) sys::comm_of(tid, tid, living);
  std::string name = living;
  if (name.empty() && tracefs() != nullptr)
    for (auto& [other, its_name] : names_of_late(*tracefs()))
      if (other == tid) name = std::move(its_name);
  if (!name.empty()) tasks.add(Task{tid, tid, name, name});
  return !name.empty();
}

std::vector<u32> Trace::tell_names() {
  std::vector<u32> extra;
  if (tracefs() == nullptr) return extra;
  OpenedTrace& o = opened.back();
  for (const char* event : {"task:task_newtask", "task:task_rename"}) {
    const auto enabled = o.kernel->enable(EventPattern(event));
    for (const EventInfo& e : enabled.value_or(std::vector<EventInfo>()))
      if (formats.find(o.ids + e.number()) == nullptr) extra.push_back(o.ids + e.number());
    if (enabled) add_events(*this, o, *enabled);
  }
  return extra;
}

namespace {

// A place on a server may have several machines.
result<void> add_where(Trace& trace, Where where) {
  if (!where.is(Where::Kind::shipped)) {
    trace.opened.push_back({std::move(where)});
    return {};
  }
  for (auto& machine : RS_TRY(ShippedAsRecording::machines(RS_TRY(ShippedAsRecording::Place::parse(where.text))))) {
    trace.opened.push_back({where});
    trace.opened.back().machine = std::move(machine);
  }
  return {};
}

// The times of one boot of one machine are those of its own recordings.
result<void> read_shipped(Trace& trace, bool alone, const Tallied* tallied) {
  const auto times = alone && trace.opened.size() == 1 ? ShippedAsRecording::Times::mono : ShippedAsRecording::Times::wall;
  std::map<std::string, u32> boots;
  for (OpenedTrace& o : trace.opened) {
    if (!o.where.is(Where::Kind::shipped)) continue;
    o.shipped =
        RS_TRY(ShippedAsRecording::read(RS_TRY(ShippedAsRecording::Place::parse(o.where.text)), o.machine, times, tallied));
    const u32 boot = ++boots[o.machine.host];
    if (trace.opened.size() > 1) o.origin.label = o.machine.host + (boot == 1 ? "" : "." + std::to_string(boot));
  }
  return {};
}

}  // namespace

result<Trace> open_traces(const std::vector<std::string>& wheres, const std::vector<std::string>& events,
                          const KernelChoice& choice, bool verbose, TracefsOptions make, const Trace* same,
                          const Tallied* tallied) {
  Trace trace;
  auto patterns = RS_TRY(EventPatterns::parse(events));
  if (same != nullptr) {
    for (const OpenedTrace& o : same->opened) {
      trace.opened.push_back({o.where, o.ctf, o.shipped, o.machine});
      trace.opened.back().origin.label = o.origin.label;
    }
  } else {
    for (const std::string& where : wheres) RS_TRY(add_where(trace, Where::of(where)));
    RS_TRY(read_shipped(trace, events.empty(), tallied));
  }
  if (same == nullptr && wheres.empty() && events.empty()) trace.opened.push_back({Where::of(default_recording)});
  const size_t named = trace.opened.size();
  if (!events.empty()) trace.opened.emplace_back();
  const bool several = trace.opened.size() > 1;
  std::set<std::string> labels;
  for (size_t i = 0; i < trace.opened.size(); ++i) {
    OpenedTrace& o = trace.opened[i];
    const std::string& where = o.where.text;
    if (i != 0) o.origin.ids = o.ids = trace.formats.more_ids();
    if (i < named && several && o.shipped == nullptr)
      o.origin.label = labels.insert(label_of(where)).second ? label_of(where) : where;
    RS_TRY(i < named ? open_one(trace, o) : open_kernel(trace, o, patterns, choice, make));
  }
  if (several) RS_TRY(agree_on_time(trace, verbose));
  use_ticks(trace);
  for (OpenedTrace& o : trace.opened) {
    for (auto& source : o.sources) trace.timeline.add(std::move(source), o.origin);
    o.sources.clear();
  }
  trace.refresh();
  return trace;
}

Trace open_growing(const std::string& dir, const RecordingMeta& now) {
  Trace trace;
  OpenedTrace& o = trace.opened.emplace_back();
  o.where = {dir, Where::Kind::recording, dir};
  o.clock = to_string(now.clock.kind);
  o.boot = now.boot;
  if (auto texts = read_kept(dir, "printk_formats")) trace.formats.add_strings(*texts);
  load_names(trace, dir);
  use_ticks(trace);
  trace.tasks.add(Task{0, 0, "<idle>", "<idle>"});
  trace.grow(now);
  return trace;
}

}  // namespace ringside
