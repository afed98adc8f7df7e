#include "export/perfetto.hpp"

#include <sys/utsname.h>
#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <protozero/pbf_writer.hpp>

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

// Field numbers, by message.
namespace trace {
constexpr u32 packet = 1;
}
namespace in_packet {
constexpr u32 ftrace_events = 1, process_tree = 2, clock_snapshot = 6, timestamp = 8, sequence = 10, track_event = 11, interned = 12, flags = 13,
              ftrace_stats = 34, system_info = 45, compressed = 50, track_descriptor = 60;
}
namespace in_bundle {
constexpr u32 cpu = 1, event = 2, lost = 3, descriptors = 11;
}
namespace in_ftrace {
constexpr u32 timestamp = 1, pid = 2, generic = 327;
}
namespace in_event {  // TrackEvent
constexpr u32 category = 3, annotations = 4, type = 9, name = 10, track = 11, counter = 30;
constexpr u32 slice_begin = 1, slice_end = 2, instant = 3, counter_sample = 4;
}
namespace in_interned {
constexpr u32 categories = 1, names = 2, annotations = 3;
}
namespace in_annotation {
constexpr u32 name = 1, boolean = 2, uint = 3, integer = 4, real = 5, text = 6;
}
constexpr u32 boottime = 6, monotonic = 3, realtime = 1;
constexpr size_t full_batch = 256 << 10, full_bundle = 64 << 10;
constexpr u32 cpus_read = 1024, generic_fields = 31;

struct Row {
  const char* name;
  u32 message;
  const char* fields;  // "prev_comm:1s prev_pid:2i"
};
constexpr Row rows[] = {
#include "export/perfetto_events.inc"
};

const Row* row_of(std::string_view name) {
  const auto* const found = std::lower_bound(std::begin(rows), std::end(rows), name, [](const Row& row, std::string_view n) { return row.name < n; });
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
  const EventType* type = nullptr;
  EventRole role;
  std::string name, system;
  u32 message = 0;             // of FtraceEvent; 0: it names each field
  std::vector<Typed> fields;   // by index in type->fields; number 0: not carried
  u64 category = 0;
};

struct PerfettoWriter::Ring {
  u64 last = 0, track = 0;
  bool seen = false;
};

PerfettoWriter::PerfettoWriter(const Formats& formats, const Tasks& tasks, const PerfettoOptions& options, Put put)
    : formats_(formats), tasks_(tasks), options_(options), put_(std::move(put)) {}
PerfettoWriter::~PerfettoWriter() = default;

void PerfettoWriter::packet(const std::string& bytes) { pbf_writer(batch_).add_message(trace::packet, bytes); }

