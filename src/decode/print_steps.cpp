#include "decode/print_steps.hpp"

#include <event-parse.h>

#include <algorithm>
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

using Op = Expression::Op;

Op operator_of(std::string_view text) {
  static constexpr std::pair<std::string_view, Op> all[] = {
      {"+", Op::add},      {"-", Op::subtract}, {"*", Op::multiply}, {"/", Op::divide},      {"%", Op::modulo},    {"&", Op::bit_and},
      {"|", Op::bit_or},   {"^", Op::bit_xor},  {"<<", Op::left},    {">>", Op::right},      {"<", Op::less},      {">", Op::greater},
      {"<=", Op::not_greater}, {">=", Op::not_less}, {"==", Op::equal}, {"!=", Op::different}, {"&&", Op::both}, {"||", Op::either},
      {"?", Op::choice}};
  for (const auto& [name, op] : all) {
    if (name == text) return op;
  }
  return Op::constant;
}

i64 evaluate(const Expression& e, Bytes payload) {
  const auto a = [&] { return evaluate(*e.a, payload); };
  const auto b = [&] { return evaluate(*e.b, payload); };
  const auto ua = [&] { return static_cast<u64>(a()); };
  const auto ub = [&] { return static_cast<u64>(b()); };
  switch (e.op) {
    case Op::constant:
      return e.constant;
    case Op::field:
      return u64{e.offset} + e.size > payload.size ? 0 : element_integer(payload.data + e.offset, e.size, e.is_signed);
    case Op::cast: {
      const i64 value = a();
      return element_integer(reinterpret_cast<const u8*>(&value), e.size, e.is_signed);
    }
    case Op::minus:
      return static_cast<i64>(-ua());
    case Op::complement:
      return ~a();
    case Op::negation:
      return a() == 0;
    case Op::add:
      return static_cast<i64>(ua() + ub());
    case Op::subtract:
      return static_cast<i64>(ua() - ub());
    case Op::multiply:
      return static_cast<i64>(ua() * ub());
    case Op::divide:
    case Op::modulo: {
      const i64 x = a(), y = b();
      const bool modulo = e.op == Op::modulo;
      if (y == 0 || (y == -1 && e.is_signed)) return y == 0 || modulo ? 0 : static_cast<i64>(-static_cast<u64>(x));
      if (e.is_signed) return modulo ? x % y : x / y;
      return static_cast<i64>(modulo ? static_cast<u64>(x) % static_cast<u64>(y) : static_cast<u64>(x) / static_cast<u64>(y));
    }
    case Op::bit_and:
      return a() & b();
    case Op::bit_or:
      return a() | b();
    case Op::bit_xor:
      return a() ^ b();
    case Op::left:
      return static_cast<i64>(ua() << (ub() & 63));
    case Op::right:
      return e.is_signed ? a() >> (ub() & 63) : static_cast<i64>(ua() >> (ub() & 63));
    case Op::less:
      return e.is_signed ? a() < b() : ua() < ub();
    case Op::greater:
      return e.is_signed ? a() > b() : ua() > ub();
    case Op::not_greater:
      return e.is_signed ? a() <= b() : ua() <= ub();
    case Op::not_less:
      return e.is_signed ? a() >= b() : ua() >= ub();
    case Op::equal:
      return a() == b();
    case Op::different:
      return a() != b();
    case Op::both:
      return a() != 0 && b() != 0;
    case Op::either:
      return a() != 0 || b() != 0;
    case Op::choice:
      return a() != 0 ? b() : evaluate(*e.c, payload);
  }
  return 0;
}

// Bytes of an integer's type; 0: none that we know.
u32 width_of(std::string_view type, bool& is_signed) {
  const auto has = [&](std::string_view word) { return type.find(word) != std::string_view::npos; };
  is_signed = !has("unsigned") && type.rfind('u', 0) != 0 && type.rfind("__u", 0) != 0;
  if (has("*") || has("size_t")) return 0;
  if (has("64") || has("long")) return 8;
  if (has("32")) return 4;
  if (has("16") || has("short")) return 2;
  if (has("8") || has("char")) return 1;
  return has("int") || type == "unsigned" ? 4 : 0;
}

