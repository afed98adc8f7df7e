#include "babeltrace/rings.hpp"

#include <array>
#include <cctype>
#include <cstring>
#include <functional>
#include <optional>
#include <set>

#include "decode/print_steps.hpp"

namespace ringside::babeltrace {
namespace {

constexpr u64 in_a_second = 1'000'000'000;

// babeltrace2's calls fail for want of memory only.
template <class T>
T* made(T* at) {
  if (at == nullptr) throw std::bad_alloc();
  return at;
}

// TSDL names are those of C.
std::string c_name(const std::string& name, std::set<std::string>& taken) {
  std::string out;
  for (const char c : name) out += (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ? c : '_';
  if (out.empty() || (out[0] >= '0' && out[0] <= '9')) out.insert(0, "_");
  while (!taken.insert(out).second) out += '_';
  return out;
}

using FieldClass = Ref<bt_field_class, bt_field_class_put_ref>;

FieldClass integer_class(bt_trace_class* trace, u32 size, bool is_signed) {
  FieldClass made_class(
      made(is_signed ? bt_field_class_integer_signed_create(trace) : bt_field_class_integer_unsigned_create(trace)));
  bt_field_class_integer_set_field_value_range(made_class.get(), u64{8} * size);
  return made_class;
}

FieldClass real_class(bt_trace_class* trace, u32 size) {
  return FieldClass(made(size == 4 ? bt_field_class_real_single_precision_create(trace)
                                   : bt_field_class_real_double_precision_create(trace)));
}

// A label for each name; a name of several values gets several ranges.
FieldClass enum_class(bt_trace_class* trace, const Field& field) {
  FieldClass out(made(field.is_signed ? bt_field_class_enumeration_signed_create(trace)
                                      : bt_field_class_enumeration_unsigned_create(trace)));
  bt_field_class_integer_set_field_value_range(out.get(), u64{8} * field.size);
  std::vector<std::pair<std::string, std::vector<i64>>> labels;
  for (const auto& [value, name] : field.symbols) {
    const bool fits = field.size == 8 ||
                      (field.is_signed ? value >= -(i64{1} << (8 * field.size - 1)) && value < i64{1} << (8 * field.size - 1)
                                       : value >= 0 && value < i64{1} << (8 * field.size));
    if (!fits) continue;
    auto at = std::find_if(labels.begin(), labels.end(), [&, &label = name](const auto& one) { return one.first == label; });
    if (at == labels.end()) at = labels.insert(labels.end(), {name, {}});
    at->second.push_back(value);
  }
  for (const auto& [name, values] : labels) {
    if (field.is_signed) {
      auto* const ranges = made(bt_integer_range_set_signed_create());
      for (const i64 value : values) bt_integer_range_set_signed_add_range(ranges, value, value);
      bt_field_class_enumeration_signed_add_mapping(out.get(), name.c_str(), ranges);
      bt_integer_range_set_signed_put_ref(ranges);
    } else {
      auto* const ranges = made(bt_integer_range_set_unsigned_create());
      for (const i64 value : values)
        bt_integer_range_set_unsigned_add_range(ranges, static_cast<u64>(value), static_cast<u64>(value));
      bt_field_class_enumeration_unsigned_add_mapping(out.get(), name.c_str(), ranges);
      bt_integer_range_set_unsigned_put_ref(ranges);
    }
  }
  return out;
}

FieldClass class_of(bt_trace_class* trace, const Field& field) {
  switch (field.kind) {
    case FieldKind::integer:
      if (field.is_bool) return FieldClass(made(bt_field_class_bool_create(trace)));
      if (field.is_char) return FieldClass(made(bt_field_class_string_create(trace)));
      return field.symbols.empty() ? integer_class(trace, field.size, field.is_signed) : enum_class(trace, field);
    case FieldKind::floating: return real_class(trace, field.size);
    case FieldKind::text:
    case FieldKind::loc_text: return FieldClass(made(bt_field_class_string_create(trace)));
    case FieldKind::array:
    case FieldKind::loc_array: break;
  }
  const bool known = field.element == 1 || field.element == 2 || field.element == 4 || field.element == 8;
  const FieldClass element =
      field.is_float ? real_class(trace, field.element) : integer_class(trace, known ? field.element : 1, field.is_signed);
  return FieldClass(made(bt_field_class_array_dynamic_create(trace, element.get(), nullptr)));
}

void set_text(bt_field* field, std::string_view text) {
  bt_field_string_clear(field);
  if (bt_field_string_append_with_length(field, text.data(), text.size()) != BT_FIELD_STRING_APPEND_STATUS_OK)
    throw std::bad_alloc();
}

void set_integer(bt_field* field, i64 value, bool is_signed) {
  is_signed ? bt_field_integer_signed_set_value(field, value)
            : bt_field_integer_unsigned_set_value(field, static_cast<u64>(value));
}

void set_real(bt_field* field, double value, u32 size) {
  size == 4 ? bt_field_real_single_precision_set_value(field, static_cast<float>(value))
            : bt_field_real_double_precision_set_value(field, value);
}

void set(bt_field* to, Bytes payload, const Field& field) {
  switch (field.kind) {
    case FieldKind::integer: {
      const i64 value = read_integer(payload, field);
      const char c = static_cast<char>(value);
      if (field.is_bool) return bt_field_bool_set_value(to, value != 0);
      return field.is_char ? set_text(to, {&c, c == 0 ? size_t{0} : size_t{1}}) : set_integer(to, value, field.is_signed);
    }
    case FieldKind::floating: return set_real(to, read_floating(payload, field), field.size);
    case FieldKind::text:
    case FieldKind::loc_text: return set_text(to, read_text(payload, field));
    case FieldKind::array:
    case FieldKind::loc_array: break;
  }
  const Bytes bytes = read_array(payload, field);
  const u64 n = field.element != 0 ? bytes.size / field.element : 0;
  if (bt_field_array_dynamic_set_length(to, n) != BT_FIELD_DYNAMIC_ARRAY_SET_LENGTH_STATUS_OK) throw std::bad_alloc();
  for (u64 i = 0; i < n; ++i) {
    bt_field* const element = bt_field_array_borrow_element_field_by_index(to, i);
    const u8* const at = bytes.data + i * field.element;
    field.is_float ? set_real(element, element_floating(at, field.element), field.element)
                   : set_integer(element, element_integer(at, field.element, field.is_signed), field.is_signed);
  }
}

void append(bt_field_class* structure, const char* name, const FieldClass& member) {
  if (bt_field_class_structure_append_member(structure, name, member.get()) != BT_FIELD_CLASS_STRUCTURE_APPEND_MEMBER_STATUS_OK)
    throw std::bad_alloc();
}

// The boot of the times; empty: unknown, or they are times of day or no times. All WHEREs of a known boot are of the same one.
std::string boot_of(const Trace& trace) {
  if (trace.raw_times()) return "";
  std::string boot;
  for (const auto& input : trace.inputs) {
    if (input->time_of_day() != nullptr && trace.inputs.size() > 1) return "";
    if (boot.empty()) boot = input->boot;
  }
  return boot;
}

// CLOCK_MONOTONIC's? A trace.dat may be of another clock of the kernel.
bool is_monotonic(const std::unique_ptr<Input>& input) {
  return input->clock == to_string(ClockKind::mono) || input->clock == to_string(ClockKind::tsc) ||
         input->clock == to_string(ClockKind::cntvct) || input->origin.clock;
}

bool all_monotonic(const Trace& trace) { return std::all_of(trace.inputs.begin(), trace.inputs.end(), is_monotonic); }

// As the recorder has measured it, or of the boot that still runs. None is made up of another machine's or another boot's.
std::optional<WallClock> wall_of(const Trace& trace) {
  if (trace.raw_times()) return std::nullopt;
  if (const auto wall = trace.wall()) return wall;
  const std::string boot = boot_of(trace);
  return !boot.empty() && boot == sys::boot_id() && all_monotonic(trace) ? std::optional(WallClock::measure()) : std::nullopt;
}

// What all of them have in common; empty: nothing, or it is unknown.
std::string common(const Trace& trace, const std::function<std::string(const World&)>& of) {
  const std::string first = of(trace.first().world);
  for (const auto& input : trace.inputs)
    if (of(input->world) != first) return "";
  return first;
}

std::optional<std::array<u8, 16>> uuid_of(const std::string& text) {
  std::array<u8, 16> out{};
  size_t digits = 0;
  for (const char c : text) {
    if (c == '-') continue;
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (digit < 0 || digits == 32) return std::nullopt;
    out[digits / 2] = static_cast<u8>(out[digits / 2] << 4 | digit);
    ++digits;
  }
  return digits == 32 ? std::optional(out) : std::nullopt;
}

}  // namespace

Rings::Rings(bt_self_message_iterator* iterator, bt_self_component* component, std::unique_ptr<Reading> reading)
    : iterator_(iterator),
      reading_(std::move(reading)),
      trace_class_(made(bt_trace_class_create(component))),
      clock_(made(bt_clock_class_create(component))),
      stream_class_(made(bt_stream_class_create(trace_class_.get()))),
      trace_(made(bt_trace_create(trace_class_.get()))) {
  const Trace& trace = reading_->trace();
  bt_clock_class_set_name(clock_.get(), "monotonic");
  bt_clock_class_set_frequency(clock_.get(), in_a_second);
  const auto wall = wall_of(trace);
  bt_clock_class_set_origin_is_unix_epoch(clock_.get(), wall ? BT_TRUE : BT_FALSE);
  if (wall) {
    const auto a_second = static_cast<i64>(in_a_second);
    const i64 rest = (wall->offset_ns % a_second + a_second) % a_second;
    bt_clock_class_set_offset(clock_.get(), (wall->offset_ns - rest) / a_second, static_cast<u64>(rest));
  }
  const auto uuid = uuid_of(boot_of(trace));
  if (uuid && all_monotonic(trace))
    bt_clock_class_set_uuid(clock_.get(), uuid->data());
  bt_trace_set_name(trace_.get(), "ringside");
  bt_trace_set_environment_entry_string(trace_.get(), "tracer_name", "ringside");
  const auto tell = [&](const char* name, const std::string& value) {
    if (!value.empty()) bt_trace_set_environment_entry_string(trace_.get(), name, value.c_str());
  };
  tell("hostname", common(trace, [](const World& world) { return world.host; }));
  tell("kernel_release", common(trace, [](const World& world) { return world.release; }));
  tell("machine", common(trace, [](const World& world) { return std::string(machine_of(world.architecture)); }));
  bt_stream_class_set_default_clock_class(stream_class_.get(), clock_.get());
  bt_stream_class_set_supports_packets(stream_class_.get(), BT_TRUE, BT_TRUE, BT_TRUE);
  bt_stream_class_set_supports_discarded_events(stream_class_.get(), BT_TRUE, BT_TRUE);
  const FieldClass context(made(bt_field_class_structure_create(trace_class_.get())));
  for (const char* name : {"cpu", "tid", "pid"}) append(context.get(), name, integer_class(trace_class_.get(), 4, true));
  append(context.get(), "task", FieldClass(made(bt_field_class_string_create(trace_class_.get()))));
  bt_stream_class_set_event_common_context_field_class(stream_class_.get(), context.get());
}

Rings::Stream& Rings::stream(u32 source, const RingName& ring) {
  if (source >= streams_.size()) streams_.resize(source + 1);
  Stream& at = streams_[source];
  if (at.stream == nullptr) {
    const std::string name = (ring.buffer.empty() ? "" : ring.buffer + ":") +
                             (ring.its_cpu() >= 0 ? fmt::format("{}cpu{}", ring.kernel ? "kernel:" : "", ring.its_cpu())
                                                  : fmt::format("{}-{}", ring.task, ring.show_tid()));
    std::string plain;  // sink.ctf.fs names a file like this
    for (const char c : name)
      plain += std::isalnum(static_cast<unsigned char>(c)) != 0 || std::strchr("_.:-@", c) != nullptr ? c : '_';
    begin_stream(at, plain);
  }
  return at;
}

void Rings::begin_stream(Stream& at, const std::string& name) {
  at.stream.reset(made(bt_stream_create(stream_class_.get(), trace_.get())));
  bt_stream_set_name(at.stream.get(), name.c_str());
  add(made(bt_message_stream_beginning_create(iterator_, at.stream.get())));
}

void Rings::open_packet(Stream& at, u64 time) {
  if (at.packet != nullptr) return;
  at.packet.reset(made(bt_packet_create(at.stream.get())));
  add(made(bt_message_packet_beginning_create_with_default_clock_snapshot(iterator_, at.packet.get(), time)));
}

void Rings::close_packet(Stream& at, u64 time) {
  if (at.packet == nullptr) return;
  add(made(bt_message_packet_end_create_with_default_clock_snapshot(iterator_, at.packet.get(), time)));
  at.packet = nullptr;
}

const bt_event_class* Rings::event_class(u32 number, const EventType* type) {
  const bt_event_class*& at = classes_[number];
  if (at != nullptr) return at;
  bt_event_class* const made_class = made(bt_event_class_create(stream_class_.get()));
  at = made_class;
  bt_event_class_set_name(made_class,
                          type != nullptr ? type->full.c_str() : fmt::format("unknown:{}", number & 0xFFFF).c_str());
  const FieldClass payload(made(bt_field_class_structure_create(trace_class_.get())));
  std::set<std::string> taken;
  if (type == nullptr || !type->parsed())
    append(payload.get(), "hex", FieldClass(made(bt_field_class_string_create(trace_class_.get()))));
  else
    for (const Field& field : type->fields())
      append(payload.get(), c_name(field.name, taken).c_str(), class_of(trace_class_.get(), field));
  bt_event_class_set_payload_field_class(made_class, payload.get());
  bt_event_class_put_ref(made_class);  // its stream class holds it
  return at;
}

void Rings::fill(bt_event* event, const TraceRecord& record, const RingName& ring, const EventType* type) {
  const Tasks& tasks = reading_->trace().tasks;
  const i32 tid = thread_of(type, read_common(record.payload));
  bt_field* const context = bt_event_borrow_common_context_field(event);
  const i64 numbers[] = {record.cpu_in(ring), tasks.seen(tid, ring), tasks.seen_process(tid, ring)};
  for (u64 i = 0; i < 3; ++i)
    bt_field_integer_signed_set_value(bt_field_structure_borrow_member_field_by_index(context, i), numbers[i]);
  set_text(bt_field_structure_borrow_member_field_by_index(context, 3), tasks.name(tid, ring));
  bt_field* const payload = bt_event_borrow_payload_field(event);
  if (type == nullptr || !type->parsed()) {
    fmt::memory_buffer hex;
    append_hex(record.payload, " ", hex);
    return set_text(bt_field_structure_borrow_member_field_by_index(payload, 0), {hex.data(), hex.size()});
  }
  for (u64 i = 0; i < type->fields().size(); ++i)
    set(bt_field_structure_borrow_member_field_by_index(payload, i), record.payload, type->fields()[i]);
}

void Rings::take(const TraceRecord& record, const RingName& ring, Reading::Got got) {
  Stream& at = stream(record.source, ring);
  const u64 time = std::max(record.time, last_);  // a late event comes at the time of the one before it
  if (got == Reading::Got::gap) return lose(at, time, record.lost);
  open_packet(at, time);
  const EventType* const type = reading_->trace().formats.find(record.number());
  bt_message* const message = made(bt_message_event_create_with_packet_and_default_clock_snapshot(
      iterator_, event_class(record.number(), type), at.packet.get(), time));
  add(message);
  fill(bt_message_event_borrow_event(message), record, ring, type);
  last_ = time;
}

void Rings::lose(Stream& at, u64 time, u64 events) {
  // sink.ctf.fs takes a loss only from the end of a packet on: an empty one, where none is open.
  const u64 begin = last_ != 0 ? last_ : time;
  open_packet(at, begin);
  close_packet(at, begin);
  bt_message* const lost =
      made(bt_message_discarded_events_create_with_default_clock_snapshots(iterator_, at.stream.get(), begin, time));
  bt_message_discarded_events_set_count(lost, events);
  add(lost);
  last_ = time;
  // CTF 1.8 counts losses up to the end of the packet after them, so that packet is an empty one.
  open_packet(at, time);
  close_packet(at, time);
}

void Rings::end() {
  over_ = true;
  // No ring's gap reports these. A trace without events is none, and has no place for them.
  const Account& account = reading_->complete().account;
  if (const u64 events = account.elsewhere(); events != 0 && !streams_.empty()) {
    begin_stream(streams_.emplace_back(), "refused_or_not_recorded");
    lose(streams_.back(), last_, events);
  }
  for (Stream& at : streams_) {
    if (at.stream == nullptr) continue;
    close_packet(at, last_);
    add(made(bt_message_stream_end_create(iterator_, at.stream.get())));
  }
}

size_t Rings::next(bt_message_array_const messages, size_t room) {
  TraceRecord record;
  while (pending_.size() - sent_ < room && !over_) {
    const Reading::Got got = reading_->next(record);
    if (got == Reading::Got::other) continue;
    if (got != Reading::Got::nothing)
      take(record, reading_->ring(record), got);
    else if (pending_.size() == sent_ && reading_->wait(1'000'000))
      break;
    else if (pending_.size() == sent_)
      end();
    else
      break;
  }
  const size_t n = std::min(room, pending_.size() - sent_);
  std::memcpy(messages, pending_.data() + sent_, n * sizeof *messages);
  sent_ += n;
  if (sent_ == pending_.size()) pending_.clear(), sent_ = 0;
  return n;
}

}  // namespace ringside::babeltrace
