// Names of system calls and of errors, and the events that report calls.
//
//   syscall_name(63, Architecture::arm64)        "read"; empty: that architecture has no such number, or is unknown
//   syscall_number("read", Architecture::arm64)  63; none: it has no such name
//   error_name(-2, Architecture::arm64)          "ENOENT"; empty: the result is no error, or its name is unknown
//
// The architecture is that of the event's recorder (EventType::world). Thread-safe.
#pragma once
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "decode/formats.hpp"

namespace ringside {

std::string_view syscall_name(i64 number, Architecture of);
std::string syscall_shown(i64 number, Architecture of);  // its name, else its number
std::optional<i64> syscall_number(const std::string& name, Architecture of);
// Of what a call returned: -4095 to -1. Also of the kernel's own (ERESTARTSYS, ...), which no program sees. For an
// unknown architecture, which may be MIPS, SPARC, PA-RISC or Alpha, only the errors that all number alike: up to ERANGE.
std::string_view error_name(i64 returned, Architecture of);

// What an event says of a call: raw_syscalls:sys_enter and sys_exit, syscalls:sys_enter_* and sys_exit_*.
struct SyscallFields {
  const Field* number = nullptr;
  const Field* returned = nullptr;  // null: the call begins
  bool raw = false;                 // its line has the number, not the name
};
std::optional<SyscallFields> syscall_fields(const EventType& type);

// The name of an event's call, and of its error; either may be empty.
struct SyscallWords {
  std::string_view call, error;
};
class SyscallReader {
 public:
  SyscallWords read(const EventType& type, Bytes payload) {
    if (!type.of_syscalls) [[likely]] return {};
    return read_call(type, payload);
  }

 private:
  SyscallWords read_call(const EventType& type, Bytes payload);
  std::string_view name(i64 number, Architecture of);
  using Names = std::array<std::string_view, 512>;
  std::array<std::unique_ptr<Names>, architectures> names_{};  // of the first numbers, once they were asked for
  struct Known {
    const EventType* type = nullptr;
    std::optional<SyscallFields> fields;
  };
  std::vector<Known> known_ = std::vector<Known>(1024);  // by the last bits of their numbers
};

}  // namespace ringside
