// Judges an ELF file before libelf and libdw get it: what they would allocate for it, whatever it claims.
#pragma once
#include <libelf.h>

#include <memory>
#include <ringside/base/result.hpp>
#include <ringside/base/types.hpp>
#include <string>

#include "sys/budget.hpp"

namespace ringside {

struct ElfEnd {
  void operator()(Elf* elf) const { elf_end(elf); }
};
using ElfHandle = std::unique_ptr<Elf, ElfEnd>;

// What libelf allocates as soon as it begins: its table of sections, its notes. Nothing is unpacked.
result<void> judge_elf_shape(int fd, const std::string& path, Budget& budget);

enum class ElfFit : u8 { whole, symbols };  // symbols: there is no room for its debugging information
// Grows the budget by the file, and takes from it what its sections become. An error: it is no ELF file (libdw would unpack a
// compressed one as a whole, and look then), or there is no room for its tables and notes.
result<ElfFit> judge_elf(int fd, const std::string& path, Budget& budget);

}  // namespace ringside
