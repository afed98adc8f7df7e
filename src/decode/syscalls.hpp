// Names of system calls and of errors, and the events that tell of calls.
//
//   syscall_name(257)        "openat"; empty: this machine's kernel interface has no such number
//   syscall_number("openat") 257; none: it has no such name
//   error_name(-2)           "ENOENT"; empty: the result is no error
//
// Names are those of this machine's architecture: an event does not say which one its numbers belong to. Thread-safe.
#pragma once
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "decode/formats.hpp"

namespace ringside {

std::string_view syscall_name(i64 number);
std::optional<i64> syscall_number(const std::string& name);
// Of what a call returned: -4095 to -1. Also of the kernel's own (ERESTARTSYS, ...), which no program sees.
std::string_view error_name(i64 returned);

// What an event tells of a call: raw_syscalls:sys_enter and sys_exit, syscalls:sys_enter_* and sys_exit_*.
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
  std::string_view name(i64 number);
  std::array<std::string_view, 512> names_{};  // of the first numbers, once they were asked for
  struct Known {
    const EventType* type = nullptr;
    std::optional<SyscallFields> fields;
  };
  std::vector<Known> known_ = std::vector<Known>(1024);  // by the last bits of their numbers
};

}  // namespace ringside
