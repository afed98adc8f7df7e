#include "decode/print_steps.hpp"

#include <event-parse.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace ringside {
namespace {

using Kind = PrintStep::Kind;

// One %-conversion of a print fmt.
struct Conversion {
  std::string flags;  // flags, width, precision
  u8 width = 4;       // bytes, by the length modifier
  char letter = 0;
};

// Reads the conversion at `s` (behind the %); null: one that we leave to libtraceevent.
const char* read_conversion(const char* s, Conversion& out) {
  const char* start = s;
  while (*s != 0 && std::strchr("-+ #0123456789.", *s) != nullptr) ++s;
  out.flags.assign(start, s);
  for (;; ++s) {
    if (*s == 'l' || *s == 'L' || *s == 'z' || *s == 'j' || *s == 't')
      out.width = 8;
    else if (*s == 'h')
      out.width = out.width == 2 ? 1 : 2;
    else
      break;
  }
  out.letter = *s;
  if (*s == 0 || std::strchr("diuxXocspfFgGeE", *s) == nullptr) return nullptr;
  if (*s == 'p' && (std::isalnum(static_cast<unsigned char>(s[1])) != 0)) return nullptr;  // %pS and its family
  return s + 1;
}

const char* field_name(const tep_print_arg* arg) {
  switch (arg->type) {
    case TEP_PRINT_FIELD:
      return arg->field.name;
    case TEP_PRINT_STRING:
      return arg->string.string;
    case TEP_PRINT_TYPE:
      return field_name(arg->typecast.item);
    case TEP_PRINT_SYMBOL:
      return field_name(arg->symbol.field);
    case TEP_PRINT_FLAGS:
      return field_name(arg->flags.field);
    case TEP_PRINT_INT_ARRAY:
      return field_name(arg->int_array.field);
    case TEP_PRINT_HEX:
    case TEP_PRINT_HEX_STR:
      return field_name(arg->hex.field);
    case TEP_PRINT_DYNAMIC_ARRAY:
      return arg->dynarray.field != nullptr ? arg->dynarray.field->name : nullptr;
    default:
      return nullptr;
  }
}

std::vector<std::pair<i64, std::string>> names_of(const tep_print_flag_sym* sym) {
  std::vector<std::pair<i64, std::string>> names;
  for (; sym != nullptr; sym = sym->next) {
    if (sym->value == nullptr || sym->str == nullptr) continue;
    char* end = nullptr;
    errno = 0;
    i64 value = std::strtoll(sym->value, &end, 0);
    if (end == sym->value) continue;  // a name that the kernel did not resolve
    if (errno == ERANGE || *end == 'U') value = static_cast<i64>(std::strtoull(sym->value, nullptr, 0));
    names.emplace_back(value, sym->str);
  }
  return names;
}

bool compile_argument(const tep_print_arg* arg, const Conversion& conversion, EventType& type, PrintStep& step) {
  const char* name = field_name(arg);
  if (name == nullptr) return false;
  const Field* field = type.field(name);
  if (field == nullptr) return false;
  step.field = static_cast<u32>(field - type.fields.data());
  step.width = conversion.width;
  if (arg->type == TEP_PRINT_SYMBOL || arg->type == TEP_PRINT_FLAGS) {
    const bool flags = arg->type == TEP_PRINT_FLAGS;
    step.kind = flags ? Kind::flags : Kind::symbol;
    step.names = names_of(flags ? arg->flags.flags : arg->symbol.symbols);
    if (flags) step.text = arg->flags.delim != nullptr ? arg->flags.delim : "|";
    if (!flags) type.fields[step.field].symbols = step.names;
    return conversion.letter == 's' && conversion.flags.empty();
  }
  switch (field->kind) {
    case FieldKind::text:
    case FieldKind::loc_text:
      step.kind = Kind::text;
      return conversion.letter == 's' && conversion.flags.empty();
    case FieldKind::array:
    case FieldKind::loc_array:
      step.kind = arg->type == TEP_PRINT_HEX || arg->type == TEP_PRINT_HEX_STR ? Kind::bytes : Kind::list;
      if (arg->type == TEP_PRINT_HEX || arg->type == TEP_PRINT_INT_ARRAY) step.text = " ";
      return conversion.letter == 's';
    case FieldKind::floating:
      step.kind = Kind::floating;
      break;
    case FieldKind::integer:
      break;
  }
  if (conversion.letter == 's' && field->is_char) {
    step.kind = Kind::character;
    return conversion.flags.empty();
  }
  if (conversion.letter == 's') return false;  // a pointer to a text: nothing that we could follow
  if (field->kind == FieldKind::floating) {
    if (!conversion.flags.empty() && std::strchr("fFgGeE", conversion.letter) != nullptr) {
      step.text = "%" + conversion.flags + conversion.letter;
    }
    return true;
  }
  if (std::strchr("fFgGeE", conversion.letter) != nullptr) return false;
  step.is_signed = conversion.letter == 'd' || conversion.letter == 'i';
  if (conversion.letter == 'p') {
    step.kind = Kind::pointer;
    return conversion.flags.empty();
  }
  if (!conversion.flags.empty() || conversion.letter == 'X' || conversion.letter == 'o') {
    step.kind = Kind::formatted;
    step.text = "%" + conversion.flags + (conversion.letter == 'c' ? "" : "ll") + conversion.letter;
    return true;
  }
  step.kind = conversion.letter == 'x' ? Kind::hex : conversion.letter == 'c' ? Kind::character : Kind::decimal;
  return true;
}

// libtraceevent knows no floating point, so formats print its bits as 0x%llx; we print the number, without the 0x.
void drop_hex_sign(std::vector<PrintStep>& steps) {
  if (steps.empty() || steps.back().kind != Kind::literal) return;
  std::string& text = steps.back().text;
  if (text.size() >= 2 && text.compare(text.size() - 2, 2, "0x") == 0) text.resize(text.size() - 2);
}

// What a printf with this length modifier would keep of the value.
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

void append_decimal(i64 value, bool is_signed, fmt::memory_buffer& out) {
  const fmt::format_int text = is_signed ? fmt::format_int(value) : fmt::format_int(static_cast<u64>(value));
  out.append(text.data(), text.data() + text.size());
}

void append_base16(u64 value, fmt::memory_buffer& out) {
  char digits[16];
  int n = 16;
  do {
    digits[--n] = "0123456789abcdef"[value & 15];
    value >>= 4;
  } while (value != 0);
  out.append(digits + n, digits + 16);
}

void append_flags(const PrintStep& step, u64 value, fmt::memory_buffer& out) {
  bool first = true;
  for (const auto& [bit, name] : step.names) {
    const auto mask = static_cast<u64>(bit);
    if (mask == 0 ? value != 0 : (value & mask) != mask) continue;
    if (!first) append(out, step.text);
    append(out, name);
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

// {1,2}; with a text between them as trace-cmd prints __print_array: 1 2.
void append_list(const Field& field, Bytes bytes, const std::string& between, fmt::memory_buffer& out) {
  if (between.empty()) out.push_back('{');
  for (size_t at = 0; field.element != 0 && at + field.element <= bytes.size; at += field.element) {
    if (at != 0) append(out, between.empty() ? "," : between);
    if (field.is_float) {
      ringside::append_floating(element_floating(bytes.data + at, field.element), field.element, out);
      continue;
    }
    append_decimal(element_integer(bytes.data + at, field.element, field.is_signed), field.is_signed, out);
  }
  if (between.empty()) out.push_back('}');
}

// A text of the traced program goes onto one line of ours and, often, onto a terminal: no control characters.
void append_text(std::string_view text, fmt::memory_buffer& out) {
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte != 0x7F)
      out.push_back(c);
    else
      fmt::format_to(std::back_inserter(out), "\\x{:02x}", byte);
  }
}

void append_formatted(const PrintStep& step, i64 value, fmt::memory_buffer& out) {
  char text[128];
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
  const int n = step.text.back() == 'c' ? std::snprintf(text, sizeof text, step.text.c_str(), static_cast<int>(value))
                                        : std::snprintf(text, sizeof text, step.text.c_str(), static_cast<long long>(value));
#pragma GCC diagnostic pop
  if (n > 0) out.append(text, text + std::min(n, int{sizeof text} - 1));
}

void append_floating(const PrintStep& step, const Field& field, double value, fmt::memory_buffer& out) {
  if (step.text.empty()) {
    ringside::append_floating(value, field.size, out);
    return;
  }
  char text[128];
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
  const int n = std::snprintf(text, sizeof text, step.text.c_str(), value);
#pragma GCC diagnostic pop
  if (n > 0) out.append(text, text + std::min(n, int{sizeof text} - 1));
}

}  // namespace

