#include "record/kernel_feed.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "kernel/kernel_numbers.hpp"
#include "schema/filter_clauses.hpp"
#include "sys/thread.hpp"
#include "sys/try.hpp"

namespace ringside {
namespace {

constexpr int tick_ms = 100;            // for rings that are less full: the kernel copies unfinished sub-buffers event by event
constexpr size_t most_names = 65536;  // names of threads that a flight recorder keeps: it may run for weeks

}  // namespace

result<std::unique_ptr<KernelFeed>> KernelFeed::create(const Options& options, const ClockInfo& clock) {
  if (clock.kind == ClockKind::cntvct)
    return refuse(std::errc::invalid_argument,
                  "the kernel has no clock arm64-cntvct, so its events cannot be put into one order with the program's: "
                  "use --clock mono, for an instance when it is made");
  if (clock.kind == ClockKind::counter)
    return refuse(std::errc::invalid_argument,
                  "the clock \"counter\" counts the program's events but not the kernel's, so they cannot be put into "
                  "one order: use --clock tsc or mono, for an instance when it is made");

  TracefsOptions make;
  make.buffer_size = options.buffer_size;
  make.subbuf_size = options.subbuf_size;
  make.overwrite = options.overwrite;
  make.clock = clock.kind;
  make.buffer_percent = wake_percent;
  auto instance = RS_TRY(TracefsInstance::create(make));
  std::unique_ptr<KernelFeed> feed(new KernelFeed(std::move(instance), options, clock));
  TracefsInstance& mine = feed->instance_;
  if (KernelNumbers::differ()) {  // from here on threads that end are reported
    const auto numbers = RS_TRY(KernelNumbers::shared());
    (void)mine.numbers();
    if (!numbers->tells_ended() && options.notice)
      options.notice(
          "the kernel's events have the numbers of the first PID namespace, and perf_event_open, which knows those of "
          "threads that end, is refused here: threads that end within half a second are shown by the former");
  }
  feed->events_ = kernel_internal_events();
  feed->needs_symbols_ = !options.functions.functions.empty();
  std::set<u16> seen;
  for (const EventPattern& pattern : options.events) {
    auto enabled = RS_TRY(mine.enable(pattern, options.filter));
    if (enabled.empty())
      return refuse(std::errc::no_such_file_or_directory,
                    "the kernel has no event that matches " + pattern.text() + " (ringside list PATTERN shows its events)");
    for (EventInfo& event : enabled) {
      if (!seen.insert(event.id).second) continue;
      feed->needs_symbols_ = feed->needs_symbols_ || needs_symbols(event.format);
      feed->events_.push_back(std::move(event));
    }
  }
  if (!options.probes.empty()) feed->probes_.emplace(RS_TRY(ProbeGroup::define(mine, options.probes, options.filter)));
  if (!options.functions.functions.empty()) RS_TRY(mine.trace_functions(options.functions));
  for (const ProbeGroup::Event& probe : feed->probes_ ? feed->probes_->events() : std::vector<ProbeGroup::Event>()) {
    seen.insert(probe.info.id);
    feed->events_.push_back(probe.info);
  }
  feed->enabled_ = seen.size();
  const auto clauses = RS_TRY(filter_clauses(options.filter));
  for (const FilterClause& clause : clauses) {
    const bool any = std::any_of(feed->events_.begin(), feed->events_.end(), [&](const EventInfo& event) {
      const ProbeGroup::Event* const probe = feed->probe_of(event.id);
      return event.enabled && clause.events.matches(probe != nullptr ? probe->system : event.system,
                                                    probe != nullptr ? probe->name : event.name);
    });
    if (!clause.events.empty() && !any)
      return refuse(std::errc::invalid_argument, "--filter asks " + clause.events.begin()->text() +
                                                     ", and no recorded event of the kernel matches that: add it with -e");
  }
  if (!options.stacks.empty()) {
    const auto chosen = [&](const EventInfo& event) {
      const ProbeGroup::Event* const probe = feed->probe_of(event.id);
      return probe != nullptr ? options.stacks.matches(probe->system, probe->name)
                              : options.stacks.matches(event.system, event.name);
    };
    u64 with = 0;
    for (const EventInfo& event : feed->events_)
      if (event.enabled && event.system != "ftrace" && chosen(event)) ++with;
    if (with == 0)
      return refuse(std::errc::no_such_file_or_directory,
                    "--kstack matches none of the kernel's events that are recorded: its pattern chooses among those of -e");
    RS_TRY(mine.record_stacks(feed->events_, chosen, with == seen.size(), options.filter));
    feed->needs_symbols_ = true;
  }
  feed->name_probes();
  for (const i32 pid : options.pids) RS_TRY(mine.follow_process(pid));
  if (options.pids.empty() && !options.will_follow) {
    feed->own_.emplace();
    feed->own_->add_events(feed->events_);
  } else {
    RS_TRY(options.will_follow ? mine.follow_none() : mine.ignore_own());
  }
  feed->names_ =
      NameWatch::create(clock, options.pids, options.will_follow).value_or(nullptr);  // without it names are the last
  if (feed->names_ != nullptr) RS_TRY(feed->names_->on());
  RS_TRY(feed->open_rings());
  feed->wake_ = sys::Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!feed->wake_) return fail(errno, "cannot make an eventfd");
  return feed;
}

