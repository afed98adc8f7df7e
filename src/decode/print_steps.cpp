#include "decode/print_steps.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <span>

#include "decode/print_memory.hpp"
#include "sys/text.hpp"

namespace ringside {
namespace {

using Kind = PrintStep::Kind;

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

u32 hex_digits(u64 value) { return static_cast<u32>(std::bit_width(value | 1) + 3) / 4; }

u64 value_of(const std::vector<ValueOp>& code, const EventFormat& type, Bytes payload) {
  using Op = ValueOp::Op;
  u64 stack[ValueOp::deepest + 1];
  size_t top = 0;  // number of values on the stack
  for (const ValueOp* op = code.data(), *const end = op + code.size(); op < end; ++op) {
    if (op->op >= Op::add && op->op <= Op::greater_equal) {
      --top;
      u64& a = stack[top - 1];
      const u64 b = stack[top];
      const auto x = static_cast<i64>(a), y = static_cast<i64>(b);
      switch (op->op) {
        case Op::add: a += b; break;
        case Op::subtract: a -= b; break;
        case Op::multiply: a *= b; break;
        case Op::divide: a = b == 0 ? 0 : op->value != 0 ? a / b : y == -1 ? 0 - a : static_cast<u64>(x / y); break;
        case Op::remainder: a = b == 0 ? 0 : op->value != 0 ? a % b : y == -1 ? 0 : static_cast<u64>(x % y); break;
        case Op::shift_left: a <<= b & 63; break;
        case Op::shift_right: a = op->value != 0 ? a >> (b & 63) : static_cast<u64>(x >> (b & 63)); break;
        case Op::bit_and: a &= b; break;
        case Op::bit_or: a |= b; break;
        case Op::bit_xor: a ^= b; break;
        case Op::both: a = a != 0 && b != 0; break;
        case Op::either: a = a != 0 || b != 0; break;
        case Op::equal: a = a == b; break;
        case Op::unequal: a = a != b; break;
        case Op::less: a = op->value != 0 ? a < b : x < y; break;
        case Op::less_equal: a = op->value != 0 ? a <= b : x <= y; break;
        case Op::greater: a = op->value != 0 ? a > b : x > y; break;
        default: a = op->value != 0 ? a >= b : x >= y; break;
      }
      continue;
    }
    switch (op->op) {
      case Op::constant: stack[top++] = static_cast<u64>(op->value); break;
      case Op::field: stack[top++] = static_cast<u64>(read_integer(payload, type.fields[op->field])); break;
      case Op::length: {
        Field word = type.fields[op->field];
        word.size = 4;
        word.is_signed = false;
        stack[top++] = static_cast<u64>(read_integer(payload, word)) >> 16;
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
      case Op::cast: {
        const i64 spare = 64 - (op->value < 0 ? -op->value : op->value);
        const u64 high = stack[top - 1] << spare;
        stack[top - 1] = op->value < 0 ? static_cast<u64>(static_cast<i64>(high) >> spare) : high >> spare;
        break;
      }
      case Op::negate: stack[top - 1] = 0 - stack[top - 1]; break;
      case Op::invert: stack[top - 1] = ~stack[top - 1]; break;
      case Op::boolean_not: stack[top - 1] = stack[top - 1] == 0; break;
      case Op::jump_if_zero:
        if (stack[--top] != 0) break;
        [[fallthrough]];
      default: op += op->value - 1; break;  // jump
    }
  }
  return stack[0];
}

i64 value_of(const PrintStep& step, const EventFormat& type, Bytes payload) {
  return step.code.empty() ? read_integer(payload, type.fields[step.field])
                           : static_cast<i64>(value_of(step.code, type, payload));
}

// __print_hex(a, n): the first n bytes; __print_array(a, n, size): the first n elements. n is an int; there is never more than
// the field has.
Bytes limited(const PrintStep& step, const EventFormat& type, Bytes payload) {
  const Bytes all = read_array(payload, type.fields[step.field]);
  if (step.code.empty()) return all;
  const u64 each = step.kind == Kind::bytes ? 1 : std::max<u64>(step.width, 1);
  const i64 count = std::max<i32>(static_cast<i32>(value_of(step.code, type, payload)), 0);
  return {all.data, std::min<u64>(static_cast<u64>(count), all.size / each) * each};
}

// The width or precision that * stands for.
i32 star_of(const PrintStep& step, const EventFormat& type, Bytes payload) {
  const auto size = static_cast<i32>(value_of(step.star, type, payload));
  return std::clamp(size, -PrintStep::largest_size, i32{PrintStep::largest_size});
}

// A text's width and precision.
struct TextSize {
  size_t least = 0, most = SIZE_MAX;
  bool left = false;
};

TextSize text_size(const PrintStep& step, const EventFormat& type, Bytes payload) {
  TextSize size{step.min_width, step.precision < 0 ? SIZE_MAX : static_cast<size_t>(step.precision), step.left};
  if (step.star.empty()) return size;
  const i32 star = star_of(step, type, payload);
  if (step.limits)
    size.most = star < 0 ? SIZE_MAX : static_cast<size_t>(star);
  else
    size.least = static_cast<size_t>(std::abs(star)), size.left = size.left || star < 0;
  return size;
}

u32 decimal_digits(u64 value) {
  u32 n = 1;
  for (; value >= 100; value /= 100) n += 2;
  return n + (value >= 10);
}

// A number with printf's width and flags.
void append_padded(const PrintStep& step, i64 value, Appender& out) {
  const bool hex = step.kind == Kind::hex, negative = !hex && step.is_signed && value < 0;
  const u64 amount = negative ? 0 - static_cast<u64>(value) : static_cast<u64>(value);
  const std::string_view sign = negative ? "-" : hex && step.base && value != 0 ? "0x" : "";
  const size_t size = sign.size() + (hex ? hex_digits(amount) : decimal_digits(amount)),
               fill = step.min_width > size ? step.min_width - size : 0;
  if (!step.left && !step.zeros) out.fill(' ', fill);
  append(out, sign);
  if (!step.left && step.zeros) out.fill('0', fill);
  if (hex)
    append_base16(amount, out);
  else
    append_decimal(static_cast<i64>(amount), false, out);
  if (step.left) out.fill(' ', fill);
}

// %pS; %ps is the same without the distance.
void append_address(const PrintStep& step, u64 address, const Symbols& symbols, Appender& out) {
  const Symbols::Symbol* symbol = symbols.find(address);
  if (symbol != nullptr) append(out, symbol->name);
  if (symbol != nullptr && !step.base) return;
  append(out, symbol != nullptr ? "+0x" : "0x");
  append_base16(symbol != nullptr ? address - symbol->address : address, out);
}

// A text of the traced program is printed within one line and often on a terminal: no control characters.
void append_text(std::string_view text, Appender& out) {
  if (!sys::has_control(text)) [[likely]] return append(out, text);
  for (const char c : text) {
    if (sys::is_control(c))
      append(out, fmt::format("\\x{:02x}", static_cast<unsigned char>(c)));
    else
      out.push_back(c);
  }
}

void append_sized(const TextSize& size, std::string_view text, Appender& out) {
  text = text.substr(0, size.most);
  const size_t fill = size.least > text.size() ? size.least - text.size() : 0;
  if (!size.left) out.fill(' ', fill);
  append_text(text, out);
  if (size.left) out.fill(' ', fill);
}

// With the step's width and precision.
void append_text(const PrintStep& step, const EventFormat& type, Bytes payload, std::string_view text, Appender& out) {
  if (step.min_width == 0 && step.precision < 0 && step.star.empty()) [[likely]]
    append_text(text, out);
  else
    append_sized(text_size(step, type, payload), text, out);
}

void append_flags(const PrintStep& step, const TextSize& size, u64 value, Appender& out) {
  bool first = true;
  for (const auto& [bit, name] : step.names) {
    if (value == 0 && !first) return;
    const auto mask = static_cast<u64>(bit);
    if (mask == 0 ? value != 0 || !first : (value & mask) != mask) continue;
    if (!first) append(out, step.text);
    append_sized(size, name, out);
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

// star: what * stands for.
void append_formatted(const PrintStep& step, i64 value, const i32* star, Appender& out) {
  char text[2 * PrintStep::largest_size + 64];
  const bool character = step.text.back() == 'c';
  const char* const format = step.text.c_str();
  const auto c = static_cast<int>(value);
  const auto number = static_cast<long long>(value);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
  const int n = star != nullptr ? character ? std::snprintf(text, sizeof text, format, *star, c)
                                            : std::snprintf(text, sizeof text, format, *star, number)
                : character     ? std::snprintf(text, sizeof text, format, c)
                                : std::snprintf(text, sizeof text, format, number);
#pragma GCC diagnostic pop
  if (n > 0) append(out, {text, std::min<size_t>(static_cast<size_t>(n), sizeof text - 1)});
}

void append_floating(const PrintStep& step, const Field& field, double value, Appender& out) {
  if (step.text.empty()) {
    out.to_buffer([&](auto& to) { ringside::append_floating(value, field.size, to); });
    return;
  }
  char text[128];
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
  const int n = std::snprintf(text, sizeof text, step.text.c_str(), value);
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
  Bytes bytes = read_bytes(payload, field);
  const bool located = field.kind == FieldKind::loc_array || field.kind == FieldKind::loc_text || field.size == 0;
  const size_t size = located ? bytes.size : field.size;
  if (!step.star.empty()) {
    const auto count = static_cast<u64>(std::max<i32>(static_cast<i32>(value_of(step.star, type, payload)), 0));
    bytes.size = std::min<u64>(bytes.size, step.text[0] == 'b' ? (count + 7) / 8 : count);
  }
  out.to_buffer([&](auto& to) { append_memory(step.text, bytes, size, to); });
}

static void append_kernel_text(const TextSize& size, u64 address, const FormatContext& context, Appender& out) {
  const auto known = context.strings.find(address);
  if (known == context.strings.end()) return append_base16(address, out);
  std::string_view text = known->second;
  if (text.ends_with("\\n")) text.remove_suffix(2);
  append_sized(size, text, out);
}

static void print_field(const PrintStep& step, const EventFormat& type, Bytes payload, const FormatContext& context,
                        Appender& out) {
  const Field& field = type.fields[step.field];
  switch (step.kind) {
    case Kind::literal:
    case Kind::choice:
      break;
    case Kind::decimal:
      if (step.min_width != 0)
        append_padded(step, narrowed(value_of(step, type, payload), step), out);
      else
        append_decimal(narrowed(value_of(step, type, payload), step), step.is_signed, out);
      break;
    case Kind::hex:
      if (step.min_width != 0 || step.base)
        append_padded(step, narrowed(value_of(step, type, payload), step), out);
      else
        append_base16(static_cast<u64>(narrowed(value_of(step, type, payload), step)), out);
      break;
    case Kind::address:
      append_address(step, static_cast<u64>(value_of(step, type, payload)), context.symbols, out);
      break;
    case Kind::pointer:
      append_pointer(static_cast<u64>(value_of(step, type, payload)), out);
      break;
    case Kind::character: {
      const char c = static_cast<char>(value_of(step, type, payload));
      append_text({&c, 1}, out);
      break;
    }
    case Kind::floating:
      append_floating(step, field, read_floating(payload, field), out);
      break;
    case Kind::text:
      append_text(step, type, payload, read_text(payload, field), out);
      break;
    case Kind::constant:
      append_sized(text_size(step, type, payload), step.text, out);
      break;
    case Kind::kernel_text:
      append_kernel_text(text_size(step, type, payload), static_cast<u64>(read_integer(payload, field)), context, out);
      break;
    case Kind::symbol: {
      const i64 value = value_of(step, type, payload);
      if (const std::string* name = symbol_of(step.names, value); name != nullptr) {
        append_text(step, type, payload, *name, out);
      } else {
        append(out, "0x");
        append_base16(static_cast<u64>(value), out);
      }
      break;
    }
    case Kind::flags:
      append_flags(step, text_size(step, type, payload), static_cast<u64>(value_of(step, type, payload)), out);
      break;
    case Kind::list:
      append_list(field, step.width, limited(step, type, payload), step.text, out);
      break;
    case Kind::bytes:
      out.to_buffer([&](auto& to) { append_hex(limited(step, type, payload), step.text, to); });
      break;
    case Kind::memory:
      print_memory(step, type, payload, out);
      break;
    case Kind::bitmap:
      out.to_buffer([&](auto& to) { append_bitmap(read_bytes(payload, field), to); });
      break;
    case Kind::bit_ranges:
      out.to_buffer([&](auto& to) { append_bit_ranges(read_bytes(payload, field), to); });
      break;
    case Kind::formatted: {
      const i32 star = step.star.empty() ? 0 : star_of(step, type, payload);
      append_formatted(step, narrowed(value_of(step, type, payload), step), step.star.empty() ? nullptr : &star, out);
      break;
    }
  }
}

static void run(std::span<const PrintStep> steps, const EventFormat& type, Bytes payload, const FormatContext& context,
                Appender& out) {
  for (const PrintStep& step : steps) {
    if (step.kind == Kind::literal)
      append(out, step.text);
    else if (step.kind == Kind::choice)
      run(value_of(step, type, payload) != 0 ? step.then : step.otherwise, type, payload, context, out);
    else
      print_field(step, type, payload, context, out);
  }
}

void run_steps(const EventFormat& type, Bytes payload, const FormatContext& context, fmt::memory_buffer& out) {
  // A format may print a payload's text a thousand times. Honest ones print a byte as at most "0xff, ".
  constexpr size_t least = 16384, for_each_byte = 8;
  const size_t most = out.size() + least + for_each_byte * payload.size;
  Appender to(out);
  bool cut = false;
  type.line.print(payload, to, [&](u32 step, Appender&) {
    if (to.size() < most) run({&type.steps[step], 1}, type, payload, context, to);
    else cut = true;
  });
  if (cut) append(to, " [cut: the text is too long for its event]");
}

}  // namespace ringside
