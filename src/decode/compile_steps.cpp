#include "decode/compile_steps.hpp"

#include <event-parse.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "decode/operators.hpp"
#include "decode/print_memory.hpp"

namespace ringside {
namespace {

using Kind = PrintStep::Kind;

// One %-conversion of a print fmt.
struct Conversion {
  std::string flags;          // flags, width, precision
  u8 width = 4;               // bytes, by the length modifier
  char letter = 0;            // a and A: %ps and %pS
  std::string memory;         // the letters behind p: the memory at the address
  std::vector<ValueOp> star;  // computes what stands for the * in flags
  bool has_star() const { return flags.find('*') != std::string::npos; }
  // The constant behind `from`; none: -1.
  i32 number(size_t from) const {
    const size_t begin = flags.find_first_not_of("-+ #0", from);
    if (begin == std::string::npos || std::isdigit(static_cast<unsigned char>(flags[begin])) == 0) return -1;
    return static_cast<i32>(std::min<u64>(std::strtoull(flags.c_str() + begin, nullptr, 10), PrintStep::largest_size + 1));
  }
  i32 least_width() const { return number(0); }
  i32 precision() const {
    const size_t dot = flags.find('.');
    return dot == std::string::npos ? -1 : std::max(number(dot + 1), 0);
  }
};

// Reads the conversion at `s` (after the %); null: no step prints it.
const char* read_conversion(const char* s, Conversion& out) {
  const char* start = s;
  while (*s != 0 && std::strchr("-+ #0123456789.*", *s) != nullptr) ++s;
  out.flags.assign(start, s);
  if (std::count(out.flags.begin(), out.flags.end(), '*') > 1 || std::count(out.flags.begin(), out.flags.end(), '.') > 1 ||
      std::max(out.least_width(), out.precision()) > PrintStep::largest_size)
    return nullptr;
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
  ++s;
  if (out.letter != 'p') return s;
  if (*s != 0 && std::strchr("sSfF", *s) != nullptr) {  // an address with its function's name
    out.letter = *s == 's' || *s == 'f' ? 'a' : 'A';
    return s + 1;
  }
  out.memory = memory_form(s);
  return s + out.memory.size();
}

// The bits that a cast keeps of a value: negative with a sign; 0: all.
i64 bits_of(std::string_view type) {
  const bool plain = !type.starts_with("unsigned ");
  if (!plain) type.remove_prefix(9);
  if (type == "u8") return 8;
  if (type == "u16") return 16;
  if (type == "u32") return 32;
  const i64 sign = plain ? -1 : 1;
  if (type == "s8" || type == "char") return sign * 8;
  if (type == "s16" || type == "short") return sign * 16;
  if (type == "s32" || type == "int") return sign * 32;
  return 0;
}

bool is_unsigned_long(std::string_view type) {
  return type.starts_with("unsigned long") || type == "u64" || type == "size_t";
}

std::string_view view(const char* text) { return text != nullptr ? text : ""; }

constexpr u32 most_nodes = 1000;  // in a tree: formats come from anywhere

// Compiles a tree of numbers, which are 64 bits wide and signed, or unsigned where C would have it so (libtraceevent knows no
// signs).
class ValueCompiler {
 public:
  // characters: %c prints it, so an atom like F is a character; libtraceevent drops its quotes.
  explicit ValueCompiler(const EventFormat& type, bool characters = false) : type_(type), characters_(characters) {}
  bool compile(const tep_print_arg* arg, std::vector<ValueOp>& code) {
    const bool done = walk(arg, 0);
    code = std::move(code_);
    return done;
  }