// Null: it is an event of the kernel's own.
const ProbeGroup::Event* KernelFeed::probe_of(u16 id) {
  if (!probes_) return nullptr;
  for (const ProbeGroup::Event& probe : probes_->events())
    if (probe.info.id == id) return &probe;
  return nullptr;
}

// The recording has their own names, and not those of the group.
void KernelFeed::name_probes() {
  for (EventInfo& event : events_) {
    const ProbeGroup::Event* const probe = event.system == "ftrace" ? nullptr : probe_of(event.id);
    if (probe == nullptr) continue;
    const std::string line = "name: " + event.name + "\n";
    if (const size_t at = event.format.find(line); at != std::string::npos)
      event.format.replace(at, line.size(), "name: " + probe->name + "\n");
    event.system = probe->system;
    event.name = probe->name;
  }
}

result<void> KernelFeed::open_rings() {
  auto rings = RS_TRY(open_kernel_rings(instance_.dir(), instance_.cpus(), clock_, choice_));
  if (!rings.notice.empty() && notice_) notice_(rings.notice);
  sources_ = std::move(rings.sources);
  without_own_.resize(sources_.size());
  return {};
}

std::vector<std::pair<u32, Counters>> KernelFeed::counters() const {
  std::vector<std::pair<u32, Counters>> all;
  for (const u32 cpu : instance_.cpus()) {
    if (auto one = kernel_counters({instance_.dir(), cpu})) all.emplace_back(cpu, *one);
  }
  return all;
}

void KernelFeed::stop_thread() {
  stopping_ = true;
  if (wake_) eventfd_write(wake_.get(), 1);
  if (thread_.joinable()) thread_.join();
}

KernelFeed::~KernelFeed() {
  stop_thread();
  if (clean_up_.joinable()) clean_up_.join();
  sources_.clear();  // before the instance, which cannot be removed while they are open
  const auto remove = [this](auto& instance) {
    if (auto gone = instance.remove(); !gone && notice_)
      notice_(gone.error().sentence + "; the next recording of the kernel removes it, or: rmdir " + instance.dir());
  };
  if (names_ != nullptr) remove(*names_);
  remove(instance_);
  if (probes_) probes_->remove();
}

result<void> KernelFeed::arm() {
  if (rings_) {
    sources_.clear();
    rings_.reset();
    faults_ = {};
    taken_ = {};
    told_ = {};
    events_so_far_ = 0;
    bytes_so_far_ = 0;
    failed_ = false;
    // Opening this file for writing with truncation empties the rings and their counters.
    RS_TRY(instance_.write("trace", ""));
    RS_TRY(open_rings());
  }
  return instance_.tracing(true);
}

result<void> KernelFeed::begin(RecordingRun& run) {
  if (std::exchange(handing_over_, false)) {
    begin_account(closed_);
    closed_ = false;
    faults_ = {};
    events_so_far_ = 0;
    bytes_so_far_ = 0;
    failed_ = false;
    stopping_ = false;
    eventfd_t woken = 0;
    (void)eventfd_read(wake_.get(), &woken);
  }
  another_follows_ = run.is_followed();
  rings_.emplace(RecordingWriter::beside(run.writer()));
  for (const auto& source : sources_) {
    if (source == nullptr) continue;  // it has ended
    const auto size = static_cast<u32>(source->counters().subbuf_size);
    RS_TRY(rings_->add_ring(source->name(), size));
    rings_->meta().rings.back().way = to_string(source->way());
  }
  for (const RecordedRing& ring : rings_->meta().rings) run.meta().rings.push_back(ring);
  if (auto text = sys::read_file(instance_.dir() + "/../../printk_formats")) {
    RS_TRY(run.writer().keep("printk_formats", *text));
  }
  if (needs_symbols_) run.keep_kernel_symbols(notice_);
  return {};
}

result<void> KernelFeed::on() {
  RS_TRY(start_thread());
  return instance_.tracing(true);
}

