#include "stacks/usdt_notes.hpp"

#include <elf.h>
#include <gelf.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <memory>
#include <optional>

#include "stacks/elf_judge.hpp"
#include "stacks/judged.hpp"
#include "sys/sys.hpp"
#include "sys/try.hpp"

namespace ringside {
namespace {

constexpr u32 stapsdt_note = 3;
constexpr size_t most_notes = 100'000, longest_text = 1000;

struct Loaded {
  u64 offset, size, address;
};

// Where an address of the file is in it; empty: nowhere.
std::optional<u64> offset_of(const std::vector<Loaded>& segments, u64 address) {
  for (const Loaded& s : segments) {
    if (address >= s.address && address - s.address < s.size) return address - s.address + s.offset;
  }
  return std::nullopt;
}

std::vector<Loaded> segments_of(Elf* elf) {
  std::vector<Loaded> segments;
  size_t count = 0;
  if (elf_getphdrnum(elf, &count) != 0) return segments;
  for (size_t i = 0; i < std::min<size_t>(count, 65536); ++i) {
    GElf_Phdr part;
    if (gelf_getphdr(elf, static_cast<int>(i), &part) != nullptr && part.p_type == PT_LOAD)
      segments.push_back({part.p_offset, part.p_filesz, part.p_vaddr});
  }
  return segments;
}

bool readable(std::string_view text) {
  return text.size() <= longest_text &&
         std::all_of(text.begin(), text.end(), [](char c) { return static_cast<u8>(c) >= 0x20 && c != 0x7F; });
}

// Three addresses and three texts.
std::optional<UsdtNote> note_of(std::string_view bytes, u64 base_now, const std::vector<Loaded>& segments) {
  u64 words[3];  // of the instruction, of .stapsdt.base at link time, of the semaphore
  if (bytes.size() < sizeof words) return std::nullopt;
  std::memcpy(words, bytes.data(), sizeof words);
  bytes.remove_prefix(sizeof words);
  std::string texts[3];
  for (std::string& text : texts) {
    const size_t end = bytes.find('\0');
    if (end == std::string_view::npos || !readable(bytes.substr(0, end))) return std::nullopt;
    text = bytes.substr(0, end);
    bytes.remove_prefix(end + 1);
  }
  const u64 moved = base_now != 0 ? base_now - words[1] : 0;  // by prelink
  const auto offset = offset_of(segments, words[0] + moved);
  const auto semaphore = words[2] != 0 ? offset_of(segments, words[2] + moved) : std::optional<u64>(0);
  if (!offset || !semaphore || texts[0].empty() || texts[1].empty()) return std::nullopt;
  return UsdtNote{texts[0], texts[1], texts[2], *offset, *semaphore};
}

// ---- Arguments.

std::optional<i64> number(std::string_view text) {
  i64 value = 0;
  const bool negative = !text.empty() && text[0] == '-';
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) text.remove_prefix(1);
  const int base = text.rfind("0x", 0) == 0 ? 16 : 10;
  if (base == 16) text.remove_prefix(2);
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (code != std::errc() || end != text.data() + text.size() || text.empty() || value < 0) return std::nullopt;
  return negative ? -value : value;
}

// The kernel's name of a general register of any width; empty: it is none, or not at the register's low end (%ah).
std::string x86_register(std::string_view name) {
  if (name.empty() || name[0] != '%') return "";
  name.remove_prefix(1);
  if (name.size() >= 2 && name[0] == 'r' && name[1] >= '0' && name[1] <= '9') {
    std::string_view digits = name.substr(1);
    if (const char last = digits.back(); last == 'd' || last == 'w' || last == 'b') digits.remove_suffix(1);
    const auto n = number(digits);
    return n && *n >= 8 && *n <= 15 ? "%r" + std::to_string(*n) : "";
  }
  constexpr std::string_view pairs[] = {"ax", "bx", "cx", "dx"}, pointers[] = {"si", "di", "bp", "sp"};
  std::string_view core = name;
  if (core.size() == 3 && (core[0] == 'r' || core[0] == 'e')) core.remove_prefix(1);
  for (const std::string_view r : pairs) {
    if (core == r || (name.size() == 2 && name[0] == r[0] && name[1] == 'l')) return "%" + std::string(r);
  }
  for (const std::string_view r : pointers) {
    if (core == r || (name.size() == 3 && name.substr(0, 2) == r && name[2] == 'l')) return "%" + std::string(r);
  }
  return "";
}

std::string arm_register(std::string_view name) {
  if (name == "sp") return "%sp";
  if (name.size() < 2 || (name[0] != 'x' && name[0] != 'w')) return "";
  const auto n = number(name.substr(1));
  return n && *n >= 0 && *n <= 30 ? "%x" + std::to_string(*n) : "";
}

std::string at_memory(i64 displacement, const std::string& base) {
  return base.empty() ? ""
                      : (displacement < 0 ? "-" : "+") + std::to_string(displacement < 0 ? -displacement : displacement) + "(" +
                            base + ")";
}

// Empty: the kernel has no words for it.
std::string x86_operand(std::string_view text) {
  if (text.empty()) return "";
  if (text[0] == '$') {
    const auto value = number(text.substr(1));
    return value ? "\\" + std::to_string(*value) : "";
  }
  if (text[0] == '%') return x86_register(text);
  const size_t open = text.find('(');
  if (open == std::string_view::npos || text.back() != ')') return "";
  const auto displacement = open == 0 ? std::optional<i64>(0) : number(text.substr(0, open));
  return displacement ? at_memory(*displacement, x86_register(text.substr(open + 1, text.size() - open - 2))) : "";
}

std::string arm_operand(std::string_view text) {
  if (const auto value = number(text)) return "\\" + std::to_string(*value);
  if (text.size() < 3 || text[0] != '[' || text.back() != ']') return arm_register(text);
  text = text.substr(1, text.size() - 2);
  const size_t comma = text.find(',');
  if (comma == std::string_view::npos) return at_memory(0, arm_register(text));
  std::string_view rest = text.substr(comma + 1);
  while (!rest.empty() && (rest[0] == ' ' || rest[0] == '#')) rest.remove_prefix(1);
  const auto displacement = number(rest);
  return displacement ? at_memory(*displacement, arm_register(text.substr(0, comma))) : "";
}

// "-4" -> "s32"; empty: none.
std::string type_of(std::string_view size) {
  if (size.empty()) return "u64";
  const auto bytes = number(size);
  if (!bytes) return "";
  const i64 n = *bytes < 0 ? -*bytes : *bytes;
  if (n != 1 && n != 2 && n != 4 && n != 8) return "";
  return (*bytes < 0 ? "s" : "u") + std::to_string(n * 8);
}

}  // namespace