 private:
  using Op = ValueOp::Op;
  bool push(Op op, i64 value = 0, u32 field = 0) {
    code_.push_back({op, field, value});
    return true;
  }
  bool field(const char* name, Op op, size_t depth) {
    const Field* f = name != nullptr ? type_.field(name) : nullptr;
    if (f == nullptr || depth >= ValueOp::deepest) return false;
    const bool located = f->kind == FieldKind::loc_text || f->kind == FieldKind::loc_array;
    if (op == Op::length ? !located : f->kind != FieldKind::integer) return false;
    unsigned_ = op == Op::field && !f->is_signed && f->size == 8;
    return push(op, 0, static_cast<u32>(f - type_.fields.data()));
  }
  bool walk(const tep_print_arg* arg, size_t depth) {
    if (depth >= ValueOp::deepest || arg == nullptr || ++nested_ > most_nodes) return false;
    switch (arg->type) {
      case TEP_PRINT_ATOM: {
        if (const std::string_view atom = arg->atom.atom; characters_ && atom.size() == 1 && std::isdigit(atom[0]) == 0)
          return push(Op::constant, atom[0]);
        errno = 0;  // the kernel's own variables (vmemmap_base) are unknown here: 0, as in libtraceevent
        const i64 value = std::strtoll(arg->atom.atom, nullptr, 0);
        unsigned_ = std::strpbrk(arg->atom.atom, "uU") != nullptr && std::strpbrk(arg->atom.atom, "lL") != nullptr;
        return errno == 0 && push(Op::constant, value);
      }
      case TEP_PRINT_FIELD:
        return field(arg->field.name, Op::field, depth);
      case TEP_PRINT_DYNAMIC_ARRAY_LEN:
        return arg->dynarray.field != nullptr && field(arg->dynarray.field->name, Op::length, depth);
      case TEP_PRINT_TYPE:
        if (!walk(arg->typecast.item, depth)) return false;
        if (view(arg->typecast.type) == kept_type) return true;
        unsigned_ = is_unsigned_long(view(arg->typecast.type));
        return bits_of(view(arg->typecast.type)) == 0 || push(Op::cast, bits_of(view(arg->typecast.type)));
      case TEP_PRINT_OP:
        return operation(arg->op.op, arg->op.left, arg->op.right, depth);
      default:
        return false;
    }
  }
  // array[index], ((type *)array)[index]
  bool element(const tep_print_arg* array, const tep_print_arg* index, size_t depth) {
    std::string_view type;
    for (; array != nullptr && array->type == TEP_PRINT_TYPE; array = array->typecast.item)
      if (type.empty()) type = view(array->typecast.type);
    const char* const name = array == nullptr                        ? nullptr
                             : array->type == TEP_PRINT_FIELD         ? array->field.name
                             : array->type != TEP_PRINT_DYNAMIC_ARRAY ? nullptr
                             : array->dynarray.field == nullptr       ? nullptr
                                                                      : array->dynarray.field->name;
    const Field* const f = name != nullptr ? type_.field(name) : nullptr;
    if (f == nullptr || f->kind == FieldKind::integer || f->kind == FieldKind::floating || f->is_float) return false;
    if (!walk(index, depth)) return false;
    const bool is_signed = f->is_signed || (f->kind == FieldKind::text || f->kind == FieldKind::loc_text);
    i64 size = std::max<u32>(f->element, 1);
    if (is_signed) size = -size;
    const bool pointer = type.ends_with('*');
    while (type.ends_with('*') || type.ends_with(' ')) type.remove_suffix(1);
    const i64 bits = bits_of(type);
    if (pointer && bits != 0) size = bits / 8;
    if (pointer && is_unsigned_long(type)) size = 8;
    unsigned_ = size == 8;
    push(Op::element, size, static_cast<u32>(f - type_.fields.data()));
    return pointer || bits == 0 || push(Op::cast, bits);
  }
  bool operation(const std::string& op, const tep_print_arg* left, const tep_print_arg* right, size_t depth) {
    if (op == "[") return element(left, right, depth);
    if (op == "?") {
      if (right == nullptr || right->type != TEP_PRINT_OP || !walk(left, depth)) return false;
      const size_t skip = code_.size();
      push(Op::jump_if_zero);
      if (!walk(right->op.left, depth)) return false;
      const size_t over = code_.size();
      push(Op::jump);
      code_[skip].value = static_cast<i64>(code_.size() - skip);
      if (!walk(right->op.right, depth)) return false;
      code_[over].value = static_cast<i64>(code_.size() - over);
      return true;
    }
    if (left == nullptr || left->type == TEP_PRINT_NULL) {
      const Op one = op == "!" ? Op::boolean_not : op == "~" ? Op::invert : op == "-" ? Op::negate : Op::jump;
      return (one != Op::jump || op == "+") && walk(right, depth) && (op == "+" || push(one));
    }
    static const std::pair<const char*, Op> two[] = {
        {"+", Op::add},         {"-", Op::subtract},     {"*", Op::multiply},      {"/", Op::divide},   {"%", Op::remainder},
        {"<<", Op::shift_left}, {">>", Op::shift_right}, {"&", Op::bit_and},       {"|", Op::bit_or},   {"^", Op::bit_xor},
        {"&&", Op::both},       {"||", Op::either},      {"==", Op::equal},        {"!=", Op::unequal}, {"<", Op::less},
        {"<=", Op::less_equal}, {">", Op::greater},      {">=", Op::greater_equal}};
    for (const auto& [name, code] : two) {
      if (op != name) continue;
      if (!walk(left, depth)) return false;
      const bool left_unsigned = unsigned_;
      if (!walk(right, depth + 1)) return false;
      const bool shifts = code == Op::shift_left || code == Op::shift_right;
      const bool is_unsigned = left_unsigned || (unsigned_ && !shifts);
      unsigned_ = is_unsigned && code < Op::both;
      return push(code, is_unsigned);
    }
    return false;
  }

