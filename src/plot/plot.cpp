#include "plot/plot.hpp"

#include <algorithm>
#include <cmath>

#include "decode/syscalls.hpp"
#include "export/json.hpp"
#include "plot/parts.hpp"
#include "text/units.hpp"

namespace ringside::plot {
namespace {

constexpr size_t longest_payload = 1024, most_async = 65'536;

bool is_integer(const Field* f) { return f != nullptr && f->kind == FieldKind::integer; }
bool is_text(const Field* f) { return f != nullptr && (f->kind == FieldKind::text || f->kind == FieldKind::loc_text); }

std::string_view without(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix ? text.substr(prefix.size()) : std::string_view();
}

std::string as_time(u64 ns) {
  if (ns < 10'000) return fmt::format("{} ns", ns);
  if (ns < 10'000'000) return fmt::format("{} us", ns / 1000);
  return ns < 10'000'000'000 ? fmt::format("{} ms", ns / 1'000'000) : fmt::format("{} s", ns / 1'000'000'000);
}

// The thread that wakes another one; 0: an interrupt.
i32 waker_of(const TraceRecord& record, const EventType* type) {
  constexpr u8 interrupts = 0x08 | 0x10 | 0x40;  // common_flags: in a hard, a soft one, an NMI
  const bool interrupt = record.payload.size > 2 && (record.payload.data[2] & interrupts) != 0;
  return interrupt ? 0 : thread_of(type, read_common(record.payload));
}

}  // namespace

Plot::Plot(const Formats& formats, const Tasks& tasks, const Options& options)
    : formats_(formats),
      tasks_(tasks),
      options_(options),
      rates_(options.columns),
      stacks_(formats.stacks()),
      stack_counts_(options.items),
      lanes_(options.items),
      states_(options.items),
      curves_(options.items),
      heap_(options.items),
      by_id_(ids_apart(2)) {
  Thread others;
  others.tid = -1;
  others.name = "other threads";
  threads_.push_back(std::move(others));
}

Plot::~Plot() = default;

HeatMap& Plot::heat_of(const std::string& name, bool asked) {
  for (Heat& known : heat_maps_) {
    if (known.name == name) return *known.map;
  }
  if (heat_maps_.size() > most_heat_maps) {
    too_many_heat_maps_ = true;
    return *heat_maps_.back().map;
  }
  heat_maps_.push_back({name, asked, std::make_unique<HeatMap>(HeatMap::Options{options_.columns / 2, heat_precision, 0})});
  // One heat map more than are shown takes the rest.
  if (heat_maps_.size() > most_heat_maps) {
    too_many_heat_maps_ = true;
    heat_maps_.back().name.clear();
  }
  return *heat_maps_.back().map;
}

u32 Plot::name(const std::string& text, u32 of_event) {
  const auto known = name_numbers_.find(text);
  if (known != name_numbers_.end()) return known->second;
  if (names_.size() >= most_names) {
    too_many_names_ = true;
    return 0;
  }
  const auto n = static_cast<u32>(names_.size());
  names_.emplace_back(text, of_event);
  name_numbers_.emplace(text, n);
  return n;
}

Plot::Event& Plot::event(u32 id, const EventType* type) {
  if (id >= by_id_.size()) by_id_.resize(id + 1);  // of another machine
  auto& slot = by_id_[id];
  if (slot != nullptr) return *slot;
  slot = std::make_unique<Event>();
  Event& e = *slot;
  e.type = type;
  e.full = type != nullptr ? type->full : fmt::format("unknown:{}", id & 0xFFFF);
  const auto same = std::find_if(events_seen_.begin(), events_seen_.end(), [&](const Event* o) { return o->full == e.full; });
  e.index = static_cast<u32>(same - events_seen_.begin());
  if (same == events_seen_.end()) events_seen_.push_back(&e);
  e.lane_name = name(e.full, e.index);
  if (type == nullptr) return e;
  using Role = Event::Role;
  if (type->full == "sched:sched_switch") {
    e.first = type->field("prev_pid");
    e.second = type->field("next_pid");
    e.first_text = type->field("prev_comm");
    e.second_text = type->field("next_comm");
    e.state = type->field("prev_state");
    if (is_integer(e.first) && is_integer(e.second) && is_text(e.first_text) && is_text(e.second_text)) e.role = Role::run;
    return e;
  }
  if (type->full == "sched:sched_waking" || type->full == "sched:sched_wakeup" || type->full == "sched:sched_wakeup_new") {
    e.first = type->field("pid");
    e.first_text = type->field("comm");
    if (is_integer(e.first) && is_text(e.first_text)) e.role = Role::wake;
    return e;
  }
  const EventRole known = role_of(*type);
  if (known.role == ringside::Role::span) {
    e.role = Role::span;
    e.first = known.value;
    e.second = known.name;
    e.first_text = known.track;
    e.async = known.async;
    return e;
  }
  if (known.role == ringside::Role::call) {
    e.role = Role::call;
    e.call_role = known;
    return e;
  }
  if (known.role == ringside::Role::counter) {
    e.role = Role::counter;
    e.first = known.value;
    e.first_text = known.track;
    e.process = known.process;
    return e;
  }
  if (type->system == "syscalls") {
    for (const auto& [prefix, role] : {std::pair{"sys_enter_", Role::enter}, std::pair{"sys_exit_", Role::exit}}) {
      const std::string_view call = without(type->name, prefix);
      if (call.empty()) continue;
      e.role = role;
      e.call = e.lane_name = name("syscalls:" + std::string(call), e.index);
      return e;
    }
  }
  if (const auto call = syscall_fields(*type); call && call->raw) {
    e.role = call->returned != nullptr ? Role::exit : Role::enter;
    e.first = call->number;
    return e;
  }
  if (known.role == ringside::Role::duration) {
    e.role = Role::duration;
    e.first = known.value;
  }
  return e;
}

u32 Plot::thread(i32 tid, const RingName& ring, u64 time, std::string_view comm) {
  const Tasks::Key key = tasks_.key(tid, ring);
  if (const auto known = thread_numbers_.find(key); known != thread_numbers_.end()) {
    Thread& t = threads_[known->second];
    if (t.renamed != tasks_.renamed() && known->second != 0) rename(t, time);
    return known->second;
  }
  const Task* task = tasks_.find(key);
  const u32 n = add_thread(key, tid, task != nullptr || comm.empty() ? tasks_.name(tid, ring) : comm);
  if (n == 0) return 0;
  Thread& t = threads_[n];
  if (tid == 0 && ring.kernel) t.name = "idle";
  t.pid = task != nullptr ? task->pid : tid == ring.tid ? ring.pid : 0;
  t.process = task != nullptr ? task->process : tid == ring.tid ? ring.process : "";
  return n;
}

u32 Plot::add_thread(Tasks::Key key, i32 tid, std::string_view name) {
  if (threads_.size() > most_lanes) {
    too_many_threads_ = true;
    return 0;
  }
  Thread t;
  t.key = key;
  t.tid = tid;
  t.shown = tasks_.show(key);
  t.renamed = tasks_.renamed();
  t.name = name;
  const auto n = static_cast<u32>(threads_.size());
  threads_.push_back(std::move(t));
  thread_numbers_.emplace(key, n);
  return n;
}

// Its first one, which may have no event here.
u32 Plot::thread_of_process(Tasks::Key process) {
  if (const auto known = thread_numbers_.find(process); known != thread_numbers_.end()) return known->second;
  const Task* const task = tasks_.find(process);
  return add_thread(process, static_cast<i32>(static_cast<u32>(process)), task != nullptr ? task->name : "<...>");
}

// A thread that executes another program, or names itself, has another name from then on.
void Plot::rename(Thread& t, u64 time) {
  t.renamed = tasks_.renamed();
  const Task* const task = tasks_.find(t.key);
  if (task == nullptr || task->name.empty() || task->name == t.name || t.tid == 0) return;
  if (t.names.empty()) t.names.emplace_back(0, t.name);
  if (t.names.size() < Thread::most_names) t.names.emplace_back(time, task->name);
  t.name = t.names.back().second = task->name;
}

u32 Plot::lane(u32& known, LaneName name) {
  if (known == none) {
    known = static_cast<u32>(lane_names_.size());
    lane_names_.push_back(name);
  }
  return known;
}

std::string Plot::text(const EventType* type, Bytes payload) const {
  fmt::memory_buffer out;
  if (type != nullptr)
    formats_.print(*type, payload, out);
  else
    append_hex({payload.data, std::min<size_t>(payload.size, longest_text)}, " ", out);
  return {out.data(), out.size()};
}

void Plot::end_run(Ring& ring, u32 source, u64 time) {
  if (ring.switched && ring.running != none && time > ring.since)
    lanes_.add(lane(ring.cpu_lane, {LaneKind::cpu, source}),
               {.begin = ring.since, .end = time, .what = ring.running, .ring = source}, [] { return std::string(); });
  ring.switched = false;
  ring.running = none;
}

void Plot::lose(const TraceRecord& record, Ring& ring) {
  lost_ += record.lost;
  ring.lost += record.lost;
  rates_.add(record.time, 0, record.lost);
  const u64 begin = ring.seen && ring.last < record.time ? ring.last : record.time;
  end_run(ring, record.source, begin);
  if (ring.name.kernel) states_.lose(begin, record.source);
  ++(ring.name.of_a_thread() ? ring.gaps : shared_gaps_);
  lanes_.add(lane(ring.loss_lane, {LaneKind::loss, record.source}),
             {.begin = begin, .end = record.time, .ring = record.source, .weight = record.lost}, [] { return std::string(); });
  ring.since = ring.last = record.time;
  ring.seen = true;
}

// Nobody recorded the time before it: what lasted at the end of the other run has no known end.
void Plot::begin_run(u32 run) {
  run_ = run;
  ++shared_gaps_;
  for (u32 n = 0; n < rings_.size(); ++n) {
    if (!rings_[n].seen || !rings_[n].name.kernel) continue;
    end_run(rings_[n], n, rings_[n].last);
    states_.lose(rings_[n].last, n);
  }
}

void Plot::switch_task(const TraceRecord& record, const Event& e, Ring& ring, const RingName& name) {
  const auto prev = static_cast<i32>(read_integer(record.payload, *e.first));
  const auto next = static_cast<i32>(read_integer(record.payload, *e.second));
  const u32 left = prev == 0 ? none : thread(prev, name, record.time, read_text(record.payload, *e.first_text));
  if (ring.switched && left != ring.running) {  // a switch between is missing, by a filter: both have unknown ends
    if (ring.running != none) states_.forget(ring.running);
    if (unseen_ == 0)
      first_unseen_ = fmt::format("{}.{:09} and {}.{:09} s on CPU {}: thread {} began to run, and thread {} left",
                                  ring.since / 1'000'000'000, ring.since % 1'000'000'000, record.time / 1'000'000'000,
                                  record.time % 1'000'000'000, record.cpu_in(name),
                                  ring.running == none ? 0 : threads_[ring.running].tid, prev);
    ++unseen_;
    ring.since = record.time;
  }
  if (left != none && record.time >= ring.since) {
    lanes_.add(lane(ring.cpu_lane, {LaneKind::cpu, record.source}),
               {.begin = ring.since, .end = record.time, .what = left, .ring = record.source, .stack = record.stack},
               [&] { return text(e.type, record.payload); });
    if (left != 0)
      states_.leave(left, record.time, record.source,
                    is_integer(e.state) ? read_integer(record.payload, *e.state) : ended_state, ring.since);
  }
  ring.switched = true;
  ring.since = record.time;
  ring.running = next == 0 ? none : thread(next, name, record.time, read_text(record.payload, *e.second_text));
  if (ring.running != none && ring.running != 0) states_.run(ring.running, record.time, record.source);
}

void Plot::wake_task(const TraceRecord& record, const Event& e, const RingName& name) {
  const auto tid = static_cast<i32>(read_integer(record.payload, *e.first));
  const u32 woken = tid > 0 ? thread(tid, name, record.time, read_text(record.payload, *e.first_text)) : 0;
  if (woken == 0) return;
  const i32 waker = waker_of(record, e.type);
  states_.wake(woken, record.time, record.source,
               waker == 0 ? ThreadStates::by_interrupt : ThreadStates::by_thread(thread(waker, name, record.time)));
}

// 0: none that the page has.
u32 Plot::known_thread(i32 tid, const RingName& ring) const {
  const auto known = tid > 0 ? thread_numbers_.find(tasks_.key(tid, ring)) : thread_numbers_.end();
  return known != thread_numbers_.end() ? known->second : 0;
}

void Plot::see(const TraceRecord& record, const RingName& name) {
  if (!name.kernel) return;
  if (record.source >= rings_.size()) rings_.resize(record.source + 1);
  const u64 before = std::exchange(rings_[record.source].last, record.time);
  if (record.lost != 0) return states_.lose(before != 0 ? std::min(before, record.time) : record.time, record.source);
  const EventType* const type = formats_.find(record.number());
  if (type == nullptr || type->system != "sched") return;
  const Event& e = event(record.number(), type);
  const auto first = [&] { return known_thread(static_cast<i32>(read_integer(record.payload, *e.first)), name); };
  if (e.role == Event::Role::run) {
    if (const u32 left = first(); left != 0)
      states_.leave(left, record.time, record.source,
                    is_integer(e.state) ? read_integer(record.payload, *e.state) : ended_state, record.time);
    if (const u32 next = known_thread(static_cast<i32>(read_integer(record.payload, *e.second)), name); next != 0)
      states_.run(next, record.time, record.source);
  } else if (e.role == Event::Role::wake) {
    const u32 woken = first();
    if (woken == 0) return;
    const i32 waker = waker_of(record, type);
    const u32 known = known_thread(waker, name);
    states_.wake(woken, record.time, record.source,
                 waker == 0   ? ThreadStates::by_interrupt
                 : known != 0 ? ThreadStates::by_thread(known)
                              : ThreadStates::no_waker);
  }
}

// False: it is shown as an event.
bool Plot::count_on(const TraceRecord& record, const Event& e, const RingName& ring, i32 tid) {
  const double value = read_number(record.payload, *e.first);
  if (!std::isfinite(value)) return false;
  const auto given = e.process != nullptr ? static_cast<i32>(read_integer(record.payload, *e.process)) : 0;
  const u32 thread = e.process == nullptr ? this->thread(tid, ring, record.time)
                     : given > 0          ? thread_of_process(tasks_.key(given, ring))
                                          : thread_of_process(tasks_.process(tid, ring));
  const std::string_view track =
      is_text(e.first_text) ? read_text(record.payload, *e.first_text).substr(0, longest_text) : std::string_view();
  const std::string key = fmt::format("{} {} {}", thread, e.index, track);
  auto known = counter_numbers_.find(key);
  if (known == counter_numbers_.end()) {
    const u32 fresh = counter(track.empty() ? e.full : std::string(track), thread, e.index);
    if (fresh == none) return false;
    known = counter_numbers_.emplace(key, fresh).first;
  }
  curves_.add(known->second, record.time, value);
  return true;
}

// The name of the system call that an event begins or ends.
u32 Plot::call_of(const Event& e, Bytes payload) {
  if (e.first == nullptr) return e.call;
  const i64 number = read_integer(payload, *e.first);
  return name("syscalls:" + syscall_shown(number, e.type->world.architecture), e.index);
}

// A system call without a seen end becomes an instant.
void Plot::drop_call(u32 number) {
  Thread& t = threads_[number];
  if (t.call == nullptr) return;
  const Event& e = *std::exchange(t.call, nullptr);
  ++unpaired_;
  lanes_.add(lane(t.lane, {LaneKind::thread, number}),
             {.begin = t.call_begin, .end = t.call_begin, .what = t.call_name, .ring = t.call_ring},
             [&] { return text(e.type, t.entered()); });
}

struct Plot::ThreadEvent {
  const TraceRecord& record;
  Event& event;
  const EventType* type;
  Thread& thread;
  u32 number;  // the thread's, in threads_
  u64 gaps;    // before it
};

// From `begin` to the event's time, on its thread's lane.
template <class MakeText>
void Plot::add_slice(const ThreadEvent& at, u64 begin, u32 what, MakeText make_text) {
  lanes_.add(lane(at.thread.lane, {LaneKind::thread, at.number}),
             {.begin = begin, .end = at.record.time, .what = what, .ring = at.record.source, .stack = at.record.stack},
             make_text);
}
void Plot::add_slice(const ThreadEvent& at, u64 begin, u32 what) {
  add_slice(at, begin, what, [&] { return text(at.type, at.record.payload); });
}

// A begin is remembered, and its end is the slice.
bool Plot::begin_slice(const ThreadEvent& at, const OpenSlices::Key& key, u32 what) {
  if (at.number == 0) return false;  // several threads
  open_.begin(key, {at.record.time, at.gaps, what});
  return true;
}
bool Plot::end_slice(const ThreadEvent& at, const OpenSlices::Key& key) {
  const auto begun = at.number != 0 ? open_.end(key) : std::nullopt;
  if (!begun) return false;
  if (begun->gaps != at.gaps || begun->begin > at.record.time) {
    ++unpaired_;
    return false;
  }
  add_slice(at, begun->begin, begun->name);
  took_ = at.record.time - begun->begin;
  return true;
}

void Plot::on_span(const ThreadEvent& at) {
  const TraceRecord& record = at.record;
  Event& e = at.event;
  const auto kind = static_cast<char>(read_integer(record.payload, *e.first));
  const std::string_view text = read_text(record.payload, *e.second);
  const u32 what = name(std::string(text), e.index);
  const auto key =
      OpenSlices::span(at.number, is_text(e.first_text) ? read_text(record.payload, *e.first_text) : std::string_view(), text);
  if (kind == 'B' && begin_slice(at, key, what)) return;
  if (kind == 'E' && end_slice(at, key)) {
    if (e.heat == nullptr) e.heat = &heat_of(e.full);
    e.heat->add(record.time, took_);
    return;
  }
  if (kind == 'B' || kind == 'E') ++unpaired_;
  add_slice(at, record.time, what);
}

// The last begin counts, as in `latency async`.
void Plot::on_async(const ThreadEvent& at, Tasks::Key process) {
  const TraceRecord& record = at.record;
  Event& e = at.event;
  const auto kind = static_cast<char>(read_integer(record.payload, *e.first));
  const u32 what = name(std::string(read_text(record.payload, *e.second)), e.index);
  const std::tuple key{process, what, static_cast<u64>(read_integer(record.payload, *e.async))};
  if (kind == 'B' && async_.size() < most_async) {
    const auto [open, fresh] = async_.try_emplace(key);
    const AsyncOpen before = std::exchange(open->second, {record.time, lost_, at.number});
    if (fresh) return;
    ++unpaired_;
    return lanes_.add(lane(threads_[before.thread].lane, {LaneKind::thread, before.thread}),
                      {.begin = before.begin, .end = before.begin, .what = what, .ring = record.source},
                      [] { return std::string(); });
  }
  if (const auto open = async_.find(key); kind == 'E' && open != async_.end()) {
    const AsyncOpen begun = open->second;
    async_.erase(open);
    if (begun.begin <= record.time && begun.lost == lost_) {
      lanes_.add(lane(threads_[begun.thread].lane, {LaneKind::thread, begun.thread}),
                 {.begin = begun.begin, .end = record.time, .what = what, .ring = record.source, .stack = record.stack},
                 [&] { return text(at.type, record.payload); });
      if (e.heat == nullptr) e.heat = &heat_of(e.full);
      e.heat->add(record.time, record.time - begun.begin);
      return;
    }
  }
  if (kind == 'B' || kind == 'E') ++unpaired_;
  add_slice(at, record.time, what);
}

void Plot::on_call(const ThreadEvent& at) {
  const TraceRecord& record = at.record;
  Event& e = at.event;
  const auto function = static_cast<u64>(read_integer(record.payload, *e.call_role.value));
  const u32 what = name(function_of(e.call_role, record.number(), record.payload, formats_), e.index);
  const auto key = OpenSlices::call(at.number, at.thread.tid == 0 ? record.source + 1 : 0, function);
  if (e.call_role.begins ? begin_slice(at, key, what) : end_slice(at, key)) return;
  ++unpaired_;
  add_slice(at, record.time, what);
}

void Plot::on_enter(const ThreadEvent& at) {
  const TraceRecord& record = at.record;
  drop_call(at.number);
  if (at.number == 0) return add_slice(at, record.time, at.event.lane_name);
  Thread& t = at.thread;
  t.call = &at.event;
  t.call_name = call_of(at.event, record.payload);
  t.call_ring = record.source;
  t.call_begin = record.time;
  t.call_gaps = at.gaps;
  t.call_payload.assign(reinterpret_cast<const char*>(record.payload.data),
                        std::min<size_t>(record.payload.size, longest_payload));
}

void Plot::on_exit(const ThreadEvent& at) {
  const TraceRecord& record = at.record;
  Thread& t = at.thread;
  const Event* enter = t.call;
  const u32 call = call_of(at.event, record.payload);
  if (enter != nullptr && t.call_name == call && t.call_gaps == at.gaps && t.call_begin <= record.time) {
    t.call = nullptr;
    add_slice(at, t.call_begin, call, [&] { return text(enter->type, t.entered()) + " -> " + text(at.type, record.payload); });
    if (call >= call_heat_.size()) call_heat_.resize(call + 1);
    if (call_heat_[call] == nullptr) call_heat_[call] = &heat_of(names_[call].first);
    call_heat_[call]->add(record.time, record.time - t.call_begin);
    return;
  }
  drop_call(at.number);
  ++unpaired_;
  add_slice(at, record.time, call);
}

// The begin of an event that names its duration.
u64 Plot::begin_of(const TraceRecord& record, Event& e) {
  const i64 took = read_integer(record.payload, *e.first);
  if (took < 0 && e.first->is_signed) return record.time;
  if (e.heat == nullptr) e.heat = &heat_of(e.full + " " + e.first->name);
  e.heat->add(record.time, static_cast<u64>(took));
  return static_cast<u64>(took) <= record.time ? record.time - static_cast<u64>(took) : record.time;
}

void Plot::on_thread(const TraceRecord& record, Event& e, const EventType* type, const RingName& ring, i32 tid) {
  Thread& t = threads_[thread(tid, ring, record.time)];
  ++t.events;
  const auto number = static_cast<u32>(&t - threads_.data());
  // Nothing is paired across a gap: a call that ended in it and another that began in it would look like one. A thread's events
  // may be on any CPU's ring.
  const ThreadEvent at{record, e, type, t, number, ring.of_a_thread() ? rings_[record.source].gaps : shared_gaps_};
  u64 begin = record.time;
  switch (e.role) {
    case Event::Role::span:
      return e.async != nullptr ? on_async(at, tasks_.process(tid, ring)) : on_span(at);
    case Event::Role::enter: return on_enter(at);
    case Event::Role::exit: return on_exit(at);
    case Event::Role::call:
      return on_call(at);
    case Event::Role::duration:
      begin = begin_of(record, e);
      break;
    case Event::Role::counter:
      if (count_on(record, e, ring, tid)) return;
      break;
    case Event::Role::instant:
    case Event::Role::run:
    case Event::Role::wake:
      break;
  }
  add_slice(at, begin, e.lane_name);
}

void Plot::count_stack(const TraceRecord& record, const Event& e, u64 weight) {
  const u64 key = u64{e.index} << 32 | record.stack;
  auto row = stack_rows_.find(key);
  if (row == stack_rows_.end()) {
    if (counted_stacks_.size() == most_stacks) {
      uncounted_stacks_ += weight;
      return;
    }
    row = stack_rows_.emplace(key, static_cast<u32>(counted_stacks_.size())).first;
    counted_stacks_.emplace_back(e.index, record.stack);
  }
  stack_counts_.add(record.time, row->second, weight);
}

void Plot::add(const TraceRecord& record, const RingName& name, u64 weight) {
  if (record.source >= rings_.size()) rings_.resize(record.source + 1);
  Ring& ring = rings_[record.source];
  if (!ring.seen) ring.name = name;
  if (name.kernel && tasks_.several_runs()) [[unlikely]] {
    if (const u32 run = tasks_.run(name.numbering); run != run_) begin_run(run);
  }
  first_ = std::min(first_, record.time);
  last_ = std::max(last_, record.time);
  if (record.lost != 0) {
    lose(record, ring);
    return;
  }
  if (!ring.seen) ring.since = record.time;
  ring.seen = true;
  if (record.time < ring.last) ++backward_;
  ++events_;
  ++ring.events;
  const Common common = read_common(record.payload);
  const u32 id = record.number();
  const EventType* type = formats_.find(id);
  Event& e = event(id, type);
  ++events_seen_[e.index]->count;
  rates_.add(record.time, e.index + 1, 1);
  if (record.stack != 0) count_stack(record, e, weight);
  if (e.role == Event::Role::wake) wake_task(record, e, name);
  if (e.role == Event::Role::run)
    switch_task(record, e, ring, name);
  else
    on_thread(record, e, type, name, thread_of(type, common));
  ring.last = record.time;
}

// `none`: there are too many.
u32 Plot::counter(std::string name, u32 thread, u32 event) {
  if (counters_.size() >= most_counters) {
    too_many_counters_ = true;
    return none;
  }
  counters_.push_back({std::move(name), thread, event});
  return static_cast<u32>(counters_.size() - 1);
}

void Plot::add_heap() {
  heap_.finish();
  if (heap_.processes().empty()) return;
  const auto allocates = std::find_if(events_seen_.begin(), events_seen_.end(), [](const Event* e) {
    return e->full == "libc:malloc" || e->full == "libc:calloc" || e->full == "libc:realloc";
  });
  const u32 event = allocates != events_seen_.end() ? (*allocates)->index : 0;
  for (size_t n = 0; n < heap_.processes().size(); ++n) {
    const u32 thread = thread_of_process(heap_.processes()[n].key);
    if (const u32 c = counter("heap: bytes held", thread, event); c != none)
      curves_.take(c, heap_.curves().points(static_cast<u32>(n)));
    if (formats_.stacks() == nullptr) continue;
    for (const Heap::Site& site : heap_.sites(n, *formats_.stacks(), last_)) {
      any_site_ = true;
      const u32 c = counter("heap: " + site.functions, thread, event);
      for (const auto& [time, bytes] : c != none ? site.values : decltype(site.values)()) {
        curves_.add(c, time, static_cast<double>(bytes));
      }
    }
  }
}

// Ends open slices and notes the bounds that were reached.
void Plot::finish() {
  for (u32 n = 0; n < rings_.size(); ++n) {
    Ring& ring = rings_[n];
    if (unseen_ != 0 && ring.running != none) states_.forget(ring.running);
    if (unseen_ == 0) end_run(ring, n, last_);
  }
  for (u32 n = 0; n < threads_.size(); ++n) drop_call(n);
  unpaired_ += open_.left() + async_.size();
  lanes_.finish();
  states_.finish(last_);
  add_heap();
  curves_.finish();
  for (Thread& t : threads_) {
    const Task* const task = t.tid > 0 ? tasks_.find(t.key) : nullptr;
    if (task == nullptr) continue;
    const Tasks::Key of_number = t.key - static_cast<u32>(t.tid);
    t.pid = task->pid;
    t.parent = task->parent;
    const Task* const process = tasks_.find(of_number + static_cast<u32>(t.pid));
    t.process = process != nullptr && !process->name.empty() ? process->name : task->process;
    if (t.parent == 0 && process != nullptr) t.parent = process->parent;
  }
  const auto merged = [this](const char* these, u32 shift) {
    notes_.push_back(fmt::format("{} that lie within {} are drawn as one; --items, or --from and --to, show them apart", these,
                                 as_time(u64{1} << shift)));
  };
  if (lanes_.merges()) merged(lanes_.mixed() ? "events of a lane" : "equal events of a lane", lanes_.shift());
  if (states_.lanes().merges())
    merged(states_.lanes().mixed() ? "states of a thread" : "equal states of a thread", states_.lanes().shift());
  if (any_site_)
    notes_.push_back(fmt::format(
        "of each process, the call sites that held the most memory have a curve, {} at most, with a value every {}",
        Heap::most_sites, as_time(heap_.column_ns())));
  if (heap_.left_out() != 0)
    notes_.push_back(counted(heap_.left_out(), "allocation or free is", "allocations and frees are") +
                     " in no call site's curve: there are too many different stacks");
  if (curves_.merges() || heap_.curves().merges())
    merged("values of a counter", std::max(curves_.merges() ? curves_.shift() : 0,
                                           heap_.curves().merges() ? heap_.curves().shift() : 0));
  if (unpaired_ != 0)
    notes_.push_back(counted(unpaired_, "begin or end of a system call, span or function has",
                             "begins or ends of system calls, spans and functions have") +
                     " no other half in here, and no length");
  if (unseen_ != 0)
    notes_.push_back(fmt::format(
        "switches between threads are missing in {}, the first between {}; until when and since when these "
        "threads ran is not drawn. Recordings lack switches of ringside's own threads, and without -a those of other "
        "processes",
        counted(unseen_, "place"), first_unseen_));
  if (too_many_threads_) notes_.push_back(fmt::format("only the first {} threads have a lane of their own", most_lanes));
  if (too_many_counters_)
    notes_.push_back(fmt::format("only the first {} counters have a curve, the others are events", most_counters));
  if (too_many_heat_maps_)
    notes_.push_back(fmt::format("only the first {} kinds of durations have a heat map; choose with -e", most_heat_maps));
  if (too_many_names_)
    notes_.push_back(fmt::format("only the first {} names of slices are shown, the rest by the first's", most_names));
  if (backward_ != 0)
    notes_.push_back(counted(backward_, "event is older than the one before it on its ring",
                             "events are older than the one before them on their ring"));
}

}  // namespace ringside::plot