// Null: something that is left to libtraceevent. All is calculated in 64 bits.
std::unique_ptr<const Expression> compile_number(const tep_print_arg* arg, const EventType& type, int depth = 0) {
  if (arg == nullptr || depth > 32) return nullptr;
  auto e = std::make_unique<Expression>();
  switch (arg->type) {
    case TEP_PRINT_ATOM: {
      const char* text = arg->atom.atom;
      char* end = nullptr;
      e->constant = static_cast<i64>(std::strtoull(text, &end, 0));
      if (end == text) return nullptr;
      return end[std::strspn(end, "uUlL")] == 0 ? std::move(e) : nullptr;
    }
    case TEP_PRINT_FIELD: {
      const Field* field = arg->field.name != nullptr ? type.field(arg->field.name) : nullptr;
      if (field == nullptr || field->kind != FieldKind::integer) return nullptr;
      e->op = Op::field;
      e->offset = field->offset;
      e->size = field->size;
      e->is_signed = field->is_signed;
      return e;
    }
    case TEP_PRINT_TYPE: {
      e->op = Op::cast;
      e->size = width_of(arg->typecast.type != nullptr ? arg->typecast.type : "", e->is_signed);
      e->a = e->size != 0 ? compile_number(arg->typecast.item, type, depth + 1) : nullptr;
      return e->a != nullptr ? std::move(e) : nullptr;
    }
    case TEP_PRINT_OP:
      break;
    default:
      return nullptr;
  }
  const std::string_view name = arg->op.op != nullptr ? arg->op.op : "";
  if (arg->op.left == nullptr || arg->op.left->type == TEP_PRINT_NULL) {  // of one operand
    e->op = name == "-" ? Op::minus : name == "~" ? Op::complement : name == "!" ? Op::negation : Op::constant;
    if (e->op == Op::constant || (e->a = compile_number(arg->op.right, type, depth + 1)) == nullptr) return nullptr;
  } else {
    e->op = operator_of(name);
    if (e->op == Op::constant) return nullptr;
    const tep_print_arg* second = arg->op.right;
    if (e->op == Op::choice) {
      if (second == nullptr || second->type != TEP_PRINT_OP || second->op.op == nullptr || std::strcmp(second->op.op, ":") != 0) return nullptr;
      if ((e->c = compile_number(second->op.right, type, depth + 1)) == nullptr) return nullptr;
      second = second->op.left;
    }
    e->a = compile_number(arg->op.left, type, depth + 1);
    e->b = compile_number(second, type, depth + 1);
    if (e->a == nullptr || e->b == nullptr) return nullptr;
  }
  // Narrower unsigned numbers fit a signed one of 64 bits.
  const auto wide_unsigned = [](const Expression* x) {
    return x != nullptr && !x->is_signed && ((x->op != Op::field && x->op != Op::cast) || x->size == 8);
  };
  e->is_signed = !wide_unsigned(e->a.get()) && !wide_unsigned(e->b.get());
  const auto fixed = [](const Expression* x) { return x == nullptr || x->op == Op::constant; };
  if (fixed(e->a.get()) && fixed(e->b.get()) && fixed(e->c.get())) {
    auto value = std::make_unique<Expression>();
    value->constant = evaluate(*e, {});
    return value;
  }
  return e;
}

const tep_print_arg* without_casts(const tep_print_arg* arg) {
  while (arg->type == TEP_PRINT_TYPE && arg->typecast.item != nullptr) arg = arg->typecast.item;
  return arg;
}

