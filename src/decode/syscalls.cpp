#include "decode/syscalls.hpp"

#include <seccomp.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <unordered_map>

namespace ringside {
namespace {

constexpr i64 x32_bit = 0x40000000;

// As the library knows it; 0: this version of it does not.
u32 table_of(Architecture of) {
  const std::string_view name = of == Architecture::i386 ? "x86" : of == Architecture::arm ? "arm" : machine_of(of);
  return name.empty() ? 0 : seccomp_arch_resolve_name(name.data());
}

std::string resolve(i64 number, Architecture of) {
  const bool x32 = (number & x32_bit) != 0 && of == Architecture::x86_64;
  const u32 table = x32 ? SCMP_ARCH_X32 : table_of(of);
  if (table == 0) return {};
  const std::unique_ptr<char, decltype(&std::free)> name(seccomp_syscall_resolve_num_arch(table, static_cast<int>(number)),
                                                         std::free);
  return name != nullptr ? name.get() : "";
}

}  // namespace

std::optional<i64> syscall_number(const std::string& name, Architecture of) {
  const u32 table = table_of(of);
  const int number = table == 0 ? -1 : seccomp_syscall_resolve_name_arch(table, name.c_str());
  return number < 0 ? std::nullopt : std::optional<i64>(number);  // below 0: other architectures have it
}

std::string_view syscall_name(i64 number, Architecture of) {
  static std::unordered_map<u64, std::string> names;  // the library searches its table from the start
  static std::mutex mutex;
  if (number < 0 || number >= 2 * x32_bit) return {};
  const u64 key = static_cast<u64>(number) | u64{static_cast<u8>(of)} << 32;
  const std::lock_guard alone(mutex);
  if (const auto at = names.find(key); at != names.end()) return at->second;
  std::string name = resolve(number, of);
  if (name.empty()) return {};  // not kept: there are many such numbers
  return names.emplace(key, std::move(name)).first->second;
}

std::string syscall_shown(i64 number, Architecture of) {
  const std::string_view name = syscall_name(number, of);
  return name.empty() ? std::to_string(number) : std::string(name);
}

std::string_view error_name(i64 returned, Architecture of) {
  switch (returned) {
    case -512: return "ERESTARTSYS";
    case -513: return "ERESTARTNOINTR";
    case -514: return "ERESTARTNOHAND";
    case -515: return "ENOIOCTLCMD";
    case -516: return "ERESTART_RESTARTBLOCK";
    default: break;
  }
  constexpr i64 last_alike = ERANGE;
  if (returned >= 0 || returned < (of == Architecture::unknown ? -last_alike : -4095)) return {};
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

std::string_view SyscallReader::name(i64 number, Architecture of) {
  auto& names = names_[static_cast<size_t>(of)];
  if (names == nullptr) names = std::make_unique<Names>();
  if (static_cast<u64>(number) >= names->size()) return syscall_name(number, of);
  std::string_view& known = (*names)[static_cast<size_t>(number)];
  if (known.empty()) known = syscall_name(number, of);
  return known;
}

SyscallWords SyscallReader::read_call(const EventType& type, Bytes payload) {
  Known& known = known_[type.id % known_.size()];
  if (known.type != &type) [[unlikely]] known = {&type, syscall_fields(type)};
  const auto& fields = known.fields;
  if (!fields) return {};
  return {name(read_integer(payload, *fields->number), type.world.architecture),
          fields->returned != nullptr ? error_name(read_integer(payload, *fields->returned), type.world.architecture)
                                      : std::string_view()};
}

}  // namespace ringside