result<void> PerfettoWriter::begin(u64 first_ns) {
  std::string bytes;
  {
    pbf_writer p(bytes);
    pbf_writer snapshot(p, in_packet::clock_snapshot);
    timespec real{}, boot{};
    clock_gettime(CLOCK_REALTIME, &real);
    clock_gettime(CLOCK_BOOTTIME, &boot);
    const auto ns = [](const timespec& t) { return static_cast<u64>(t.tv_sec) * 1'000'000'000 + static_cast<u64>(t.tv_nsec); };
    const u64 at = first_ns + options_.boot_offset_ns;
    for (const auto& [clock, time] : {std::pair<u32, u64>{boottime, at}, {monotonic, first_ns}, {realtime, ns(real) - ns(boot) + at}}) {
      pbf_writer one(snapshot, 1);
      one.add_uint32(1, clock);
      one.add_uint64(2, time);
    }
    snapshot.add_uint32(2, boottime);
  }
  packet(bytes);
  bytes.clear();
  utsname name{};
  uname(&name);
  {
    pbf_writer p(bytes);
    pbf_writer info(p, in_packet::system_info);
    pbf_writer own(info, 1);
    own.add_string(1, name.sysname);
    own.add_string(2, name.version);
    own.add_string(3, name.release);
    own.add_string(4, name.machine);
  }
  packet(bytes);
  return flush(false);
}

PerfettoWriter::Event& PerfettoWriter::event(const TraceRecord& record, const RingName& ring) {
  auto& slot = events_[record.number()];
  if (slot != nullptr) return *slot;
  slot = std::make_unique<Event>();
  Event& e = *slot;
  e.type = formats_.find(record.number());
  if (e.type == nullptr) {
    e.name = fmt::format("unknown:{}", record.number() & 0xFFFF);
    return e;
  }
  e.name = e.type->name;
  e.system = e.type->system;
  e.role = role_of(*e.type);
  if (!ring.kernel) return e;
  if (const Row* row = row_of(e.name)) {
    e.message = row->message;
    for (const Field& f : e.type->fields) {
      Typed t = typed_field(*row, f.name);
      const bool fits = t.kind == 's' ? is_text(f) : t.kind == 'd' ? f.kind == FieldKind::floating : f.kind == FieldKind::integer;
      e.fields.push_back(fits ? t : Typed{});
    }
    return e;
  }
  if (e.type->fields.size() > generic_fields) return e;
  // Numbers of a file are unique; the first definition of one holds.
  e.message = next_field_++;
  constexpr u32 in_descriptor_name = 1, in_descriptor_field = 2, optional = 1, type_double = 1, type_int64 = 3, type_uint64 = 4, type_string = 9;
  std::string descriptor;
  {
    pbf_writer d(descriptor);
    d.add_string(in_descriptor_name, e.type->full);
    u32 number = 0;
    for (const Field& f : e.type->fields) {
      const u32 type = is_text(f) || is_array(f) ? type_string : f.kind == FieldKind::floating ? type_double : f.is_signed ? type_int64 : type_uint64;
      e.fields.push_back({++number, type == type_string ? 's' : type == type_double ? 'd' : f.is_signed ? 'i' : 'u'});
      pbf_writer field(d, in_descriptor_field);
      field.add_string(1, f.name);
      field.add_uint32(3, number);
      field.add_uint32(4, optional);
      field.add_uint32(5, type);
    }
  }
  // In a bundle of its own, in front of all events of this kind: those of another CPU may come first.
  packet_.clear();
  {
    pbf_writer p(packet_);
    pbf_writer bundle(p, in_packet::ftrace_events);
    bundle.add_uint32(in_bundle::cpu, std::min(ring.place(), cpus_read - 1));
    pbf_writer d(bundle, in_bundle::descriptors);
    d.add_int32(1, static_cast<i32>(e.message));
    d.add_bytes(2, descriptor);
  }
  packet(packet_);
  return e;
}

result<void> PerfettoWriter::add(const TraceRecord& record, const RingName& ring) {
  if (record.source >= rings_.size()) rings_.resize(record.source + 1);
  if (record.lost != 0) {
    lose(record, ring);
    return flush(false);
  }
  Event& e = event(record, ring);
  if (ring.kernel)
    add_kernel(record, ring, e);
  else
    add_program(record, ring, e);
  rings_[record.source].last = record.time;
  rings_[record.source].seen = true;
  return batch_.size() >= full_batch ? flush(false) : result<void>();
}

void PerfettoWriter::add_kernel(const TraceRecord& record, const RingName& ring, Event& e) {
  const u32 cpu = ring.place();
  if (cpu >= cpus_read) {
    ++left_out_;
    return;
  }
  const i32 tid = thread_of(e.type, read_common(record.payload));
  message_.clear();
  {
    pbf_writer m(message_);
    m.add_uint64(in_ftrace::timestamp, record.time + options_.boot_offset_ns);
    m.add_uint32(in_ftrace::pid, static_cast<u32>(tid));
    if (e.type == nullptr || e.message == 0) {
      pbf_writer generic(m, in_ftrace::generic);
      generic.add_string(1, e.type != nullptr ? e.type->full : e.name);
      if (e.type != nullptr)
        for (const Field& f : e.type->fields) {
          pbf_writer field(generic, 2);
          field.add_string(1, f.name);
          if (is_text(f)) {
            const std::string_view text = read_text(record.payload, f);
            field.add_string(3, text.data(), text.size());
          } else if (is_array(f)) {
            field.add_string(3, array_text(record.payload, f));
          } else if (f.kind == FieldKind::floating) {
            field.add_string(3, fmt::format("{}", read_floating(record.payload, f)));
          } else if (f.is_signed) {
            field.add_int64(4, read_integer(record.payload, f));
          } else {
            field.add_uint64(5, static_cast<u64>(read_integer(record.payload, f)));
          }
        }
    } else {
      pbf_writer own(m, e.message);
      for (size_t i = 0; i < e.fields.size(); ++i) {
        const auto [number, kind] = e.fields[i];
        const Field& f = e.type->fields[i];
        switch (number == 0 ? '\0' : kind) {
          case 'i': own.add_int64(number, read_integer(record.payload, f)); break;
          case 'u': own.add_uint64(number, static_cast<u64>(read_integer(record.payload, f))); break;
          case 'd': own.add_double(number, read_floating(record.payload, f)); break;
          case 's':
            if (is_array(f)) {
              own.add_string(number, array_text(record.payload, f));
            } else {
              const std::string_view text = read_text(record.payload, f);
              own.add_string(number, text.data(), text.size());
            }
            break;
          default: break;
        }
      }
    }
  }
  // A thread belongs to its process only if a packet says so.
  if (tid > 0 && !std::exchange(named_[tid], true)) {
    if (const Task* task = tasks_.find(tid, ring)) {
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
  }
  std::string& bundle = bundles_[cpu];
  pbf_writer(bundle).add_message(in_bundle::event, message_);
  ++counts_[cpu].first;
  if (bundle.size() >= full_bundle) end_bundle(cpu);
}

void PerfettoWriter::end_bundle(u32 cpu) {
  std::string& events = bundles_[cpu];
  if (events.empty()) return;
  message_.clear();
  pbf_writer bundle(message_);
  bundle.add_uint32(in_bundle::cpu, cpu);
  if (std::exchange(gaps_[cpu], false)) bundle.add_bool(in_bundle::lost, true);
  message_ += events;
  events.clear();
  packet_.clear();
  pbf_writer(packet_).add_message(in_packet::ftrace_events, message_);
  packet(packet_);
}

u64 PerfettoWriter::thread(i32 tid, const RingName& ring) {
  const auto [at, fresh] = threads_.try_emplace({tasks_.key(tid, ring), tid != 0 ? 0 : ring.ring + 1}, next_track_);
  if (!fresh) return at->second;
  ++next_track_;
  const i32 seen = tasks_.seen(tid, ring), process = tasks_.seen_process(tid, ring);
  const Task* const task = tasks_.find(tid, ring);
  packet_.clear();
  {
    pbf_writer p(packet_);
    pbf_writer track(p, in_packet::track_descriptor);
    track.add_uint64(1, at->second);
    if (tid == 0) {  // a hypervisor's event has no thread
      track.add_string(2, ring.task.empty() ? fmt::format("ring {}", ring.ring) : ring.task);
    } else {
      pbf_writer thread(track, 4);
      thread.add_int32(1, process > 0 ? process : seen);
      thread.add_int64(2, seen);
      const std::string_view name = tasks_.name(tid, ring);
      thread.add_string(5, name.data(), name.size());
    }
  }
  packet(packet_);
  const std::string& comm = task != nullptr ? task->process : ring.process;
  if (tid != 0 && process > 0 && !comm.empty() && !std::exchange(named_[-process], true)) {
    packet_.clear();
    {
      pbf_writer p(packet_);
      pbf_writer tree(p, in_packet::process_tree);
      pbf_writer one(tree, 1);
      one.add_int32(1, process);
      one.add_string(3, comm);
      one.add_bool(9, true);
    }
    packet(packet_);
  }
  return at->second;
}

u64 PerfettoWriter::track(u64 parent, const std::string& name, bool counter) {
  const auto [at, fresh] = tracks_.try_emplace({parent, (counter ? "#" : "") + name}, next_track_);
  if (!fresh) return at->second;
  ++next_track_;
  packet_.clear();
  {
    pbf_writer p(packet_);
    pbf_writer track(p, in_packet::track_descriptor);
    track.add_uint64(1, at->second);
    if (parent != 0) track.add_uint64(5, parent);
    track.add_string(2, name);
    if (counter) track.add_message(8, std::string());
  }
  packet(packet_);
  return at->second;
}

u64 PerfettoWriter::name_id(std::map<std::string, u64, std::less<>>& known, std::string_view name, u32 tag) {
  if (const auto found = known.find(name); found != known.end()) return found->second;
  const u64 id = next_id_++;
  known.emplace(name, id);
  pbf_writer interned(interned_);
  pbf_writer one(interned, tag);
  one.add_uint64(1, id);
  one.add_string(2, name.data(), name.size());
  return id;
}

// rest: further fields of the track event.
void PerfettoWriter::track_event(u64 time, u32 type, u64 track, std::string_view name, const std::string& rest) {
  const u64 named = name.empty() ? 0 : name_id(names_, name, in_interned::names);
  message_.clear();
  pbf_writer e(message_);
  e.add_uint32(in_event::type, type);
  e.add_uint64(in_event::track, track);
  if (named != 0) e.add_uint64(in_event::name, named);
  message_ += rest;
  packet_.clear();
  pbf_writer p(packet_);
  p.add_uint64(in_packet::timestamp, time + options_.boot_offset_ns);
  p.add_uint32(in_packet::sequence, 1);
  p.add_uint32(in_packet::flags, interning_ ? 2 : 1);  // the first one clears what was interned
  if (!interned_.empty()) p.add_message(in_packet::interned, interned_);
  p.add_message(in_packet::track_event, message_);
  interned_.clear();
  interning_ = true;
  packet(packet_);
}

void PerfettoWriter::annotate(const Event& e, Bytes payload, std::string& out) {
  if (e.type == nullptr) return;
  for (const Field& f : e.type->fields) {
    if (&f == e.role.name || &f == e.role.track || (&f == e.role.value && e.role.role != Role::duration)) continue;
    const u64 name = name_id(annotations_, f.name, in_interned::annotations);
    pbf_writer all(out);
    pbf_writer one(all, in_event::annotations);
    one.add_uint64(in_annotation::name, name);
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
  const u64 own = thread(thread_of(e.type, read_common(record.payload)), ring);
  const auto on = [&] {
    const std::string_view name = e.role.track != nullptr ? read_text(record.payload, *e.role.track) : std::string_view();
    return name.empty() ? own : track(own, std::string(name), false);
  };
  if (e.category == 0 && !e.system.empty()) e.category = name_id(categories_, e.system, in_interned::categories);
  scratch_.clear();
  if (e.category != 0) pbf_writer(scratch_).add_uint64(in_event::category, e.category);
  switch (e.role.role) {
    case Role::counter: {
      const std::string_view name = e.role.track != nullptr ? read_text(record.payload, *e.role.track) : std::string_view(e.name);
      const u64 counter = track(own, std::string(name), true);
      pbf_writer(scratch_).add_int64(in_event::counter, read_integer(record.payload, *e.role.value));
      annotate(e, record.payload, scratch_);
      track_event(record.time, in_event::counter_sample, counter, "", scratch_);
      return;
    }
    case Role::span: {
      const auto kind = static_cast<char>(read_integer(record.payload, *e.role.value));
      const u64 where = on();
      annotate(e, record.payload, scratch_);
      if (kind == 'E') {
        track_event(record.time, in_event::slice_end, where, "", scratch_);
      } else {
        const std::string_view name = read_text(record.payload, *e.role.name);
        track_event(record.time, kind == 'B' ? in_event::slice_begin : in_event::instant, where, name.empty() ? e.name : name, scratch_);
      }
      return;
    }
    case Role::duration: {
      const i64 took = read_integer(record.payload, *e.role.value);
      if ((took < 0 && e.role.value->is_signed) || static_cast<u64>(took) > record.time) break;
      annotate(e, record.payload, scratch_);
      track_event(record.time - static_cast<u64>(took), in_event::slice_begin, own, e.name, scratch_);
      track_event(record.time, in_event::slice_end, own, "", "");
      return;
    }
    case Role::instant: break;
  }
  annotate(e, record.payload, scratch_);
  track_event(record.time, in_event::instant, own, e.name, scratch_);
}

void PerfettoWriter::lose(const TraceRecord& record, const RingName& ring) {
  Ring& r = rings_[record.source];
  if (ring.kernel && ring.place() < cpus_read) {
    end_bundle(ring.place());
    gaps_[ring.place()] = true;
    counts_[ring.place()].second += record.lost;
  }
  const std::string whose = ring.kernel || ring.cpu >= 0 ? fmt::format("lost: CPU {}", ring.place()) : fmt::format("lost: {}-{}", ring.task, ring.tid);
  if (r.track == 0) r.track = track(0, (ring.kernel ? "kernel " : "") + whose, false);
  const u64 begin = r.seen && r.last < record.time ? r.last : record.time;
  const u64 name = name_id(annotations_, "events", in_interned::annotations);
  scratch_.clear();
  {
    pbf_writer all(scratch_);
    pbf_writer one(all, in_event::annotations);
    one.add_uint64(in_annotation::name, name);
    one.add_uint64(in_annotation::uint, record.lost);
  }
  track_event(begin, in_event::slice_begin, r.track, fmt::format("{} events lost", record.lost), scratch_);
  track_event(record.time, in_event::slice_end, r.track, "", "");
}

void PerfettoWriter::stats(u32 phase) {
  packet_.clear();
  {
    pbf_writer p(packet_);
    pbf_writer all(p, in_packet::ftrace_stats);
    all.add_uint32(1, phase);
    for (const auto& [cpu, count] : counts_) {
      pbf_writer one(all, 2);
      one.add_uint64(1, cpu);
      one.add_uint64(3, phase == 1 ? 0 : count.second);
      one.add_uint64(9, phase == 1 ? 0 : count.first);
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
  if (compress2(reinterpret_cast<Bytef*>(packed.data()), &size, reinterpret_cast<const Bytef*>(batch_.data()), batch_.size(), 1) != Z_OK)
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

result<void> PerfettoWriter::finish() {
  for (const auto& [cpu, events] : bundles_) end_bundle(cpu);
  if (!counts_.empty()) {
    stats(1);
    stats(2);
  }
  return flush(true);
}

}  // namespace ringside