const std::string* symbol_of(const std::vector<std::pair<i64, std::string>>& symbols, i64 value) {
  for (const auto& [number, name] : symbols) {
    if (number == value) return &name;
  }
  return nullptr;
}

bool compile_steps(const tep_event& event, EventType& type) {
  if (event.print_fmt.format == nullptr || (*event.print_fmt.format == 0 && !type.fields.empty())) return false;
  std::vector<PrintStep> steps;
  std::string literal;
  const tep_print_arg* arg = event.print_fmt.args;
  const auto flush = [&] {
    if (literal.empty()) return;
    PrintStep step;
    step.text = std::move(literal);
    literal.clear();
    steps.push_back(std::move(step));
  };
  for (const char* s = event.print_fmt.format; *s != 0;) {
    if (*s == '\\' && s[1] == 'n') {
      literal += ' ';  // one event is one line
      s += 2;
    } else if (*s == '\\' && (s[1] == '"' || s[1] == '\\')) {
      literal += s[1];
      s += 2;
    } else if (*s != '%') {
      literal += *s++;
    } else if (s[1] == '%') {
      literal += '%';
      s += 2;
    } else {
      flush();
      Conversion conversion;
      PrintStep step;
      s = read_conversion(s + 1, conversion);
      if (s == nullptr || arg == nullptr || !compile_argument(arg, conversion, type, step)) return false;
      if (step.kind == Kind::floating && conversion.letter == 'x') drop_hex_sign(steps);
      steps.push_back(std::move(step));
      arg = arg->next;
    }
  }
  flush();
  type.steps = std::move(steps);
  return true;
}

