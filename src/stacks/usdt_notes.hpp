// The USDT probes of an ELF file: its notes in .note.stapsdt, as SystemTap's <sys/sdt.h> makes them.
//
//   for (const UsdtNote& note : must(usdt_notes("/usr/bin/python3"))) ...     // "python", "gc__done", "-8@%r12"
//
// The file is hostile: what does not add up is left out.
#pragma once
#include <ringside/base/result.hpp>
#include <ringside/base/types.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "stacks/judged.hpp"

namespace ringside {

// One place of a probe.
struct UsdtNote {
  std::string provider, name, arguments;  // arguments: "N@OPERAND ..." in the assembler's language
  u64 offset = 0;                         // of the probe's instruction in the file
  u64 semaphore = 0;                      // of its counter of listeners in the file; 0: it has none
};

// In the file's order. Empty: it has none. how: where the path is looked for. Errors: no regular file, no ELF file.
result<std::vector<UsdtNote>> usdt_notes(const std::string& path, const JudgedPath& how = {});

// A note's arguments in the language of tracefs's uprobe_events: "arg1=%di:s32 arg2=+16(%sp):u64".
struct UsdtArguments {
  std::string fetch;
  std::vector<std::string> left_out;  // that it cannot express: "arg3 (8f@%xmm0)"
};
enum class Machine : u8 { x86_64, arm64 };
constexpr Machine this_machine =
#if defined(__aarch64__)
    Machine::arm64;
#else
    Machine::x86_64;
#endif
UsdtArguments usdt_arguments(std::string_view arguments, Machine machine = this_machine);

}  // namespace ringside
