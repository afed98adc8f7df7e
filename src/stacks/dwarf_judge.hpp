// Judges parts of debugging information before libdw expands them: lists of abbreviations, which it unpacks for each unit anew,
// and tables of lines, whose rows are 100 times as large as what encodes them.
#pragma once
#include <elfutils/libdw.h>

#include <map>
#include <ringside/base/types.hpp>
#include <set>
#include <unordered_map>
#include <utility>

#include "sys/budget.hpp"

namespace ringside {

class DwarfJudge {
 public:
  explicit DwarfJudge(Budget& budget) : budget_(budget) {}

  // Whether its units may be listed.
  bool may_list(Dwarf* dwarf);
  // How many steps it takes to read an entry of this unit; 0: its entries may not be looked at.
  u64 weight(Dwarf_CU* unit);
  // use(child): whether to go on. Offsets must grow, else the file is hostile. To find the next one libdw may read all between.
  template <class Use>
  void each_child(Dwarf_Die parent, const Use& use) {
    Dwarf_Die child;
    const u64 weight = this->weight(parent.cu);
    if (weight == 0 || !budget_.step(weight) || dwarf_child(&parent, &child) != 0) return;
    Dwarf_Off last = dwarf_dieoffset(&parent);
    do {
      const Dwarf_Off here = dwarf_dieoffset(&child);
      if (here <= last || !budget_.step(weight + (here - last) / 2)) return;
      last = here;
      if (!use(child)) return;
    } while (dwarf_siblingof(&child, &child) == 0);
  }
  // Whether libdw may read the lines of this unit, and the names of its files.
  bool may_read_lines(Dwarf_Die& unit);
  // Whether libdw may look up one place in a variable's location, an expression or a list of them.
  bool may_read_location(Dwarf_Attribute& location);

 private:
  struct Sections {
    Bytes info, types, abbreviations, lines, strings, line_strings, locations, location_lists;
  };
  const Sections& sections_of(Dwarf* dwarf);

  Budget& budget_;
  std::map<const void*, Sections> sections_;
  std::unordered_map<const void*, u64> weights_;            // by unit
  std::set<std::pair<const void*, u64>> lines_, no_lines_;  // by file and offset
};

}  // namespace ringside
