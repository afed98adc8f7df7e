// A function's variables at one of its instructions, by its debugging information, in the words of the kernel's uprobe_events:
// `perf probe`'s arguments.
//
//   auto variables = elf->variables(file_offset, 0);
//   variables->fetch({"req", {{VariablePath::Step::arrow, "id"}}}, "")   // "+0(%di):s32"
//
// The file is hostile: whatever grows takes from the budget of its ElfNames, which lives longer.
#pragma once
#include <elfutils/libdw.h>

#include <optional>
#include <ringside/base/result.hpp>
#include <ringside/base/types.hpp>
#include <string>
#include <vector>

#include "stacks/dwarf_judge.hpp"
#include "stacks/usdt_notes.hpp"
#include "sys/budget.hpp"

namespace ringside {

// "*req->peers[2].name": a variable, and the way from it to a value.
struct VariablePath {
  struct Step {
    enum Kind : u8 { dot, arrow, index, star } kind;
    std::string member{};
    u64 number = 0;  // of index
  };
  std::string variable;  // "$ret": what the function returns
  std::vector<Step> steps{};
};

class Variables {
 public:
  struct Known {
    std::string name, type;  // as in C: "struct request *"
    std::string fetch;       // empty: `why` says why not
    std::string why{};
    bool is_parameter = false;
  };
  struct Place {
    u64 address = 0;  // of the instruction, in the file's own addresses
    u64 to_file = 0;  // added to it: its offset in the file
    u64 offset = 0;   // of the instruction in its function
    bool at_return = false;
  };
  Variables(DwarfJudge& judge, Budget& budget, const Dwarf_Die& function, const Place& place, Machine machine = this_machine)
      : judge_(judge), budget_(budget), function_(function), place_(place), machine_(machine) {}

  // Of the function, in their order; then those of its blocks that are in sight here.
  std::vector<Known> all();
  std::string returns();  // the type; "void"
  // "+8(%di):s32". type: the kernel's, "u8", "string"; empty: by the variable's. Errors: no such variable, or member; it has no
  // place here; the kernel cannot fetch its type.
  result<std::string> fetch(const VariablePath& path, const std::string& type);

 private:
  using Type = std::optional<Dwarf_Die>;  // none: void
  // A value in a register (`base`), or in memory at base + offset; without a base: at an address of the file.
  struct Where {
    bool in_memory = false;
    std::string base;
    i64 offset = 0;
    std::string text() const;
    Where pointed() const { return {true, text(), 0}; }  // what it points to
  };
  struct Bits {
    u64 size = 0, offset = 0, of = 0;  // size 0: it is no bit-field
  };
  struct Value {
    Where where;
    Type type;
    Bits bits{};
  };
  enum class Class : u8 { integer, real, memory, by_reference, unknown };

  bool readable(const Dwarf_Die& die, u64 times = 4);
  bool attribute(Dwarf_Die die, unsigned which, Dwarf_Attribute& out);  // its own, or of the entry that it is an instance of
  std::string name_of(const Dwarf_Die& die);
  std::optional<u64> number_of(const Dwarf_Die& die, unsigned which);
  Type type_of(const Dwarf_Die& die);
  Type plain(Type type);  // without names and qualifiers of its own
  std::string type_name(Type type, u32 depth = 0);
  bool is_char(const Type& type);
  bool is_text(const Type& type);
  bool is_signed(const Dwarf_Die& die);
  u64 size_of(const Type& type, u32 depth = 0);
  std::vector<u64> counts_of(const Dwarf_Die& array);  // of its elements, for each dimension; 0: unknown
  void note(std::vector<std::string>& names, const std::string& name);
  template <class Use>
  void each_variable(const Dwarf_Die& parent, u32 depth, const Use& use);
  std::string register_of(u64 number) const;
  result<Where> where_is(const Dwarf_Die& variable, const std::string& name);
  result<Where> place_of(const Dwarf_Op* code, size_t count, bool is_fixed, const Dwarf_Die& variable, const std::string& name);
  result<Where> from_frame(i64 offset, bool is_fixed, const Dwarf_Die& variable, const std::string& name);
  result<Where> as_passed(const Dwarf_Die& variable, const std::string& name);
  Class passed_as(const Type& type);
  result<Value> variable(const std::string& name);
  result<Value> returned();
  result<Value> pointed(const Value& value, const std::string& shown);
  result<Value> member(const Value& of, const std::string& name, const std::string& shown);
  bool find_member(const Dwarf_Die& of, const std::string& name, Value& value, std::vector<std::string>& names, u32 depth);
  result<std::string> fetched(const Value& value, const std::string& asked, const std::string& shown);

  DwarfJudge& judge_;
  Budget& budget_;
  Dwarf_Die function_;
  Place place_;
  Machine machine_;
};

}  // namespace ringside
