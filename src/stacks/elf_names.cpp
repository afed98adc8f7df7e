#include "stacks/elf_names.hpp"

#include <elfutils/libdwfl.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <set>
#include <utility>

#include "schema/glob.hpp"
#include "stacks/debug_files.hpp"
#include "stacks/dwarf_places.hpp"
#include "stacks/elf_judge.hpp"
#include "stacks/zstd_sections.hpp"
#include "sys/sys.hpp"
#include "sys/text.hpp"
#include "sys/try.hpp"

namespace ringside {
namespace elf {

struct Symbol {
  u64 begin = 0, end = 0;  // end == begin: of unknown size
  const char* name = nullptr;
  u8 order = 0;         // of symbols at one address the least is shown
  bool chosen = false;  // by the loader: it is the function that chooses
};
struct DwflEnd {
  void operator()(Dwfl* dwfl) const { dwfl_end(dwfl); }
};
}  // namespace elf
namespace {

using elf::Symbol;

}  // namespace

struct ElfNames::Inside {
  std::unique_ptr<Dwfl, elf::DwflEnd> dwfl;
  Dwfl_Module* module = nullptr;
  elf::Alternate alternate{};  // of the debugging information
  Dwarf_Addr dwarf_bias = 0;
  struct Segment {
    u64 offset, size, address;
  };
  std::vector<Segment> segments;  // of code
  std::vector<elf::Symbol> symbols;
  Budget own;
  Budget& budget;
  elf::Judging judging{budget};
  elf::SymbolNames names{budget};
  std::optional<elf::DwarfPlaces> places{};

