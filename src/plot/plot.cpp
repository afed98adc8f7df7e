#include "plot/plot.hpp"

#include <algorithm>

#include "export/json.hpp"

namespace ringside::plot {
namespace {

constexpr u32 none = ~u32{0};
constexpr size_t deepest_span = 64, longest_payload = 1024;

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

template <class Number>
void number(fmt::memory_buffer& out, Number n) {
  const fmt::format_int text(n);
  append(out, {text.data(), text.size()});
}

// ,"key":
void key(fmt::memory_buffer& out, std::string_view name) {
  out.push_back(',');
  append_json_text(name, out);
  out.push_back(':');
}

template <class Items, class Print>
void list(fmt::memory_buffer& out, const Items& items, Print print) {
  out.push_back('[');
  bool first = true;
  for (const auto& item : items) {
    if (!first) out.push_back(',');
    first = false;
    print(item);
  }
  out.push_back(']');
}

// Counts as [column, count, distance to the next column, count, ...].
void sparse(fmt::memory_buffer& out, const TimeGrid& grid, u32 row, u64 first) {
  out.push_back('[');
  u64 before = first;
  bool any = false;
  grid.for_each(row, [&](u64 column, u64 count) {
    if (any) out.push_back(',');
    any = true;
    number(out, column - before);
    out.push_back(',');
    number(out, count);
    before = column;
  });
  out.push_back(']');
}

// A time as nanoseconds after `origin`.
void after(fmt::memory_buffer& out, u64 time, u64 origin) { number(out, static_cast<i64>(time - origin)); }

// "begin":...,"width":...,"columns":...
void columns(fmt::memory_buffer& out, u64 begin, u64 width, u64 many, u64 origin) {
  append(out, "\"begin\":");
  after(out, begin, origin);
  key(out, "width");
  number(out, width);
  key(out, "columns");
  number(out, many);
}

}  // namespace

struct Plot::Event {
  enum class Role { instant, duration, run, span, enter, exit };
  u32 index = 0, lane_name = 0;
  u64 count = 0;
  std::string full;
  Role role = Role::instant;
  const EventType* type = nullptr;
  const Field *first = nullptr, *second = nullptr;  // duration: its length; run: prev_pid, next_pid; span: type, slice_name
  const Field *first_text = nullptr, *second_text = nullptr;  // run: prev_comm, next_comm; span: track_name
  std::string call;                                           // enter, exit: the system call
  HeatMap* heat = nullptr;
};

struct Plot::Open {
  u64 begin = 0, gaps = 0;
  u32 name = 0;
  std::string track;
};

struct Plot::Thread {
  i32 tid = 0, pid = 0;
  std::string name, process, shown;  // shown: its TID for people
  u64 events = 0;
  u32 lane = none;
  std::vector<Open> spans;
  const Event* call = nullptr;  // the system call it is in
  u64 call_begin = 0, call_gaps = 0;
  u32 call_ring = 0;
  std::string call_payload;
  Bytes entered() const { return {reinterpret_cast<const u8*>(call_payload.data()), call_payload.size()}; }
};

struct Plot::Ring {
  RingName name;
  bool seen = false, switched = false;
  u64 last = 0, since = 0, events = 0, lost = 0, gaps = 0;
  u32 running = none;  // thread, if not idle
  u32 cpu_lane = none, loss_lane = none;
};

Plot::Plot(const Formats& formats, const Tasks& tasks, const Options& options)
    : formats_(formats),
      tasks_(tasks),
      options_(options),
      rates_(options.columns),
      lanes_(options.items),
      by_id_(Formats::most_ids) {
  Thread others;
  others.tid = -1;
  others.name = "other threads";
  threads_.push_back(std::move(others));
}

Plot::~Plot() = default;

HeatMap& Plot::heat_map(const std::string& name) {
  for (auto& [known, map] : heat_maps_) {
    if (known == name) return *map;
  }
  if (heat_maps_.size() > most_heat_maps) {
    too_many_heat_maps_ = true;
    return *heat_maps_.back().second;
  }
  heat_maps_.emplace_back(name, std::make_unique<HeatMap>(HeatMap::Options{options_.columns / 2, heat_precision, 0}));
  // One heat map more than are shown takes the rest.
  if (heat_maps_.size() > most_heat_maps) {
    too_many_heat_maps_ = true;
    heat_maps_.back().first.clear();
  }
  return *heat_maps_.back().second;
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
  auto& slot = by_id_[id];
  if (slot != nullptr) return *slot;
  slot = std::make_unique<Event>();
  Event& e = *slot;
  e.index = static_cast<u32>(events_seen_.size());
  e.type = type;
  e.full = type != nullptr ? type->full : fmt::format("unknown:{}", id & 0xFFFF);
  e.lane_name = name(e.full, e.index);
  events_seen_.push_back(&e);
  if (type == nullptr) return e;
  using Role = Event::Role;
  if (type->full == "sched:sched_switch") {
    e.first = type->field("prev_pid");
    e.second = type->field("next_pid");
    e.first_text = type->field("prev_comm");
    e.second_text = type->field("next_comm");
    if (is_integer(e.first) && is_integer(e.second) && is_text(e.first_text) && is_text(e.second_text)) e.role = Role::run;
    return e;
  }
  const EventRole known = role_of(*type);
  if (known.role == ringside::Role::span) {
    e.role = Role::span;
    e.first = known.value;
    e.second = known.name;
    e.first_text = known.track;
    return e;
  }
  if (type->system == "syscalls") {
    for (const auto& [prefix, role] : {std::pair{"sys_enter_", Role::enter}, std::pair{"sys_exit_", Role::exit}}) {
      e.call = without(type->name, prefix);
      if (e.call.empty()) continue;
      e.role = role;
      e.lane_name = name("syscalls:" + e.call, e.index);
      return e;
    }
  }
  if (known.role == ringside::Role::duration) {
    e.role = Role::duration;
    e.first = known.value;
  }
  return e;
}

u32 Plot::thread(i32 tid, const RingName& ring, std::string_view comm) {
  const Tasks::Key key = tasks_.key(tid, ring);
  const auto known = thread_numbers_.find(key);
  if (known != thread_numbers_.end()) return known->second;
  if (threads_.size() > most_lanes) {
    too_many_threads_ = true;
    return 0;
  }
  Thread t;
  t.tid = tid;
  t.shown = tasks_.show(key);
  const Task* task = tasks_.find(key);
  t.name = task != nullptr || comm.empty() ? std::string(tasks_.name(tid, ring)) : std::string(comm);
  t.pid = task != nullptr ? task->pid : tid == ring.tid ? ring.pid : 0;
  t.process = task != nullptr ? task->process : tid == ring.tid ? ring.process : "";
  const auto n = static_cast<u32>(threads_.size());
  threads_.push_back(std::move(t));
  thread_numbers_.emplace(key, n);
  return n;
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
  ++(ring.name.of_a_thread() ? ring.gaps : shared_gaps_);
  lanes_.add(lane(ring.loss_lane, {LaneKind::loss, record.source}),
             {.begin = begin, .end = record.time, .ring = record.source, .weight = record.lost}, [] { return std::string(); });
  ring.since = ring.last = record.time;
  ring.seen = true;
}

void Plot::switch_task(const TraceRecord& record, const Event& e, Ring& ring, const RingName& name) {
  const auto prev = static_cast<i32>(read_integer(record.payload, *e.first));
  const auto next = static_cast<i32>(read_integer(record.payload, *e.second));
  if (prev != 0 && record.time >= ring.since) {
    const u32 who = thread(prev, name, read_text(record.payload, *e.first_text));
    lanes_.add(lane(ring.cpu_lane, {LaneKind::cpu, record.source}),
               {.begin = ring.since, .end = record.time, .what = who, .ring = record.source},
               [&] { return text(e.type, record.payload); });
  }
  ring.switched = true;
  ring.since = record.time;
  ring.running = next == 0 ? none : thread(next, name, read_text(record.payload, *e.second_text));
}

// A system call without a seen end becomes an instant.
void Plot::drop_call(u32 number) {
  Thread& t = threads_[number];
  if (t.call == nullptr) return;
  const Event& e = *std::exchange(t.call, nullptr);
  ++unpaired_;
  lanes_.add(lane(t.lane, {LaneKind::thread, number}),
             {.begin = t.call_begin, .end = t.call_begin, .what = e.lane_name, .ring = t.call_ring},
             [&] { return text(e.type, t.entered()); });
}

void Plot::on_thread(const TraceRecord& record, Event& e, const EventType* type, const RingName& ring, i32 tid) {
  Thread& t = threads_[thread(tid, ring)];
  ++t.events;
  const auto number = static_cast<u32>(&t - threads_.data());
  u64 begin = record.time;
  // Nothing is paired across a gap: a call that ended in it and another that began in it would look like one. A thread's events
  // may be on any CPU's ring.
  const u64 gaps = ring.of_a_thread() ? rings_[record.source].gaps : shared_gaps_;
  const auto slice = [&](u32 what, auto make_text) {
    lanes_.add(lane(t.lane, {LaneKind::thread, number}),
               {.begin = begin, .end = record.time, .what = what, .ring = record.source}, make_text);
  };
  const auto own_text = [&] { return text(type, record.payload); };
  switch (e.role) {
    case Event::Role::span: {
      const auto kind = static_cast<char>(read_integer(record.payload, *e.first));
      const u32 what = name(std::string(read_text(record.payload, *e.second)), e.index);
      const std::string_view track = is_text(e.first_text) ? read_text(record.payload, *e.first_text) : std::string_view();
      if (number != 0 && kind == 'B' && t.spans.size() < deepest_span) {
        t.spans.push_back({record.time, gaps, what, std::string(track.substr(0, longest_text))});
        return;
      }
      if (number != 0 && kind == 'E') {
        const auto open = std::find_if(t.spans.rbegin(), t.spans.rend(),
                                       [&](const Open& o) { return o.track == track.substr(0, longest_text); });
        const Open found = open != t.spans.rend() ? *open : Open{};
        if (open != t.spans.rend()) t.spans.erase(std::next(open).base());
        if (found.begin != 0 && found.gaps != gaps) ++unpaired_;
        if (found.begin != 0 && found.gaps == gaps && found.begin <= record.time) {
          begin = found.begin;
          const u32 named = found.name;
          slice(named, own_text);
          if (e.heat == nullptr) e.heat = &heat_map(e.full);
          e.heat->add(record.time, record.time - begin);
          return;
        }
      }
      if (kind == 'B' || kind == 'E') ++unpaired_;
      slice(what, own_text);
      return;
    }
    case Event::Role::enter:
      drop_call(number);
      if (number == 0) break;
      t.call = &e;
      t.call_ring = record.source;
      t.call_begin = record.time;
      t.call_gaps = gaps;
      t.call_payload.assign(reinterpret_cast<const char*>(record.payload.data),
                            std::min<size_t>(record.payload.size, longest_payload));
      return;
    case Event::Role::exit: {
      const Event* enter = t.call;
      if (enter != nullptr && enter->call == e.call && t.call_gaps == gaps && t.call_begin <= record.time) {
        t.call = nullptr;
        begin = t.call_begin;
        slice(e.lane_name, [&] { return text(enter->type, t.entered()) + " -> " + own_text(); });
        if (e.heat == nullptr) e.heat = &heat_map("syscalls:" + e.call);
        e.heat->add(record.time, record.time - begin);
        return;
      }
      drop_call(number);
      ++unpaired_;
      break;
    }
    case Event::Role::duration: {
      const i64 took = read_integer(record.payload, *e.first);
      if (took < 0 && e.first->is_signed) break;
      if (e.heat == nullptr) e.heat = &heat_map(e.full + " " + e.first->name);
      e.heat->add(record.time, static_cast<u64>(took));
      if (static_cast<u64>(took) <= record.time) begin = record.time - static_cast<u64>(took);
      break;
    }
    case Event::Role::instant:
    case Event::Role::run:
      break;
  }
  slice(e.lane_name, own_text);
}

void Plot::add(const TraceRecord& record, const RingName& name) {
  if (record.source >= rings_.size()) rings_.resize(record.source + 1);
  Ring& ring = rings_[record.source];
  if (!ring.seen) ring.name = name;
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
  ++e.count;
  rates_.add(record.time, e.index + 1, 1);
  if (e.role == Event::Role::run)
    switch_task(record, e, ring, name);
  else
    on_thread(record, e, type, name, thread_of(type, common));
  ring.last = record.time;
}

// Ends open slices and notes the bounds that were reached.
void Plot::finish() {
  for (u32 n = 0; n < rings_.size(); ++n) end_run(rings_[n], n, last_);
  for (u32 n = 0; n < threads_.size(); ++n) {
    drop_call(n);
    unpaired_ += threads_[n].spans.size();
  }
  lanes_.finish();
  if (lanes_.merges())
    notes_.push_back(
        fmt::format("{} of a lane that lie within {} are drawn as one; --items, or --from and --to, show them apart",
                    lanes_.mixed() ? "events" : "equal events", as_time(u64{1} << lanes_.shift())));
  if (unpaired_ != 0)
    notes_.push_back(
        fmt::format("{} begins or ends of system calls and spans have no other half in here, and no length", unpaired_));
  if (too_many_threads_) notes_.push_back(fmt::format("only the first {} threads have a lane of their own", most_lanes));
  if (too_many_heat_maps_)
    notes_.push_back(fmt::format("only the first {} kinds of durations have a heat map; choose with -e", most_heat_maps));
  if (too_many_names_)
    notes_.push_back(fmt::format("only the first {} names of slices are shown, the rest by the first's", most_names));
  if (backward_ != 0) notes_.push_back(fmt::format("{} events are older than the one before them on their ring", backward_));
}

std::string Plot::json(const std::string& where, const Facts& facts, bool raw_times) {
  finish();
  const u64 origin = first_ > last_ ? 0 : first_;
  fmt::memory_buffer lanes;
  const auto slice_list = [&](std::string_view name, const std::vector<Slice>& slices, auto print) {
    key(lanes, name);
    list(lanes, slices, print);
  };
  list(lanes, lane_names_, [&](const LaneName& lane) {
    const std::vector<Slice>& slices = lanes_.slices(static_cast<u32>(&lane - lane_names_.data()));
    fmt::format_to(std::back_inserter(lanes), "{{\"kind\":\"{}\",\"number\":{}",
                   lane.kind == LaneKind::cpu      ? "cpu"
                   : lane.kind == LaneKind::thread ? "thread"
                                                   : "loss",
                   lane.number);
    // Ends in order of time, each as the distance from the previous one.
    u64 before = origin;
    slice_list("end", slices, [&](const Slice& s) {
      after(lanes, s.end, before);
      before = s.end;
    });
    slice_list("length", slices, [&](const Slice& s) { number(lanes, s.end - s.begin); });
    if (lane.kind == LaneKind::loss) {
      slice_list("lost", slices, [&](const Slice& s) { number(lanes, s.weight); });
    } else {
      slice_list("what", slices, [&](const Slice& s) { number(lanes, static_cast<i32>(s.what)); });
      if (lane.kind == LaneKind::thread)
        slice_list("ring", slices, [&](const Slice& s) { number(lanes, static_cast<i32>(s.ring)); });
      slice_list("text", slices, [&](const Slice& s) {
        if (s.text.size() > longest_text) ++cut_;
        std::string_view shown = std::string_view(s.text).substr(0, longest_text);
        // Not in the middle of a character.
        while (shown.size() < s.text.size() && !shown.empty() && (static_cast<u8>(s.text[shown.size()]) & 0xC0) == 0x80)
          shown.remove_suffix(1);
        append_json_text(shown.size() < s.text.size() ? std::string(shown) + "..." : std::string(shown), lanes);
      });
      // Merged slices only: index, as the distance from the previous one, number of slices, summed time.
      key(lanes, "merged");
      lanes.push_back('[');
      size_t last = 0;
      bool any = false;
      for (size_t i = 0; i < slices.size(); ++i) {
        if (slices[i].merged == 1) continue;
        fmt::format_to(std::back_inserter(lanes), "{}{},{},{}", any ? "," : "", i - last, slices[i].merged, slices[i].busy);
        any = true;
        last = i;
      }
      lanes.push_back(']');
    }
    lanes.push_back('}');
  });
  if (cut_ != 0) notes_.push_back(fmt::format("the texts of {} events are cut after {} bytes", cut_, longest_text));

  fmt::memory_buffer out;
  append(out, "{\"where\":");
  append_json_text(where, out);
  key(out, "raw_times");
  append(out, raw_times ? "true" : "false");
  key(out, "origin");
  fmt::format_to(std::back_inserter(out), "\"{}\"", origin);  // text: JavaScript's numbers are exact up to 2^53
  key(out, "duration");
  number(out, last_ > origin ? last_ - origin : 0);
  key(out, "events");
  number(out, events_);
  key(out, "lost");
  number(out, lost_);
  key(out, "merge_ns");
  number(out, lanes_.merges() ? u64{1} << lanes_.shift() : 0);
  key(out, "facts");
  list(out, facts, [&](const auto& fact) {
    out.push_back('[');
    append_json_text(fact.first, out);
    out.push_back(',');
    append_json_text(fact.second, out);
    out.push_back(']');
  });
  key(out, "notes");
  list(out, notes_, [&](const std::string& note) { append_json_text(note, out); });
  key(out, "types");
  list(out, events_seen_, [&](const Event* e) {
    append(out, "{\"name\":");
    append_json_text(e->full, out);
    key(out, "count");
    number(out, e->count);
    key(out, "rate");
    sparse(out, rates_, e->index + 1, rates_.first());
    out.push_back('}');
  });
  append(out, ",\"rates\":{");
  columns(out, rates_.first() << rates_.shift(), u64{1} << rates_.shift(),
          rates_.empty() ? 0 : rates_.last() - rates_.first() + 1, origin);
  key(out, "lost");
  sparse(out, rates_, 0, rates_.first());
  out.push_back('}');
  key(out, "names");
  list(out, names_, [&](const auto& n) {
    out.push_back('[');
    append_json_text(n.first, out);
    fmt::format_to(std::back_inserter(out), ",{}]", n.second);
  });
  key(out, "threads");
  list(out, threads_, [&](const Thread& t) {
    fmt::format_to(std::back_inserter(out), "{{\"tid\":{},\"pid\":{},\"events\":{},\"name\":", t.tid, t.pid, t.events);
    append_json_text(t.name, out);
    key(out, "process");
    append_json_text(t.process, out);
    if (t.shown != std::to_string(t.tid)) {
      key(out, "shown");
      append_json_text(t.shown, out);
    }
    out.push_back('}');
  });
  key(out, "rings");
  list(out, rings_, [&](const Ring& r) {
    fmt::format_to(std::back_inserter(out),
                   "{{\"ring\":{},\"kernel\":{},\"tid\":{},\"events\":{},\"lost\":{},\"buffer\":", r.name.ring, r.name.kernel,
                   r.name.tid, r.events, r.lost);
    append_json_text(r.name.buffer, out);
    out.push_back('}');
  });
  key(out, "lanes");
  append(out, {lanes.data(), lanes.size()});
  key(out, "heat");
  out.push_back('[');
  bool first = true;
  for (const auto& [title, map] : heat_maps_) {
    if (title.empty() || map->count() == 0) continue;
    if (!first) out.push_back(',');
    first = false;
    append(out, "{\"name\":");
    append_json_text(title, out);
    key(out, "count");
    number(out, map->count());
    out.push_back(',');
    columns(out, map->begin_ns(0), map->column_ns(), map->columns(), origin);
    // By value: [LogBuckets' number, its counts], ...
    append(out, ",\"rows\":[");
    bool first_row = true;
    for (u32 row = 0; row < map->rows(); ++row) {
      bool first_count = true;
      size_t before = 0;
      for (size_t column = 0; column < map->columns(); ++column) {
        const u64 many = map->count(column, row);
        if (many == 0) continue;
        if (first_count) fmt::format_to(std::back_inserter(out), "{}[{},[", first_row ? "" : ",", row);
        fmt::format_to(std::back_inserter(out), "{}{},{}", first_count ? "" : ",", column - before, many);
        first_count = first_row = false;
        before = column;
      }
      if (!first_count) append(out, "]]");
    }
    append(out, "]}");
  }
  append(out, "]}");
  return {out.data(), out.size()};
}

}  // namespace ringside::plot
