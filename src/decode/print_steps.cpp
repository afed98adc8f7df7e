#include "decode/print_steps.hpp"

#include <algorithm>
#include <cstring>
#include <span>

#include "decode/compute.hpp"
#include "decode/conversion.hpp"
#include "decode/print_memory.hpp"

namespace ringside {
namespace {

using StepKind = PrintStep::Kind;
using Op = ValueOp::Op;

// The part of the value that a printf with this length modifier keeps.
i64 narrowed(i64 value, const PrintStep& step) {
  switch (step.width) {
    case 1:
      return step.is_signed ? i64{static_cast<signed char>(value)} : i64{static_cast<u8>(value)};
    case 2:
      return step.is_signed ? i64{static_cast<int16_t>(value)} : i64{static_cast<u16>(value)};
    case 4:
      return step.is_signed ? i64{static_cast<i32>(value)} : i64{static_cast<u32>(value)};
    default:
      return value;
  }
}

// Where the byte is that was at `at` of a big-endian field.
u64 original_place(const Field& field, u64 at, u64 size) {
  const u64 begin = at - at % field.turned;
  return begin + field.turned <= size ? begin + field.turned - 1 - at % field.turned : at;
}

u64 value_of(const std::vector<ValueOp>& code, const EventFormat& type, Bytes payload) {
  u64 stack[ValueOp::deepest + 1];
  size_t top = 0;  // number of values on the stack
  for (const ValueOp *op = code.data(), *const end = op + code.size(); op < end; ++op) {
    switch (op->op) {
      case Op::constant:
        stack[top++] = static_cast<u64>(op->value);
        break;
      case Op::field:
        stack[top++] = static_cast<u64>(read_integer(payload, type.fields[op->field]));
        break;
      case Op::load: {
        const u32 size = static_cast<u32>(op->value < 0 ? -op->value : op->value);
        const bool within = u64{op->field} + size <= payload.size;
        stack[top++] = within ? static_cast<u64>(element_integer(payload.data + op->field, size, op->value < 0)) : 0;
        break;
      }
      case Op::length: {
        const u32 at = type.fields[op->field].offset;
        stack[top++] = u64{at} + 4 <= payload.size ? static_cast<u64>(element_integer(payload.data + at, 4, false)) >> 16 : 0;
        break;
      }
      case Op::element: {
        const u32 size = static_cast<u32>(op->value < 0 ? -op->value : op->value);
        const Bytes all = read_bytes(payload, type.fields[op->field]);
        u64& top_value = stack[top - 1];
        const bool within = top_value < all.size / size;
        top_value = within ? static_cast<u64>(element_integer(all.data + top_value * size, size, op->value < 0)) : 0;
        break;
      }
      case Op::big_element: {
        const u32 size = static_cast<u32>(op->value < 0 ? -op->value : op->value);
        const Field& field = type.fields[op->field];
        const Bytes all = read_bytes(payload, field);
        u64& top_value = stack[top - 1];
        const u64 at = top_value < all.size / size ? top_value * size : all.size;
        top_value = 0;
        for (u64 i = at; i < at + size && i < all.size; ++i)
          top_value = top_value << 8 | all.data[original_place(field, i, all.size)];
        top_value = cut(top_value, 8 * size, op->value < 0);
        break;
      }
      case Op::cast: {
        const u32 bits = static_cast<u32>(op->value < 0 ? -op->value : op->value);
        stack[top - 1] = cut(stack[top - 1], bits, op->value < 0);
        break;
      }
      case Op::negate:
      case Op::invert:
      case Op::boolean_not:
      case Op::swap:
      case Op::bit_length:
      case Op::ones:
        stack[top - 1] = computed(op->op, stack[top - 1], op->value);
        break;
      case Op::jump_if_zero:
        if (stack[--top] != 0) break;
        [[fallthrough]];
      case Op::jump:
        op += op->value - 1;
        break;
      default:
        --top;
        stack[top - 1] = computed(op->op, op->value, stack[top - 1], stack[top]);
        break;
    }
  }
  return stack[0];
}

i64 value_of(const PrintStep& step, const EventFormat& type, Bytes payload) {
  return step.code.empty() ? read_integer(payload, type.fields[step.field])
                           : static_cast<i64>(value_of(step.code, type, payload));
}

// The bytes of a field, or of one array in it, as numbers of `number` bytes: little-endian ones, as for all fields. 1: as they
// were in memory. `room` has them if they change.
Bytes memory_of(const PrintStep& step, const EventFormat& type, Bytes payload, Bytes all, u32 number,
                fmt::memory_buffer& room) {
  const Field& field = type.fields[step.field];
  if (!step.from.empty()) {
    const u64 first = value_of(step.from, type, payload), each = std::max<u32>(field.element, 1);
    if (first >= all.size / each) return {};
    all = {all.data + first * each, all.size - first * each};
    if (step.part != 0) all.size = std::min<size_t>(all.size, step.part);
  }
  if (field.turned == 0 || field.turned == number) [[likely]]
    return all;
  room.resize(all.size);
  u8* const bytes = reinterpret_cast<u8*>(room.data());
  for (size_t i = 0; i < all.size; ++i) bytes[i] = all.data[original_place(field, i, all.size)];
  for (size_t i = 0; number > 1 && i + number <= all.size; i += number) std::reverse(bytes + i, bytes + i + number);
  return {bytes, all.size};
}

// __print_hex(a, n): the first n bytes; __print_array(a, n, size): the first n elements. n is an int; there is never more than
// the field has.
Bytes limited(const PrintStep& step, const EventFormat& type, Bytes payload, fmt::memory_buffer& room) {
  const Field& field = type.fields[step.field];
  const bool text = field.kind == FieldKind::text || field.kind == FieldKind::loc_text;
  const u32 each = step.kind == StepKind::bytes ? 1 : std::max<u32>(step.width, 1);
  const Bytes all = memory_of(step, type, payload, text ? read_bytes(payload, field) : read_array(payload, field), each, room);
  if (step.code.empty()) return all;
  const i64 count = std::max<i32>(static_cast<i32>(value_of(step.code, type, payload)), 0);
  return {all.data, std::min<u64>(static_cast<u64>(count), all.size / each) * each};
}

// The step's form, with the value of * in it.
PrintForm form_of(const PrintStep& step, const EventFormat& type, Bytes payload) {
  PrintForm form = step.form;
  if (!step.star_width.empty()) set_width(form, static_cast<i32>(value_of(step.star_width, type, payload)));
  if (!step.star_precision.empty()) set_precision(form, static_cast<i32>(value_of(step.star_precision, type, payload)));
  return form;
}

bool has_form(const PrintStep& step) {
  return !step.form.is_plain() || !step.star_width.empty() || !step.star_precision.empty();
}

void append_text(const PrintStep& step, const EventFormat& type, Bytes payload, std::string_view text, Appender& out) {
  if (!has_form(step)) [[likely]]
    append_text(text, out);
  else
    append_sized(form_of(step, type, payload), text, out);
}

void append_flags(const PrintStep& step, u64 value, Appender& out) {
  bool first = true;
  for (const auto& [bit, name] : step.names) {
    if (value == 0 && !first) return;
    const auto mask = static_cast<u64>(bit);
    if (mask == 0 ? value != 0 || !first : (value & mask) != mask) continue;
    if (!first) append(out, step.text);
    append_text(name, out);
    first = false;
    value &= ~mask;
    if (mask == 0) break;
  }
  if (value != 0) {
    if (!first) append(out, step.text);
    append(out, "0x");
    append_base16(value, out);
  }
}

void append_symbol(const PrintStep& step, u64 value, Appender& out) {
  if (const std::string* const name = symbol_of(step.names, static_cast<i64>(value)); name != nullptr)
    return append_text(*name, out);
  append(out, "0x");
  append_base16(value, out);
}

void append_named(const PrintStep& step, u64 value, Appender& out) {
  if (const CopiedText* const known = step.texts->find(value); known != nullptr) [[likely]]
    return append(out, *known);
  const size_t begin = out.size();
  if (step.kind == StepKind::symbol)
    append_symbol(step, value, out);
  else
    append_flags(step, value, out);
  step.texts->add(value, out.since(begin));
}

// {1,2}; with a text between the elements, as trace-cmd prints __print_array: 1 2.
void append_list(const Field& field, u32 each, Bytes bytes, const std::string& between, Appender& out) {
  if (between.empty()) out.push_back('{');
  for (size_t at = 0; each != 0 && at + each <= bytes.size; at += each) {
    if (at != 0) append(out, between.empty() ? "," : between);
    if (field.is_float) {
      out.to_buffer([&](auto& to) { ringside::append_floating(element_floating(bytes.data + at, each), each, to); });
      continue;
    }
    append_decimal(element_integer(bytes.data + at, each, field.is_signed), field.is_signed, out);
  }
  if (between.empty()) out.push_back('}');
}

void append_floating(const PrintStep& step, const PrintForm& form, const Field& field, double value, Appender& out) {
  if (step.text.empty()) {
    out.to_buffer([&](auto& to) { ringside::append_floating(value, field.size, to); });
    return;
  }
  char text[2 * PrintForm::largest + 400];  // the largest double has 309 digits
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
  const int n = std::snprintf(text, sizeof text, step.text.c_str(), int{form.width}, int{form.precision}, value);
#pragma GCC diagnostic pop
  if (n > 0) append(out, {text, std::min<size_t>(static_cast<size_t>(n), sizeof text - 1)});
}

}  // namespace

const std::string* symbol_of(const std::vector<std::pair<i64, std::string>>& symbols, i64 value) {
  for (const auto& [number, name] : symbols) {
    if (number == value) return &name;
  }
  return nullptr;
}

// The star of %*ph counts bytes, that of %*pb counts bits.
static void print_memory(const PrintStep& step, const EventFormat& type, Bytes payload, Appender& out) {
  const Field& field = type.fields[step.field];
  fmt::memory_buffer room;
  Bytes bytes = memory_of(step, type, payload, read_bytes(payload, field), step.text[0] == 'b' ? step.width : 1, room);
  const bool located = field.kind == FieldKind::loc_array || field.kind == FieldKind::loc_text || field.size == 0;
  const size_t size = located ? bytes.size : step.part != 0 ? step.part : field.size;
  u64 count = bytes.size * 8;
  if (!step.star_width.empty()) {
    count = static_cast<u64>(std::max<i32>(static_cast<i32>(value_of(step.star_width, type, payload)), 0));
    bytes.size = std::min<u64>(bytes.size, step.text[0] == 'b' ? (count + 7) / 8 : count);
  }
  const size_t bits = std::min<u64>(count, bytes.size * 8);
  out.to_buffer([&](auto& to) { append_memory(step.text, {bytes, size, bits, field.turned != 0}, to); });
}

static void print_kernel_text(const PrintStep& step, const EventFormat& type, Bytes payload, const FormatContext& context,
                              Appender& out) {
  const auto address = static_cast<u64>(value_of(step, type, payload));
  const auto known = context.strings.find(address);
  if (known == context.strings.end())
    return address == 0 ? append_text(step, type, payload, "(null)", out) : append_base16(address, out);
  std::string_view text = known->second;
  if (text.ends_with('\n')) text.remove_suffix(1);
  append_text(step, type, payload, text, out);
}

static void print_pointer(const PrintStep& step, const EventFormat& type, Bytes payload, Architecture of, Appender& out) {
  const auto value = static_cast<u64>(narrowed(value_of(step, type, payload), step));
  if (step.kind == StepKind::error) {
    if (const std::string name = error_of_pointer(value, of); !name.empty()) return append_text(step, type, payload, name, out);
  }
  if (step.form.width == 0) return append_pointer(value, out);
  char text[detail::most_digits];
  append_sized(step.form, {text, static_cast<size_t>(detail::put_pointer(text, value) - text)}, out);
}

static void print_unsized(const PrintStep& step, const EventFormat& type, Bytes payload, const FormatContext& context,
                          Appender& out) {
  static const Field none;  // the event has no fields
  const Field& field = step.field < type.fields.size() ? type.fields[step.field] : none;
  switch (step.kind) {
    case StepKind::literal:
    case StepKind::choice:
      break;
    case StepKind::decimal:
      append_decimal(narrowed(value_of(step, type, payload), step), step.is_signed, out);
      break;
    case StepKind::hex:
      if (step.form.width == 0) {
        append_base16(static_cast<u64>(narrowed(value_of(step, type, payload), step)), out);
        break;
      }
      [[fallthrough]];
    case StepKind::number:
      append_number(form_of(step, type, payload), step.is_signed,
                    static_cast<u64>(narrowed(value_of(step, type, payload), step)), out);
      break;
    case StepKind::address:
      append_address(static_cast<u64>(narrowed(value_of(step, type, payload), step)), step.distance, step.returns,
                     context.symbols, out);
      break;
    case StepKind::pointer:
    case StepKind::error:
      print_pointer(step, type, payload, context.architecture, out);
      break;
    case StepKind::character: {
      const char c = static_cast<char>(value_of(step, type, payload));
      append_text(step, type, payload, {&c, c != 0}, out);
      break;
    }
    case StepKind::floating:
      append_floating(step, form_of(step, type, payload), field, read_floating(payload, field), out);
      break;
    case StepKind::text:
      if (!step.from.empty()) {
        fmt::memory_buffer room;
        const Bytes row = memory_of(step, type, payload, read_bytes(payload, field), 1, room);
        append_text(step, type, payload, text_of(row), out);
        break;
      }
      if (field.is_composed && field.messages == nullptr) {  // as C has it, the first of several
        append_text(step, type, payload, text_of(read_bytes(payload, field)), out);
        break;
      }
      [[fallthrough]];
    case StepKind::message:
      append_text(step, type, payload, read_text(payload, field), out);
      break;
    case StepKind::constant:
      append_text(step, type, payload, step.text, out);
      break;
    case StepKind::kernel_text:
      print_kernel_text(step, type, payload, context, out);
      break;
    case StepKind::symbol:
    case StepKind::flags:
      append_named(step, static_cast<u64>(narrowed(value_of(step, type, payload), step)), out);
      break;
    case StepKind::list: {
      fmt::memory_buffer room;
      append_list(field, step.width, limited(step, type, payload, room), step.text, out);
      break;
    }
    case StepKind::bytes:
      out.to_buffer([&](auto& to) {
        fmt::memory_buffer room;
        append_hex(limited(step, type, payload, room), step.text, to);
      });
      break;
    case StepKind::memory:
      print_memory(step, type, payload, out);
      break;
    case StepKind::bitmap:
      out.to_buffer([&](auto& to) {
        fmt::memory_buffer room;
        append_bitmap(memory_of(step, type, payload, read_bytes(payload, field), step.width, room), SIZE_MAX, to);
      });
      break;
    case StepKind::bit_ranges:
      out.to_buffer([&](auto& to) {
        fmt::memory_buffer room;
        append_bit_ranges(memory_of(step, type, payload, read_bytes(payload, field), step.width, room), SIZE_MAX, to);
      });
      break;
  }
}

// A width and a precision belong to the whole text of such a step.
static bool is_sized_afterwards(const PrintStep& step) {
  const StepKind kind = step.kind;
  return (kind == StepKind::floating && step.text.empty()) || kind == StepKind::address || kind == StepKind::symbol ||
         kind == StepKind::flags || kind == StepKind::list || kind == StepKind::bytes || kind == StepKind::bitmap ||
         kind == StepKind::bit_ranges;
}

static void print_field(const PrintStep& step, const EventFormat& type, Bytes payload, const FormatContext& context,
                        Appender& out) {
  if (!has_form(step) || !is_sized_afterwards(step)) [[likely]]
    return print_unsized(step, type, payload, context, out);
  fmt::memory_buffer whole;
  {
    Appender to(whole);
    print_unsized(step, type, payload, context, to);
  }
  append_sized(form_of(step, type, payload), {whole.data(), whole.size()}, out);
}

// False: the text is `most` bytes long before the last step.
static bool run(std::span<const PrintStep> steps, const EventFormat& type, Bytes payload, const FormatContext& context,
                size_t most, Appender& out) {
  for (const PrintStep& step : steps) {
    if (out.size() >= most) return false;
    if (step.kind == StepKind::literal)
      append(out, step.text);
    else if (step.kind != StepKind::choice)
      print_field(step, type, payload, context, out);
    else if (!run(value_of(step, type, payload) != 0 ? step.then : step.otherwise, type, payload, context, most, out))
      return false;
  }
  return true;
}

void run_steps(const EventFormat& type, Bytes payload, const FormatContext& context, fmt::memory_buffer& out) {
  // A format may print a payload's text a thousand times. Honest ones print a byte as at most "0xff, ".
  constexpr size_t least = 16384, for_each_byte = 8;
  const size_t most = out.size() + least + for_each_byte * payload.size;
  Appender to(out);
  bool cut = false;
  type.line.print(payload, to, [&](u32 step, Appender&) {
    if (to.size() >= most)
      cut = true;
    else if (const PrintStep& one = type.steps[step]; one.kind != StepKind::choice) [[likely]]
      print_field(one, type, payload, context, to);
    else if (!run({&one, 1}, type, payload, context, most, to))
      cut = true;
  });
  if (cut) append(to, " [cut: the text is too long for its event]");
}

}  // namespace ringside
