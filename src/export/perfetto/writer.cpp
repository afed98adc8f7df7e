#include "export/perfetto/writer.hpp"

#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <protozero/pbf_writer.hpp>

#include "text/units.hpp"

namespace ringside {
namespace perfetto {

// A field of a message: its number, and i, u, s or d.
struct Field {
  u32 number = 0;
  char kind = 0;
};

}  // namespace perfetto
namespace {

using protozero::pbf_writer;
using Typed = perfetto::Field;
using perfetto::Sequence;

// Field numbers, by message.
namespace trace {
constexpr u32 packet = 1;
}
namespace in_packet {
constexpr u32 ftrace_events = 1, process_tree = 2, clock_snapshot = 6, track_event = 11, ftrace_stats = 34, system_info = 45,
              compressed = 50, track_descriptor = 60, perf_sample = 66;
}
namespace in_bundle {
constexpr u32 cpu = 1, event = 2, lost = 3, descriptors = 11;
}
namespace in_ftrace {
constexpr u32 timestamp = 1, pid = 2, generic = 327;
}
namespace in_event {  // TrackEvent
constexpr u32 category = 3, annotations = 4, type = 9, name = 10, track = 11, counter = 30, real_counter = 44, flow = 47,
              callstack = 56, weight = 57;
constexpr u32 slice_begin = 1, slice_end = 2, instant = 3, counter_sample = 4;
}
namespace in_sample {  // PerfSample
constexpr u32 cpu = 1, pid = 2, tid = 3, callstack = 4, mode = 5, count = 6;
constexpr u32 kernel = 1, user = 2;
}
namespace in_defaults {  // TracePacketDefaults, and what is in it
constexpr u32 perf_sample = 12, timebase = 1, tracepoint = 3, tracepoint_name = 1, name = 10;
}
namespace in_annotation {
constexpr u32 name = 1, boolean = 2, uint = 3, integer = 4, real = 5, text = 6;
}
constexpr u32 boottime = 6, monotonic = 3, realtime = 1;
constexpr size_t full_batch = 256 << 10, full_bundle = 64 << 10;
constexpr u32 cpus_read = 1024, generic_fields = 31;
constexpr i32 most_tids = 1 << 22;  // the kernel's limit
constexpr size_t most_lanes = 256;  // of a thread
constexpr size_t longest_varint = 10, longest_head = 5 * longest_varint;

struct Row {
  const char* name;
  u32 message;
  const char* fields;  // "prev_comm:1s prev_pid:2i"
};
constexpr Row rows[] = {
#include "export/perfetto/events.inc"
};

const Row* row_of(std::string_view name) {
  const auto* const found =
      std::lower_bound(std::begin(rows), std::end(rows), name, [](const Row& row, std::string_view n) { return row.name < n; });
  return found != std::end(rows) && name == found->name ? found : nullptr;
}

Typed typed_field(const Row& row, std::string_view field) {
  std::string_view rest = row.fields;
  while (!rest.empty()) {
    const std::string_view one = rest.substr(0, rest.find(' '));
    rest.remove_prefix(std::min(one.size() + 1, rest.size()));
    const size_t colon = one.find(':');
    if (one.substr(0, colon) != field) continue;
    Typed t;
    for (const char c : one.substr(colon + 1)) {
      if (c >= '0' && c <= '9')
        t.number = t.number * 10 + static_cast<u32>(c - '0');
      else
        t.kind = c;
    }
    return t;
  }
  return {};
}

bool is_array(const Field& f) { return f.kind == FieldKind::array || f.kind == FieldKind::loc_array; }
bool is_text(const Field& f) { return f.kind == FieldKind::text || f.kind == FieldKind::loc_text; }

// Only a repeated field's last element would be read, so an array is a text.
std::string array_text(Bytes payload, const Field& field) {
  fmt::memory_buffer out;
  const Bytes bytes = read_array(payload, field);
  for (size_t at = 0; field.element != 0 && at + field.element <= bytes.size; at += field.element) {
    if (at != 0) out.push_back(',');
    const i64 value = field.is_float ? 0 : element_integer(bytes.data + at, field.element, field.is_signed);
    if (field.is_float)
      append_floating(element_floating(bytes.data + at, field.element), field.element, out);
    else if (field.is_signed)
      fmt::format_to(std::back_inserter(out), "{}", value);
    else
      fmt::format_to(std::back_inserter(out), "{}", static_cast<u64>(value));
  }
  return {out.data(), out.size()};
}

std::string_view symbol(const Field& field, i64 value) {
  for (const auto& [number, name] : field.symbols)
    if (number == value) return name;
  return {};
}

}  // namespace

struct PerfettoWriter::Event {
  // How a field of a kernel event is written.
  struct Step {
    u32 tag = 0;
    char kind = 0;  // of Typed; 0: not carried
    bool is_signed = false, array = false;
    u32 offset = 0, size = 0;
    const Field* field = nullptr;
  };
  const EventType* type = nullptr;
  EventRole role;
  Stacks::Part part = Stacks::Part::none;
  std::string name, system;
  u32 message = 0;             // of FtraceEvent; 0: it names each field
  std::vector<Step> steps;
  size_t room = 0, texts = 0;  // its own fields need `room` bytes, and those of its texts
  Samples* samples = nullptr;
  u32 round = 0;               // the numbers below are those of this round
  u64 own_name = 0, category = 0;
  std::vector<u64> fields;