// The kernel itself begins when the read() returns, so not even the end of that call is recorded.
result<void> KernelFeed::on_at_exec(i32 child) {
  RS_TRY(start_thread());
  const i32 number = RS_TRY(instance_.number_of(child, child));
  return instance_.begin_after_read(number) ? result<void>() : instance_.tracing(true);
}

// Events cannot wait for the end of forget_read().
result<void> KernelFeed::has_executed() {
  RS_TRY(instance_.tracing(true));
  clean_up_ = RS_TRY(sys::quiet_thread("that removes a trigger", [this] { instance_.forget_read(); }));
  return {};
}

result<void> KernelFeed::start_thread() {
  RS_TRY(instance_.write("options/event-fork",
                         "1"));  // for its threads, which are ignored as this one is; a command has been forked before
  thread_ = RS_TRY(sys::quiet_thread("that reads the kernel's rings", [this] {
    try {
      consume();
    } catch (const std::bad_alloc&) {
      faults_.full(
          {std::make_error_code(std::errc::not_enough_memory), "there is not enough memory to read the kernel's rings"});
      failed_ = true;
    }
  }));
  return {};
}

// Each read may cause events, which the next read finds: it has come to its own where nothing else is left of a sub-buffer.
Drained KernelFeed::take_without_own(u32 at, u32 ring, u64 most) {
  own_->add_all_threads();
  Selection& selection = without_own_[at];
  bool only_own = false;
  const Select select = [&](const SubBufferView& view) {
    const u64 before = selection.left_out();
    const SubBufferView kept = selection.keep(view, [&](Bytes payload) { return !own_->has(payload); });
    taken_.account.own += selection.left_out() - before;
    only_own = kept.begin == kept.end;
    return kept;
  };
  Drained drained = Drained::some;
  for (u64 taken = 0; drained == Drained::some && taken < most && !faults_.failure(); ++taken) {
    drained = drain(*sources_[at], *rings_, ring, 1, faults_, taken_, 0, select);
    if (drained == Drained::some && only_own) return Drained::all;
  }
  return drained;
}

// When the source has ended, or the disk is full, there is none.
Drained KernelFeed::take(u32 at, u64 most) {
  KernelSource& source = *sources_[at];
  const u32 ring = source.name().ring + RecordingWriter::kernel_rings;
  const Drained drained = own_ ? take_without_own(at, ring, most) : drain(source, *rings_, ring, most, faults_, taken_);
  events_so_far_.store(taken_.account.read, std::memory_order_relaxed);
  bytes_so_far_.store(taken_.bytes, std::memory_order_relaxed);
  failed_ = faults_.failure().has_value();
  if (drained == Drained::ended || (failed_ && !another_follows_)) sources_[at] = nullptr;
  return drained;
}

// After recording is switched off. An event that was open at that moment is committed later, and so are those of interrupts
// within it: its processor may be a virtual one that is paused.
void KernelFeed::take_all(u32 at) {
  constexpr int most_waits = 1000;  // 1 ms each
  for (int waits = 0; take(at, ~u64{0}) == Drained::all && sources_[at]->counters().unread != 0; ++waits) {
    if (waits == most_waits) return;  // the books say how many stay
    usleep(1000);
  }
}

result<void> KernelFeed::follow(i32 pid) {
  if (names_ != nullptr) RS_TRY(names_->follow(pid));
  return instance_.follow(pid, false);
}

void KernelFeed::learn_names() {
  if (names_ != nullptr) names_->take();
  if (!rings_ && threads_.size() > most_names) threads_.clear();
  KernelNumbers* const numbers = instance_.numbers();
  if (numbers != nullptr) numbers->look();
  for (auto& [number, name] : sys::cmdlines_of(sys::read_file(instance_.dir() + "/../../saved_cmdlines"))) {
    if (number <= 0) continue;
    const auto [at, fresh] = threads_.try_emplace(number);
    RingName& thread = at->second;
    if (!fresh && thread.task == name) continue;  // thousands may have ended, and their cgroups are gone
    thread.tid = number;
    thread.task = std::move(name);
    if (thread.process.empty()) thread.process = thread.task;
    if (thread.cgroup.empty() && numbers == nullptr) thread.cgroup = sys::cgroup_of(number);
  }
  for (const auto& [tid, pid] : sys::tgids_of(sys::read_file(instance_.dir() + "/../../saved_tgids")))
    if (const auto at = threads_.find(tid); at != threads_.end()) at->second.pid = pid;
  for (auto& [number, thread] : threads_) {
    const auto process = threads_.find(thread.pid);
    if (process != threads_.end() && process->first != number) thread.process = process->second.task;
    if (thread.pid == 0) thread.pid = number;  // its process is unknown: most threads are their process's only one
  }
  if (numbers != nullptr) learn_numbers(*numbers);
}

