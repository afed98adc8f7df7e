// Reads fields out of a payload. Every access is checked against the payload's size.
#include <memory>
#include <cstring>
#include <iterator>

#include "decode/binary_print.hpp"
#include "decode/formats.hpp"

#if FMT_VERSION < 100000
template void fmt::detail::vformat_to<char>(fmt::detail::buffer<char>&, fmt::string_view, fmt::format_args,
                                            fmt::detail::locale_ref);
#endif

namespace ringside {
namespace {

template <class T>
T load(const u8* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// The bytes that a __data_loc or __rel_loc points to; empty when they leave the payload.
Bytes located(Bytes payload, const Field& field) {
  if (field.offset + u64{4} > payload.size) return {};
  const u32 word = load<u32>(payload.data + field.offset);
  u64 at = word & 0xFFFF;
  if (field.relative) at += field.offset + 4;
  const u32 length = word >> 16;
  if (at + length > payload.size) return {};
  return {payload.data + at, length};
}

}  // namespace

i64 element_integer(const u8* at, u32 size, bool is_signed) {
  switch (size) {
    case 1:
      return is_signed ? i64{static_cast<signed char>(*at)} : i64{*at};
    case 2:
      return is_signed ? i64{load<int16_t>(at)} : i64{load<u16>(at)};
    case 4:
      return is_signed ? i64{load<i32>(at)} : i64{load<u32>(at)};
    case 8:
      return load<i64>(at);
    default:
      return 0;
  }
}

double element_floating(const u8* at, u32 size) {
  return size == 8 ? load<double>(at) : size == 4 ? static_cast<double>(load<float>(at)) : 0;
}

i64 read_integer(Bytes payload, const Field& field) {
  if (u64{field.offset} + field.size > payload.size) return 0;
  return element_integer(payload.data + field.offset, field.size, field.is_signed);
}

double read_floating(Bytes payload, const Field& field) {
  if (u64{field.offset} + field.size > payload.size) return 0;
  return element_floating(payload.data + field.offset, field.size);
}

double read_number(Bytes payload, const Field& field) {
  if (field.kind == FieldKind::floating) return read_floating(payload, field);
  const i64 value = read_integer(payload, field);
  return field.is_signed ? static_cast<double>(value) : static_cast<double>(static_cast<u64>(value));
}

static void append_message_of(Bytes payload, const Field& field, Appender& out) {
  const u64 address = u64{field.message_at} + field.message_word > payload.size ? 0
                      : field.message_word == 4                                 ? load<u32>(payload.data + field.message_at)
                                                                                : load<u64>(payload.data + field.message_at);
  const bool alone = field.message_at == field.offset;
  const Bytes arguments = alone ? Bytes{} : read_bytes(payload, field);
  const auto known = field.messages->strings.find(address);
  if (known != field.messages->strings.end() && alone) {
    std::string_view whole = known->second;
    while (whole.ends_with('\n')) whole.remove_suffix(1);
    append(out, whole);
  } else if (known != field.messages->strings.end()) {
    append_message(known->second, {arguments, field.message_word, field.message_big, field.messages->architecture},
                   field.messages->symbols, out);
  } else {
    append(out, "[no format at ");
    append_pointer(address, out);
    append(out, "] ");
    out.to_buffer([&](auto& to) { append_hex(arguments, " ", to); });
  }
}

static std::string_view read_composed(Bytes payload, const Field& field) {
  constexpr u32 most = 4;
  // On the heap: a plug-in finds little room for static TLS, and what one thread_local of it needs there, all take.
  static thread_local const auto texts = std::make_unique<fmt::memory_buffer[]>(most);
  static thread_local u32 turn = 0;
  fmt::memory_buffer& text = texts[turn++ % most];
  text.clear();
  {
    Appender out(text);
    if (field.messages != nullptr) {
      append_message_of(payload, field, out);
    } else {
      for (size_t i = 0;; ++i) {
        const Bytes row = read_row(payload, field, i);
        if (row.data == nullptr) break;
        if (i != 0) out.push_back(',');
        append(out, text_of(row));
      }
    }
  }
  return {text.data(), text.size()};
}

Bytes read_row(Bytes payload, const Field& field, size_t index) {
  const Bytes all = read_bytes(payload, field);
  const size_t each = field.strides.empty() ? all.size : field.strides.back();
  if (each == 0 || index >= all.size / each) return {};
  return {all.data + index * each, each};
}

std::string_view read_text(Bytes payload, const Field& field) {
  if (field.is_composed) [[unlikely]]
    return read_composed(payload, field);
  const Bytes bytes = read_bytes(payload, field);
  if (field.is_probed && bytes.data != nullptr && bytes.size == 0) [[unlikely]]
    return fault;
  return text_of(bytes);
}

Bytes read_bytes(Bytes payload, const Field& field) {
  if (field.kind == FieldKind::loc_array || field.kind == FieldKind::loc_text) return located(payload, field);
  if (field.offset >= payload.size) return {};
  const size_t room = payload.size - field.offset;  // size 0: to the end of the payload (the kernel's print event)
  return {payload.data + field.offset, field.size == 0 || field.size > room ? room : field.size};
}

Bytes read_array(Bytes payload, const Field& field) {
  Bytes bytes;
  if (field.kind == FieldKind::loc_array)
    bytes = located(payload, field);
  else if (field.is_rest)
    bytes = {payload.data + std::min<size_t>(field.offset, payload.size),
             payload.size - std::min<size_t>(field.offset, payload.size)};
  else if (u64{field.offset} + field.size <= payload.size)
    bytes = {payload.data + field.offset, field.size};
  if (field.element != 0) bytes.size -= bytes.size % field.element;
  return bytes;
}

void append_floating(double value, u32 size, fmt::memory_buffer& out) {
  if (size == 4)
    fmt::format_to(std::back_inserter(out), "{}", static_cast<float>(value));
  else
    fmt::format_to(std::back_inserter(out), "{}", value);
}

void append_hex(Bytes bytes, std::string_view between, fmt::memory_buffer& out) {
  constexpr char digits[] = "0123456789abcdef";
  for (size_t i = 0; i < bytes.size; ++i) {
    if (i != 0) append(out, between);
    out.push_back(digits[bytes.data[i] >> 4]);
    out.push_back(digits[bytes.data[i] & 15]);
  }
}

}  // namespace ringside