  const EventFormat& type_;
  const bool characters_;
  std::vector<ValueOp> code_;
  u32 nested_ = 0;
  bool unsigned_ = false;  // whether the value compiled last is unsigned
};

const char* field_name(const tep_print_arg* arg) {
  switch (arg->type) {
    case TEP_PRINT_FIELD:
      return arg->field.name;
    case TEP_PRINT_STRING:
      return arg->string.string;
    case TEP_PRINT_TYPE:
      return bits_of(view(arg->typecast.type)) == 0 ? field_name(arg->typecast.item) : nullptr;
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
    case TEP_PRINT_BITMASK:
    case TEP_PRINT_CPUMASK:
      return arg->bitmask.bitmask;
    default:
      return nullptr;
  }
}

// libtraceevent keeps the escapes of a string. One event is one line.
std::string unescaped(const char* s) {
  std::string out;
  for (; *s != 0; ++s) {
    const bool escape = *s == '\\' && (s[1] == 'n' || s[1] == '"' || s[1] == '\\');
    s += escape;
    out += escape && *s == 'n' ? ' ' : *s;
  }
  return out;
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
    names.emplace_back(value, unescaped(sym->str));
  }
  return names;
}

// Of __print_array's elements; 0: unknown.
i64 element_size_of(const tep_print_arg* arg) {
  while (arg != nullptr && arg->type == TEP_PRINT_TYPE) arg = arg->typecast.item;
  return arg != nullptr && arg->type == TEP_PRINT_ATOM ? std::strtoll(arg->atom.atom, nullptr, 0) : 0;
}

// Width and filling, where no printf is needed.
bool simple_flags(const std::string& flags, PrintStep& step) {
  size_t at = 0;
  for (; at < flags.size(); ++at) {
    if (flags[at] == '0')
      step.zeros = true;
    else if (flags[at] == '-')
      step.left = true;
    else if (flags[at] == '#')
      step.base = true;
    else
      break;
  }
  if (flags.size() - at > 2 || flags.find_first_not_of("0123456789", at) != std::string::npos) return false;
  step.min_width = at == flags.size() ? 0 : static_cast<u8>(std::stoi(flags.substr(at)));
  return true;
}

bool compile_argument(const tep_print_arg* arg, const Conversion& conversion, EventFormat& type, PrintStep& step);

// cond ? a : b, where a and b are texts.
bool compile_choice(const tep_print_arg* arg, const Conversion& conversion, EventFormat& type, PrintStep& step) {
  const tep_print_arg* ways = arg->op.right;
  if (ways == nullptr || ways->type != TEP_PRINT_OP || !ValueCompiler(type).compile(arg->op.left, step.code)) return false;
  if (step.code.size() == 1 && step.code[0].op == ValueOp::Op::field) {
    step.field = step.code[0].field;
    step.code.clear();
  }
  step.kind = Kind::choice;
  step.then.resize(1);
  step.otherwise.resize(1);
  return compile_argument(ways->op.left, conversion, type, step.then[0]) &&
         compile_argument(ways->op.right, conversion, type, step.otherwise[0]);
}

bool compile_number(const Conversion& conversion, PrintStep& step) {
  step.is_signed = conversion.letter == 'd' || conversion.letter == 'i';
  if (conversion.letter == 'a' || conversion.letter == 'A') {  // without the width, as libtraceevent prints it
    step.kind = Kind::address;
    step.base = conversion.letter == 'A';
    return true;
  }
  if (conversion.letter == 'p') {
    step.kind = Kind::pointer;
    return true;
  }
  if (std::strchr("diux", conversion.letter) != nullptr && simple_flags(conversion.flags, step)) {
    step.kind = conversion.letter == 'x' ? Kind::hex : Kind::decimal;
    return true;
  }
  if (!conversion.flags.empty() || conversion.letter == 'X' || conversion.letter == 'o') {
    step.min_width = 0;
    step.kind = Kind::formatted;
    step.text = "%" + conversion.flags + (conversion.letter == 'c' ? "" : "ll") + conversion.letter;
    return true;
  }
  step.kind = Kind::character;
  return conversion.letter == 'c';
}

// Width and precision of a text. libtraceevent gives them to each name of __print_flags and __print_symbolic.
void size_text(const Conversion& conversion, PrintStep& step) {
  step.left = conversion.flags.find('-') < conversion.flags.find('.');
  step.min_width = static_cast<u8>(std::max(conversion.least_width(), 0));
  step.precision = conversion.precision();
  step.limits = conversion.flags.find(".*") != std::string::npos;
}

// %pU of a field, and its kin.
bool compile_memory(const tep_print_arg* arg, const Conversion& conversion, const EventFormat& type, PrintStep& step) {
  while (arg->type == TEP_PRINT_TYPE) arg = arg->typecast.item;
  if (arg->type != TEP_PRINT_FIELD && arg->type != TEP_PRINT_DYNAMIC_ARRAY) return false;
  const char* const name = field_name(arg);
  const Field* const field = name != nullptr ? type.field(name) : nullptr;
  if (field == nullptr) return false;
  step.kind = Kind::memory;
  step.field = static_cast<u32>(field - type.fields.data());
  step.text = conversion.memory;
  const bool counts = conversion.memory[0] == 'h' || conversion.memory[0] == 'b';  // the width is no width
  if (!counts) step.star.clear();
  if (counts && !conversion.has_star()) step.star = {{ValueOp::Op::constant, 0, std::max(conversion.least_width(), 1)}};
  return true;
}

bool compile_argument(const tep_print_arg* arg, const Conversion& conversion, EventFormat& type, PrintStep& step) {
  step.width = conversion.width;
  step.star = conversion.star;
  if (!conversion.memory.empty()) return compile_memory(arg, conversion, type, step);
  if (conversion.letter == 's') size_text(conversion, step);
  if (conversion.letter == 's' && arg->type == TEP_PRINT_OP && std::strcmp(arg->op.op, "?") == 0)
    return compile_choice(arg, conversion, type, step);
  const tep_print_arg* const uncast = arg->type == TEP_PRINT_TYPE ? arg->typecast.item : arg;
  if (conversion.letter == 's' && uncast != nullptr && uncast->type == TEP_PRINT_ATOM) {
    step.kind = conversion.flags.empty() ? Kind::literal : Kind::constant;
    if (uncast == arg) step.text = arg->atom.atom;  // else (void *)0
    return true;
  }
  if (conversion.letter == 's' && (arg->type == TEP_PRINT_BITMASK || arg->type == TEP_PRINT_CPUMASK)) {
    const Field* const mask = arg->bitmask.bitmask != nullptr ? type.field(arg->bitmask.bitmask) : nullptr;
    if (mask == nullptr || !conversion.flags.empty()) return false;
    step.kind = arg->type == TEP_PRINT_BITMASK ? Kind::bitmap : Kind::bit_ranges;
    step.field = static_cast<u32>(mask - type.fields.data());
    return true;
  }
  const char* name = field_name(arg);
  const Field* field = name != nullptr ? type.field(name) : nullptr;
  if (arg->type == TEP_PRINT_SYMBOL || arg->type == TEP_PRINT_FLAGS) {
    const bool flags = arg->type == TEP_PRINT_FLAGS;
    step.kind = flags ? Kind::flags : Kind::symbol;
    step.names = names_of(flags ? arg->flags.flags : arg->symbol.symbols);
    if (flags) step.text = arg->flags.delim != nullptr ? arg->flags.delim : "|";
    if (field == nullptr && !ValueCompiler(type).compile(flags ? arg->flags.field : arg->symbol.field, step.code)) return false;
    if (field != nullptr) step.field = static_cast<u32>(field - type.fields.data());
    if (field != nullptr && !flags) type.fields[step.field].symbols = step.names;
    return conversion.letter == 's';
  }
  if (field == nullptr)
    return std::strchr("sfFgGeE", conversion.letter) == nullptr &&
           ValueCompiler(type, conversion.letter == 'c').compile(arg, step.code) && compile_number(conversion, step);
  step.field = static_cast<u32>(field - type.fields.data());
  switch (field->kind) {
    case FieldKind::text:
    case FieldKind::loc_text:
      step.kind = Kind::text;
      return conversion.letter == 's';
    case FieldKind::array:
    case FieldKind::loc_array:
      step.kind = arg->type == TEP_PRINT_HEX || arg->type == TEP_PRINT_HEX_STR ? Kind::bytes : Kind::list;
      if (arg->type == TEP_PRINT_HEX || arg->type == TEP_PRINT_INT_ARRAY) step.text = " ";
      step.width = static_cast<u8>(field->element);
      if (arg->type == TEP_PRINT_INT_ARRAY) {
        const i64 size = element_size_of(arg->int_array.el_size);
        if (size == 1 || size == 2 || size == 4 || size == 8) step.width = static_cast<u8>(size);
      }
      if (const tep_print_arg* count = arg->type == TEP_PRINT_INT_ARRAY ? arg->int_array.count
                                       : step.kind == Kind::bytes       ? arg->hex.size
                                                                        : nullptr;
          count != nullptr && !ValueCompiler(type).compile(count, step.code))
        return false;
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
  if (conversion.letter == 's') {
    step.kind = Kind::kernel_text;
    return field->kind == FieldKind::integer && field->size == 8;
  }
  if (field->kind == FieldKind::floating) {
    if (conversion.has_star()) return false;
    if (!conversion.flags.empty() && std::strchr("fFgGeE", conversion.letter) != nullptr) {
      step.text = "%" + conversion.flags + conversion.letter;
    }
    return true;
  }
  if (std::strchr("fFgGeE", conversion.letter) != nullptr) return false;
  return compile_number(conversion, step);
}

// libtraceevent knows no floating point, so formats print its bits as 0x%llx; the number is printed here, without the 0x.
void drop_hex_sign(std::vector<PrintStep>& steps) {
  if (steps.empty() || steps.back().kind != Kind::literal) return;
  std::string& text = steps.back().text;
  if (text.size() >= 2 && text.compare(text.size() - 2, 2, "0x") == 0) text.resize(text.size() - 2);
}

void make_line(EventFormat& type) {
  type.line = {};
  for (u32 n = 0; n < type.steps.size(); ++n) {
    const PrintStep& step = type.steps[n];
    using Form = LineTemplate::Number::Form;
    const bool hex = step.kind == Kind::hex, pointer = step.kind == Kind::pointer,
               zeros = hex && step.zeros && !step.left && step.min_width <= 16,
               plain = step.code.empty() && ((hex && !step.base) || pointer || step.kind == Kind::decimal) &&
                       (step.min_width == 0 || zeros);
    if (step.kind == Kind::literal)
      type.line.literal(step.text);
    else if (const Field* const field = plain ? &type.fields[step.field] : nullptr; field != nullptr)
      type.line.number({field->offset, static_cast<u8>(field->size), pointer ? u8{8} : step.width, field->is_signed,
                        step.is_signed,
                        hex       ? Form::hex
                        : pointer ? Form::pointer
                                  : Form::decimal,
                        step.min_width});
    else
      type.line.other(n);
  }
}

}  // namespace

bool compile_steps(const tep_event& event, EventFormat& type) {
  if (event.print_fmt.format == nullptr) return false;
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
    if (*s == '\\' && s[1] != 0) {
      literal += s[1] == 'n' || s[1] == 't' || s[1] == 'r' ? ' ' : s[1];  // one event is one line
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
      if (s == nullptr || arg == nullptr) return false;
      if (conversion.has_star()) {
        if (!ValueCompiler(type).compile(arg, conversion.star)) return false;
        arg = arg->next;
      }
      if (arg == nullptr || !compile_argument(arg, conversion, type, step)) return false;
      if (step.kind == Kind::floating && conversion.letter == 'x') drop_hex_sign(steps);
      steps.push_back(std::move(step));
      arg = arg->next;
    }
  }
  flush();
  if (steps.empty()) steps.emplace_back();  // it prints nothing
  type.steps = std::move(steps);
  make_line(type);
  return true;
}

void default_steps(EventFormat& type) {
  type.by_fields = true;
  type.steps.clear();
  for (u32 i = 0; i < type.fields.size(); ++i) {
    const Field& field = type.fields[i];
    PrintStep name, value;
    name.text = (i != 0 ? " " : "") + field.name + "=";
    value.field = i;
    value.is_signed = field.is_signed;
    if (field.element != 0) value.width = static_cast<u8>(field.element);
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
  make_line(type);
}

}  // namespace ringside
