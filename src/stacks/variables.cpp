#include "stacks/variables.hpp"

#include <dwarf.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "sys/text.hpp"
#include "sys/try.hpp"
#include "text/words.hpp"

namespace ringside {
namespace {

constexpr u32 deepest_type = 16, most_hops = 64;
constexpr u64 most_elements = 64;       // of an array: the kernel's
constexpr u64 farthest = u64{1} << 40;  // from an address: an offset in a text for the kernel

tl::unexpected<Error> no(const std::string& sentence) { return refuse(std::errc::invalid_argument, sentence); }

bool has_tag(const std::optional<Dwarf_Die>& die, std::initializer_list<int> tags) {
  if (!die) return false;
  Dwarf_Die copy = *die;
  return std::find(tags.begin(), tags.end(), dwarf_tag(&copy)) != tags.end();
}
bool is_pointer(const std::optional<Dwarf_Die>& type) { return has_tag(type, {DW_TAG_pointer_type}); }
bool is_reference(const std::optional<Dwarf_Die>& type) {
  return has_tag(type, {DW_TAG_reference_type, DW_TAG_rvalue_reference_type});
}
bool is_class(const std::optional<Dwarf_Die>& type) {
  return has_tag(type, {DW_TAG_structure_type, DW_TAG_class_type, DW_TAG_union_type});
}
bool is_array(const std::optional<Dwarf_Die>& type) { return has_tag(type, {DW_TAG_array_type}); }

bool is_width(u64 size) { return size == 1 || size == 2 || size == 4 || size == 8; }

}  // namespace

// ---- Entries.

bool Variables::readable(const Dwarf_Die& die, u64 times) {
  const u64 weight = judge_.weight(die.cu);
  return weight != 0 && budget_.step(times * weight);
}

bool Variables::attribute(Dwarf_Die die, unsigned which, Dwarf_Attribute& out) {
  for (u32 hops = 0; hops < 8 && readable(die); ++hops) {
    if (dwarf_attr(&die, which, &out) != nullptr) return true;
    Dwarf_Attribute origin;
    Dwarf_Die next;
    if ((dwarf_attr(&die, DW_AT_abstract_origin, &origin) == nullptr &&
         dwarf_attr(&die, DW_AT_specification, &origin) == nullptr) ||
        dwarf_formref_die(&origin, &next) == nullptr)
      return false;
    die = next;
  }
  return false;
}

std::string Variables::name_of(const Dwarf_Die& die) {
  Dwarf_Attribute name;
  const char* const text = attribute(die, DW_AT_name, name) ? dwarf_formstring(&name) : nullptr;
  return text != nullptr ? sys::shown_name(sys::name_at(text)) : "";
}

std::optional<u64> Variables::number_of(const Dwarf_Die& die, unsigned which) {
  Dwarf_Attribute number;
  Dwarf_Word value = 0;
  if (!attribute(die, which, number) || dwarf_formudata(&number, &value) != 0) return std::nullopt;
  return value;
}

Variables::Type Variables::type_of(const Dwarf_Die& die) {
  Dwarf_Attribute type;
  Dwarf_Die out;
  if (!attribute(die, DW_AT_type, type) || dwarf_formref_die(&type, &out) == nullptr) return std::nullopt;
  return out;
}

Variables::Type Variables::plain(Type type) {
  for (u32 hops = 0; hops < most_hops; ++hops) {
    if (!has_tag(type, {DW_TAG_typedef, DW_TAG_const_type, DW_TAG_volatile_type, DW_TAG_restrict_type, DW_TAG_atomic_type}))
      return type;
    type = type_of(*type);
  }
  return std::nullopt;
}

std::string Variables::type_name(Type type, u32 depth) {
  if (!type) return "void";
  if (depth > deepest_type) return "...";
  const std::string name = name_of(*type);
  const auto inner = [&] { return type_name(type_of(*type), depth + 1); };
  const auto beside = [&](const char* mark) {
    std::string text = inner();
    return text + (text.ends_with('*') || text.ends_with('&') ? "" : " ") + mark;
  };
  switch (dwarf_tag(&*type)) {
    case DW_TAG_pointer_type:
      return beside("*");
    case DW_TAG_reference_type:
      return beside("&");
    case DW_TAG_rvalue_reference_type:
      return beside("&&");
    case DW_TAG_const_type: {
      const Type of = type_of(*type);
      const std::string text = inner();
      return is_pointer(of) ? text + "const" : "const " + text;
    }
    case DW_TAG_volatile_type:
      return "volatile " + inner();
    case DW_TAG_restrict_type:
      return inner();
    case DW_TAG_atomic_type:
      return "_Atomic " + inner();
    case DW_TAG_array_type: {
      std::string text = inner();
      for (const u64 count : counts_of(*type)) text += count != 0 ? fmt::format("[{}]", count) : "[]";
      return text;
    }
    case DW_TAG_structure_type:
      return "struct " + (name.empty() ? "{...}" : name);
    case DW_TAG_union_type:
      return "union " + (name.empty() ? "{...}" : name);
    case DW_TAG_enumeration_type:
      return "enum " + (name.empty() ? "{...}" : name);
    case DW_TAG_subroutine_type:
      return inner() + " (...)";
    default:
      return name.empty() ? "?" : name;
  }
}

bool Variables::is_char(const Type& type) {
  const Type bare = plain(type);
  if (!has_tag(bare, {DW_TAG_base_type}) || size_of(bare) != 1) return false;
  const auto encoding = number_of(*bare, DW_AT_encoding);
  return encoding && (*encoding == DW_ATE_signed_char || *encoding == DW_ATE_unsigned_char) &&
         name_of(*bare).find("char") != std::string::npos;
}

// A pointer to plain characters, or an array of them.
bool Variables::is_text(const Type& type) {
  if (!is_pointer(type) && !is_array(type)) return false;
  const Type of = type_of(*type);
  return is_char(of) && name_of(*plain(of)) == "char";
}

bool Variables::is_signed(const Dwarf_Die& die) {
  const auto encoding = number_of(die, DW_AT_encoding);
  return encoding && (*encoding == DW_ATE_signed || *encoding == DW_ATE_signed_char);
}

std::vector<u64> Variables::counts_of(const Dwarf_Die& array) {
  std::vector<u64> counts;
  judge_.each_child(array, [&](Dwarf_Die& child) {
    if (dwarf_tag(&child) != DW_TAG_subrange_type) return true;
    const auto count = number_of(child, DW_AT_count), last = number_of(child, DW_AT_upper_bound);
    counts.push_back(count ? *count : last ? *last + 1 : 0);
    return counts.size() < deepest_type;
  });
  return counts;
}

void Variables::note(std::vector<std::string>& names, const std::string& name) {
  if (budget_.take(64 + name.size())) names.push_back(name);
}

// In bytes; 0: unknown.
u64 Variables::size_of(const Type& type, u32 depth) {
  const Type bare = plain(type);
  if (!bare || depth > deepest_type) return 0;
  if (const auto size = number_of(*bare, DW_AT_byte_size)) return *size;
  if (is_pointer(bare) || is_reference(bare)) return 8;
  if (!is_array(bare)) return 0;
  u64 size = size_of(type_of(*bare), depth + 1);
  for (const u64 count : counts_of(*bare)) size = size != 0 && count < farthest / size ? count * size : 0;
  return size;
}

// use(variable): whether to go on. The variables are those of the function and of its blocks around the instruction.
template <class Use>
void Variables::each_variable(const Dwarf_Die& parent, u32 depth, const Use& use) {
  judge_.each_child(parent, [&](Dwarf_Die& child) {
    const int tag = dwarf_tag(&child);
    if (tag == DW_TAG_formal_parameter || tag == DW_TAG_variable) return use(child);
    if (tag != DW_TAG_lexical_block || depth == deepest_type) return true;
    bool inside = false;
    Dwarf_Addr base = 0, begin = 0, end = 0;
    for (ptrdiff_t at = 0; budget_.step(4) && (at = dwarf_ranges(&child, at, &base, &begin, &end)) > 0;)
      inside = inside || (place_.address >= begin && place_.address < end);
    if (inside) each_variable(child, depth + 1, use);
    return true;
  });
}

// ---- Places.

std::string Variables::Where::text() const {
  if (!in_memory) return base;
  if (base.empty()) return fmt::format("@+{}", offset);
  return fmt::format("{}{}({})", offset < 0 ? "-" : "+", offset < 0 ? -offset : offset, base);
}

std::string Variables::register_of(u64 number) const {
  if (machine_ == Machine::arm64) return number < 31 ? fmt::format("%x{}", number) : number == 31 ? "%sp" : "";
  constexpr const char* names[] = {"%ax", "%dx", "%cx",  "%bx",  "%si",  "%di",  "%bp",  "%sp",
                                   "%r8", "%r9", "%r10", "%r11", "%r12", "%r13", "%r14", "%r15"};
  return number < std::size(names) ? names[number] : "";
}

result<Variables::Where> Variables::where_is(const Dwarf_Die& variable, const std::string& name) {
  Dwarf_Attribute location;
  if (!attribute(variable, DW_AT_location, location))
    return no(name + " has no place at this instruction: the compiler optimised it out");
  if (!judge_.may_read_location(location))
    return no("the places of " + name + " would take more memory or time than a file of this size may");
  Dwarf_Block block;
  const bool is_fixed = dwarf_formblock(&location, &block) == 0;
  Dwarf_Op* code = nullptr;
  size_t count = 0;
  if (dwarf_getlocation_addr(&location, place_.address, &code, &count, 1) != 1 || count == 0)
    return no(name + " has no place at this instruction: the compiler optimised it out" +
              (place_.offset == 0 ? ", or its value comes later" : ""));
  return place_of(code, count, is_fixed, variable, name);
}

result<Variables::Where> Variables::place_of(const Dwarf_Op* code, size_t count, bool is_fixed, const Dwarf_Die& variable,
                                             const std::string& name) {
  const auto strange = [&](const char* why) { return no(name + " is " + why + " here, which the kernel cannot fetch"); };
  const u8 op = code[0].atom;
  Where where{true, "", 0};
  if (op >= DW_OP_reg0 && op <= DW_OP_reg31)
    where = {false, register_of(op - DW_OP_reg0)};
  else if (op == DW_OP_regx)
    where = {false, register_of(code[0].number)};
  else if (op >= DW_OP_breg0 && op <= DW_OP_breg31)
    where = {true, register_of(op - DW_OP_breg0), static_cast<i64>(code[0].number)};
  else if (op == DW_OP_bregx)
    where = {true, register_of(code[0].number), static_cast<i64>(code[0].number2)};
  else if (op == DW_OP_fbreg)
    where = RS_TRY(from_frame(static_cast<i64>(code[0].number), is_fixed, variable, name));
  else if (op == DW_OP_addr)
    where.offset = static_cast<i64>(code[0].number + place_.to_file);
  else
    return strange("computed");
  if (where.base.empty() && op != DW_OP_addr) return strange("in a register that holds no integers");
  for (size_t i = 1; i < count; ++i) {
    switch (code[i].atom) {
      case DW_OP_deref:
        if (!where.in_memory) return strange("computed");
        where = where.pointed();
        break;
      case DW_OP_plus_uconst:
        where.offset += static_cast<i64>(std::min<u64>(code[i].number, farthest));
        break;
      case DW_OP_stack_value:
        if (where.in_memory && where.offset == 0 && !where.base.empty() && i + 1 == count) return Where{false, where.base};
        return strange("computed");
      case DW_OP_piece:
      case DW_OP_bit_piece:
        return strange("in several places");
      default:
        return strange("computed");
    }
  }
  return where;
}

// In the function's frame. Before the first instruction it is not made yet: what its caller has put on the stack is there, and
// what the function will put into its frame is still where it was passed.
result<Variables::Where> Variables::from_frame(i64 offset, bool is_fixed, const Dwarf_Die& variable, const std::string& name) {
  const std::string stack = register_of(machine_ == Machine::arm64 ? 31 : 7);
  Dwarf_Attribute base;
  Dwarf_Op* code = nullptr;
  size_t count = 0;
  if (!attribute(function_, DW_AT_frame_base, base) || !judge_.may_read_location(base) ||
      dwarf_getlocation_addr(&base, place_.address, &code, &count, 1) != 1 || count != 1)
    return no("the frame of " + name + "'s function cannot be found");
  const u8 op = code[0].atom;
  const auto is_far = [](i64 bytes) { return bytes > static_cast<i64>(farthest) || bytes < -static_cast<i64>(farthest); };
  if (is_far(offset) || (op >= DW_OP_breg0 && op <= DW_OP_breg31 && is_far(static_cast<i64>(code[0].number))))
    return no(name + " is farther away than any frame is large");
  const bool is_cfa = op == DW_OP_call_frame_cfa;
  const bool is_pointer = op == (machine_ == Machine::arm64 ? DW_OP_reg29 : DW_OP_reg6);
  const bool is_stack_pointer = op == (machine_ == Machine::arm64 ? DW_OP_reg31 : DW_OP_reg7);
  const i64 of_call = machine_ == Machine::arm64 ? 0 : 8;  // the return address
  if (place_.offset == 0 && (is_cfa || is_pointer || is_stack_pointer)) {
    const i64 from_cfa = is_cfa ? offset : offset - 8 - of_call;
    // Clang's frames without a frame pointer: how far the stack pointer moves until the frame is made is not said.
    if (!is_stack_pointer && from_cfa >= 0) return Where{true, stack, from_cfa + of_call};
    return is_fixed ? as_passed(variable, name) : no(name + " has no value yet at the function's first instruction");
  }
  if (op >= DW_OP_reg0 && op <= DW_OP_reg31) return Where{true, register_of(op - DW_OP_reg0), offset};
  if (op >= DW_OP_breg0 && op <= DW_OP_breg31)
    return Where{true, register_of(op - DW_OP_breg0), static_cast<i64>(code[0].number) + offset};
  return no(name +
            " is in the function's frame, which only its tables find at this instruction: probe the function's first one");
}

Variables::Class Variables::passed_as(const Type& type) {
  const Type bare = plain(type);
  const u64 size = size_of(bare);
  if (is_pointer(bare) || is_reference(bare) || has_tag(bare, {DW_TAG_enumeration_type})) return Class::integer;
  if (has_tag(bare, {DW_TAG_base_type})) {
    const u64 encoding = number_of(*bare, DW_AT_encoding).value_or(0);
    if (encoding == DW_ATE_float) return size <= 8 ? Class::real : machine_ == Machine::arm64 ? Class::real : Class::memory;
    return is_width(size) && encoding != DW_ATE_complex_float ? Class::integer : Class::unknown;
  }
  if (!is_class(bare)) return Class::unknown;
  const u64 convention = number_of(*bare, DW_AT_calling_convention).value_or(0);
  Dwarf_Die unit;
  const int language = dwarf_cu_die(function_.cu, &unit, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr) != nullptr
                           ? dwarf_srclang(&unit)
                           : -1;
  const bool is_c = language == DW_LANG_C || language == DW_LANG_C89 || language == DW_LANG_C99 || language == DW_LANG_C11;
  if (convention == DW_CC_pass_by_reference) return Class::by_reference;
  if (convention != DW_CC_pass_by_value && !is_c) return Class::unknown;
  if (size <= 16) return Class::unknown;  // in registers, by its members
  return machine_ == Machine::arm64 ? Class::by_reference : Class::memory;
}

// By the machine's convention of calls, for a parameter that has its place in the frame, which is not made yet.
result<Variables::Where> Variables::as_passed(const Dwarf_Die& variable, const std::string& name) {
  const auto unknown = [&] {
    return no(name +
              " has no value yet at the function's first instruction, and how it is passed is not known: name an "
              "instruction that comes later, FUNCTION+OFFSET");
  };
  constexpr u64 x86_order[] = {5, 4, 1, 2, 8, 9};
  const u64 most = machine_ == Machine::arm64 ? 8 : std::size(x86_order);
  const Type back = type_of(function_);
  const Class of_result = back ? passed_as(back) : Class::integer;
  const bool by_hidden = of_result == Class::memory || of_result == Class::by_reference;
  u64 used = by_hidden && is_class(plain(back)) && machine_ == Machine::x86_64 ? 1 : 0;
  if (of_result == Class::unknown && is_class(plain(back)) && size_of(back) > 16) return unknown();
  std::optional<Where> found;
  bool known = true, real = false;
  judge_.each_child(function_, [&](Dwarf_Die& child) {
    if (dwarf_tag(&child) != DW_TAG_formal_parameter) return true;
    const Class its = passed_as(type_of(child));
    const bool is_it = child.addr == variable.addr;
    known = its != Class::unknown;
    const bool takes_one = its == Class::integer || its == Class::by_reference;
    if (is_it && takes_one && used < most) {
      const std::string where = register_of(machine_ == Machine::arm64 ? used : x86_order[used]);
      found = Where{its == Class::by_reference, where, 0};
    }
    real = is_it && its == Class::real;
    used += takes_one ? 1 : 0;
    return known && !is_it;
  });
  if (real) return no(name + " is in a register of real numbers here, which the kernel cannot fetch");
  return found && known ? result<Where>(*found) : unknown();
}

// ---- Values.

result<Variables::Value> Variables::variable(const std::string& name) {
  std::optional<Dwarf_Die> found;
  std::vector<std::string> names;
  each_variable(function_, 0, [&](Dwarf_Die& die) {
    const std::string its = name_of(die);
    if (its == name) found = die;  // the innermost
    if (!its.empty()) note(names, its);
    return true;
  });
  if (!found) {
    return refuse(std::errc::no_such_file_or_directory,
                  "it has no variable " + in_quotes(name) + " in sight here" +
                      (names.empty() ? "; it has none at all" : "; there are: " + short_list(names)));
  }
  return Value{RS_TRY(where_is(*found, name)), type_of(*found)};
}

result<Variables::Value> Variables::returned() {
  if (!place_.at_return) return no("$ret is there at a function's end alone: FUNCTION%return($ret)");
  const Type type = type_of(function_), bare = plain(type);
  if (!type) return no("it returns nothing");
  if (!is_class(bare)) {
    const u64 encoding = has_tag(bare, {DW_TAG_base_type}) ? number_of(*bare, DW_AT_encoding).value_or(0) : 0;
    if (encoding == DW_ATE_float) return no("it returns a real number, in a register that the kernel cannot fetch");
    return Value{{false, "$retval"}, type};
  }
  const Class as = passed_as(type);
  if (machine_ == Machine::x86_64 && (as == Class::memory || as == Class::by_reference))
    return Value{{true, "$retval", 0}, type};  // its address is returned
  return no("it returns " + type_name(type) + " in registers, which the kernel cannot fetch");
}

result<Variables::Value> Variables::pointed(const Value& value, const std::string& shown) {
  const Type bare = plain(value.type);
  if (is_array(bare) && counts_of(*bare).size() > 1)
    return no(shown + " has several dimensions: its elements have no place of their own here");
  if (is_array(bare)) return Value{value.where, type_of(*bare)};
  if (!is_pointer(bare) && !is_reference(bare)) return no(shown + " is " + type_name(value.type) + ", and no pointer");
  return Value{value.where.pointed(), type_of(*bare)};
}

// Also of the unnamed structs and unions in it, and of the classes that it is derived from. names: of all members.
bool Variables::find_member(const Dwarf_Die& of, const std::string& name, Value& value, std::vector<std::string>& names,
                            u32 depth) {
  bool found = false;
  judge_.each_child(of, [&](Dwarf_Die& child) {
    const int tag = dwarf_tag(&child);
    if (tag != DW_TAG_member && tag != DW_TAG_inheritance) return true;
    const std::string its = tag == DW_TAG_member ? name_of(child) : "";
    const Type type = type_of(child);
    const bool is_part = its.empty() && is_class(plain(type));
    if (!its.empty()) note(names, its);
    if (its != name && !is_part) return true;
    Dwarf_Attribute location;
    const bool is_static = dwarf_hasattr(&child, DW_AT_external) != 0;
    const bool has_location = attribute(child, DW_AT_data_member_location, location);
    Dwarf_Word offset = 0;
    if (is_static || (has_location && dwarf_formudata(&location, &offset) != 0) || offset > farthest) return true;
    Value inner = value;
    inner.where.offset += static_cast<i64>(offset);
    inner.type = type;
    if (is_part) {
      found = depth < deepest_type && find_member(*plain(type), name, inner, names, depth + 1);
      if (found) value = inner;
      return !found;
    }
    if (const auto bits = number_of(child, DW_AT_bit_size)) {
      const u64 unit = 8 * size_of(type);
      const auto old = number_of(child, DW_AT_bit_offset);  // from the highest bit
      const u64 first = number_of(child, DW_AT_data_bit_offset).value_or(0);
      if (!is_width(unit / 8) || *bits > unit || (old && *old + *bits > unit)) return true;
      inner.bits = {*bits, old ? unit - *old - *bits : first % unit, unit};
      if (!old) inner.where.offset += static_cast<i64>(std::min(first / unit, farthest) * (unit / 8));
    }
    value = inner;
    found = true;
    return false;
  });
  return found;
}

result<Variables::Value> Variables::member(const Value& of, const std::string& name, const std::string& shown) {
  Value value = of;
  if (is_reference(plain(value.type))) value = RS_TRY(pointed(value, shown));
  const Type bare = plain(value.type);
  if (is_pointer(bare)) return no(shown + " is a pointer, " + type_name(of.type) + ": write " + shown + "->" + name);
  if (!is_class(bare)) return no(shown + " is " + type_name(of.type) + " and has no members");
  if (dwarf_hasattr(const_cast<Dwarf_Die*>(&*bare), DW_AT_declaration) != 0)
    return no(type_name(bare) + " is declared here and defined in another file, so its members are not known");
  if (!value.where.in_memory) return no(shown + " is in a register as a whole, which the kernel cannot take apart");
  std::vector<std::string> names;
  if (find_member(*bare, name, value, names, 0)) return value;
  return refuse(std::errc::no_such_file_or_directory, type_name(bare) + " has no member " + in_quotes(name) +
                                                          " with a place of its own; it has: " + short_list(names));
}

result<std::string> Variables::fetched(const Value& value, const std::string& asked, const std::string& shown) {
  Value its = value;
  if (is_reference(plain(its.type))) its = RS_TRY(pointed(its, shown));
  const Type bare = plain(its.type);
  const auto with = [&](const Where& where, const std::string& type) -> result<std::string> {
    return where.text() + ":" + type;
  };
  const bool in_characters = asked == "string" || asked == "ustring" || (asked.empty() && is_text(bare));
  if (in_characters) {
    const std::string type = asked.empty() ? "string" : asked;
    return is_array(bare) && its.where.in_memory ? with(its.where, type) : with(its.where.pointed(), type);
  }
  if (!asked.empty()) return with(its.where, asked);
  if (its.bits.size != 0) {
    Where where = its.where;
    where.offset += static_cast<i64>(its.bits.offset / 8);
    const bool whole = is_width(its.bits.size / 8) && its.bits.size % 8 == 0 && its.bits.offset % 8 == 0;
    const std::string bits = fmt::format("b{}@{}/{}", its.bits.size, its.bits.offset, its.bits.of);
    if (!is_signed(*bare)) return with(its.where, bits);
    if (whole) return with(where, fmt::format("s{}", its.bits.size));
    return no(shown + " is a signed bit-field, and the kernel reads bit-fields as unsigned; its bits: " + shown + ":" + bits);
  }
  if (is_pointer(bare)) return with(its.where, "x64");
  const auto scalar = [&](const Type& type) -> std::string {
    const Type one = plain(type);
    const u64 size = size_of(one);
    if (is_pointer(one)) return "x64";
    if (!has_tag(one, {DW_TAG_base_type, DW_TAG_enumeration_type}) || !is_width(size)) return "";
    const u64 encoding = number_of(*one, DW_AT_encoding).value_or(DW_ATE_unsigned);
    if (encoding == DW_ATE_float || encoding == DW_ATE_complex_float) return "";
    return (is_signed(*one) ? "s" : "u") + std::to_string(8 * size);
  };
  if (is_array(bare)) {
    const std::string type = scalar(type_of(*bare));
    const u64 each = size_of(type_of(*bare)), count = each != 0 ? size_of(bare) / each : 0;
    if (type.empty()) return no(shown + " is " + type_name(its.type) + ": name an element, " + shown + "[0]");
    if (count == 0 || count > most_elements)
      return no(shown + " is " + type_name(its.type) + ", and the kernel fetches 1 to 64 elements: name one, " + shown + "[0]");
    return with(its.where, fmt::format("{}[{}]", type, count));
  }
  if (is_class(bare)) {
    std::vector<std::string> names;
    Value none = its;
    (void)find_member(*bare, "", none, names, 0);
    return no(shown + " is " + type_name(its.type) + ": name a member, " + shown + ".MEMBER; it has: " + short_list(names));
  }
  const std::string type = scalar(bare);
  if (!type.empty()) return with(its.where, type);
  return no(
      shown + " is " + type_name(its.type) + ", which the kernel cannot fetch" +
      (its.where.in_memory && is_width(size_of(bare)) ? fmt::format("; its bits: {}:x{}", shown, 8 * size_of(bare)) : ""));
}

result<std::string> Variables::fetch(const VariablePath& path, const std::string& type) {
  if (place_.at_return && path.variable != "$ret")
    return no("at its end a function has $ret alone, as its variables are gone: record its beginning, too");
  Value value = RS_TRY(path.variable == "$ret" ? returned() : variable(path.variable));
  std::string shown = path.variable;
  for (const VariablePath::Step& step : path.steps) {
    switch (step.kind) {
      case VariablePath::Step::dot:
        value = RS_TRY(member(value, step.member, shown));
        shown += "." + step.member;
        break;
      case VariablePath::Step::arrow:
        value = RS_TRY(member(RS_TRY(pointed(value, shown)), step.member, shown));
        shown += "->" + step.member;
        break;
      case VariablePath::Step::star:
        value = RS_TRY(pointed(value, shown));
        shown = "*" + shown;
        break;
      case VariablePath::Step::index: {
        Value first = RS_TRY(pointed(value, shown));
        const u64 size = size_of(first.type);
        if (size == 0) return no(shown + " is " + type_name(value.type) + ", of elements whose size is not known");
        if (step.number > farthest / size) return no(shown + " has no such element");
        first.where.offset += static_cast<i64>(step.number * size);
        value = first;
        shown += fmt::format("[{}]", step.number);
        break;
      }
    }
    if (value.where.offset > static_cast<i64>(farthest) || value.where.offset < -static_cast<i64>(farthest))
      return no(shown + " is too far from where it begins");
  }
  return fetched(value, type, shown);
}

std::vector<Variables::Known> Variables::all() {
  std::vector<Known> out;
  each_variable(function_, 0, [&](Dwarf_Die& die) {
    Known known{name_of(die), type_name(type_of(die)), "", "", dwarf_tag(&die) == DW_TAG_formal_parameter};
    if (!budget_.take(256 + known.name.size() + known.type.size())) return false;
    if (known.name.empty()) return true;
    const auto where = where_is(die, known.name);
    const auto fetch = where ? fetched({*where, type_of(die)}, "", known.name) : tl::unexpected<Error>(where.error());
    if (fetch)
      known.fetch = *fetch;
    else
      known.why = fetch.error().sentence;
    out.push_back(std::move(known));
    return true;
  });
  return out;
}

std::string Variables::returns() { return type_name(type_of(function_)); }

}  // namespace ringside
