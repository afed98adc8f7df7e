#include "stacks/elf_names.hpp"

#include <dwarf.h>
#include <elfutils/libdw.h>
#include <elfutils/libdwelf.h>
#include <elfutils/libdwfl.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <utility>

#include "stacks/demangle.hpp"
#include "stacks/dwarf_judge.hpp"
#include "stacks/elf_judge.hpp"
#include "stacks/judged.hpp"
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
struct Range {
  u64 begin = 0, end = 0;
  Dwarf_Off die = 0;  // of `units`: the number in unit_dies
};
// With -gsplit-dwarf a unit in the program is a skeleton, with addresses and lines; the functions are in another file's.
struct Unit {
  Dwarf_Die skeleton, die;  // the same, where nothing is split
  bool known = false;       // its functions
  std::vector<Range> functions{};
};
// A namespace or class, which functions without a linkage name stand in.
struct Scope {
  u32 outer = 0;  // in `scopes`
  const char* name = nullptr;
};
// What the callbacks know of a file.
struct Judging {
  Budget& budget;
  bool left_out = false;  // a debug file, or the file's own debugging information
};
struct DwflEnd {
  void operator()(Dwfl* dwfl) const { dwfl_end(dwfl); }
};
// A file with what several files' debugging information has in common (dwz).
struct Alternate {
  sys::Fd fd;
  std::unique_ptr<Dwarf, int (*)(Dwarf*)> dwarf{nullptr, dwarf_end};
};

}  // namespace elf
namespace {

using elf::Judging;
using elf::Range;
using elf::Symbol;

constexpr u32 deepest = 64;  // nested DIEs

// The range with `address` that begins last; null: there is none. Ranges are sorted by their begin.
const Range* range_at(const std::vector<Range>& ranges, u64 address) {
  auto at = std::upper_bound(ranges.begin(), ranges.end(), address, [](u64 a, const Range& r) { return a < r.begin; });
  for (int tries = 0; at != ranges.begin() && tries < 8; ++tries) {
    --at;
    if (address < at->end) return &*at;
  }
  return nullptr;
}

void sort(std::vector<Range>& ranges) {
  std::stable_sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
}

const char* text_of(Dwarf_Die& die, std::initializer_list<unsigned> attributes) {
  Dwarf_Attribute attribute;
  for (const unsigned which : attributes) {
    if (dwarf_attr(&die, which, &attribute) == nullptr) continue;
    if (const char* name = dwarf_formstring(&attribute)) return name;
  }
  return nullptr;
}

// A path, or an empty one. Many places may share a long one.
std::string path_of(const char* text) { return {text != nullptr ? text : "", text != nullptr ? strnlen(text, PATH_MAX) : 0}; }

u64 number_of(Dwarf_Die& die, unsigned which) {
  Dwarf_Attribute attribute;
  Dwarf_Word value = 0;
  return dwarf_attr(&die, which, &attribute) != nullptr && dwarf_formudata(&attribute, &value) == 0 ? value : 0;
}

// The file as a descriptor that libdw may keep.
result<sys::Fd> open_file(const std::string& path) {
  if (path != "[vdso]") return open_judged(path);
  const auto* const image = reinterpret_cast<const u8*>(getauxval(AT_SYSINFO_EHDR));
  sys::Fd fd(memfd_create("vdso", MFD_CLOEXEC));
  if (image == nullptr || !fd || ::write(fd.get(), image, 2 * page_size) < 0)
    return fail(ENOENT, "this process's [vdso] cannot be read");
  return fd;
}

// The checksum of .gnu_debuglink: zlib's. A file of more than 2 GiB, which may be all holes, takes too long.
bool has_checksum(int fd, GElf_Word wanted) {
  struct stat st {};
  if (fstat(fd, &st) != 0 || st.st_size > i64{2} << 30) return false;
  std::vector<u8> bytes(size_t{1} << 16);
  uLong sum = 0;
  for (ssize_t n = 0; (n = ::read(fd, bytes.data(), bytes.size())) != 0;) {
    if (n < 0 && errno != EINTR) return false;
    if (n > 0) sum = crc32(sum, bytes.data(), static_cast<uInt>(n));
  }
  return sum == wanted;
}

bool inflates_too_far(int fd, Judging& judging) {
  const auto fit = judge_elf(fd, "", judging.budget);
  judging.left_out = judging.left_out || !fit || *fit != ElfFit::whole;
  return !fit || *fit != ElfFit::whole;
}

bool has_build_id(int fd, std::string_view wanted) {
  elf_version(EV_CURRENT);
  const std::unique_ptr<Elf, int (*)(Elf*)> file(elf_begin(fd, ELF_C_READ, nullptr), elf_end);
  const void* id = nullptr;
  const ssize_t size = file != nullptr ? dwelf_elf_gnu_build_id(file.get(), &id) : -1;
  return size > 0 && sys::hex({static_cast<const u8*>(id), static_cast<size_t>(size)}) == wanted;
}

// Where debug files are installed by the build ID of their program.
std::string installed_debug_file(const std::string& build_id) {
  return "/usr/lib/debug/.build-id/" + build_id.substr(0, 2) + "/" + build_id.substr(2) + ".debug";
}

std::string build_id_of(Dwfl_Module* module) {
  const unsigned char* bytes = nullptr;
  GElf_Addr where = 0;
  const int size = dwfl_module_build_id(module, &bytes, &where);
  return size > 0 ? sys::hex({bytes, static_cast<size_t>(size)}) : "";
}

// The debug file of the module, by its build ID; the alternate one, if the module has its debugging information. libdw opens
// nothing else here: it has neither a name nor a folder.
result<sys::Fd> from_servers(Dwfl_Module* module) {
  char* found = nullptr;
  errno = 0;
  sys::Fd fd(dwfl_standard_find_debuginfo(module, nullptr, nullptr, 0, nullptr, nullptr, 0, &found));
  std::free(found);
  return fd ? result<sys::Fd>(std::move(fd)) : fail(ENOENT, "no server has the debug file");
}

// For libdw: a descriptor of the file with the debugging information of the module `main`, or -1. It is looked for by its
// build ID, then by the name that `main` has in .gnu_debuglink, where gdb looks, then on the servers of DEBUGINFOD_URLS.
// libdw itself opens nothing by a name: it would wait at a pipe.
int look_for_debuginfo(Dwfl_Module* module, const char* main, const char* link, GElf_Word checksum, char** found) {
  if (const std::string id = build_id_of(module); id.size() >= 4) {
    const std::string path = installed_debug_file(id);
    auto debug = open_judged(path);
    if (debug && has_build_id(debug->get(), id)) {
      *found = strdup(path.c_str());
      return debug->release();
    }
  }
  const std::string_view file = link == nullptr ? "" : link;
  if (main != nullptr && !file.empty() && file.find('/') == file.npos) {
    const std::string folder = std::filesystem::path(main).parent_path();
    for (const std::string& in : {folder, folder + "/.debug", "/usr/lib/debug" + folder}) {
      const std::string path = in + '/' + std::string(file);
      auto debug = open_judged(path);
      if (!debug || !has_checksum(debug->get(), checksum)) continue;
      *found = strdup(path.c_str());
      return debug->release();
    }
  }
  auto debug = from_servers(module);
  return debug ? debug->release() : -1;
}

// *data: Judging
int find_debuginfo(Dwfl_Module* module, void** data, const char*, Dwarf_Addr, const char* main, const char* link,
                   GElf_Word checksum, char** found) {
  if (link != nullptr && checksum == 0) return -1;  // an alternate file, which set_alternate finds
  const int fd = look_for_debuginfo(module, main, link, checksum, found);
  if (fd < 0 || (*data != nullptr && !inflates_too_far(fd, *static_cast<Judging*>(*data)))) return fd;
  ::close(fd);
  std::free(std::exchange(*found, nullptr));
  return -1;
}

int find_no_elf(Dwfl_Module*, void**, const char*, Dwarf_Addr, char**, Elf**) { return -1; }
char* no_folder = const_cast<char*>("");  // for libdw's own search: of those in the path it opens the absolute ones
const Dwfl_Callbacks callbacks = {find_no_elf, find_debuginfo, dwfl_offline_section_address, &no_folder};
Dwarf* const no_alternate = reinterpret_cast<Dwarf*>(-1);  // libdw's own mark: it was looked for, and there is none

}  // namespace