void default_steps(EventType& type) {
  type.by_fields = true;
  type.steps.clear();
  for (u32 i = 0; i < type.fields.size(); ++i) {
    const Field& field = type.fields[i];
    PrintStep name, value;
    name.text = (i != 0 ? " " : "") + field.name + "=";
    value.field = i;
    value.is_signed = field.is_signed;
    switch (field.kind) {
      case FieldKind::integer:
        value.kind = Kind::decimal;
        break;
      case FieldKind::floating:
        value.kind = Kind::floating;
        break;
      case FieldKind::text:
      case FieldKind::loc_text:
        value.kind = Kind::text;
        break;
      case FieldKind::array:
      case FieldKind::loc_array:
        value.kind = Kind::list;
        break;
    }
    type.steps.push_back(std::move(name));
    type.steps.push_back(std::move(value));
  }
}

void run_steps(const EventType& type, Bytes payload, fmt::memory_buffer& out) {
  for (const PrintStep& step : type.steps) {
    if (step.kind == Kind::literal) {
      append(out, step.text);
      continue;
    }
    const Field& field = type.fields[step.field];
    switch (step.kind) {
      case Kind::literal:
        break;
      case Kind::decimal:
        append_decimal(narrowed(read_integer(payload, field), step), step.is_signed, out);
        break;
      case Kind::hex:
        append_base16(static_cast<u64>(narrowed(read_integer(payload, field), step)), out);
        break;
      case Kind::pointer:
        append(out, "0x");
        append_base16(static_cast<u64>(read_integer(payload, field)), out);
        break;
      case Kind::character: {
        const char c = static_cast<char>(read_integer(payload, field));
        append_text({&c, 1}, out);
        break;
      }
      case Kind::floating:
        append_floating(step, field, read_floating(payload, field), out);
        break;
      case Kind::text:
        append_text(read_text(payload, field), out);
        break;
      case Kind::symbol: {
        const i64 value = read_integer(payload, field);
        if (const std::string* name = symbol_of(step.names, value); name != nullptr) {
          append_text(*name, out);
        } else {
          append(out, "0x");
          append_base16(static_cast<u64>(value), out);
        }
        break;
      }
      case Kind::flags:
        append_flags(step, static_cast<u64>(read_integer(payload, field)), out);
        break;
      case Kind::list:
        append_list(field, read_array(payload, field), step.text, out);
        break;
      case Kind::bytes:
        append_hex(read_array(payload, field), step.text, out);
        break;
      case Kind::formatted:
        append_formatted(step, narrowed(read_integer(payload, field), step), out);
        break;
    }
  }
}

}  // namespace ringside