bool compile_argument(const tep_print_arg* arg, const Conversion& conversion, EventType& type, PrintStep& step) {
  const bool plain_text = conversion.letter == 's' && conversion.flags.empty();
  if (arg->type == TEP_PRINT_ATOM && conversion.letter == 's') {
    step.text = arg->atom.atom;
    return plain_text;
  }
  const bool choice = arg->type == TEP_PRINT_OP && arg->op.op != nullptr && std::strcmp(arg->op.op, "?") == 0;
  if (choice && conversion.letter == 's') {
    const tep_print_arg* either = arg->op.right;
    if (either == nullptr || either->type != TEP_PRINT_OP || either->op.op == nullptr || std::strcmp(either->op.op, ":") != 0) return false;
    step.kind = Kind::choice;
    step.value = compile_number(arg->op.left, type);
    step.either.resize(2);
    return plain_text && step.value != nullptr && compile_argument(either->op.left, conversion, type, step.either[0]) &&
           compile_argument(either->op.right, conversion, type, step.either[1]);
  }
  step.width = conversion.width;
  const bool flags = arg->type == TEP_PRINT_FLAGS, symbol = arg->type == TEP_PRINT_SYMBOL;
  const tep_print_arg* number = flags ? arg->flags.field : symbol ? arg->symbol.field : arg;
  static const Field calculated;
  const Field* field = &calculated;
  if (number != nullptr && without_casts(number)->type == TEP_PRINT_OP) {
    if ((step.value = compile_number(number, type)) == nullptr) return false;
  } else {
    const char* name = field_name(arg);
    field = name != nullptr ? type.field(name) : nullptr;
    if (field == nullptr) return false;
    step.field = static_cast<u32>(field - type.fields.data());
  }
  if (flags || symbol) {
    step.kind = flags ? Kind::flags : Kind::symbol;
    step.names = names_of(flags ? arg->flags.flags : arg->symbol.symbols);
    if (flags) step.text = arg->flags.delim != nullptr ? arg->flags.delim : "|";
    if (symbol && step.value == nullptr) type.fields[step.field].symbols = step.names;
    return plain_text;
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
  const std::string& width = conversion.flags;  // often this is all: %03d, %08lx
  if (!width.empty() && width.size() <= 3 && width.find_first_not_of("0123456789") == std::string::npos &&
      std::strchr("diux", conversion.letter) != nullptr && std::atoi(width.c_str()) < 100) {
    step.kind = conversion.letter == 'x' ? Kind::hex : Kind::decimal;
    step.zeros = width[0] == '0';
    step.pad = static_cast<u8>(std::atoi(width.c_str()));
    return true;
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

const PrintStep as_it_is;

// `text` as wide as the step wants it. A minus stands in front of zeros.
void append_padded(std::string_view text, const PrintStep& step, fmt::memory_buffer& out) {
  if (text.size() < step.pad) {
    if (step.zeros && text.front() == '-') {
      out.push_back('-');
      text.remove_prefix(1);
      for (size_t n = text.size() + 1; n < step.pad; ++n) out.push_back('0');
    } else {
      for (size_t n = text.size(); n < step.pad; ++n) out.push_back(step.zeros ? '0' : ' ');
    }
  }
  append(out, text);
}

void append_decimal(i64 value, bool is_signed, fmt::memory_buffer& out, const PrintStep& step = as_it_is) {
  const fmt::format_int text = is_signed ? fmt::format_int(value) : fmt::format_int(static_cast<u64>(value));
  append_padded({text.data(), text.size()}, step, out);
}

void append_base16(u64 value, fmt::memory_buffer& out, const PrintStep& step = as_it_is) {
  char digits[16];
  int n = 16;
  do {
    digits[--n] = "0123456789abcdef"[value & 15];
    value >>= 4;
  } while (value != 0);
  append_padded({digits + n, static_cast<size_t>(16 - n)}, step, out);
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
  const auto control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; };
  if (std::none_of(text.begin(), text.end(), control)) return append(out, text);
  for (const char c : text) {
    if (!control(c))
      out.push_back(c);
    else
      fmt::format_to(std::back_inserter(out), "\\x{:02x}", static_cast<unsigned char>(c));
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
      literal += static_cast<unsigned char>(*s) < 0x20 ? ' ' : *s;
      ++s;
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

namespace {

void run_step(const PrintStep& step, const EventType& type, Bytes payload, fmt::memory_buffer& out) {
  if (step.kind == Kind::literal) return append(out, step.text);
  static const Field none;
  const Field& field = step.value == nullptr ? type.fields[step.field] : none;
  const auto number = [&] { return step.value == nullptr ? read_integer(payload, field) : evaluate(*step.value, payload); };
  switch (step.kind) {
    case Kind::literal:
      break;
    case Kind::decimal:
      append_decimal(narrowed(number(), step), step.is_signed, out, step);
      break;
    case Kind::hex:
      append_base16(static_cast<u64>(narrowed(number(), step)), out, step);
      break;
    case Kind::pointer:
      append(out, "0x");
      append_base16(static_cast<u64>(number()), out);
      break;
    case Kind::character: {
      const char c = static_cast<char>(number());
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
      const i64 value = number();
      if (const std::string* name = symbol_of(step.names, value); name != nullptr) {
        append_text(*name, out);
      } else {
        append(out, "0x");
        append_base16(static_cast<u64>(value), out);
      }
      break;
    }
    case Kind::flags:
      append_flags(step, static_cast<u64>(number()), out);
      break;
    case Kind::list:
      append_list(field, read_array(payload, field), step.text, out);
      break;
    case Kind::bytes:
      append_hex(read_array(payload, field), step.text, out);
      break;
    case Kind::formatted:
      append_formatted(step, narrowed(number(), step), out);
      break;
    case Kind::choice:
      run_step(step.either[evaluate(*step.value, payload) != 0 ? 0 : 1], type, payload, out);
      break;
  }
}

}  // namespace

void run_steps(const EventType& type, Bytes payload, fmt::memory_buffer& out) {
  for (const PrintStep& step : type.steps) run_step(step, type, payload, out);
}

}  // namespace ringside
