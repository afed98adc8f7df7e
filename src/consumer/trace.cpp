#include "consumer/trace.hpp"

#include <algorithm>
#include <ctime>
#include <iterator>
#include <map>
#include <ringside/abi/sub_buffer.hpp>
#include <set>

#include "analysis/names.hpp"
#include "consumer/common_clock.hpp"
#include "consumer/remote_reader.hpp"
#include "kernel/kernel_numbers.hpp"
#include "sys/sys.hpp"
#include "sys/try.hpp"

namespace ringside {
namespace {

// jiffies_to_msecs() in a print fmt needs the kernel's HZ, which no format has: events of this boot are of this kernel.
void use_ticks(Trace& trace) {
  const std::string boot = sys::boot_id();
  for (const auto& input : trace.inputs)
    if (input->boot != boot) return;
  timespec tick{};
  if (clock_getres(CLOCK_MONOTONIC_COARSE, &tick) != 0 || tick.tv_sec != 0 || tick.tv_nsec <= 0) return;
  trace.formats.use_ticks(static_cast<u32>((1'000'000'000 + tick.tv_nsec / 2) / tick.tv_nsec));
}

// The label in a line: which of several WHEREs it comes from.
std::string label_of(std::string where) {
  while (where.size() > 1 && where.back() == '/') where.pop_back();
  return where.substr(where.rfind('/') + 1);
}

}  // namespace

namespace {

// Do equal numbers mean the same threads in both? What is unknown is no machine's.
bool count_the_same(const Input& a, const Input& b) {
  const World &one = a.world, &other = b.world;
  const bool same = !a.boot.empty() && !b.boot.empty()
                        ? a.boot == b.boot
                        : one == other && one.architecture != Architecture::unknown && !one.host.empty() &&
                              one.host == other.host && one.release == other.release;
  return same && (one.pid_namespace == 0 || other.pid_namespace == 0 || one.pid_namespace == other.pid_namespace);
}

}  // namespace

void Trace::know_machine(const Input& of) {
  u32 machine = of.origin.ids;
  for (const auto& other : inputs) {
    if (other.get() == &of) break;
    if (count_the_same(*other, of)) {
      machine = tasks.machine(other->origin.ids);
      break;
    }
  }
  tasks.are_of(of.origin.ids, machine);
  formats.are_of(of.origin.ids, machine);
}

void Trace::know_runs() {
  std::vector<u32> runs(inputs.size());
  for (size_t n = 0; n < inputs.size(); ++n) {
    runs[n] = static_cast<u32>(n);
    for (size_t other = 0; other < n; ++other) {
      const u32 its = runs[other];
      if (!inputs[n]->is_apart_from(*inputs[other])) std::replace(runs.begin(), runs.end(), its, static_cast<u32>(n));
    }
  }
  for (size_t n = 0; n < inputs.size(); ++n)
    if (runs[n] != runs[0]) tasks.is_of_run(inputs[n]->origin.ids, 1 + runs[n]);
}

// What one part left to the next is no event of its own.
Account Trace::account() const {
  Account all;
  all.doubts = timeline.problems();
  for (const auto& input : inputs) {
    Account its = input->account();
    if (std::any_of(inputs.begin(), inputs.end(), [&](const auto& other) { return other->goes_on_from(*input); }))
      its.unread = 0;
    all += its;
  }
  return all;
}

void Trace::read_again(const std::function<void(u32, Bytes)>& use) const {
  for (const auto& input : inputs) {
    for (const auto& source : input->open_again()) {
      if (source->name().kernel) continue;
      const u32 ids = source->name().ids() + input->origin.ids;
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

const ThreadNames::Firsts& Trace::look_ahead(ThreadNames& names, u64 from, u64 until, const std::function<bool()>& over) {
  if (first_names != nullptr) return *first_names;
  auto firsts = std::make_shared<ThreadNames::Firsts>();
  for (const auto& input : inputs) {
    const RecordingMeta* const meta = input->recording();
    const auto of_kernel = [](const NameChange& change) { return change.kernel; };
    if (meta == nullptr || !names.tells() || std::any_of(meta->names.begin(), meta->names.end(), of_kernel)) continue;
    for (const auto& source : input->open_again()) names.look_ahead(*source, input->origin, from, until, over, *firsts);
  }
  first_names = std::move(firsts);
  return *first_names;
}

bool Trace::any(bool (Input::*is)() const) const {
  return std::any_of(inputs.begin(), inputs.end(), [is](const auto& input) { return (*input.*is)(); });
}
bool Trace::live() const { return any(&Input::live); }
bool Trace::has_only_just_begun() const { return any(&Input::begins_when_opened); }
bool Trace::consumes() const { return any(&Input::consumes); }

std::optional<WallClock> Trace::wall() const {
  for (const auto& input : inputs)
    if (auto found = input->wall()) return found;
  return std::nullopt;
}

bool Trace::raw_times() const { return first().own_clock().kind == ClockKind::counter; }

u64 Trace::now() const {
  u64 now = Timeline::forever;
  const auto ask = [&](const ClockInfo& clock) {
    if (clock.kind != ClockKind::counter) now = std::min(now, now_of(clock));
  };
  for (u32 i = 0; i < timeline.size(); ++i) ask(timeline.clock(i));
  for (const auto& input : inputs) {
    if (input->may_get_rings()) ask(input->origin.clock.value_or(input->own_clock()));
  }
  return now == Timeline::forever ? 0 : now;
}

void Trace::follow(u64 look_ahead_ns) {
  timeline.follow({look_ahead_ns, {}});
  for (const auto& input : inputs) input->patience(std::chrono::nanoseconds(look_ahead_ns));
  refresh();
}

void Trace::refresh() {
  const auto look = [this] {
    for (const auto& input : inputs)
      if (input->may_get_rings()) input->look_for_rings(*this);
  };
  // A ring that is overwritten faster than it is read shows its first sub-buffer, and no more.
  if (!timeline.following()) {
    look();
    timeline.prefetch();
  }
  // Events of rings that are made from here on are later than this.
  u64 until = Timeline::forever;
  for (const auto& input : inputs) {
    if (!input->may_get_rings()) continue;
    const ClockInfo by = input->origin.clock.value_or(input->own_clock());
    if (by.kind != ClockKind::counter) until = std::min(until, now_of(by));
  }
  look();
  take_names();
  timeline.hold_after(until);
}

void Trace::take_names() {
  for (const auto& input : inputs) {
    const ClockInfo by = input->origin.clock.value_or(input->own_clock());
    for (NameChange& change : input->take_names()) {
      const u64 ns = by.to_ns(change.time);
      tasks.add_change(std::move(change), ns, input->origin.ids);
    }
  }
}

void Trace::grow(const RecordingMeta& now) {
  inputs.front()->grow(*this, now);
  take_names();
}

void Trace::finish() {
  for (const auto& input : inputs) input->patience(Input::last_patience);  // nothing else is waiting
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
  for (const auto& input : inputs) input->stop();
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
    const Task* const known = tasks.find(tid, of_kernel());
    if (tid <= 0 || name.empty() || (known != nullptr && known->name == name)) continue;  // there may be thousands
    add_name(tid, name);
  }
}

RingName Trace::of_kernel() const {
  RingName ring;
  ring.kernel = true;
  ring.numbering = inputs.back()->origin.ids;
  return ring;
}

// The kernel's number of a thread, and its name.
void Trace::add_name(i32 tid, const std::string& name) {
  if (tracefs() == nullptr || tracefs()->numbers() == nullptr) {
    tasks.add(Task{tid, tid, name, name}, of_kernel().numbering);
    return;
  }
  const KernelNumbers::Thread here = tracefs()->numbers()->here(tid);
  RingName thread = of_kernel();
  thread.pid = thread.tid = tid;
  thread.task = thread.process = name;
  thread.elsewhere.here_tid = here.tid;
  thread.elsewhere.here_pid = here.pid;
  tasks.add(thread, thread.numbering);
}

void Trace::find_here() {
  KernelNumbers* const numbers = tracefs() != nullptr ? tracefs()->numbers() : nullptr;
  if (numbers == nullptr) return;
  numbers->look();
  for (const auto& [kernel, here] : numbers->known()) {
    char name[17] = {};
    if (!tasks.is_outside(kernel, of_kernel())) continue;
    sys::comm_of(here.pid, here.tid, name);
    const Task* const told = tasks.find(kernel, of_kernel());  // by events, if it has ended
    add_name(kernel, *name != 0 || told == nullptr ? std::string(name) : told->name);
  }
}

bool Trace::learn_name(i32 tid) {
  char living[17] = {};
  KernelNumbers* const numbers = tracefs() != nullptr ? tracefs()->numbers() : nullptr;
  if (numbers != nullptr) numbers->look();
  if (numbers == nullptr && sys::pids_are_the_kernels()) sys::comm_of(tid, tid, living);
  if (const auto here = numbers != nullptr ? numbers->here(tid) : KernelNumbers::Thread(); here.tid != 0)
    sys::comm_of(here.pid, here.tid, living);
  std::string name = living;
  if (name.empty() && tracefs() != nullptr)
    for (auto& [other, its_name] : names_of_late(*tracefs()))
      if (other == tid) name = std::move(its_name);
  if (!name.empty()) add_name(tid, name);
  return !name.empty();
}

std::vector<u32> Trace::tell_names() {
  std::vector<u32> extra;
  if (tracefs() == nullptr) return extra;
  const Input& kernel = *inputs.back();
  for (const char* event : {"task:task_newtask", "task:task_rename"}) {
    const auto enabled = tracefs()->enable(EventPattern(event));
    for (const EventInfo& e : enabled.value_or(std::vector<EventInfo>()))
      if (const u32 number = kernel.origin.ids + e.number(); formats.find(number) == nullptr) extra.push_back(number);
    if (enabled) add_events(*this, kernel, *enabled);
  }
  return extra;
}

namespace {

// In lines and columns: which of several inputs it is. Of a machine each boot has one.
void label(Trace& trace, size_t named) {
  std::set<std::string> labels;
  std::map<std::string, u32> boots;
  for (size_t i = 0; i < named && trace.inputs.size() > 1; ++i) {
    Input& input = *trace.inputs[i];
    if (const auto* const machine = input.time_of_day()) {
      const u32 boot = ++boots[machine->host];
      input.origin.label = machine->host + (boot == 1 ? "" : "." + std::to_string(boot));
    } else {
      const std::string short_name = label_of(input.where);
      input.origin.label = labels.insert(short_name).second ? short_name : input.where;
    }
  }
}

tl::unexpected<Error> twice(const std::string& one, const std::string& other, const char* are) {
  return refuse(std::errc::invalid_argument, (one == other ? one + " is named twice" : one + " and " + other + " are " + are) +
                                                 ": each of its events would count twice; name it once");
}

result<void> named_once(const std::vector<Where>& wheres) {
  std::map<std::pair<u64, u64>, const Where*> places;
  std::set<std::string> texts;
  for (const Where& where : wheres) {
    if (!texts.insert(where.text).second) return twice(where.text, where.text, "");
    const auto place = where.place();
    const auto [at, fresh] = places.emplace(place.value_or(std::pair<u64, u64>()), &where);
    if (place && !fresh) return twice(at->second->text, where.text, "the same");
  }
  return {};
}

result<void> no_copies(const Trace& trace) {
  for (auto at = trace.inputs.begin(); at != trace.inputs.end(); ++at) {
    const auto copy = std::find_if(trace.inputs.begin(), at, [&](const auto& input) { return (*at)->is_copy_of(*input); });
    if (copy != at) return twice((*copy)->where, (*at)->where, "copies of one recording");
  }
  return {};
}

result<void> add(Trace& trace, const Where& where) {
  auto more = RS_TRY(inputs_of(where));
  std::move(more.begin(), more.end(), std::back_inserter(trace.inputs));
  return {};
}

}  // namespace

result<Trace> open_traces(const std::vector<std::string>& wheres, const std::vector<std::string>& events,
                          const KernelChoice& choice, bool verbose, TracefsOptions make, const Trace* same,
                          const std::vector<ringside_remote_reader*>& readers,
                          const LiveSamples& samples) {
  Trace trace;
  auto patterns = RS_TRY(EventPatterns::parse(events));
  if (same != nullptr) {
    for (const auto& input : same->inputs) trace.inputs.push_back(input->another());
    trace.first_names = same->first_names;
  } else {
    std::vector<Where> named;
    for (const std::string& where : wheres) named.push_back(Where::of(where));
    if (named.size() > 1) RS_TRY(named_once(named));
    for (const Where& where : named) RS_TRY(add(trace, where));
    for (ringside_remote_reader* const reader : readers) trace.inputs.push_back(reader_input(*reader));
    if (samples.hz != 0) trace.inputs.push_back(sample_input(samples));
    if (trace.inputs.empty() && events.empty()) RS_TRY(add(trace, Where::of(default_recording)));
    const bool alone = events.empty() && trace.inputs.size() == 1;
    for (const auto& input : trace.inputs) RS_TRY(input->fetch(alone));
    const size_t labelled = trace.inputs.size();
    if (auto remotes = patterns.of_remotes(true); !remotes.empty())
      trace.inputs.push_back(kernel_remotes_input(std::move(remotes), make.buffer_size));
    if (auto own = patterns.of_remotes(false); !own.empty()) trace.inputs.push_back(kernel_input(std::move(own), choice, make));
    label(trace, labelled);
  }
  for (const auto& input : trace.inputs) {
    if (input != trace.inputs.front()) input->origin.ids = trace.formats.more_ids();
    RS_TRY(input->open(trace));
  }
  if (same == nullptr) RS_TRY(no_copies(trace));
  if (trace.inputs.size() > 1) RS_TRY(agree_on_time(trace, verbose));
  trace.know_runs();
  use_ticks(trace);
  for (const auto& input : trace.inputs) {
    for (auto& source : input->sources) trace.timeline.add(std::move(source), input->origin);
    input->sources.clear();
  }
  trace.refresh();
  return trace;
}

Trace open_growing(const std::string& dir, const RecordingMeta& now) {
  Trace trace;
  trace.inputs.push_back(growing_input(dir));
  (void)trace.inputs.front()->open(trace);  // it has no files to fail with yet
  trace.grow(now);
  use_ticks(trace);
  return trace;
}

}  // namespace ringside
