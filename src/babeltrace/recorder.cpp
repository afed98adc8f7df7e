#include "babeltrace/recorder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstring>

#include "schema/format_text.hpp"
#include "sys/text.hpp"
#include "sys/try.hpp"

namespace ringside::babeltrace {
namespace {

constexpr u32 longest_text = 16384, largest_payload = 60000;
constexpr u64 second = 1'000'000'000;
constexpr u64 impossible_number = u64{1} << 48;  // of discarded events or packets: their counter went back
constexpr size_t most_doubts = 100;
constexpr size_t deepest_field = 8;  // structures inside others; a deeper one is a text
constexpr int deepest_text = 100;
constexpr u64 widest_range = 64, most_names = 1000;  // of an enumeration

bool is(const bt_field_class* of, bt_field_class_type type) {
  return bt_field_class_type_is(bt_field_class_get_type(of), type);
}

u8 size_of_integer(const bt_field_class* of) {
  const u64 bits = bt_field_class_integer_get_field_value_range(of);
  return bits <= 8 ? 1 : bits <= 16 ? 2 : bits <= 32 ? 4 : 8;
}

std::string c_name(const std::string& name) {
  std::string out;
  for (const char c : name) out += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return out.empty() || std::isdigit(static_cast<unsigned char>(out[0])) != 0 ? "_" + out : out;
}

// Two members may have the same one: a.b and a_b.
std::string free_name(std::string name, std::set<std::string>& taken) {
  while (!taken.insert(name).second) name += '_';
  return name;
}

i64 integer_of(const bt_field* field) {
  return is(bt_field_borrow_class_const(field), BT_FIELD_CLASS_TYPE_SIGNED_INTEGER)
             ? bt_field_integer_signed_get_value(field)
             : static_cast<i64>(bt_field_integer_unsigned_get_value(field));
}

double real_of(const bt_field* field) {
  return is(bt_field_borrow_class_const(field), BT_FIELD_CLASS_TYPE_SINGLE_PRECISION_REAL)
             ? static_cast<double>(bt_field_real_single_precision_get_value(field))
             : bt_field_real_double_precision_get_value(field);
}

// Any field as text.
void show(const bt_field* field, fmt::memory_buffer& out, int depth = 0) {
  const auto to = std::back_inserter(out);
  const bt_field_class* const of = bt_field_borrow_class_const(field);
  if (out.size() > longest_text) return;
  if (depth > deepest_text) return out.append(std::string_view("..."));
  if (is(of, BT_FIELD_CLASS_TYPE_BOOL)) {
    fmt::format_to(to, "{}", bt_field_bool_get_value(field) == BT_TRUE);
  } else if (is(of, BT_FIELD_CLASS_TYPE_BIT_ARRAY)) {
    fmt::format_to(to, "{:#x}", bt_field_bit_array_get_value_as_integer(field));
  } else if (is(of, BT_FIELD_CLASS_TYPE_SIGNED_INTEGER)) {
    fmt::format_to(to, "{}", bt_field_integer_signed_get_value(field));
  } else if (is(of, BT_FIELD_CLASS_TYPE_UNSIGNED_INTEGER)) {
    fmt::format_to(to, "{}", bt_field_integer_unsigned_get_value(field));
  } else if (is(of, BT_FIELD_CLASS_TYPE_REAL)) {
    fmt::format_to(to, "{}", real_of(field));
  } else if (is(of, BT_FIELD_CLASS_TYPE_STRING)) {
    fmt::format_to(to, "{}", bt_field_string_get_value(field));
  } else if (is(of, BT_FIELD_CLASS_TYPE_ARRAY)) {
    for (u64 i = 0; i < bt_field_array_get_length(field); ++i) {
      if (i != 0) out.push_back(',');
      show(bt_field_array_borrow_element_field_by_index_const(field, i), out, depth + 1);
    }
  } else if (is(of, BT_FIELD_CLASS_TYPE_STRUCTURE)) {
    for (u64 i = 0; i < bt_field_class_structure_get_member_count(of); ++i) {
      if (i != 0) out.push_back(' ');
      fmt::format_to(
          to, "{}=", bt_field_class_structure_member_get_name(bt_field_class_structure_borrow_member_by_index_const(of, i)));
      show(bt_field_structure_borrow_member_field_by_index_const(field, i), out, depth + 1);
    }
  } else if (is(of, BT_FIELD_CLASS_TYPE_OPTION)) {
    if (const bt_field* const in = bt_field_option_borrow_field_const(field)) show(in, out, depth + 1);
  } else if (is(of, BT_FIELD_CLASS_TYPE_VARIANT)) {
    show(bt_field_variant_borrow_selected_option_field_const(field), out, depth + 1);
  }
}

// As a string of C on one line.
std::string quoted(const std::string& label) {
  std::string out = "\"";
  for (const char c : label) {
    if (c == '"' || c == '\\') out += '\\';
    out += sys::is_control(c) ? '?' : c;
  }
  return out + "\"";
}

// The names of an enumeration's values, as __print_symbolic takes them: { 1, "busy" }, { 2, "busy" }, ...
struct Names {
  std::string text{};
  u64 count = 0;