UsdtArguments usdt_arguments(std::string_view arguments, Machine machine) {
  constexpr int most = 12;  // <sys/sdt.h> makes no more
  UsdtArguments out;
  for (int n = 1; !arguments.empty(); ++n) {
    size_t end = 0;
    for (bool inside = false; end < arguments.size() && (inside || arguments[end] != ' '); ++end) {
      if (arguments[end] == '[') inside = true;
      if (arguments[end] == ']') inside = false;
    }
    const std::string_view one = arguments.substr(0, end);
    arguments.remove_prefix(std::min(end + 1, arguments.size()));
    if (one.empty()) {
      --n;
      continue;
    }
    const size_t at = one.find('@');
    const std::string_view operand = at == std::string_view::npos ? one : one.substr(at + 1);
    const std::string type = type_of(at == std::string_view::npos ? std::string_view() : one.substr(0, at));
    const std::string place = machine == Machine::x86_64 ? x86_operand(operand) : arm_operand(operand);
    const std::string name = "arg" + std::to_string(n);
    if (type.empty() || place.empty() || n > most)
      out.left_out.push_back(name + " (" + std::string(one) + ")");
    else
      out.fetch += (out.fetch.empty() ? "" : " ") + name + "=" + place + ":" + type;
    if (n > most) break;
  }
  return out;
}

result<std::vector<UsdtNote>> usdt_notes(const std::string& path, const JudgedPath& how) {
  const auto fd = RS_TRY(open_judged(path, how));
  Budget budget;
  RS_TRY(judge_elf(fd.get(), path, budget));
  elf_version(EV_CURRENT);
  const ElfHandle elf(elf_begin(fd.get(), ELF_C_READ, nullptr));
  size_t names = 0;
  if (elf == nullptr || elf_kind(elf.get()) != ELF_K_ELF || elf_getshdrstrndx(elf.get(), &names) != 0)
    return refuse(std::errc::executable_format_error, path + " is no ELF file: it has no probes");
  std::vector<UsdtNote> notes;
  if (gelf_getclass(elf.get()) != ELFCLASS64)
    return refuse(std::errc::executable_format_error,
                  path + " is an ELF file of 32 bits; probes are read from those of 64 bits");
  const std::vector<Loaded> segments = segments_of(elf.get());
  const auto each_section = [&](std::string_view wanted, const auto& use) {
    for (Elf_Scn* section = nullptr; (section = elf_nextscn(elf.get(), section)) != nullptr;) {
      GElf_Shdr header;
      if (gelf_getshdr(section, &header) == nullptr) continue;
      const char* const name = elf_strptr(elf.get(), names, header.sh_name);
      if (name != nullptr && name == wanted) use(section, header);
    }
  };
  u64 base = 0;
  each_section(".stapsdt.base", [&](Elf_Scn*, const GElf_Shdr& header) { base = header.sh_addr; });
  each_section(".note.stapsdt", [&](Elf_Scn* section, const GElf_Shdr& header) {
    Elf_Data* const data = header.sh_type == SHT_NOTE ? elf_getdata(section, nullptr) : nullptr;
    if (data == nullptr || data->d_buf == nullptr) return;
    const std::string_view bytes(static_cast<const char*>(data->d_buf), data->d_size);
    GElf_Nhdr note;
    for (size_t at = 0, name = 0, value = 0, next = 0;
         notes.size() < most_notes && (next = gelf_getnote(data, at, &note, &name, &value)) > at; at = next) {
      if (note.n_type != stapsdt_note || note.n_namesz != 8 || bytes.substr(name, 8) != std::string_view("stapsdt", 8))
        continue;
      if (auto one = note_of(bytes.substr(value, note.n_descsz), base, segments)) notes.push_back(std::move(*one));
    }
  });
  return notes;
}

}  // namespace ringside