// Which threads of this PID namespace the numbers mean.
void KernelFeed::learn_numbers(KernelNumbers& numbers) {
  for (auto& [number, thread] : threads_) thread.kernel = true;
  for (const auto& [number, here] : numbers.known()) {
    const auto [at, fresh] = threads_.try_emplace(number);
    RingName& thread = at->second;
    if (fresh) thread.tid = thread.pid = number, thread.kernel = true;
    thread.elsewhere = {here.tid, here.pid, sys::pid_namespace(), here.tid, here.pid};
    if (thread.cgroup.empty()) thread.cgroup = sys::cgroup_of(here.tid);
    char name[17] = {};
    if (thread.task.empty()) sys::comm_of(here.pid, here.tid, name);
    if (thread.task.empty()) thread.task = thread.process = name;
  }
}

u64 KernelFeed::lost_so_far() const {
  u64 lost = 0;
  for (const auto& [cpu, counters] : counters()) lost += counters.overrun + refused_of(counters).sum();
  return lost;
}

void KernelFeed::consume() {
  std::vector<pollfd> wait{{wake_.get(), POLLIN, 0}};
  for (const auto& source : sources_) wait.push_back({source->fd(), POLLIN, 0});
  u64 learned = sys::now_ns();
  while (!stopping_ && !failed_) {
    ::poll(wait.data(), wait.size(), tick_ms);
    const u64 began = sys::now_ns();
    bool all = true;
    for (u32 i = 0; i < sources_.size() && !failed_; ++i) {
      // A CPU without a ring makes poll() return at once, again and again. Its ring may come, so it is asked now and then.
      if ((wait[i + 1].revents & POLLERR) != 0) wait[i + 1].fd = -1;
      // At most a round of the ring: a CPU that is faster than the reader must not keep it from the others.
      if (sources_[i] != nullptr) all = take(i, 1024) != Drained::some && all;
      if (sources_[i] == nullptr) wait[i + 1].fd = -1;
    }
    if (all) taken_until_.store(began, std::memory_order_release);
    if (const u64 now = sys::now_ns(); now - learned > learn_every_ns) {
      learn_names();
      learned = now;
      for (u32 i = 0; i < sources_.size(); ++i) {
        if (sources_[i] != nullptr) wait[i + 1].fd = sources_[i]->fd();
      }
    }
  }
}

bool KernelFeed::poll(RecordingRun& run) {
  if (!thread_.joinable() || (!failed_ && !run.failed())) return false;
  if (!another_follows_) (void)instance_.tracing(false);
  stop_thread();
  if (failed_) run.faults().full(*faults_.failure());
  return false;
}

void KernelFeed::describe(RecordingMeta& meta) {
  meta.events.insert(meta.events.end(), events_.begin(), events_.end());
  if (thread_.joinable()) return;  // it learns the names
  add_unknown(meta, threads_);
  if (names_ != nullptr) meta.names.insert(meta.names.end(), names_->names().begin(), names_->names().end());
}

Counters KernelFeed::close(RecordingRun& run) {
  // While recording goes on, a CPU may be faster than the reader: the rest is for the next run.
  constexpr u64 most_handing_over = 1024;
  auto off = handing_over_ ? result<void>() : instance_.tracing(false);
  stop_thread();
  for (u32 i = 0; i < sources_.size(); ++i) {
    if (sources_[i] == nullptr || !off || failed_ || run.failed()) continue;
    if (handing_over_) (void)take(i, most_handing_over);
    else take_all(i);
  }
  learn_names();
  if (auto done = rings_->close_files(); !done) faults_.full(done.error());
  std::vector<Counters> all;
  for (RecordedRing& ring : rings_->meta().rings) {
    if (auto counters = kernel_counters({instance_.dir(), ring.name.ring})) ring.counters = *counters;
    else
      taken_.account.doubts.push_back(counters.error().sentence + ": events that the kernel refused are not counted");
    all.push_back(ring.counters);
    for (RecordedRing& listed : run.meta().rings) {
      if (listed.name.kernel && listed.name.ring == ring.name.ring) listed = ring;
    }
  }
  if (!off) faults_.problem(off.error().sentence);
  run.faults().add(faults_);
  const Counters totals = sum(all);
  add_refused(totals);
  complete_ = !handing_over_;
  closed_ = true;
  return totals;
}

}  // namespace ringside
