// Where the debugging information of a file is: beside it, installed by its build ID, at servers, in an alternate file (dwz),
// in files of split units. All of them are a stranger's, so each is judged before libdw gets it, and libdw opens none by a
// name.
#pragma once
#include <elfutils/libdw.h>
#include <elfutils/libdwfl.h>

#include <memory>
#include <string>
#include <string_view>

#include "stacks/dwarf_judge.hpp"
#include "sys/budget.hpp"
#include "sys/sys.hpp"

namespace ringside::elf {

// What the callbacks know of a file.
struct Judging {
  explicit Judging(Budget& of) : budget(of), judge(of) {}
  Budget& budget;
  DwarfJudge judge;
  bool left_out = false;  // a debug file, or the file's own debugging information
  std::string doubt{};    // a sentence, or empty
};
// A file with what several files' debugging information has in common (dwz).
struct Alternate {
  sys::Fd fd;
  std::unique_ptr<Dwarf, int (*)(Dwarf*)> dwarf{nullptr, dwarf_end};
};

// For dwfl_begin. A module's data is its Judging.
extern const Dwfl_Callbacks callbacks;
inline constexpr const char* without_debugging = "its functions have the names of symbols, without lines and inlined functions";
// libdw's own mark: an alternate file was looked for, and there is none.
inline Dwarf* const no_alternate = reinterpret_cast<Dwarf*>(-1);

result<sys::Fd> open_file(const std::string& path);  // as a descriptor that libdw may keep; "[vdso]": this process's own
std::string installed_debug_file(const std::string& build_id);
std::string build_id_of(Dwfl_Module* module);
const char* debug_path(Dwfl_Module* module);  // the file with the debugging information
Alternate set_alternate(Dwfl_Module* module, Dwarf* dwarf, Judging& judging);
bool may_open_split(Dwfl_Module* module, Dwarf_Die& skeleton, Judging& judging);

}  // namespace ringside::elf
