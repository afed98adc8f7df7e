// The names of one ELF file's addresses: function, inlined functions, file and line, by libdw; separate debug files, too, and
// debuginfod where DEBUGINFOD_URLS is set.
//
//   auto elf = ElfNames::open("/usr/bin/g++", "8a1c...", &budget);
//   for (const ElfPlace& place : elf->at(file_offset)) ...   // the innermost inlined function first
//
// The file is hostile: whatever grows takes from the budget, which lives longer; what cannot be understood has no name.
#pragma once
#include <functional>
#include <memory>
#include <ringside/base/result.hpp>
#include <ringside/base/types.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "stacks/variables.hpp"
#include "sys/budget.hpp"
#include "sys/sys.hpp"

namespace ringside {

struct ElfPlace {
  std::string function;      // demangled
  u64 offset = 0, size = 0;  // from the function's first byte; of the function, 0: unknown
  std::string file;          // of the source; may be empty
  u32 line = 0;              // 0: unknown
  bool inlined = false;
};

struct ElfFunction {
  u64 begin = 0, size = 0;  // as an offset in the file; size 0: unknown
};

class ElfNames {
 public:
  // "[vdso]": this process's own. build_id: in hex; empty: not compared. Errors: no regular file, no ELF file, another build id
  // (std::errc::bad_file_descriptor), unless a debug file of this build id is installed. budget: null: one of its own.
  // given: this file instead of the one at `path`.
  static result<std::unique_ptr<ElfNames>> open(const std::string& path, const std::string& build_id, Budget* budget = nullptr,
                                                sys::Fd given = {});
  ~ElfNames();
  ElfNames(const ElfNames&) = delete;
  ElfNames& operator=(const ElfNames&) = delete;

  // Empty: no name is known. The innermost first; the last one is not inlined.
  std::vector<ElfPlace> at(u64 file_offset);
  // Functions of this name: a symbol's, or a C++ name without parameters, which several may have. Ascending, without a function
  // that the loader chooses when the program starts (IFUNC).
  std::vector<ElfFunction> named(std::string_view function) const;
  bool is_chosen(std::string_view function) const;  // by the loader
  const std::string& doubt() const;                 // a sentence, if it knows less than the file says; else empty
  u64 left_out() const;  // names that the budget had no room for; they are shown as they are in the file
  std::vector<std::string> functions() const;  // all that have a symbol, demangled
  // Those of a name with * and ?, by name and place, without those that the loader chooses.
  std::vector<std::pair<std::string, ElfFunction>> matching(std::string_view pattern) const;
  // Those of the function that has the instruction at `file_offset`, which is `offset` bytes from the function's first one.
  // Null: there is no debugging information of it. They do not outlive this.
  std::unique_ptr<Variables> variables(u64 file_offset, u64 offset, bool at_return);

 private:
  struct Inside;
  explicit ElfNames(std::unique_ptr<Inside> inside);
  std::unique_ptr<Inside> inside_;
};

}  // namespace ringside
