// What debugging information says of an address: its function, the functions inlined there, file and line. Two indexes
// speed up libdw, whose search is linear: the code of the units, the functions of a unit.
#pragma once
#include <elfutils/libdw.h>
#include <elfutils/libdwfl.h>

#include <ringside/base/types.hpp>
#include <string>
#include <unordered_map>
#include <vector>

#include "stacks/debug_files.hpp"
#include "stacks/elf_names.hpp"

namespace ringside::elf {

// Demangled names, each once.
class SymbolNames {
 public:
  explicit SymbolNames(Budget& budget) : budget_(budget) {}
  const std::string& of(const char* mangled);  // empty: there is no room for it
  u64 left_out() const { return left_out_; }

 private:
  Budget& budget_;
  std::unordered_map<const char*, std::string> names_;  // by where the name is
  u64 left_out_ = 0;
};

class DwarfPlaces {
 public:
  DwarfPlaces(Judging& judging, SymbolNames& symbol_names)
      : judging_(judging), budget_(judging.budget), judge_(judging.judge), symbol_names_(symbol_names) {}
  void read(Dwfl_Module* module, Dwarf* dwarf);
  // Appends, the innermost function first. False: nothing is known of the address.
  bool at(u64 address, std::vector<ElfPlace>& out);
  // The entry of the function whose code has the address, not of one that is inlined there. False: it is unknown.
  bool function_at(u64 address, Dwarf_Die& out);

 private:
  struct Range {
    u64 begin = 0, end = 0;
    Dwarf_Off die = 0;  // of `units_`: the number in unit_dies_
  };
  // With -gsplit-dwarf a unit in the program is a skeleton, with addresses and lines; the functions are in another file's.
  struct Unit {
    Dwarf_Die skeleton, die;  // the same, where nothing is split
    bool known = false;       // its functions
    std::vector<Range> functions{};
  };
  // A namespace or class, which functions without a linkage name are in.
  struct Scope {
    u32 outer = 0;  // in `scopes_`
    const char* name = nullptr;
  };
  static const Range* range_at(const std::vector<Range>& ranges, u64 address);
  static void sort(std::vector<Range>& ranges);
  const std::vector<Range>& functions_of(Unit& unit);
  void add_functions(Dwarf_Die& parent, std::vector<Range>& out, u32 scope, u32 depth);
  bool add(std::vector<Range>& out, const Range& range);
  const std::string& name_of(Dwarf_Die& die, u32 hops = 0);
  std::string read_name(Dwarf_Die& die, u32 hops);
  std::string scope_before(u32 scope) const;
  bool has_address(Dwarf_Die& die, u64 address);
  void inlined_at(Dwarf_Die& parent, u64 address, std::vector<Dwarf_Die>& out, u32 depth);
  // use(begin, end): each range of the entry's code.
  template <class Use>
  void each_range(Dwarf_Die& die, const Use& use) {
    Dwarf_Addr base = 0, begin = 0, end = 0;
    for (ptrdiff_t at = 0; budget_.step(4) && (at = dwarf_ranges(&die, at, &base, &begin, &end)) > 0;)
      if (begin < end) use(begin, end);
  }

  Judging& judging_;
  Budget& budget_;
  DwarfJudge& judge_;
  SymbolNames& symbol_names_;
  std::vector<Range> units_;  // the units' code
  std::vector<Unit> unit_dies_;
  std::vector<Scope> scopes_{{}};                           // 0: none
  std::unordered_map<const void*, u32> scope_of_function_;  // of those that have no linkage name, by entry
  std::unordered_map<const void*, std::string> names_;      // by entry
};

}  // namespace ringside::elf