struct ElfNames::Inside {
  std::unique_ptr<Dwfl, elf::DwflEnd> dwfl;
  Dwfl_Module* module = nullptr;
  Dwarf* dwarf = nullptr;
  elf::Alternate alternate{};  // of `dwarf`
  Dwarf_Addr dwarf_bias = 0;
  struct Segment {
    u64 offset, size, address;
  };
  std::vector<Segment> segments;  // of code
  std::vector<elf::Symbol> symbols;
  std::vector<elf::Range> units;  // the units' code
  std::vector<elf::Unit> unit_dies;
  std::vector<elf::Scope> scopes{{}};                                  // 0: none
  std::map<std::pair<const void*, Dwarf_Off>, u32> scope_of_function;  // of those that have no linkage name
  std::unordered_map<const char*, std::string> demangled_names;        // by where the name stands
  Budget own;
  Budget& budget;
  elf::Judging judging{budget};
  DwarfJudge judge{budget};
  u64 left_out = 0;  // names
  std::string doubt{};

  explicit Inside(Budget* from) : budget(from != nullptr ? *from : own) {}
  result<void> load(const std::string& path, const std::string& build_id);
  result<void> report(const std::string& path, sys::Fd fd, const std::string& build_id);
  void read_segments(Elf* file, Dwarf_Addr bias);
  void read_symbols();
  void read_units();
  void set_alternate();
  const char* debug_path() const;
  bool may_open_split(Dwarf_Die& skeleton);
  const std::vector<Range>& functions_of(elf::Unit& unit);
  void add_functions(Dwarf_Die& parent, std::vector<Range>& out, u32 scope, u32 depth);
  bool add(std::vector<Range>& out, const Range& range);
  std::string name_of(Dwarf_Die& die);
  const std::string& name_of(const char* mangled);
  std::string scope_before(u32 scope) const;
  bool is_named(const Symbol& symbol, std::string_view function);
  bool has_address(Dwarf_Die& die, u64 address);
  bool places_of(u64 address, std::vector<ElfPlace>& out);
  void inlined_at(Dwarf_Die& parent, u64 address, std::vector<Dwarf_Die>& out, u32 depth);
  const Symbol* symbol_at(u64 address) const;
  // use(child): whether to go on. Offsets must grow, else the file is hostile. To find the next one libdw may read all between.
  template <class Use>
  void each_child(Dwarf_Die& parent, const Use& use) {
    Dwarf_Die child;
    const u64 weight = judge.weight(parent.cu);
    if (weight == 0 || !budget.step(weight) || dwarf_child(&parent, &child) != 0) return;
    Dwarf_Off last = dwarf_dieoffset(&parent);
    do {
      const Dwarf_Off here = dwarf_dieoffset(&child);
      if (here <= last || !budget.step(weight + (here - last) / 2)) return;
      last = here;
      if (!use(child)) return;
    } while (dwarf_siblingof(&child, &child) == 0);
  }
  // use(begin, end): each range of the entry's code.
  template <class Use>
  void each_range(Dwarf_Die& die, const Use& use) {
    Dwarf_Addr base = 0, begin = 0, end = 0;
    for (ptrdiff_t at = 0; budget.step(4) && (at = dwarf_ranges(&die, at, &base, &begin, &end)) > 0;)
      if (begin < end) use(begin, end);
  }
};

