#include "decode/syscalls.hpp"

#include <seccomp.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <unordered_map>

namespace ringside {
namespace {

constexpr i64 x32_bit = 0x40000000;

std::string resolve(i64 number) {
  const bool x32 = (number & x32_bit) != 0 && seccomp_arch_native() == SCMP_ARCH_X86_64;
  const std::unique_ptr<char, decltype(&std::free)> name(
      seccomp_syscall_resolve_num_arch(x32 ? SCMP_ARCH_X32 : SCMP_ARCH_NATIVE, static_cast<int>(number)), std::free);
  return name != nullptr ? name.get() : "";
}

}  // namespace

std::optional<i64> syscall_number(const std::string& name) {
  const int number = seccomp_syscall_resolve_name(name.c_str());
  return number < 0 ? std::nullopt : std::optional<i64>(number);  // below 0: other architectures have it
}

std::string_view syscall_name(i64 number) {
  static std::unordered_map<i64, std::string> names;  // the library searches its table from the start
  static std::mutex mutex;
  if (number < 0 || number >= 2 * x32_bit) return {};
  const std::lock_guard alone(mutex);
  if (const auto at = names.find(number); at != names.end()) return at->second;
  std::string name = resolve(number);
  if (name.empty()) return {};  // not kept: there are many such numbers
  return names.emplace(number, std::move(name)).first->second;
}

std::string_view error_name(i64 returned) {
  switch (returned) {
    case -512: return "ERESTARTSYS";
    case -513: return "ERESTARTNOINTR";
    case -514: return "ERESTARTNOHAND";
    case -515: return "ENOIOCTLCMD";
    case -516: return "ERESTART_RESTARTBLOCK";
    default: break;
  }
  if (returned >= 0 || returned < -4095) return {};
  const char* const name = strerrorname_np(static_cast<int>(-returned));
  return name != nullptr ? std::string_view(name) : std::string_view();
}

std::optional<SyscallFields> syscall_fields(const EventType& type) {
  const bool raw = type.system == "raw_syscalls";
  if (!raw && type.system != "syscalls") return std::nullopt;
  const bool enters = type.name.rfind("sys_enter", 0) == 0, exits = type.name.rfind("sys_exit", 0) == 0;
  SyscallFields fields{type.field(raw ? "id" : "__syscall_nr"), exits ? type.field("ret") : nullptr, raw};
  const auto whole = [](const Field* field) { return field != nullptr && field->kind == FieldKind::integer; };
  if (!whole(fields.number) || (exits ? !whole(fields.returned) : !enters)) return std::nullopt;
  return fields;
}

std::string_view SyscallReader::name(i64 number) {
  if (static_cast<u64>(number) >= names_.size()) return syscall_name(number);
  std::string_view& known = names_[static_cast<size_t>(number)];
  if (known.empty()) known = syscall_name(number);
  return known;
}

SyscallWords SyscallReader::read_call(const EventType& type, Bytes payload) {
  Known& known = known_[type.id % known_.size()];
  if (known.type != &type) [[unlikely]] known = {&type, syscall_fields(type)};
  const auto& fields = known.fields;
  if (!fields) return {};
  return {name(read_integer(payload, *fields->number)),
          fields->returned != nullptr ? error_name(read_integer(payload, *fields->returned)) : std::string_view()};
}

}  // namespace ringside