  explicit Inside(Budget* from) : budget(from != nullptr ? *from : own) {}
  result<void> load(const std::string& path, const std::string& build_id, sys::Fd given);
  result<void> report(const std::string& path, sys::Fd fd, const std::string& build_id);
  void read_segments(Elf* file, Dwarf_Addr bias);
  void read_symbols();
  bool is_named(const Symbol& symbol, std::string_view function);
  const Symbol* symbol_at(u64 address) const;
};

// Whether a section that names come from is still compressed: libdw unpacks all of them that it can.
static bool is_packed(Elf* file) {
  static constexpr std::string_view needed[] = {".debug_info",     ".debug_abbrev", ".debug_line",
                                                ".debug_str",      ".debug_addr",   ".debug_line_str",
                                                ".debug_rnglists", ".debug_ranges", ".debug_str_offsets"};
  size_t names = 0;
  if (elf_getshdrstrndx(file, &names) != 0) return false;
  GElf_Shdr header;
  for (Elf_Scn* section = nullptr; (section = elf_nextscn(file, section)) != nullptr;) {
    if (gelf_getshdr(section, &header) == nullptr || (header.sh_flags & SHF_COMPRESSED) == 0) continue;
    const char* const name = elf_strptr(file, names, header.sh_name);
    if (name != nullptr && std::find(std::begin(needed), std::end(needed), name) != std::end(needed)) return true;
  }
  return false;
}

result<void> ElfNames::Inside::load(const std::string& path, const std::string& build_id, sys::Fd given) {
  auto fd = given ? result<sys::Fd>(std::move(given)) : elf::open_file(path);
  auto loaded = fd ? report(path, std::move(*fd), build_id) : result<void>(tl::unexpected<Error>(fd.error()));
  if (loaded || build_id.size() < 4) return loaded;
  // The file has changed or is gone; an installed debug file may still know the build.
  const std::string debug = elf::installed_debug_file(build_id);
  if (build_id.find_first_not_of("0123456789abcdef") != std::string::npos) return loaded;
  auto other = elf::open_file(debug);
  if (other && report(debug, std::move(*other), build_id)) return {};
  return loaded;
}

result<void> ElfNames::Inside::report(const std::string& path, sys::Fd fd, const std::string& build_id) {
  places.reset();
  alternate = {};
  dwfl.reset(dwfl_begin(&elf::callbacks));
  if (dwfl == nullptr) return refuse(std::errc::not_enough_memory, "libdw has no memory");
  const ElfFit fit = RS_TRY(judge_elf(fd.get(), path, budget));
  const auto plain = fit == ElfFit::whole ? unpack_zstd_sections(fd, path, budget) : result<void>();
  if (!plain) judging.doubt = plain.error().sentence + "; " + elf::without_debugging;
  dwfl_report_begin(dwfl.get());
  module = dwfl_report_offline(dwfl.get(), path.c_str(), path.c_str(), fd.get());
  if (module == nullptr)
    return refuse(std::errc::executable_format_error, path + " is no ELF file that libdw can read: " + dwfl_errmsg(-1));
  (void)fd.release();  // the report has taken it
  dwfl_report_end(dwfl.get(), nullptr, nullptr);
  GElf_Addr bias = 0;
  Elf* const file = dwfl_module_getelf(module, &bias);
  if (file == nullptr) return refuse(std::errc::executable_format_error, path + " cannot be read as ELF: " + dwfl_errmsg(-1));
  const std::string own_id = elf::build_id_of(module);
  if (!build_id.empty() && own_id != build_id)
    return refuse(std::errc::bad_file_descriptor, path + " is not the file that ran: its build id is " +
                                                      (own_id.empty() ? "missing" : own_id) + ", recorded was " + build_id);
  read_segments(file, bias);
  if (segments.empty()) return refuse(std::errc::executable_format_error, path + " has no code");
  void** data = nullptr;
  dwfl_module_info(module, &data, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr);
  if (data != nullptr) *data = &judging;
  Dwarf* dwarf = fit == ElfFit::whole ? dwfl_module_getdwarf(module, &dwarf_bias) : nullptr;
  if (dwarf != nullptr && !judging.judge.may_list(dwarf)) dwarf = nullptr, judging.left_out = true;
  if (dwarf != nullptr) alternate = elf::set_alternate(module, dwarf, judging);
  read_symbols();
  if (fit != ElfFit::whole || judging.left_out)
    judging.doubt = path + ": its debugging information would take more memory or time than a file of its size may; " +
                    elf::without_debugging;
  if (judging.doubt.empty() && fit == ElfFit::whole && is_packed(dwarf != nullptr ? dwarf_getelf(dwarf) : file))
    judging.doubt =
        path + ": its debugging information is compressed, and is damaged or in an unknown format; " + elf::without_debugging;
  if (dwarf == nullptr) return {};
  places.emplace(judging, names);
  places->read(module, dwarf);
  return {};
}

void ElfNames::Inside::read_segments(Elf* file, Dwarf_Addr bias) {
  segments.clear();
  size_t count = 0;
  if (elf_getphdrnum(file, &count) != 0) return;
  for (size_t i = 0; i < std::min<size_t>(count, 65536); ++i) {
    GElf_Phdr part;
    if (gelf_getphdr(file, static_cast<int>(i), &part) == nullptr || part.p_type != PT_LOAD || (part.p_flags & PF_X) == 0)
      continue;
    segments.push_back({part.p_offset, std::max(part.p_filesz, part.p_memsz), part.p_vaddr + bias});
  }
}

void ElfNames::Inside::read_symbols() {
  symbols.clear();
  const int count = dwfl_module_getsymtab(module);
  for (int i = 0; i < count && budget.step(8); ++i) {
    GElf_Sym symbol;
    GElf_Addr address = 0;
    GElf_Word section = 0;
    const char* const name = dwfl_module_getsym_info(module, i, &symbol, &address, &section, nullptr, nullptr);
    if (name == nullptr || *name == 0 || section == SHN_UNDEF || section == SHN_ABS) continue;
    const int type = GELF_ST_TYPE(symbol.st_info), binding = GELF_ST_BIND(symbol.st_info);
    if (type != STT_FUNC && type != STT_GNU_IFUNC && type != STT_NOTYPE) continue;
    const u64 end = address + symbol.st_size < address ? address : address + symbol.st_size;
    const auto order = static_cast<u8>((type == STT_NOTYPE ? 4 : 0) + (binding == STB_GLOBAL ? 0
                                                                       : binding == STB_WEAK ? 1
                                                                                             : 2));
    if (!budget.take(3 * sizeof(Symbol))) break;  // a vector grows by doubling, and is sorted
    symbols.push_back({address, end, name, order, type == STT_GNU_IFUNC});
  }
  std::stable_sort(symbols.begin(), symbols.end(),
                   [](const Symbol& a, const Symbol& b) { return a.begin != b.begin ? a.begin < b.begin : a.order > b.order; });
}

// The last symbol at or below the address that reaches it; one without a size reaches to the next.
const Symbol* ElfNames::Inside::symbol_at(u64 address) const {
  auto at = std::upper_bound(symbols.begin(), symbols.end(), address, [](u64 a, const Symbol& s) { return a < s.begin; });
  const Symbol* without_size = nullptr;
  for (int tries = 0; at != symbols.begin() && tries < 16; ++tries) {
    --at;
    if (address < at->end) return &*at;
    if (at->end == at->begin && without_size == nullptr && tries == 0) without_size = &*at;
  }
  return without_size;
}

ElfNames::ElfNames(std::unique_ptr<Inside> inside) : inside_(std::move(inside)) {}
ElfNames::~ElfNames() = default;

result<std::unique_ptr<ElfNames>> ElfNames::open(const std::string& path, const std::string& build_id, Budget* budget,
                                                 sys::Fd given) {
  auto inside = std::make_unique<Inside>(budget);
  RS_TRY(inside->load(path, build_id, std::move(given)));
  return std::unique_ptr<ElfNames>(new ElfNames(std::move(inside)));
}

const std::string& ElfNames::doubt() const { return inside_->judging.doubt; }
u64 ElfNames::left_out() const { return inside_->names.left_out(); }

std::vector<ElfPlace> ElfNames::at(u64 file_offset) {
  std::vector<ElfPlace> out;
  for (const Inside::Segment& s : inside_->segments) {
    if (file_offset - s.offset >= s.size) continue;
    const u64 address = file_offset - s.offset + s.address;
    if (inside_->places && inside_->places->at(address - inside_->dwarf_bias, out)) return out;
    out.clear();
    if (const Symbol* symbol = inside_->symbol_at(address);
        symbol != nullptr && !inside_->names.of(symbol->name).empty())  // empty: the budget has no room for it
      out.push_back({inside_->names.of(symbol->name), address - symbol->begin, symbol->end - symbol->begin, "", 0, false});
    return out;
  }
  return out;
}

// Whether a mangled name can belong to a function of this name: then its last word is in it, but for those that have a sign of
// their own. To demangle all names of a program would take long.
static bool may_be(std::string_view mangled, std::string_view function) {
  size_t begin = function.size();
  while (begin != 0 && (std::isalnum(static_cast<u8>(function[begin - 1])) != 0 || function[begin - 1] == '_')) --begin;
  const std::string_view word = function.substr(begin);
  const bool has_sign = word == "allocator" || word.ends_with("string") || word.ends_with("stream");
  return has_sign || function.find("operator") != function.npos || mangled.find(word) != mangled.npos;
}

// A version's mark may follow it; a C++ name is without parameters.
bool ElfNames::Inside::is_named(const Symbol& symbol, std::string_view function) {
  const std::string_view name = sys::name_at(symbol.name);
  const bool version =
      name.size() > function.size() && name.compare(0, function.size(), function) == 0 && name[function.size()] == '@';
  const bool mangled = name.starts_with("_Z") || name.starts_with("_R");
  return name == function || version || (mangled && may_be(name, function) && names.of(symbol.name) == function);
}

std::vector<ElfFunction> ElfNames::named(std::string_view function) const {
  std::vector<ElfFunction> found;
  for (const Symbol& symbol : inside_->symbols) {
    if (symbol.chosen || !inside_->is_named(symbol, function)) continue;
    for (const Inside::Segment& s : inside_->segments) {
      if (symbol.begin - s.address < s.size) found.push_back({symbol.begin - s.address + s.offset, symbol.end - symbol.begin});
    }
  }
  // Of several symbols at one place the largest counts.
  std::sort(found.begin(), found.end(), [](const ElfFunction& a, const ElfFunction& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.size > b.size;
  });
  const auto same = [](const ElfFunction& a, const ElfFunction& b) { return a.begin == b.begin; };
  found.erase(std::unique(found.begin(), found.end(), same), found.end());
  return found;
}

bool ElfNames::is_chosen(std::string_view function) const {
  return std::any_of(inside_->symbols.begin(), inside_->symbols.end(),
                     [&](const Symbol& symbol) { return symbol.chosen && inside_->is_named(symbol, function); });
}

std::vector<std::pair<std::string, ElfFunction>> ElfNames::matching(std::string_view pattern) const {
  std::vector<std::pair<std::string, ElfFunction>> found;
  std::set<std::string> seen;
  for (const Symbol& symbol : inside_->symbols) {
    const std::string& name = inside_->names.of(symbol.name);
    if (symbol.chosen || name.empty() || !glob_matches(pattern, name) || !seen.insert(name).second) continue;
    for (const ElfFunction& function : named(name)) found.emplace_back(name, function);
  }
  return found;
}

std::unique_ptr<Variables> ElfNames::variables(u64 file_offset, u64 offset, bool at_return) {
  for (const Inside::Segment& s : inside_->segments) {
    if (file_offset - s.offset >= s.size || !inside_->places) continue;
    const u64 address = file_offset - s.offset + s.address - inside_->dwarf_bias;
    Dwarf_Die function;
    if (!inside_->places->function_at(address, function)) continue;
    const Variables::Place place{address, file_offset - address, offset, at_return};
    return std::make_unique<Variables>(inside_->judging.judge, inside_->budget, function, place);
  }
  return nullptr;
}

std::vector<std::string> ElfNames::functions() const {
  std::vector<std::string> all;
  for (const Symbol& symbol : inside_->symbols) {
    if (!symbol.chosen) all.push_back(inside_->names.of(symbol.name));
  }
  return all;
}

}  // namespace ringside
