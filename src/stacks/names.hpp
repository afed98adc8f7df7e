// The names of addresses: a program's by its maps and files, the kernel's by kallsyms, compiled at run time by
// /tmp/perf-PID.map. Looked up when they are asked for, and once.
//
//   for (const CodePlace& place : names.at(space, address - 1)) ...   // the innermost inlined function first; never empty
//
// A return address belongs to the call before it: callers ask for the address before.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <ringside/base/types.hpp>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "decode/symbols.hpp"
#include "stacks/code_maps.hpp"
#include "stacks/elf_names.hpp"
#include "stacks/kept_names.hpp"

namespace ringside {

// A function, as flame graphs know it: with its module, whatever the line.
struct CodeFunction {
  enum class Kind : u8 { program, kernel, jit, unnamed, remark };  // remark: no function, but the reason why there is none
  std::string name, module;                                        // module: the file's name without folders; empty: none
  std::string path;                                                // the file
  std::string source;                                              // the source file, as far as known
  Kind kind = Kind::program;
};

struct CodePlace {
  u32 function = 0;  // in Names::function
  u32 line = 0;
  u64 offset = 0, size = 0;  // from the function's start; size 0: unknown
  u32 file = 0;              // the source file, in Names::source
  bool inlined = false;
};

class Names {
 public:
  Names(const Symbols& kernel, const CodeMaps& maps) : maps_(maps) { machines_[0].kernel = &kernel; }

  // kernel: the address is one of the kernel's code, which many machines do not have in the upper half.
  std::span<const CodePlace> at(u32 space, u64 address, u32 machine, bool kernel);
  std::span<const CodePlace> at(u32 space, u64 address, u32 machine = 0) {
    return at(space, address, machine, in_upper_half(address));
  }
  const CodeFunction& function(u32 number) const { return functions_[number]; }
  size_t functions() const { return functions_.size(); }
  const std::string& source(u32 number) const { return sources_[number]; }
  // The number of a remark as a function.
  u32 remark(const std::string& text);

  // Of several machines (Tasks::machine) each has its kernel, its kept names, and its files and processes.
  void know(u32 machine, const Symbols& kernel) { machines_[machine].kernel = &kernel; }
  // The names of a recording's own, as its recorder has looked them up: they come before what its files say now.
  void take_kept(const std::string& text, u32 machine = 0);
  // All that have been looked up in files, as text for take_kept().
  std::string kept() const;
  // Processes of its code maps are, or were, not those of this kernel and PID namespace: no perf map here is about them.
  void are_elsewhere(u32 machine = 0) { machines_[machine].here = false; }
  // Files that may be the one that a process had at a path: the first that has its build id is taken. before: those that come
  // before the one that is at the path now; after: those that come after it.
  using FindFiles = std::function<std::vector<sys::Fd>(const std::string& path, i32 pid)>;
  void find_files(FindFiles before, FindFiles after) { before_ = std::move(before), after_ = std::move(after); }

  // Looks for no file from here on; what it would look up is in asked(), as text for KeptNames, without names.
  void only_ask() { only_asks_ = true; }
  std::string asked(u64 most_bytes) const;

  u64 addresses() const { return in_files_.size() + compiled_.size(); }  // different ones in files and perf maps

  u64 unnamed() const { return unnamed_; }    // different addresses
  std::vector<std::string> problems() const;  // files that cannot name all, a sentence each

  static constexpr u64 trampoline = 0x7FFFFFFF;  // the kernel's mark of a trampoline of ftrace
  // Of a stack that has both, of a machine whose kernel is there.
  static bool in_upper_half(u64 address) { return address >> 63 != 0; }

 private:
  struct Span {
    u32 begin = 0, size = 0;
  };
  struct KeyHash {
    size_t operator()(const std::pair<u64, u64>& key) const {
      return (key.first ^ (key.second * 0x9E3779B97F4A7C15)) * 0xD6E8FEB86659FD93 >> 17;
    }
  };
  struct Machine {
    const Symbols* kernel = nullptr;
    std::unique_ptr<KeptNames> kept{};  // null: none
    bool here = true;
  };
  struct PerfMap;
  static constexpr size_t most_problems = 1000;

  Span look_up(u32 space, u64 address, u32 machine);
  Span in_kernel(u64 address, u32 machine);
  Span in_file(u32 file, u64 offset, i32 pid);
  Span by_perf_map(i32 pid, u64 address, u32 machine);
  Span unnamed(std::string text, const std::string& path);
  ElfNames* elf_of(u32 file, i32 pid);
  result<std::unique_ptr<ElfNames>> open(const CodeFile& code, i32 pid);
  bool is_program(u32 file, u64 offset, i32 pid);
  void add_problem(std::string sentence);  // empty: there is none
  const PerfMap& perf_map(i32 pid);
  u32 intern(CodeFunction function);
  u32 source_number(const std::string& source);
  Span keep(const std::vector<CodePlace>& places);
  Span beyond();  // an address that the budget has no room for

  Budget budget_;
  const CodeMaps& maps_;
  std::vector<CodeFunction> functions_;
  std::unordered_map<std::string, u32> function_numbers_;
  std::vector<std::string> sources_{""};
  std::unordered_map<std::string, u32> source_numbers_{{"", 0}};
  std::vector<CodePlace> places_;
  std::unordered_map<std::pair<u64, u64>, Span, KeyHash> known_;     // by space and address
  std::unordered_map<std::pair<u64, u64>, Span, KeyHash> in_files_;  // by file and offset
  std::unordered_map<u32, std::unique_ptr<ElfNames>> elves_;         // null: cannot name
  std::unordered_map<u32, std::string> unopened_;                    // why; empty: it was said
  std::map<i32, std::shared_ptr<PerfMap>> perf_maps_;
  std::map<std::pair<u64, u64>, Span> compiled_;  // by machine and process, and address: those that a perf map names
  std::map<u32, Machine> machines_;
  FindFiles before_, after_;
  std::vector<std::string> problems_;
  u64 unnamed_ = 0, beyond_ = 0;
  bool only_asks_ = false;
};

}  // namespace ringside