  void carry(const Field& field, Typed as) {
    if (as.number == 0) return;
    const u32 wire = as.kind == 's' ? 2 : as.kind == 'd' ? 1 : 0;
    steps.push_back({as.number << 3 | wire, as.kind, field.is_signed, is_array(field), field.offset, field.size, &field});
    room += 2 * longest_varint;
    texts += as.kind == 's';
  }
};

struct PerfettoWriter::Ring {
  u64 last = 0, track = 0;
  bool seen = false;
};

struct PerfettoWriter::Cpu {
  std::string events;  // that wait for their bundle
  bool gap = false;    // the next bundle follows a loss
  u64 count = 0, lost = 0;
};

// The samples of one type of event.
struct PerfettoWriter::Samples {
  Sequence sequence;
  std::map<i32, u64> counts{};  // by CPU
};

PerfettoWriter::PerfettoWriter(const Formats& formats, const Tasks& tasks, const PerfettoOptions& options, Put put)
    : formats_(formats),
      tasks_(tasks),
      options_(options),
      boot_offset_ns_(options.world.suspended_ns.value_or(0)),
      put_(std::move(put)) {}
PerfettoWriter::~PerfettoWriter() = default;

void PerfettoWriter::packet(const std::string& bytes) { pbf_writer(batch_).add_message(trace::packet, bytes); }

result<void> PerfettoWriter::begin(u64 first_ns) {
  std::string bytes;
  {
    pbf_writer p(bytes);
    pbf_writer snapshot(p, in_packet::clock_snapshot);
    const auto clock = [&](u32 number, u64 time) {
      pbf_writer one(snapshot, 1);
      one.add_uint32(1, number);
      one.add_uint64(2, time);
    };
    clock(boottime, first_ns + boot_offset_ns_);
    clock(monotonic, first_ns);
    if (options_.wall) clock(realtime, static_cast<u64>(options_.wall->of(first_ns)));
    snapshot.add_uint32(2, boottime);
  }
  packet(bytes);
  bytes.clear();
  if (const std::string machine(machine_of(options_.world.architecture)); !machine.empty()) {
    pbf_writer p(bytes);
    pbf_writer info(p, in_packet::system_info);
    pbf_writer kernel(info, 1);
    kernel.add_string(1, "Linux");
    if (!options_.world.release.empty()) kernel.add_string(3, options_.world.release);
    kernel.add_string(4, machine);
  }
  if (!bytes.empty()) packet(bytes);
  return flush(false);
}

PerfettoWriter::Event& PerfettoWriter::event(const TraceRecord& record, const RingName& ring) {
  Event*& slot = by_id_.at(record.number(), formats_.version());
  if (slot != nullptr) [[likely]] return *slot;
  slot = events_.emplace_back(std::make_unique<Event>()).get();
  Event& e = *slot;
  e.type = formats_.find(record.number());
  if (e.type == nullptr) {
    e.name = fmt::format("unknown:{}", record.number() & 0xFFFF);
    return e;
  }
  e.name = e.type->name;
  e.system = e.type->system;
  e.role = role_of(*e.type);
  if (options_.stacks != nullptr) e.part = options_.stacks->part(record.number());
  if (ring.kernel && e.role.role != Role::call) describe(e, ring.place());
  return e;
}

// How a kernel's event is written.
void PerfettoWriter::describe(Event& e, u32 cpu) {
  if (const Row* row = row_of(e.name)) {
    e.message = row->message;
    for (const Field& f : e.type->fields()) {
      const Typed t = typed_field(*row, f.name);
      const bool fits = t.kind == 's'   ? is_text(f)
                        : t.kind == 'd' ? f.kind == FieldKind::floating
                                        : f.kind == FieldKind::integer;
      if (fits) e.carry(f, t);
    }
    return;
  }
  if (e.type->fields().size() > generic_fields) return;
  // Numbers of a file are unique; the first definition of one holds.
  e.message = next_field_++;
  constexpr u32 in_descriptor_name = 1, in_descriptor_field = 2, optional = 1, type_double = 1, type_int64 = 3, type_uint64 = 4,
                type_string = 9;
  std::string descriptor;
  {
    pbf_writer d(descriptor);
    d.add_string(in_descriptor_name, e.type->full);
    u32 number = 0;
    for (const Field& f : e.type->fields()) {
      const u32 type = is_text(f) || is_array(f)       ? type_string
                       : f.kind == FieldKind::floating ? type_double
                       : f.is_signed                   ? type_int64
                                                       : type_uint64;
      e.carry(f, {++number, type == type_string ? 's' : type == type_double ? 'd' : f.is_signed ? 'i' : 'u'});
      pbf_writer field(d, in_descriptor_field);
      field.add_string(1, f.name);
      field.add_uint32(3, number);
      field.add_uint32(4, optional);
      field.add_uint32(5, type);
    }
  }
  // In a bundle of its own, before all events of this kind: those of another CPU may come first.
  packet_.clear();
  {
    pbf_writer p(packet_);
    pbf_writer bundle(p, in_packet::ftrace_events);
    bundle.add_uint32(in_bundle::cpu, std::min(cpu, cpus_read - 1));
    pbf_writer d(bundle, in_bundle::descriptors);
    d.add_int32(1, static_cast<i32>(e.message));
    d.add_bytes(2, descriptor);
  }
  packet(packet_);
}

result<void> PerfettoWriter::add(const TraceRecord& record, const RingName& ring) {
  if (record.source >= rings_.size()) rings_.resize(record.source + 1);
  if (record.lost != 0) {
    lose(record, ring);
    return flush(false);
  }
  Event& e = event(record, ring);
  using Part = Stacks::Part;
  if (e.part == Part::none || e.part == Part::refers) {
    if (ring.kernel && e.role.role != Role::call)
      add_kernel(record, ring, e);
    else
      add_program(record, ring, e);
    if (record.stack != 0 && (ring.kernel || e.role.role == Role::counter)) add_sample(record, ring, e);
  } else if (e.part == Part::sample) {
    add_sample(record, ring, e);
  }
  last_ = std::max(last_, record.time);
  rings_[record.source].last = record.time;
  rings_[record.source].seen = true;
  return batch_.size() >= full_batch ? flush(false) : result<void>();
}

PerfettoWriter::Cpu& PerfettoWriter::cpu(u32 number) {
  if (number >= cpus_.size()) cpus_.resize(number + 1);
  return cpus_[number];
}

// Its fields, one by one, into room_.
void PerfettoWriter::own_fields(const Event& e, Bytes payload) {
  constexpr size_t as_text = 8;  // an array's byte takes five characters at most: -128,
  const size_t text_room = e.texts * (payload.size * as_text + longest_varint);
  if (room_.size() < e.room + text_room) room_.resize(e.room + text_room);
  char* out = room_.data();
  const auto put_text = [&out](std::string_view text) {
    out += protozero::add_varint_to_buffer(out, text.size());
    out = std::copy(text.begin(), text.end(), out);
  };
  for (const Event::Step& s : e.steps) {
    out += protozero::add_varint_to_buffer(out, s.tag);
    const bool whole = u64{s.offset} + s.size <= payload.size;
    if (s.kind == 'i' || s.kind == 'u') {
      out += protozero::add_varint_to_buffer(
          out, whole ? static_cast<u64>(element_integer(payload.data + s.offset, s.size, s.is_signed)) : 0);
    } else if (s.kind == 'd') {
      const double value = read_floating(payload, *s.field);
      std::memcpy(out, &value, sizeof value);
      out += sizeof value;
    } else if (s.array) {
      put_text(array_text(payload, *s.field));
    } else {
      put_text(read_text(payload, *s.field));
    }
  }
  used_ = static_cast<size_t>(out - room_.data());
}

// Its fields with their names, into message_.
void PerfettoWriter::named_fields(const Event& e, Bytes payload) {
  message_.clear();
  pbf_writer generic(message_);
  generic.add_string(1, e.type != nullptr ? e.type->full : e.name);
  if (e.type == nullptr) return;
  for (const Field& f : e.type->fields()) {
    pbf_writer field(generic, 2);
    field.add_string(1, f.name);
    if (is_text(f)) {
      const std::string_view text = read_text(payload, f);
      field.add_string(3, text.data(), text.size());
    } else if (is_array(f)) {
      field.add_string(3, array_text(payload, f));
    } else if (f.kind == FieldKind::floating) {
      field.add_string(3, fmt::format("{}", read_floating(payload, f)));
    } else if (f.is_signed) {
      field.add_int64(4, read_integer(payload, f));
    } else {
      field.add_uint64(5, static_cast<u64>(read_integer(payload, f)));
    }
  }
}

void PerfettoWriter::add_kernel(const TraceRecord& record, const RingName& ring, Event& e) {
  if (ring.place() >= cpus_read) {
    ++left_out_;
    return;
  }
  const i32 tid = thread_of(e.type, read_common(record.payload));
  if (tid > 0 && tid < most_tids) name_task(tid, ring, record.time);
  std::string_view fields;
  if (e.message != 0) {
    own_fields(e, record.payload);
    fields = {room_.data(), used_};
  } else {
    named_fields(e, record.payload);
    fields = message_;
  }
  // FtraceEvent: the time, the thread, and the message of its own, after their length.
  char head[longest_head], *out = head;
  const auto put_number = [&out](u64 number) { out += protozero::add_varint_to_buffer(out, number); };
  const auto tag = [](u32 number, u32 wire) { return u64{number} << 3 | wire; };
  put_number(tag(in_ftrace::timestamp, 0));
  put_number(record.time + boot_offset_ns_);
  put_number(tag(in_ftrace::pid, 0));
  put_number(static_cast<u32>(tid));
  put_number(tag(e.message != 0 ? e.message : in_ftrace::generic, 2));
  put_number(fields.size());
  const auto size = static_cast<size_t>(out - head);
  Cpu& on = cpu(ring.place());
  on.events.push_back(static_cast<char>(tag(in_bundle::event, 2)));
  protozero::add_varint_to_buffer(&on.events, size + fields.size());
  on.events.append(head, size);
  on.events.append(fields);
  ++on.count;
  if (on.events.size() >= full_bundle) end_bundle(ring.place());
}

// A thread belongs to its process only if a packet says so.
void PerfettoWriter::name_task(i32 tid, const RingName& ring, u64 time) {
  const auto index = static_cast<size_t>(tid);
  const u64 round = tasks_.renamed() + 1;
  if (index >= named_.size()) named_.resize(index + 1);
  if (named_[index] == round) [[likely]] return;
  const Task* const task = tasks_.find(tid, ring);
  if (task == nullptr) return;  // its name may come
  named_[index] = round;
  note_name(thread_entry(tid, ring), tid, ring, time);
  std::string says = fmt::format("{} {} {}", task->pid, task->process, task->name);
  if (says == written_names_[tid]) return;
  written_names_[tid] = std::move(says);
  packet_.clear();
  {
    pbf_writer p(packet_);
    pbf_writer tree(p, in_packet::process_tree);
    if (task->pid > 0) {
      pbf_writer process(tree, 1);
      process.add_int32(1, task->pid);
      process.add_string(3, task->process.empty() ? task->name : task->process);
      process.add_bool(9, true);
    }
    pbf_writer thread(tree, 2);
    thread.add_int32(1, tid);
    thread.add_string(2, task->name);
    thread.add_int32(3, task->pid > 0 ? task->pid : tid);
  }
  packet(packet_);
}

void PerfettoWriter::name_process(i32 pid, std::string_view name) {
  if (pid <= 0 || name.empty() || std::exchange(named_processes_[pid], name) == name) return;
  packet_.clear();
  {
    pbf_writer p(packet_);
    pbf_writer tree(p, in_packet::process_tree);
    pbf_writer one(tree, 1);
    one.add_int32(1, pid);
    one.add_string(3, name.data(), name.size());
    one.add_bool(9, true);
  }
  packet(packet_);
}

void PerfettoWriter::end_bundle(u32 number) {
  Cpu& on = cpu(number);
  if (on.events.empty()) return;
  message_.clear();
  pbf_writer bundle(message_);
  bundle.add_uint32(in_bundle::cpu, number);
  if (std::exchange(on.gap, false)) bundle.add_bool(in_bundle::lost, true);
  const size_t size = message_.size() + on.events.size();
  const auto begin = [this](u32 field, size_t length) {
    batch_.push_back(static_cast<char>(field << 3 | 2));
    protozero::add_varint_to_buffer(&batch_, length);
  };
  begin(trace::packet, 1 + static_cast<size_t>(protozero::length_of_varint(size)) + size);
  begin(in_packet::ftrace_events, size);
  batch_ += message_;
  batch_ += on.events;
  on.events.clear();
}

PerfettoWriter::Thread& PerfettoWriter::thread_entry(i32 tid, const RingName& ring) {
  return threads_[{tasks_.key(tid, ring), tid != 0 ? 0 : ring.ring + 1}];
}

u64 PerfettoWriter::thread(i32 tid, const RingName& ring, u64 time) {
  Thread& at = thread_entry(tid, ring);
  if (tid != 0) note_name(at, tid, ring, time);
  if (at.track != 0) return at.track;
  at.track = next_track_++;
  describe_thread(at, tid, ring);
  return at.track;
}

// Again after each change: the last name counts.
void PerfettoWriter::describe_thread(const Thread& at, i32 tid, const RingName& ring) {
  const i32 seen = tasks_.seen(tid, ring), process = tasks_.seen_process(tid, ring);
  const Task* const task = tasks_.find(tid, ring);
  packet_.clear();
  {
    pbf_writer p(packet_);
    pbf_writer track(p, in_packet::track_descriptor);
    track.add_uint64(1, at.track);
    if (tid == 0) {  // a hypervisor's event has no thread
      track.add_string(2, ring.task.empty() ? fmt::format("ring {}", ring.ring) : ring.task);
    } else {
      track.add_bool(9, true);  // not that of its system calls: they and the slices would overlap
      pbf_writer thread(track, 4);
      thread.add_int32(1, process > 0 ? process : seen);
      thread.add_int64(2, seen);
      const std::string_view name = tasks_.name(tid, ring);
      thread.add_string(5, name.data(), name.size());
    }
  }
  packet(packet_);
  if (tid != 0) name_process(process, task != nullptr ? task->process : ring.process);
}

// The thread's name at an event of it.
void PerfettoWriter::note_name(Thread& at, i32 tid, const RingName& ring, u64 time) {
  const u64 round = tasks_.renamed() + 1;
  if (at.round == round) [[likely]] return;
  at.round = round;
  const Task* const task = tasks_.find(tid, ring);
  if (task != nullptr && task->life != at.life) {
    if (at.names != 0) track_event(time, in_event::slice_end, at.names, 0, "");
    at = {};
    at.round = round;
    at.life = task->life;
  }
  const std::string_view name =
      task != nullptr ? std::string_view(task->name) : std::string_view(ring.tid == tid ? ring.task.c_str() : "");
  if (name.empty() || name == at.name) return;
  if (!at.name.empty()) {
    if (at.track == 0) at.track = next_track_++;
    describe_thread(at, tid, ring);
    if (at.names == 0) {
      at.names = new_track(at.track, "names", false);
      name_slice(at, at.since);
    }
    track_event(time, in_event::slice_end, at.names, 0, "");
  }
  at.name = name;
  at.since = time;
  if (at.names != 0) name_slice(at, time);
}

void PerfettoWriter::name_slice(const Thread& at, u64 from) {
  sequence_.make_room();
  track_event(from, in_event::slice_begin, at.names, sequence_.text(Sequence::name, at.name), "");
}

u64 PerfettoWriter::track(u64 parent, const std::string& name, bool counter) {
  const auto [at, fresh] = tracks_.try_emplace({parent, (counter ? "#" : "") + name}, 0);
  if (fresh) at->second = new_track(parent, name, counter);
  return at->second;
}

u64 PerfettoWriter::new_track(u64 parent, const std::string& name, bool counter) {
  packet_.clear();
  {
    pbf_writer p(packet_);
    pbf_writer track(p, in_packet::track_descriptor);
    track.add_uint64(1, next_track_);
    if (parent != 0) track.add_uint64(5, parent);
    track.add_string(2, name);
    if (counter) track.add_message(8, std::string());
  }
  packet(packet_);
  return next_track_++;
}

// The process of a counter with scope_tgid; 0: unknown.
i32 PerfettoWriter::process_of(const TraceRecord& record, const RingName& ring, const Event& e) const {
  const i64 given = read_integer(record.payload, *e.role.process);
  return given > 0 && given < most_tids ? tasks_.seen(static_cast<i32>(given), ring)
                                        : tasks_.seen_process(thread_of(e.type, read_common(record.payload)), ring);
}

u64 PerfettoWriter::process_track(i32 process) {
  const auto [at, fresh] = process_tracks_.try_emplace(process, next_track_);
  if (!fresh) return at->second;
  ++next_track_;
  packet_.clear();
  {
    pbf_writer p(packet_);
    pbf_writer track(p, in_packet::track_descriptor);
    track.add_uint64(1, at->second);
    pbf_writer(track, 3).add_int32(1, process);
  }
  packet(packet_);
  return at->second;
}

// Spans that are open at a time have a track each, which the viewer shows as one. 0: nothing of this id is open.
u64 PerfettoWriter::async_track(i32 process, std::string_view name, u64 id, char kind) {
  AsyncTracks& all = async_[{process, std::string(name)}];
  auto at = all.open.find(id);
  if (at == all.open.end()) {
    if (kind != 'B') return 0;
    if (all.free.empty()) all.free.push_back(new_track(0, std::string(name), false));
    at = all.open.emplace(id, all.free.back()).first;
    all.free.pop_back();
    return at->second;
  }
  const u64 track = at->second;
  if (kind == 'E') {
    all.free.push_back(track);
    all.open.erase(at);
  }
  return track;
}

std::vector<PerfettoWriter::Lane>& PerfettoWriter::lanes(u64 thread) {
  std::vector<Lane>& all = lanes_[thread];
  if (all.empty()) all.push_back({thread, {}});
  return all;
}

// The thread's own track, or one below it: that of a slice which overlaps others. 0: too many overlap.
u64 PerfettoWriter::track_with_room(u64 thread, u64 begin, u64 end) {
  std::vector<Lane>& all = lanes(thread);
  for (Lane& lane : all)
    if (lane.nesting.take(begin, end)) return lane.track;
  if (all.size() == most_lanes) return 0;
  all.push_back({new_track(thread, "overlapping", false), {}});
  all.back().nesting.take(begin, end);
  return all.back().track;
}

// name: its number, 0: none. rest: further fields of the track event.
void PerfettoWriter::track_event(u64 time, u32 type, u64 track, u64 name, const std::string& rest) {
  message_.clear();
  pbf_writer e(message_);
  e.add_uint32(in_event::type, type);
  e.add_uint64(in_event::track, track);
  if (name != 0) e.add_uint64(in_event::name, name);
  message_ += rest;
  packet_.clear();
  pbf_writer p(packet_);
  sequence_.begin(p, time + boot_offset_ns_);
  p.add_message(in_packet::track_event, message_);
  packet(packet_);
}

// Its name, its system and its fields in this round of the sequence.
void PerfettoWriter::number(Event& e) {
  sequence_.make_room();
  if (e.round == sequence_.round()) [[likely]] return;
  e.round = sequence_.round();
  e.own_name = sequence_.text(Sequence::name, e.name);
  e.category = e.system.empty() ? 0 : sequence_.text(Sequence::category, e.system);
  e.fields.clear();
  if (e.type == nullptr) return;
  for (const Field& f : e.type->fields()) e.fields.push_back(sequence_.text(Sequence::annotation, f.name));
}

// The fields of a track event that connect it with others of the same flow_id.
void PerfettoWriter::add_flow(const TraceRecord& record, const Event& e, std::string& out) {
  const u64 flow = e.role.flow != nullptr ? static_cast<u64>(read_integer(record.payload, *e.role.flow)) : 0;
  if (flow != 0) pbf_writer(out).add_fixed64(in_event::flow, flow);
}

// Those of its stack.
void PerfettoWriter::add_stack(const TraceRecord& record, const Event& e, std::string& out) {
  if (record.stack == 0 || options_.stacks == nullptr) return;
  const u64 stack = sequence_.callstack(record.stack, *options_.stacks);
  if (stack == 0) return;
  pbf_writer event(out);
  event.add_uint64(in_event::callstack, stack);
  if (e.role.weight != nullptr) event.add_double(in_event::weight, read_number(record.payload, *e.role.weight));
}

// A perf sample: that of the event ringside:sample, or of an event that can carry no stack.
void PerfettoWriter::add_sample(const TraceRecord& record, const RingName& ring, Event& e) {
  if (options_.stacks == nullptr) return;
  const i32 tid = thread_of(e.type, read_common(record.payload)), on = record.cpu_in(ring);
  if (e.samples == nullptr) {
    const std::string& name = e.type != nullptr ? e.type->full : e.name;
    std::unique_ptr<Samples>& samples = samples_[name];
    if (samples == nullptr) {
      std::string defaults;
      pbf_writer d(defaults);
      {
        pbf_writer perf(d, in_defaults::perf_sample);
        pbf_writer timebase(perf, in_defaults::timebase);
        timebase.add_string(in_defaults::name, name);
        pbf_writer tracepoint(timebase, in_defaults::tracepoint);
        tracepoint.add_string(in_defaults::tracepoint_name, name);
      }
      samples.reset(new Samples{Sequence(next_sequence_++, defaults)});
    }
    e.samples = samples.get();
  }
  if (ring.kernel && tid > 0 && tid < most_tids)
    name_task(tid, ring, record.time);
  else if (!ring.kernel)
    (void)thread(tid, ring, record.time);
  Samples& samples = *e.samples;
  samples.sequence.make_room();
  const u64 stack = samples.sequence.callstack(record.stack, *options_.stacks);
  const i32 process = tasks_.seen_process(tid, ring), seen = tasks_.seen(tid, ring);
  packet_.clear();
  {
    pbf_writer p(packet_);
    samples.sequence.begin(p, record.time + boot_offset_ns_);
    pbf_writer sample(p, in_packet::perf_sample);
    if (on >= 0) sample.add_uint32(in_sample::cpu, static_cast<u32>(on));
    sample.add_uint32(in_sample::pid, static_cast<u32>(process > 0 ? process : seen));
    sample.add_uint32(in_sample::tid, static_cast<u32>(seen));
    if (stack != 0) sample.add_uint64(in_sample::callstack, stack);
    sample.add_uint32(in_sample::mode, ring.kernel ? in_sample::kernel : in_sample::user);
    sample.add_uint64(in_sample::count,
                      samples.counts[on] += e.part == Stacks::Part::sample ? options_.stacks->sample_count(record) : 1);
  }
  packet(packet_);
}

void PerfettoWriter::annotate(const Event& e, Bytes payload, std::string& out) {
  if (e.type == nullptr) return;
  for (size_t i = 0; i < e.fields.size(); ++i) {
    const Field& f = e.type->fields()[i];
    if (&f == e.role.name || &f == e.role.track || &f == e.role.process ||
        (&f == e.role.value && e.role.role != Role::duration))
      continue;
    pbf_writer all(out);
    pbf_writer one(all, in_event::annotations);
    one.add_uint64(in_annotation::name, e.fields[i]);
    if (is_text(f)) {
      const std::string_view text = read_text(payload, f);
      one.add_string(in_annotation::text, text.data(), text.size());
    } else if (is_array(f)) {
      one.add_string(in_annotation::text, array_text(payload, f));
    } else if (f.kind == FieldKind::floating) {
      one.add_double(in_annotation::real, read_floating(payload, f));
    } else {
      const i64 value = read_integer(payload, f);
      const char c = static_cast<char>(value);
      if (const std::string_view text = symbol(f, value); !text.empty())
        one.add_string(in_annotation::text, text.data(), text.size());
      else if (f.is_char)
        one.add_string(in_annotation::text, &c, c != 0 ? 1 : 0);
      else if (f.is_bool)
        one.add_bool(in_annotation::boolean, value != 0);
      else if (f.is_signed)
        one.add_int64(in_annotation::integer, value);
      else
        one.add_uint64(in_annotation::uint, static_cast<u64>(value));
    }
  }
}

void PerfettoWriter::add_program(const TraceRecord& record, const RingName& ring, Event& e) {
  const u64 own = thread(thread_of(e.type, read_common(record.payload)), ring, record.time);
  const auto on = [&] {
    const std::string_view name = e.role.track != nullptr ? read_text(record.payload, *e.role.track) : std::string_view();
    return name.empty() ? own : track(own, std::string(name), false);
  };
  number(e);
  scratch_.clear();
  if (e.category != 0) pbf_writer(scratch_).add_uint64(in_event::category, e.category);
  switch (e.role.role) {
    case Role::counter: {
      const std::string_view name =
          e.role.track != nullptr ? read_text(record.payload, *e.role.track) : std::string_view(e.name);
      const Field& value = *e.role.value;
      const i32 process = e.role.process != nullptr ? process_of(record, ring, e) : 0;
      const u64 counter = track(process > 0 ? process_track(process) : own, std::string(name), true);
      if (value.kind == FieldKind::floating)
        pbf_writer(scratch_).add_double(in_event::real_counter, read_floating(record.payload, value));
      else
        pbf_writer(scratch_).add_int64(in_event::counter, read_integer(record.payload, value));
      annotate(e, record.payload, scratch_);
      track_event(record.time, in_event::counter_sample, counter, 0, scratch_);
      return;
    }
    case Role::span: {
      const auto kind = static_cast<char>(read_integer(record.payload, *e.role.value));
      u64 where = 0;
      if (e.role.async != nullptr) {
        const i32 tid = thread_of(e.type, read_common(record.payload));
        where = async_track(tasks_.seen_process(tid, ring), read_text(record.payload, *e.role.name),
                            static_cast<u64>(read_integer(record.payload, *e.role.async)), kind);
      }
      const bool closes_nothing = e.role.async != nullptr && where == 0;
      if (where == 0) where = on();
      annotate(e, record.payload, scratch_);
      add_stack(record, e, scratch_);
      const std::string_view name = read_text(record.payload, *e.role.name);
      const u64 key = name.empty() ? 0 : std::hash<std::string_view>()(name) | 1;  // odd: no function's
      if (kind == 'E' && !closes_nothing && close_slice(record.time, where, key)) return;
      const bool begins = kind == 'B' && lanes(where).front().nesting.open(record.time, key);
      add_flow(record, e, scratch_);
      track_event(record.time, begins ? in_event::slice_begin : in_event::instant, where,
                  name.empty() ? e.own_name : sequence_.text(Sequence::name, name), scratch_);
      return;
    }
    case Role::duration: {
      const i64 took = read_integer(record.payload, *e.role.value);
      if ((took < 0 && e.role.value->is_signed) || static_cast<u64>(took) > record.time) break;
      const u64 begin = record.time - static_cast<u64>(took), where = track_with_room(own, begin, record.time);
      if (where == 0) break;
      annotate(e, record.payload, scratch_);
      add_stack(record, e, scratch_);
      add_flow(record, e, scratch_);
      track_event(begin, in_event::slice_begin, where, e.own_name, scratch_);
      track_event(record.time, in_event::slice_end, where, 0, "");
      return;
    }
    case Role::call:
      if (add_call(record, e, own)) return;
      break;
    case Role::instant: break;
  }
  annotate(e, record.payload, scratch_);
  add_stack(record, e, scratch_);
  add_flow(record, e, scratch_);
  const bool is_message = e.type != nullptr && e.type->level() != nullptr;
  track_event(record.time, in_event::instant, own, is_message ? message_text(record, e) : e.own_name, scratch_);
}

// The name of a logger's message: its text.
u64 PerfettoWriter::message_text(const TraceRecord& record, const Event& e) {
  fmt::memory_buffer text;
  formats_.print(*e.type, record.payload, text);
  return sequence_.text(Sequence::name, {text.data(), text.size()});
}

// The slice of this key ends, with the values in scratch_; so do those that began after it, whose ends are missing: a longjmp
// or an exception left them. false: no such slice is open.
bool PerfettoWriter::close_slice(u64 time, u64 where, u64 key) {
  size_t left = lanes(where).front().nesting.close(time, key);
  if (left == 0) return false;
  std::string unfinished;
  if (left > 1) {
    pbf_writer all(unfinished);
    pbf_writer one(all, in_event::annotations);
    one.add_uint64(in_annotation::name, sequence_.text(Sequence::annotation, "unfinished"));
    one.add_bool(in_annotation::boolean, true);
  }
  for (; left != 1; --left) track_event(time, in_event::slice_end, where, 0, unfinished);
  track_event(time, in_event::slice_end, where, 0, scratch_);
  return true;
}

// A slice on the thread's track; false: an exit without its entry.
bool PerfettoWriter::add_call(const TraceRecord& record, const Event& e, u64 thread) {
  const u64 key = static_cast<u64>(read_integer(record.payload, *e.role.value)) << 1;
  if (!e.role.begins) return close_slice(record.time, thread, key);
  if (!lanes(thread).front().nesting.open(record.time, key)) return false;
  annotate(e, record.payload, scratch_);
  const std::string name = function_of(e.role, record.number(), record.payload, formats_);
  track_event(record.time, in_event::slice_begin, thread, sequence_.text(Sequence::name, name), scratch_);
  return true;
}

void PerfettoWriter::lose(const TraceRecord& record, const RingName& ring) {
  Ring& r = rings_[record.source];
  if (ring.kernel && ring.place() < cpus_read) {
    end_bundle(ring.place());
    cpu(ring.place()).gap = true;
    cpu(ring.place()).lost += record.lost;
  }
  const std::string whose = ring.kernel || ring.cpu >= 0 ? fmt::format("lost: CPU {}", ring.place())
                                                         : fmt::format("lost: {}-{}", ring.task, ring.tid);
  if (r.track == 0)
    r.track = new_track(0, (ring.kernel ? "kernel " : "") + whose, false);  // rings of several WHEREs may have one name
  const u64 begin = r.seen && r.last < record.time ? r.last : record.time;
  r.last = std::max(r.last, record.time);  // a further loss may follow
  r.seen = true;
  lost_event(begin, in_event::slice_begin, r.track, fmt::format("{} events lost", record.lost), record.lost);
  track_event(record.time, in_event::slice_end, r.track, 0, "");
}

void PerfettoWriter::lost_event(u64 time, u32 type, u64 track, const std::string& name, u64 events) {
  sequence_.make_room();
  const u64 annotation = sequence_.text(Sequence::annotation, "events");
  scratch_.clear();
  {
    pbf_writer all(scratch_);
    pbf_writer one(all, in_event::annotations);
    one.add_uint64(in_annotation::name, annotation);
    one.add_uint64(in_annotation::uint, events);
  }
  track_event(time, type, track, sequence_.text(Sequence::name, name), scratch_);
}

std::string PerfettoWriter::left_out() const {
  return left_out_ != 0 ? counted(left_out_, "event") + " of CPUs from 1024 on are not in it: Perfetto reads no such CPUs" : "";
}

result<void> PerfettoWriter::add_missing(u64 time, const Account& account) {
  const u64 events = account.elsewhere();
  if (events == 0) return {};
  lost_event(time, in_event::instant, new_track(0, "lost: refused or not recorded", false),
             fmt::format("{} events refused or not recorded", events), events);
  return flush(false);
}

void PerfettoWriter::stats(u32 phase) {
  packet_.clear();
  {
    pbf_writer p(packet_);
    pbf_writer all(p, in_packet::ftrace_stats);
    all.add_uint32(1, phase);
    for (size_t i = 0; i < cpus_.size(); ++i) {
      const Cpu& on = cpus_[i];
      if (on.count + on.lost == 0) continue;
      pbf_writer one(all, 2);
      one.add_uint64(1, i);
      one.add_uint64(3, phase == 1 ? 0 : on.lost);
      one.add_uint64(9, phase == 1 ? 0 : on.count);
    }
  }
  packet(packet_);
}

result<void> PerfettoWriter::flush(bool all) {
  if (batch_.empty() || (!all && batch_.size() < full_batch)) return {};
  if (!options_.compressed) {
    auto done = put_(batch_);
    batch_.clear();
    return done;
  }
  std::string packed(compressBound(batch_.size()), '\0');
  uLongf size = packed.size();
  if (compress2(reinterpret_cast<Bytef*>(packed.data()), &size, reinterpret_cast<const Bytef*>(batch_.data()), batch_.size(),
                1) != Z_OK)
    return refuse(std::errc::not_enough_memory, "zlib cannot compress a part of the trace");
  std::string out;
  {
    pbf_writer file(out);
    pbf_writer p(file, trace::packet);
    p.add_bytes(in_packet::compressed, packed.data(), size);
  }
  batch_.clear();
  return put_(out);
}

result<void> PerfettoWriter::put_out() {
  for (u32 i = 0; i < cpus_.size(); ++i) end_bundle(i);
  return flush(true);
}

result<void> PerfettoWriter::finish() {
  for (const auto& [key, thread] : threads_)
    if (thread.names != 0) track_event(last_, in_event::slice_end, thread.names, 0, "");
  for (u32 i = 0; i < cpus_.size(); ++i) end_bundle(i);
  if (!cpus_.empty()) {
    stats(1);
    stats(2);
  }
  return flush(true);
}

std::unique_ptr<Exporter> perfetto_exporter(const Exported& of, Exporter::Put put) {
  const PerfettoOptions options{.world = of.world, .wall = of.wall, .compressed = of.compressed, .stacks = of.stacks};
  return std::make_unique<PerfettoWriter>(of.formats, of.tasks, options, std::move(put));
}

}  // namespace ringside
