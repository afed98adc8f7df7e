#include "stacks/dwarf_places.hpp"

#include <dwarf.h>
#include <limits.h>

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <utility>

#include "stacks/demangle.hpp"
#include "sys/text.hpp"

namespace ringside::elf {
namespace {

constexpr u32 deepest = 64;   // nested entries
constexpr u32 most_hops = 8;  // from an entry to the one that it is an instance of

const char* text_of(Dwarf_Die& die, std::initializer_list<unsigned> attributes) {
  Dwarf_Attribute attribute;
  for (const unsigned which : attributes) {
    if (dwarf_attr(&die, which, &attribute) == nullptr) continue;
    if (const char* name = dwarf_formstring(&attribute)) return name;
  }
  return nullptr;
}

// A path, or an empty one. Many places may share a long one.
std::string path_of(const char* text) { return {text != nullptr ? text : "", text != nullptr ? strnlen(text, PATH_MAX) : 0}; }

u64 number_of(Dwarf_Die& die, unsigned which) {
  Dwarf_Attribute attribute;
  Dwarf_Word value = 0;
  return dwarf_attr(&die, which, &attribute) != nullptr && dwarf_formudata(&attribute, &value) == 0 ? value : 0;
}

}  // namespace

const std::string& SymbolNames::of(const char* mangled) {
  const auto [at, fresh] = names_.try_emplace(mangled);
  if (!fresh) return at->second;
  bool without = false;
  std::string name = demangled(sys::name_at(mangled), budget_, &without);
  left_out_ += without ? 1 : 0;
  if (budget_.take(128 + name.size())) at->second = std::move(name);
  return at->second;
}

// The range with `address` that begins last; null: there is none. Ranges are sorted by their begin.
const DwarfPlaces::Range* DwarfPlaces::range_at(const std::vector<Range>& ranges, u64 address) {
  auto at = std::upper_bound(ranges.begin(), ranges.end(), address, [](u64 a, const Range& r) { return a < r.begin; });
  for (int tries = 0; at != ranges.begin() && tries < 8; ++tries) {
    --at;
    if (address < at->end) return &*at;
  }
  return nullptr;
}

void DwarfPlaces::sort(std::vector<Range>& ranges) {
  std::stable_sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
}

void DwarfPlaces::read(Dwfl_Module* module, Dwarf* dwarf) {
  Dwarf_CU* cu = nullptr;
  while (budget_.take(2 * sizeof(Unit))) {
    Unit unit{};
    uint8_t type = 0;
    if (dwarf_get_units(dwarf, cu, &cu, nullptr, &type, &unit.skeleton, nullptr) != 0) break;
    unit.die = unit.skeleton;
    Dwarf_Die split{};
    if (type == DW_UT_skeleton && may_open_split(module, unit.skeleton, judging_) &&
        dwarf_cu_info(cu, nullptr, nullptr, nullptr, &split, nullptr, nullptr, nullptr) == 0 && split.addr != nullptr) {
      dwarf_setalt(dwarf_cu_getdwarf(split.cu), no_alternate);
      unit.die = judge_.may_list(dwarf_cu_getdwarf(split.cu)) ? split : unit.die;
    }
    each_range(unit.skeleton, [&](u64 begin, u64 end) { (void)add(units_, {begin, end, unit_dies_.size()}); });
    unit_dies_.push_back(std::move(unit));
  }
  sort(units_);
}

bool DwarfPlaces::add(std::vector<Range>& out, const Range& range) {
  const bool fits = budget_.take(3 * sizeof range);
  if (fits) out.push_back(range);
  return fits;
}

const std::vector<DwarfPlaces::Range>& DwarfPlaces::functions_of(Unit& unit) {
  if (std::exchange(unit.known, true)) return unit.functions;
  add_functions(unit.die, unit.functions, 0, 0);
  sort(unit.functions);
  return unit.functions;
}

// "a::b::", from its end.
std::string DwarfPlaces::scope_before(u32 scope) const {
  std::string text;
  for (; scope != 0 && text.size() < sys::longest_name; scope = scopes_[scope].outer) {
    const char* const name = scopes_[scope].name != nullptr ? scopes_[scope].name : "(anonymous namespace)";
    text = std::string(name, strnlen(name, sys::longest_name)) + "::" + text;
  }
  return text;
}

const std::string& DwarfPlaces::name_of(Dwarf_Die& die, u32 hops) {
  const auto [at, fresh] = names_.try_emplace(die.addr);
  if (!fresh) return at->second;
  std::string& kept = at->second;  // stays where it is
  std::string name = read_name(die, hops);
  if (budget_.take(128 + name.size())) kept = std::move(name);
  return kept;
}

// An instance has the name of the entry that it comes from.
std::string DwarfPlaces::read_name(Dwarf_Die& die, u32 hops) {
  const u64 weight = judge_.weight(die.cu);
  if (weight == 0 || !budget_.step(4 * weight)) return "";
  if (const char* mangled = text_of(die, {DW_AT_linkage_name, DW_AT_MIPS_linkage_name})) return symbol_names_.of(mangled);
  Dwarf_Attribute attribute;
  Dwarf_Die origin;
  if (hops < most_hops &&
      (dwarf_attr(&die, DW_AT_abstract_origin, &attribute) != nullptr ||
       dwarf_attr(&die, DW_AT_specification, &attribute) != nullptr) &&
      dwarf_formref_die(&attribute, &origin) != nullptr) {
    if (const std::string& name = name_of(origin, hops + 1); !name.empty()) return name;
  }
  const char* const name = text_of(die, {DW_AT_name});
  if (name == nullptr) return "";
  const auto scope = scope_of_function_.find(die.addr);
  const std::string before = scope != scope_of_function_.end() ? scope_before(scope->second) : "";
  return sys::shown_name(before + demangled(sys::name_at(name), budget_));
}

void DwarfPlaces::add_functions(Dwarf_Die& parent, std::vector<Range>& out, u32 scope, u32 depth) {
  if (depth > deepest) return;
  judge_.each_child(parent, [&](Dwarf_Die& child) {
    const int tag = dwarf_tag(&child);
    const bool is_scope = tag == DW_TAG_namespace || tag == DW_TAG_structure_type || tag == DW_TAG_class_type;
    u32 inner = scope;
    if (is_scope && budget_.take(2 * sizeof(Scope))) {
      inner = static_cast<u32>(scopes_.size());
      scopes_.push_back({scope, text_of(child, {DW_AT_name})});
    }
    if (tag == DW_TAG_subprogram && scope != 0 && dwarf_hasattr(&child, DW_AT_linkage_name) == 0 &&
        dwarf_hasattr(&child, DW_AT_name) != 0 && budget_.take(128))
      scope_of_function_[child.addr] = scope;
    if (tag == DW_TAG_subprogram)
      each_range(child, [&](u64 begin, u64 end) { (void)add(out, {begin, end, dwarf_dieoffset(&child)}); });
    // Nested functions, and those of namespaces and classes.
    if (tag == DW_TAG_subprogram || is_scope || tag == DW_TAG_module || tag == DW_TAG_lexical_block)
      add_functions(child, out, inner, depth + 1);
    return true;
  });
}

bool DwarfPlaces::has_address(Dwarf_Die& die, u64 address) {
  bool found = false;
  if (!budget_.step(judge_.weight(die.cu))) return false;
  each_range(die, [&](u64 begin, u64 end) { found = found || (address >= begin && address < end); });
  return found;
}

// From the outermost inlined function to the innermost.
void DwarfPlaces::inlined_at(Dwarf_Die& parent, u64 address, std::vector<Dwarf_Die>& out, u32 depth) {
  if (depth > deepest) return;
  judge_.each_child(parent, [&](Dwarf_Die& child) {
    const int tag = dwarf_tag(&child);
    const bool inlined = tag == DW_TAG_inlined_subroutine;
    if (!inlined && tag != DW_TAG_lexical_block && tag != DW_TAG_try_block && tag != DW_TAG_catch_block) return true;
    // A block without addresses of its own may hold others that have some.
    Dwarf_Addr low = 0;
    const bool has = has_address(child, address);
    if (!has && (inlined || dwarf_lowpc(&child, &low) == 0 || dwarf_hasattr(&child, DW_AT_ranges) != 0)) return true;
    if (inlined) out.push_back(child);
    inlined_at(child, address, out, depth + 1);
    return !has;
  });
}

bool DwarfPlaces::at(u64 address, std::vector<ElfPlace>& out) {
  const Range* const in_unit = range_at(units_, address);
  if (in_unit == nullptr) return false;
  Unit& unit = unit_dies_[in_unit->die];
  const Range* const function = range_at(functions_of(unit), address);
  Dwarf_Die outer;
  if (function == nullptr || dwarf_offdie(dwarf_cu_getdwarf(unit.die.cu), function->die, &outer) == nullptr) return false;
  std::vector<Dwarf_Die> chain{outer};
  inlined_at(outer, address, chain, 0);
  Dwarf_Files* files = nullptr;
  size_t file_count = 0;
  if (!judge_.may_read_lines(unit.die) || dwarf_getsrcfiles(&unit.die, &files, &file_count) != 0) files = nullptr;
  ElfPlace place;
  if (Dwarf_Line* const line = judge_.may_read_lines(unit.skeleton) ? dwarf_getsrc_die(&unit.skeleton, address) : nullptr) {
    int number = 0;
    place.file = path_of(dwarf_linesrc(line, nullptr, nullptr));
    if (dwarf_lineno(line, &number) == 0) place.line = static_cast<u32>(number);
  }
  for (size_t i = chain.size(); i-- != 0;) {
    place.inlined = i != 0;
    place.function = name_of(chain[i]);
    place.offset = address - function->begin;
    place.size = function->end - function->begin;
    if (i != 0 && dwarf_tag(&chain[i]) == DW_TAG_inlined_subroutine) {
      Dwarf_Addr entry = 0;
      if (dwarf_entrypc(&chain[i], &entry) == 0 && entry <= address) place.offset = address - entry;
      place.size = 0;
    }
    if (!place.function.empty()) out.push_back(place);
    if (i == 0) break;
    // The caller's place is that of the call.
    place.line = static_cast<u32>(number_of(chain[i], DW_AT_call_line));
    const u64 file = number_of(chain[i], DW_AT_call_file);
    const char* const called_in =
        files != nullptr && file < file_count ? dwarf_filesrc(files, file, nullptr, nullptr) : nullptr;
    place.file = path_of(called_in);
  }
  return !out.empty() && !out.back().inlined;
}

bool DwarfPlaces::function_at(u64 address, Dwarf_Die& out) {
  const Range* const in_unit = range_at(units_, address);
  if (in_unit == nullptr) return false;
  Unit& unit = unit_dies_[in_unit->die];
  const Range* const function = range_at(functions_of(unit), address);
  return function != nullptr && dwarf_offdie(dwarf_cu_getdwarf(unit.die.cu), function->die, &out) != nullptr;
}

}  // namespace ringside::elf