  // A wide range has none: its values stay numbers.
  template <class T>
  void add(const std::string& label, T low, T high) {
    const u64 wide = static_cast<u64>(high) - static_cast<u64>(low);
    if (wide >= widest_range || count + wide >= most_names) return;
    count += wide + 1;
    for (u64 i = 0; i <= wide; ++i)
      text += fmt::format("{}{{ {}, {} }}", text.empty() ? "" : ", ", static_cast<T>(static_cast<u64>(low) + i), label);
  }
};

std::string names_of(const bt_field_class* of) {
  Names names;
  const bool is_signed = is(of, BT_FIELD_CLASS_TYPE_SIGNED_INTEGER);
  for (u64 i = 0; i < bt_field_class_enumeration_get_mapping_count(of) && names.count < most_names; ++i) {
    if (is_signed) {
      const auto* const one = bt_field_class_enumeration_signed_borrow_mapping_by_index_const(of, i);
      const std::string label = quoted(
          bt_field_class_enumeration_mapping_get_label(bt_field_class_enumeration_signed_mapping_as_mapping_const(one)));
      const auto* const ranges = bt_field_class_enumeration_signed_mapping_borrow_ranges_const(one);
      for (u64 r = 0; r < bt_integer_range_set_get_range_count(bt_integer_range_set_signed_as_range_set_const(ranges)); ++r) {
        const auto* const range = bt_integer_range_set_signed_borrow_range_by_index_const(ranges, r);
        names.add<i64>(label, bt_integer_range_signed_get_lower(range), bt_integer_range_signed_get_upper(range));
      }
    } else {
      const auto* const one = bt_field_class_enumeration_unsigned_borrow_mapping_by_index_const(of, i);
      const std::string label = quoted(
          bt_field_class_enumeration_mapping_get_label(bt_field_class_enumeration_unsigned_mapping_as_mapping_const(one)));
      const auto* const ranges = bt_field_class_enumeration_unsigned_mapping_borrow_ranges_const(one);
      for (u64 r = 0; r < bt_integer_range_set_get_range_count(bt_integer_range_set_unsigned_as_range_set_const(ranges)); ++r) {
        const auto* const range = bt_integer_range_set_unsigned_borrow_range_by_index_const(ranges, r);
        names.add<u64>(label, bt_integer_range_unsigned_get_lower(range), bt_integer_range_unsigned_get_upper(range));
      }
    }
  }
  return names.text;
}

// A whole number of a context; `otherwise`: it has none of these names.
i64 number_in(const bt_field* context, std::initializer_list<const char*> names, i64 otherwise) {
  for (const char* const name : names) {
    const bt_field* const field =
        context != nullptr ? bt_field_structure_borrow_member_field_by_name_const(context, name) : nullptr;
    if (field != nullptr && is(bt_field_borrow_class_const(field), BT_FIELD_CLASS_TYPE_INTEGER)) return integer_of(field);
  }
  return otherwise;
}

// Writers of CTF put an array's length before it ("_list_length", "__list_len"); the array itself has it.
bool is_length_of_next(const bt_field_class* structure, u64 i) {
  if (i + 1 >= bt_field_class_structure_get_member_count(structure)) return false;
  const auto* const member = bt_field_class_structure_borrow_member_by_index_const(structure, i);
  const auto* const next = bt_field_class_structure_borrow_member_by_index_const(structure, i + 1);
  const std::string name = bt_field_class_structure_member_get_name(member),
                    array = bt_field_class_structure_member_get_name(next);
  return is(bt_field_class_structure_member_borrow_field_class_const(member), BT_FIELD_CLASS_TYPE_UNSIGNED_INTEGER) &&
         is(bt_field_class_structure_member_borrow_field_class_const(next), BT_FIELD_CLASS_TYPE_DYNAMIC_ARRAY) &&
         (name == "_" + array + "_length" || name == "__" + array + "_len");
}

const std::set<std::string> told_otherwise = {"vtid", "vpid", "procname", "cpu_id", "tid", "pid", "task", "cpu"};

}  // namespace

result<std::unique_ptr<Recorder>> Recorder::create(const std::string& dir) {
  auto writer = RS_TRY(RecordingWriter::create(dir, ClockInfo{}));
  writer.meta().boot.clear();  // the trace's clock says which one it was
  writer.meta().world = {};
  RS_TRY(writer.save());
  return std::unique_ptr<Recorder>(new Recorder(std::move(writer)));
}

void Recorder::add_members(const bt_field_class* structure, u8 scope, const std::string& prefix, const std::vector<u64>& path,
                           Layout& layout) {
  if (structure == nullptr) return;
  Kind& kind = layout.kind;
  for (u64 i = 0; i < bt_field_class_structure_get_member_count(structure); ++i) {
    const auto* const member = bt_field_class_structure_borrow_member_by_index_const(structure, i);
    const bt_field_class* const of = bt_field_class_structure_member_borrow_field_class_const(member);
    const std::string plain = bt_field_class_structure_member_get_name(member);
    if (scope != 2 && path.empty() && told_otherwise.count(plain) != 0) continue;
    if (is_length_of_next(structure, i)) continue;
    Member m;
    m.scope = scope;
    m.path = path;
    m.path.push_back(i);
    if (is(of, BT_FIELD_CLASS_TYPE_STRUCTURE) && m.path.size() <= deepest_field) {
      add_members(of, scope, prefix + c_name(plain) + "_", m.path, layout);
      continue;
    }
    const std::string name = free_name(prefix + c_name(plain), layout.taken);
    std::string type, show, value = "REC->" + name;
    const auto number = [&](const bt_field_class* one, const char* base) {
      m.is_signed = is(one, BT_FIELD_CLASS_TYPE_SIGNED_INTEGER);
      m.size = size_of_integer(one);
      type = fmt::format("{}{}{}", m.is_signed ? "s" : "u", m.size * 8, base);
    };
    if (is(of, BT_FIELD_CLASS_TYPE_INTEGER)) {
      m.kind = Member::Kind::integer;
      number(of, "");
      const bool hex =
          bt_field_class_integer_get_preferred_display_base(of) == BT_FIELD_CLASS_INTEGER_PREFERRED_DISPLAY_BASE_HEXADECIMAL;
      show = fmt::format("{}%{}{}", hex ? "0x" : "", m.size == 8 ? "ll" : "", hex ? "x" : m.is_signed ? "d" : "u");
      const std::string names = is(of, BT_FIELD_CLASS_TYPE_ENUMERATION) ? names_of(of) : "";
      if (!names.empty()) show = "%s", value = "__print_symbolic(REC->" + name + ", " + names + ")";
    } else if (is(of, BT_FIELD_CLASS_TYPE_BOOL)) {
      m.kind = Member::Kind::integer;
      m.size = 1;
      type = "bool", show = "%d";
    } else if (is(of, BT_FIELD_CLASS_TYPE_REAL)) {
      m.kind = Member::Kind::real;
      m.size = is(of, BT_FIELD_CLASS_TYPE_SINGLE_PRECISION_REAL) ? 4 : 8;
      type = m.size == 4 ? "float" : "double", show = m.size == 4 ? "0x%x" : "0x%llx";  // all of its digits
    } else {
      m.kind = is(of, BT_FIELD_CLASS_TYPE_STRING) ? Member::Kind::text : Member::Kind::other;
      if (is(of, BT_FIELD_CLASS_TYPE_ARRAY)) {
        const bt_field_class* const element = bt_field_class_array_borrow_element_field_class_const(of);
        m.is_float = is(element, BT_FIELD_CLASS_TYPE_REAL);
        if (m.is_float)
          m.size = is(element, BT_FIELD_CLASS_TYPE_SINGLE_PRECISION_REAL) ? 4 : 8,
          type = m.size == 4 ? "__data_loc float[]" : "__data_loc double[]";
        if (is(element, BT_FIELD_CLASS_TYPE_INTEGER)) number(element, "[]"), type = "__data_loc " + type;
        if (m.size != 0) m.kind = Member::Kind::array;
      }
      show = "%s", value = "__get_str(" + name + ")";
      if (m.kind == Member::Kind::array)
        value = fmt::format("__print_array(__get_dynamic_array({0}), __get_dynamic_array_len({0}) / {1}, {1})", name, m.size);
      if (type.empty()) type = "__data_loc char[]";
    }
    const bool located = m.kind == Member::Kind::text || m.kind == Member::Kind::array || m.kind == Member::Kind::other;
    const u32 size = located ? 4 : m.size;
    m.offset = kind.size = align_up(kind.size, size);
    kind.size += size;
    layout.fields +=
        fmt::format("\tfield:{} {};\toffset:{};\tsize:{};\tsigned:{};\n", type, name, m.offset, size, m.is_signed ? 1 : 0);
    layout.print += (layout.print.empty() ? "" : " ") + name + "=" + show;
    layout.values += ", " + value;
    kind.members.push_back(std::move(m));
  }
}

const Recorder::Kind& Recorder::kind(const bt_event_class* of) {
  const auto [at, fresh] = kinds_.try_emplace(of);
  Kind& kind = at->second;
  if (!fresh) return kind;
  kind.id = static_cast<u16>(kinds_.size());
  kind.size = 8;
  Layout layout{kind, {"common_type", "common_flags", "common_preempt_count", "common_pid"}};
  const bt_stream_class* const stream = bt_event_class_borrow_stream_class_const(of);
  add_members(bt_stream_class_borrow_event_common_context_field_class_const(stream), 0, "ctx_", {}, layout);
  add_members(bt_event_class_borrow_specific_context_field_class_const(of), 1, "ctx_", {}, layout);
  add_members(bt_event_class_borrow_payload_field_class_const(of), 2, "", {}, layout);
  const char* const given = bt_event_class_get_name(of);
  const std::string name = given != nullptr ? given : fmt::format("event{}", bt_event_class_get_id(of));
  const size_t colon = name.find(':');
  const std::string event = c_name(colon == std::string::npos ? name : name.substr(colon + 1));
  writer_.meta().events.push_back({kind.id, colon == std::string::npos ? "ctf" : c_name(name.substr(0, colon)), event,
                                   format_text(event, kind.id, layout.fields, "\"" + layout.print + "\"" + layout.values),
                                   true});
  return kind;
}

result<Recorder::Ring*> Recorder::ring(const bt_stream* of, i32 cpu) {
  Stream& stream = streams_[of];
  const auto [at, fresh] = stream.rings.try_emplace(cpu, static_cast<u32>(rings_.size()));
  if (fresh) {
    Ring ring;
    ring.name.ring = at->second;
    ring.name.cpu = cpu;
    if (cpu < 0) ring.name.task = "?";
    RS_TRY(writer_.add_ring(ring.name, subbuf_size));
    rings_.push_back(std::move(ring));
  }
  Ring& ring = rings_[at->second];
  if (stream.lost != 0) {
    RS_TRY(flush(ring));
    ring.packer.lost(std::exchange(stream.lost, 0));
  }
  return &ring;
}

void Recorder::fill(const bt_event* event, const Kind& kind, i32 tid) {
  payload_.assign(kind.size, 0);
  std::memcpy(payload_.data(), &kind.id, sizeof kind.id);
  std::memcpy(payload_.data() + 4, &tid, sizeof tid);
  const bt_field* const scopes[] = {bt_event_borrow_common_context_field_const(event),
                                    bt_event_borrow_specific_context_field_const(event),
                                    bt_event_borrow_payload_field_const(event)};
  fmt::memory_buffer text;
  for (const Member& m : kind.members) {
    const bt_field* field = scopes[m.scope];
    for (const u64 step : m.path) field = bt_field_structure_borrow_member_field_by_index_const(field, step);
    const auto put = [&](u32 at, const void* from, size_t size) { std::memcpy(payload_.data() + at, from, size); };
    const auto put_number = [&](u32 at, const bt_field* one, bool is_float) {
      const double real = is_float ? real_of(one) : 0;
      const auto single = static_cast<float>(real);
      const bool is_bool = !is_float && is(bt_field_borrow_class_const(one), BT_FIELD_CLASS_TYPE_BOOL);
      const i64 whole = is_float ? 0 : is_bool ? bt_field_bool_get_value(one) : integer_of(one);
      is_float ? (m.size == 4 ? put(at, &single, 4) : put(at, &real, 8)) : put(at, &whole, m.size);
    };
    if (m.kind == Member::Kind::integer || m.kind == Member::Kind::real) {
      put_number(m.offset, field, m.kind == Member::Kind::real);
      continue;
    }
    const auto at = static_cast<u32>(align_up(payload_.size(), size_t{8}));
    u32 length = 0;
    if (m.kind == Member::Kind::array) {
      const u64 all = bt_field_array_get_length(field), n = std::min<u64>(all, longest_text / m.size);
      cut_ += n < all;
      length = static_cast<u32>(n * m.size);
      payload_.resize(at + length);
      for (u64 i = 0; i < n; ++i)
        put_number(at + static_cast<u32>(i) * m.size, bt_field_array_borrow_element_field_by_index_const(field, i), m.is_float);
    } else {
      text.clear();
      show(field, text);
      length = static_cast<u32>(std::min<size_t>(text.size(), longest_text)) + 1;
      cut_ += text.size() > longest_text;
      payload_.resize(at + length);
      put(at, text.data(), length - 1);
    }
    // Located data is found by 16 bits, and a sub-buffer holds it.
    const u32 word = at + length < largest_payload ? at | length << 16 : 0;
    if (word == 0) payload_.resize(at), ++cut_;
    put(m.offset, &word, sizeof word);
  }
}

result<void> Recorder::flush(Ring& ring) {
  if (!ring.packer.pending()) return {};
  auto done = writer_.append(ring.name.ring, ring.packer.take());
  ring.packer.restart();
  return done;
}

result<void> Recorder::append(Ring& ring, u64 time) {
  const Bytes payload{payload_.data(), payload_.size()};
  if (ring.packer.add(time, payload)) return {};
  RS_TRY(flush(ring));
  if (!ring.packer.add(time, payload)) ring.packer.lost(1);  // no sub-buffer holds it
  return {};
}

result<const Recorder::Clock*> Recorder::clock(const bt_clock_class* of) {
  const auto [at, fresh] = clocks_.try_emplace(of);
  Clock& clock = at->second;
  if (!fresh) return &clock;
  clock.frequency = bt_clock_class_get_frequency(of);
  i64 seconds = 0;
  u64 cycles = 0;
  bt_clock_class_get_offset(of, &seconds, &cycles);
  const i128 offset = i128{seconds} * second + i128{cycles} * second / clock.frequency;
  if (clocks_.size() == 1) {
    first_offset_ = offset;
    if (bt_clock_class_origin_is_unix_epoch(of) == BT_TRUE) writer_.meta().wall = WallClock{static_cast<i64>(offset)};
  }
  clock.ahead = offset - first_offset_;
  if (const u8* const id = bt_clock_class_get_uuid(of); id != nullptr) {  // LTTng's: the machine's boot
    std::string boot;
    for (int i = 0; i < 16; ++i) boot += fmt::format("{}{:02x}", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", id[i]);
    std::string& known = writer_.meta().boot;
    if (known == boot && clocks_.size() > 1) clock.ahead = 0;  // one clock: its offset was only measured anew
    if (known.empty()) known = boot;
    if (known != boot)
      return refuse(std::errc::invalid_argument,
                    "its traces are of different machines, or of different boots, as their clocks say (" + known + ", " + boot +
                        "): these clocks have nothing in common; give the directory of one of the traces");
  }
  return &clock;
}

// babeltrace2 hands out events in the order of their clocks' offsets and times, so none is earlier than the first one.
result<u64> Recorder::time_of(const bt_message* message, const bt_stream* stream) {
  const bt_clock_class* const of = bt_stream_class_borrow_default_clock_class_const(bt_stream_borrow_class_const(stream));
  if (of == nullptr)
    return refuse(std::errc::not_supported, "a stream of this trace has no clock, so its events have no order");
  const Clock& by = *RS_TRY(clock(of));
  const u64 value = bt_clock_snapshot_get_value(bt_message_event_borrow_default_clock_snapshot_const(message));
  const i128 time = by.ahead + (by.frequency == second ? i128{value} : i128{value} * second / by.frequency);
  if (time < 0 || time > ~u64{0})
    return refuse(std::errc::bad_message,
                  "an event's time does not fit on the clock of the trace's first event: its own clock is at " +
                      std::to_string(value) + ", and has an offset of " + std::to_string(static_cast<i64>(by.ahead / second)) +
                      " s from that");
  return static_cast<u64>(time);
}

// Each event has its thread's name: what is new is noted with its time.
void Recorder::name_thread(i32 tid, i32 pid, const char* name, u64 time) {
  std::string& known = names_[tid];
  if (known == name) return;
  auto& threads = writer_.meta().threads;
  const auto at = std::find_if(threads.begin(), threads.end(), [&](const RingName& one) { return one.tid == tid; });
  RingName& thread = at != threads.end() ? *at : threads.emplace_back();
  const RingName before = thread;
  thread.pid = pid, thread.tid = tid, thread.task = name;
  if (pid == tid || thread.process.empty()) thread.process = name;
  auto& changes = writer_.meta().names;
  if (!known.empty() && changes.size() < most_name_changes)
    changes.push_back({time, tid, pid, before.pid, false, thread.task, thread.process, before.task, before.process});
  known = name;
}

result<void> Recorder::event(const bt_message* message) {
  const bt_event* const event = bt_message_event_borrow_event_const(message);
  const bt_stream* const stream = bt_event_borrow_stream_const(event);
  const u64 time = RS_TRY(time_of(message, stream));
  const bt_field* const common = bt_event_borrow_common_context_field_const(event);
  const bt_packet* const packet =
      bt_stream_class_supports_packets(bt_stream_borrow_class_const(stream)) ? bt_event_borrow_packet_const(event) : nullptr;
  const bt_field* const around = packet != nullptr ? bt_packet_borrow_context_field_const(packet) : nullptr;
  const i64 told = number_in(common, {"vtid", "tid"}, -1);
  const auto tid = static_cast<i32>(told < 0 ? 0 : told);
  const auto cpu = static_cast<i32>(number_in(around, {"cpu_id"}, number_in(common, {"cpu"}, -1)));
  for (const char* const field : {"procname", "task"}) {
    const bt_field* const name =
        common != nullptr && told >= 0 ? bt_field_structure_borrow_member_field_by_name_const(common, field) : nullptr;
    if (name == nullptr || !is(bt_field_borrow_class_const(name), BT_FIELD_CLASS_TYPE_STRING)) continue;
    name_thread(tid, static_cast<i32>(number_in(common, {"vpid", "pid"}, tid)), bt_field_string_get_value(name), time);
  }
  Ring* const to = RS_TRY(ring(stream, cpu < -1 ? -1 : cpu));
  fill(event, kind(bt_event_borrow_class_const(event)), tid);
  if (begin_ == ~u64{0}) begin_ = time;
  last_ = time;
  return append(*to, time);
}

Recorder::Stream& Recorder::losing(const bt_stream* of) {
  Stream& stream = streams_[of];
  if (!stream.name.empty()) return stream;
  const char* const given = bt_stream_get_name(of);  // source.ctf.fs's is the path of its file
  const std::string name = given != nullptr ? given : "";
  stream.name = sys::printable(std::string_view(name).substr(name.rfind('/') + 1).substr(0, 200));
  if (stream.name.empty()) stream.name = fmt::format("stream {}", bt_stream_get_id(of));
  return stream;
}

void Recorder::discarded_events(const bt_message* message) {
  Stream& stream = losing(bt_message_discarded_events_borrow_stream_const(message));
  u64 count = 0;
  const bool known = bt_message_discarded_events_get_count(message, &count) == BT_PROPERTY_AVAILABILITY_AVAILABLE &&
                     count < impossible_number;
  stream.more_events |= !known;
  stream.lose(known ? count : 1);
}

void Recorder::discarded_packets(const bt_message* message) {
  Stream& stream = losing(bt_message_discarded_packets_borrow_stream_const(message));
  u64 count = 0;
  const bool known = bt_message_discarded_packets_get_count(message, &count) == BT_PROPERTY_AVAILABILITY_AVAILABLE &&
                     count < impossible_number;
  stream.more_packets |= !known;
  if (known) stream.packets += count;
  if (!known || count != 0) stream.lose(1);
}

// Of its environment: ours, and the names that LTTng has.
void Recorder::take_world(const bt_trace* of) {
  const auto text = [of](const char* name) {
    const bt_value* const entry = bt_trace_borrow_environment_entry_value_by_name_const(of, name);
    return entry != nullptr && bt_value_is_string(entry) ? std::string(bt_value_string_get(entry)) : std::string();
  };
  World& world = writer_.meta().world;
  world = World::of(architecture_from(text("machine")));
  world.host = text("hostname");
  world.release = text("kernel_release");
}

result<void> Recorder::take(const bt_message* message) {
  switch (bt_message_get_type(message)) {
    case BT_MESSAGE_TYPE_STREAM_BEGINNING:
      return take_world(bt_stream_borrow_trace_const(bt_message_stream_beginning_borrow_stream_const(message))), result<void>{};
    case BT_MESSAGE_TYPE_EVENT: return event(message);
    case BT_MESSAGE_TYPE_DISCARDED_EVENTS: return discarded_events(message), result<void>{};
    case BT_MESSAGE_TYPE_DISCARDED_PACKETS: return discarded_packets(message), result<void>{};
    default: return {};
  }
}

void Recorder::tell_doubts() {
  std::vector<std::string> said;
  for (const auto& [of, stream] : streams_) {
    if (stream.packets != 0)
      said.push_back(fmt::format("{}: {} packet{} of the tracer's {} missing, with any number of events", stream.name,
                                 stream.packets, stream.packets == 1 ? "" : "s", stream.packets == 1 ? "is" : "are"));
    if (stream.more_packets)
      said.push_back(stream.name + ": packets of the tracer's are missing, and their number is not known");
    if (stream.more_events)
      said.push_back(stream.name + ": the tracer may have discarded events, and their number is not known");
  }
  std::sort(said.begin(), said.end());
  const size_t further = said.size() - std::min(said.size(), most_doubts);
  said.resize(said.size() - further);
  if (further != 0) said.push_back(fmt::format("{} more of these are not listed", further));
  auto& doubts = writer_.meta().account.doubts;
  doubts.insert(doubts.end(), said.begin(), said.end());
}

result<void> Recorder::finish() {
  for (Ring& ring : rings_) RS_TRY(flush(ring));
  tell_doubts();
  if (cut_ != 0)
    writer_.meta().account.doubts.push_back(
        fmt::format("{} texts and arrays of more than 16 KiB, or in events of more than 60 KB, were cut", cut_));
  for (const auto& [stream, state] : streams_)
    writer_.meta().account.refused[Refusal::unknown] += state.lost;  // no event follows them
  return writer_.finish(begin_ <= last_ ? last_ - begin_ : 0);
}

}  // namespace ringside::babeltrace
