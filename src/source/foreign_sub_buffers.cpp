#include "source/foreign_sub_buffers.hpp"

#include <algorithm>
#include <cstring>
#include <ringside/abi/event_header.hpp>

#include "source/field_declaration.hpp"

namespace ringside::trace_dat {
namespace {

constexpr u32 common_size = 8;                     // the type in 2 bytes, flags in 2 of 1, the thread in 4
constexpr u32 narrow_stack = 12, wide_stack = 16;  // where the addresses begin
constexpr size_t most_fields = 512;

template <class T>
void turn_at(u8* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  if constexpr (sizeof value == 2) value = __builtin_bswap16(value);
  if constexpr (sizeof value == 4) value = __builtin_bswap32(value);
  if constexpr (sizeof value == 8) value = __builtin_bswap64(value);
  std::memcpy(at, &value, sizeof value);
}

void turn_all(u8* at, u64 size, u32 element) {
  for (u64 i = 0; i + element <= size && element > 1; i += element) {
    if (element == 2) turn_at<u16>(at + i);
    if (element == 4) turn_at<u32>(at + i);
    if (element == 8) turn_at<u64>(at + i);
  }
}

template <class T>
void put(u8* at, T value) {
  std::memcpy(at, &value, sizeof value);
}

// The addresses of a stack as a kernel of 64 bits has them.
std::string widened(const std::string& format) {
  std::string out;
  for (size_t at = 0; at < format.size();) {
    const size_t end = std::min(format.find('\n', at), format.size() - 1) + 1;
    const std::string_view line(format.data() + at, end - at);
    const bool addresses = line.find("field:unsigned long caller") != line.npos;
    out += addresses ? "\tfield:u64 caller[8];\toffset:16;\tsize:64;\tsigned:0;\n" : line;
    at = end;
  }
  return out;
}

}  // namespace

ForeignSubBuffers::ForeignSubBuffers(const World& world, u32 data_at, std::vector<EventInfo>& events)
    : world_(world), data_at_(data_at) {
  for (EventInfo& e : events) {
    Event event = parse(e.format);
    event.stack = e.system == "ftrace" && (e.name == "kernel_stack" || e.name == "user_stack");
    if (event.stack) {
      if (world.word_size == 4) e.format = widened(e.format);
      std::erase_if(event.fields, [](const Field& field) { return field.offset >= narrow_stack; });
    }
    events_.insert_or_assign(e.id, std::move(event));
  }
}

ForeignSubBuffers::Event ForeignSubBuffers::parse(std::string_view format) const {
  Event event;
  while (!format.empty() && event.fields.size() < most_fields) {
    const size_t end = std::min(format.find('\n'), format.size());
    const std::string_view line = format.substr(0, end);
    format.remove_prefix(std::min(end + 1, format.size()));
    if (line.starts_with("print fmt")) break;
    bool beyond = false;
    const std::optional<FieldDeclaration> declared = read_field(line, world_.word_size, beyond);
    if (!declared) continue;
    Field field;
    field.offset = declared->offset;
    field.size = declared->size;
    field.element = declared->element;
    field.located = declared->located;
    field.relative = declared->relative;
    event.fields.push_back(field);
  }
  return event;
}

u32 ForeignSubBuffers::claimed(Bytes sub_buffer) const { return abi::commit_size(long_at(sub_buffer.data + 8)); }

const ForeignSubBuffers::Event* ForeignSubBuffers::find(Bytes payload) const {
  if (payload.size < 2) return nullptr;
  const auto at = events_.find(number<u16>(payload.data));
  return at == events_.end() ? nullptr : &at->second;
}

void ForeignSubBuffers::turn(const Event* event, u8* payload, u32 size) const {
  if (!world_.big_endian) return;
  if (event == nullptr || event->fields.empty()) {
    turn_all(payload, std::min<u32>(size, 2), 2);
    if (size >= common_size) turn_at<u32>(payload + 4);
    return;
  }
  u64 most = u64{4} * size;  // of bytes that are turned: fields of a hostile format may lie on one another
  for (const Field& field : event->fields) {
    const u32 here = field.located ? 4 : field.size;
    if (u64{field.offset} + here > size) continue;
    turn_all(payload + field.offset, here, field.located ? 4 : field.element);
    if (!field.located) continue;
    u32 word;
    std::memcpy(&word, payload + field.offset, sizeof word);
    const u64 at = (word & 0xFFFF) + (field.relative ? field.offset + u64{4} : 0), length = word >> 16;
    if (at + length > size || length > most) continue;
    most -= length;
    turn_all(payload + at, length, field.element);
  }
}

// The addresses of a stack become words of 64 bits, to the end. Returns the event's size.
u32 ForeignSubBuffers::widen(Bytes payload, u32 delta, u8* to) const {
  const u32 from = world_.word_size == 8 ? wide_stack : narrow_stack;
  const u32 words = (static_cast<u32>(payload.size) - from) / world_.word_size, size = wide_stack + 8 * words;
  put(to, abi::event_word(0, delta));
  put(to + 4, size + 4);
  u8* const copy = to + 8;
  std::memcpy(copy, payload.data, narrow_stack);
  turn(find(payload), copy, narrow_stack);
  const u64 end_mark = world_.word_size == 4 ? u64{0xFFFFFFFF} : ~u64{0};
  for (u32 i = 0; i < words; ++i) {
    const u64 address = long_at(payload.data + from + i * world_.word_size);
    put(copy + wide_stack + 8 * i, address == end_mark ? ~u64{0} : address);
  }
  return 8 + size;
}

// Returns its size.
u32 ForeignSubBuffers::convert_data(Bytes data, u8* to) const {
  u32 made = 0;
  for (u32 at = 0; at + 4 <= data.size;) {
    const u32 word = number<u32>(data.data + at), left = static_cast<u32>(data.size) - at;
    const u32 type = world_.big_endian ? word >> abi::delta_bits : abi::word_type(word);
    const u32 delta = world_.big_endian ? word & (abi::delta_limit - 1) : abi::word_delta(word);
    put(to + made, abi::event_word(type, delta));
    if (type == abi::type_padding && delta == 0) return made + left;
    const u32 head = type == 0 || type > abi::type_data_max ? 8 : 4;
    if (head > left) return made + 4;  // it is cut; the reader says so, and the same of false sizes
    const u32 array = head == 8 ? number<u32>(data.data + at + 4) : 0;
    if (head == 8) put(to + made + 4, array);
    const bool is_time = type == abi::type_time_extend || type == abi::type_time_stamp;
    if (!is_time && head == 8 && (array < 4 || array % 4 != 0)) return made + head;
    const u32 size = is_time ? 0 : head == 8 ? array - 4 : type * 4;
    if (size > left - head) return made + head;
    const Bytes payload{data.data + at + head, size};
    at += head + size;
    const Event* const event = type <= abi::type_data_max ? find(payload) : nullptr;
    if (event != nullptr && event->stack && size >= (world_.word_size == 8 ? wide_stack : narrow_stack)) {
      made += widen(payload, delta, to + made);
      continue;
    }
    if (size != 0) std::memcpy(to + made + head, payload.data, size);
    if (type <= abi::type_data_max) turn(event, to + made + head, size);
    made += head + size;
  }
  return made;
}

void ForeignSubBuffers::convert(Bytes sub_buffer, u8* out) const {
  const u32 claims = claimed(sub_buffer), there = std::min(claims, static_cast<u32>(sub_buffer.size) - data_at_) & ~3u;
  const u32 made = convert_data({sub_buffer.data + data_at_, there}, out + abi::header_size);
  abi::SubBufferHeader header{time_stamp(sub_buffer.data), made};
  if (const u64 commit = long_at(sub_buffer.data + 8); abi::commit_missed(commit)) {
    header.commit |= abi::missed_events;
    const u64 behind = u64{data_at_} + claims;
    if (abi::commit_stored(commit) && behind + world_.word_size <= sub_buffer.size) {
      header.commit |= abi::missed_stored;
      put(out + abi::header_size + made, long_at(sub_buffer.data + behind));
    }
  }
  put(out, header);
}

}  // namespace ringside::trace_dat