result<void> ElfNames::Inside::load(const std::string& path, const std::string& build_id) {
  auto fd = open_file(path);
  auto loaded = fd ? report(path, std::move(*fd), build_id) : result<void>(tl::unexpected<Error>(fd.error()));
  if (loaded || build_id.size() < 4) return loaded;
  // The file has changed or is gone; an installed debug file may still know the build.
  const std::string debug = installed_debug_file(build_id);
  if (build_id.find_first_not_of("0123456789abcdef") != std::string::npos) return loaded;
  auto other = open_file(debug);
  if (other && report(debug, std::move(*other), build_id)) return {};
  return loaded;
}

result<void> ElfNames::Inside::report(const std::string& path, sys::Fd fd, const std::string& build_id) {
  alternate = {};
  dwfl.reset(dwfl_begin(&callbacks));
  if (dwfl == nullptr) return refuse(std::errc::not_enough_memory, "libdw has no memory");
  const ElfFit fit = RS_TRY(judge_elf(fd.get(), path, budget));
  dwfl_report_begin(dwfl.get());
  module = dwfl_report_offline(dwfl.get(), path.c_str(), path.c_str(), fd.get());
  if (module == nullptr)
    return refuse(std::errc::executable_format_error, path + " is no ELF file that libdw can read: " + dwfl_errmsg(-1));
  (void)fd.release();  // the report has taken it
  dwfl_report_end(dwfl.get(), nullptr, nullptr);
  GElf_Addr bias = 0;
  Elf* const file = dwfl_module_getelf(module, &bias);
  if (file == nullptr) return refuse(std::errc::executable_format_error, path + " cannot be read as ELF: " + dwfl_errmsg(-1));
  const std::string own_id = build_id_of(module);
  if (!build_id.empty() && own_id != build_id)
    return refuse(std::errc::bad_file_descriptor, path + " is not the file that ran: its build id is " +
                                                      (own_id.empty() ? "missing" : own_id) + ", recorded was " + build_id);
  read_segments(file, bias);
  if (segments.empty()) return refuse(std::errc::executable_format_error, path + " has no code");
  void** data = nullptr;
  dwfl_module_info(module, &data, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr);
  if (data != nullptr) *data = &judging;
  dwarf = fit == ElfFit::whole ? dwfl_module_getdwarf(module, &dwarf_bias) : nullptr;
  if (dwarf != nullptr && !judge.may_list(dwarf)) dwarf = nullptr, judging.left_out = true;
  if (dwarf != nullptr) set_alternate();
  read_symbols();
  if (fit != ElfFit::whole || judging.left_out)
    doubt = path +
            ": its debugging information would take more memory than a file of its size may; its functions have the "
            "names of symbols, without lines and inlined functions";
  if (dwarf != nullptr) read_units();
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

// The file with the debugging information.
const char* ElfNames::Inside::debug_path() const {
  const char *main = nullptr, *debug = nullptr;
  dwfl_module_info(module, nullptr, nullptr, nullptr, nullptr, nullptr, &main, &debug);
  return debug != nullptr ? debug : main != nullptr ? main : "";
}

// The file that .gnu_debugaltlink names: by its build ID, by its path, from the servers. libdw itself would open any.
void ElfNames::Inside::set_alternate() {
  const char* name = nullptr;
  const void* bytes = nullptr;
  const ssize_t size = dwelf_dwarf_gnu_debugaltlink(dwarf, &name, &bytes);
  if (size <= 0) return;
  dwarf_setalt(dwarf, no_alternate);
  const std::string id = sys::hex({static_cast<const u8*>(bytes), std::min<size_t>(static_cast<size_t>(size), 64)});
  const std::string beside = std::filesystem::path(debug_path()).parent_path() / name;
  for (const std::string& path : {installed_debug_file(id), beside, std::string()}) {
    auto fd = path.empty() ? from_servers(module) : open_judged(path);
    if (!fd && fd.error().code != std::errc::no_such_file_or_directory)
      doubt = fd.error().sentence + "; debugging information that " + debug_path() + " has there is missing";
    if (!fd || !has_build_id(fd->get(), id)) continue;
    if (inflates_too_far(fd->get(), judging)) return;
    alternate.dwarf.reset(dwarf_begin(fd->get(), DWARF_C_READ));
    if (alternate.dwarf == nullptr) continue;
    if (!judge.may_list(alternate.dwarf.get())) {
      judging.left_out = true;
      alternate.dwarf.reset();
      return;
    }
    alternate.fd = std::move(*fd);
    dwarf_setalt(alternate.dwarf.get(), no_alternate);
    dwarf_setalt(dwarf, alternate.dwarf.get());
    return;
  }
}

// libdw has no way to take a descriptor of the file that a skeleton names: it opens that by its path, later. So no other user
// may be able to put another one there.
bool ElfNames::Inside::may_open_split(Dwarf_Die& skeleton) {
  const auto text = [&](unsigned which, unsigned older) {
    Dwarf_Attribute attribute;
    const bool has = dwarf_attr(&skeleton, which, &attribute) != nullptr || dwarf_attr(&skeleton, older, &attribute) != nullptr;
    const char* const found = has ? dwarf_formstring(&attribute) : nullptr;
    return std::string(found != nullptr ? found : "", found != nullptr ? strnlen(found, PATH_MAX) : 0);
  };
  const std::filesystem::path name = text(DW_AT_dwo_name, DW_AT_GNU_dwo_name), folder = text(DW_AT_comp_dir, DW_AT_comp_dir);
  if (name.empty()) return false;
  const std::string file = debug_path();
  const std::filesystem::path beside = std::filesystem::path(file).parent_path();
  for (const std::string& path : {file + ".dwp", (beside / name).string(), (beside / folder / name).string()}) {
    const auto fd = open_judged(path, {.lasting = true});
    if (fd ? !inflates_too_far(fd->get(), judging) : fd.error().code == std::errc::no_such_file_or_directory) continue;
    if (!fd && doubt.empty()) doubt = fd.error().sentence + "; inlined functions and lines of " + file + " may be missing";
    return false;
  }
  return true;
}

void ElfNames::Inside::read_units() {
  units.clear();
  unit_dies.clear();
  Dwarf_CU* cu = nullptr;
  while (budget.take(2 * sizeof(elf::Unit))) {
    elf::Unit unit{};
    uint8_t type = 0;
    if (dwarf_get_units(dwarf, cu, &cu, nullptr, &type, &unit.skeleton, nullptr) != 0) break;
    unit.die = unit.skeleton;
    Dwarf_Die split{};
    if (type == DW_UT_skeleton && may_open_split(unit.skeleton) &&
        dwarf_cu_info(cu, nullptr, nullptr, nullptr, &split, nullptr, nullptr, nullptr) == 0 && split.addr != nullptr) {
      dwarf_setalt(dwarf_cu_getdwarf(split.cu), no_alternate);
      unit.die = judge.may_list(dwarf_cu_getdwarf(split.cu)) ? split : unit.die;
    }
    each_range(unit.skeleton, [&](u64 begin, u64 end) { (void)add(units, {begin, end, unit_dies.size()}); });
    unit_dies.push_back(std::move(unit));
  }
  sort(units);
}

bool ElfNames::Inside::add(std::vector<Range>& out, const Range& range) {
  const bool fits = budget.take(3 * sizeof range);
  if (fits) out.push_back(range);
  return fits;
}

const std::vector<Range>& ElfNames::Inside::functions_of(elf::Unit& unit) {
  if (std::exchange(unit.known, true)) return unit.functions;
  add_functions(unit.die, unit.functions, 0, 0);
  sort(unit.functions);
  return unit.functions;
}

const std::string& ElfNames::Inside::name_of(const char* mangled) {
  const auto [at, fresh] = demangled_names.try_emplace(mangled);
  if (!fresh) return at->second;
  bool without = false;
  std::string name = demangled(mangled, budget, &without);
  left_out += without ? 1 : 0;
  if (budget.take(128 + name.size())) at->second = std::move(name);
  return at->second;
}

// "a::b::", from its end.
std::string ElfNames::Inside::scope_before(u32 scope) const {
  std::string text;
  for (; scope != 0 && text.size() < longest_name; scope = scopes[scope].outer) {
    const char* const name = scopes[scope].name != nullptr ? scopes[scope].name : "(anonymous namespace)";
    text = std::string(name, strnlen(name, longest_name)) + "::" + text;
  }
  return text;
}

std::string ElfNames::Inside::name_of(Dwarf_Die& die) {
  const char* name = nullptr;
  Dwarf_Die origin = die;
  for (int hops = 0; hops < 8; ++hops) {
    const u64 weight = judge.weight(origin.cu);
    if (weight == 0 || !budget.step(4 * weight)) return "";
    if (const char* mangled = text_of(origin, {DW_AT_linkage_name, DW_AT_MIPS_linkage_name})) return name_of(mangled);
    if (name == nullptr) name = text_of(origin, {DW_AT_name});
    Dwarf_Attribute attribute;
    Dwarf_Die next;
    if (dwarf_attr(&origin, DW_AT_abstract_origin, &attribute) == nullptr &&
        dwarf_attr(&origin, DW_AT_specification, &attribute) == nullptr)
      break;
    if (dwarf_formref_die(&attribute, &next) == nullptr) break;
    origin = next;
  }
  if (name == nullptr) return "";
  const auto scope = scope_of_function.find({dwarf_cu_getdwarf(origin.cu), dwarf_dieoffset(&origin)});
  return (scope != scope_of_function.end() ? scope_before(scope->second) : "") + demangled(name, budget);
}

void ElfNames::Inside::add_functions(Dwarf_Die& parent, std::vector<Range>& out, u32 scope, u32 depth) {
  if (depth > deepest) return;
  each_child(parent, [&](Dwarf_Die& child) {
    const int tag = dwarf_tag(&child);
    const bool is_scope = tag == DW_TAG_namespace || tag == DW_TAG_structure_type || tag == DW_TAG_class_type;
    u32 inner = scope;
    if (is_scope && budget.take(2 * sizeof(elf::Scope))) {
      inner = static_cast<u32>(scopes.size());
      scopes.push_back({scope, text_of(child, {DW_AT_name})});
    }
    if (tag == DW_TAG_subprogram && scope != 0 && dwarf_hasattr(&child, DW_AT_linkage_name) == 0 &&
        dwarf_hasattr(&child, DW_AT_name) != 0 && budget.take(128))
      scope_of_function[{dwarf_cu_getdwarf(child.cu), dwarf_dieoffset(&child)}] = scope;
    if (tag == DW_TAG_subprogram)
      each_range(child, [&](u64 begin, u64 end) { (void)add(out, {begin, end, dwarf_dieoffset(&child)}); });
    // Nested functions, and those of namespaces and classes.
    if (tag == DW_TAG_subprogram || is_scope || tag == DW_TAG_module || tag == DW_TAG_lexical_block)
      add_functions(child, out, inner, depth + 1);
    return true;
  });
}

bool ElfNames::Inside::has_address(Dwarf_Die& die, u64 address) {
  bool found = false;
  each_range(die, [&](u64 begin, u64 end) { found = found || (address >= begin && address < end); });
  return found;
}

// From the outermost inlined function to the innermost.
void ElfNames::Inside::inlined_at(Dwarf_Die& parent, u64 address, std::vector<Dwarf_Die>& out, u32 depth) {
  if (depth > deepest) return;
  each_child(parent, [&](Dwarf_Die& child) {
    const int tag = dwarf_tag(&child);
    const bool inlined = tag == DW_TAG_inlined_subroutine;
    if (!inlined && tag != DW_TAG_lexical_block && tag != DW_TAG_try_block && tag != DW_TAG_catch_block) return true;
    // A block without addresses of its own may hold others that have some.
    Dwarf_Addr low = 0;
    const bool has = has_address(child, address);
    if (!has && (inlined || dwarf_lowpc(&child, &low) == 0 || dwarf_hasattr(&child, DW_AT_ranges) != 0)) return true;
    if (inlined) out.push_back(child);
    inlined_at(child, address, out, depth + 1);
    return !has;
  });
}

bool ElfNames::Inside::places_of(u64 with_bias, std::vector<ElfPlace>& out) {
  const u64 address = with_bias - dwarf_bias;
  const Range* const in_unit = range_at(units, address);
  if (in_unit == nullptr) return false;
  elf::Unit& unit = unit_dies[in_unit->die];
  const Range* const function = range_at(functions_of(unit), address);
  Dwarf_Die outer;
  if (function == nullptr || dwarf_offdie(dwarf_cu_getdwarf(unit.die.cu), function->die, &outer) == nullptr) return false;
  std::vector<Dwarf_Die> chain{outer};
  inlined_at(outer, address, chain, 0);
  Dwarf_Files* files = nullptr;
  size_t file_count = 0;
  if (!judge.may_read_lines(unit.die) || dwarf_getsrcfiles(&unit.die, &files, &file_count) != 0) files = nullptr;
  ElfPlace place;
  if (Dwarf_Line* const line = judge.may_read_lines(unit.skeleton) ? dwarf_getsrc_die(&unit.skeleton, address) : nullptr) {
    int number = 0;
    place.file = path_of(dwarf_linesrc(line, nullptr, nullptr));
    if (dwarf_lineno(line, &number) == 0) place.line = static_cast<u32>(number);
  }
  for (size_t i = chain.size(); i-- != 0;) {
    place.inlined = i != 0;
    place.function = name_of(chain[i]);
    place.offset = address - function->begin;
    place.size = function->end - function->begin;
    if (i != 0 && dwarf_tag(&chain[i]) == DW_TAG_inlined_subroutine) {
      Dwarf_Addr entry = 0;
      if (dwarf_entrypc(&chain[i], &entry) == 0 && entry <= address) place.offset = address - entry;
      place.size = 0;
    }
    if (!place.function.empty()) out.push_back(place);
    if (i == 0) break;
    // The caller's place is that of the call.
    place.line = static_cast<u32>(number_of(chain[i], DW_AT_call_line));
    const u64 file = number_of(chain[i], DW_AT_call_file);
    const char* const called_in =
        files != nullptr && file < file_count ? dwarf_filesrc(files, file, nullptr, nullptr) : nullptr;
    place.file = path_of(called_in);
  }
  return !out.empty() && !out.back().inlined;
}

ElfNames::ElfNames(std::unique_ptr<Inside> inside) : inside_(std::move(inside)) {}
ElfNames::~ElfNames() = default;

result<std::unique_ptr<ElfNames>> ElfNames::open(const std::string& path, const std::string& build_id, Budget* budget) {
  auto inside = std::make_unique<Inside>(budget);
  RS_TRY(inside->load(path, build_id));
  return std::unique_ptr<ElfNames>(new ElfNames(std::move(inside)));
}

const std::string& ElfNames::doubt() const { return inside_->doubt; }
u64 ElfNames::left_out() const { return inside_->left_out; }

std::vector<ElfPlace> ElfNames::at(u64 file_offset) {
  std::vector<ElfPlace> out;
  for (const Inside::Segment& s : inside_->segments) {
    if (file_offset - s.offset >= s.size) continue;
    const u64 address = file_offset - s.offset + s.address;
    if (inside_->dwarf != nullptr && inside_->places_of(address, out)) return out;
    out.clear();
    if (const Symbol* symbol = inside_->symbol_at(address);
        symbol != nullptr && !inside_->name_of(symbol->name).empty())  // empty: the budget has no room for it
      out.push_back({inside_->name_of(symbol->name), address - symbol->begin, symbol->end - symbol->begin, "", 0, false});
    return out;
  }
  return out;
}

// Whether a mangled name can stand for a function of this name: then its last word is in it, but for those that have a sign of
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
  const std::string_view name(symbol.name, strnlen(symbol.name, longest_name));
  const bool version =
      name.size() > function.size() && name.compare(0, function.size(), function) == 0 && name[function.size()] == '@';
  return name == function || version || (name.starts_with("_Z") && may_be(name, function) && name_of(symbol.name) == function);
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

std::vector<std::string> ElfNames::functions() const {
  std::vector<std::string> all;
  for (const Symbol& symbol : inside_->symbols) {
    if (!symbol.chosen) all.push_back(inside_->name_of(symbol.name));
  }
  return all;
}

}  // namespace ringside
