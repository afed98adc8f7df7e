#include "stacks/debug_files.hpp"

#include <dwarf.h>
#include <elfutils/libdwelf.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>
#include <vector>

#include "stacks/elf_judge.hpp"
#include "stacks/judged.hpp"
#include "stacks/zstd_sections.hpp"
#include "sys/text.hpp"

namespace ringside::elf {
namespace {

// The checksum of .gnu_debuglink: zlib's. A file that may be all holes costs as much as any.
bool has_checksum(int fd, GElf_Word wanted, Judging& judging) {
  struct stat st {};
  char head[SELFMAG];
  if (fstat(fd, &st) != 0 || pread(fd, head, sizeof head, 0) != SELFMAG || std::memcmp(head, ELFMAG, SELFMAG) != 0)
    return false;
  judging.budget.grow(st);
  if (!judging.budget.step(static_cast<u64>(st.st_size) / 8)) {
    judging.left_out = true;
    return false;
  }
  std::vector<u8> bytes(size_t{1} << 16);
  uLong sum = 0;
  off_t at = 0;
  for (ssize_t n = 0; at < st.st_size && (n = pread(fd, bytes.data(), bytes.size(), at)) != 0;) {
    if (n < 0 && errno != EINTR) return false;
    if (n > 0) sum = crc32(sum, bytes.data(), static_cast<uInt>(n)), at += n;
  }
  return sum == wanted;
}

bool inflates_too_far(int fd, Judging& judging) {
  const auto fit = judge_elf(fd, "", judging.budget);
  judging.left_out = judging.left_out || !fit || *fit != ElfFit::whole;
  return !fit || *fit != ElfFit::whole;
}

// A debug file as libdw can read it; false: it cannot.
bool make_readable(sys::Fd& fd, const std::string& path, Judging& judging) {
  if (inflates_too_far(fd.get(), judging)) return false;
  const auto plain = unpack_zstd_sections(fd, path, judging.budget);
  if (!plain) judging.doubt = plain.error().sentence + "; " + without_debugging;
  return plain.has_value();
}

bool has_build_id(int fd, std::string_view wanted) {
  elf_version(EV_CURRENT);
  const ElfHandle file(elf_begin(fd, ELF_C_READ, nullptr));
  const void* id = nullptr;
  const ssize_t size = file != nullptr ? dwelf_elf_gnu_build_id(file.get(), &id) : -1;
  return size > 0 && sys::hex({static_cast<const u8*>(id), static_cast<size_t>(size)}) == wanted;
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
int look_for_debuginfo(Dwfl_Module* module, const char* main, const char* link, GElf_Word checksum, Judging* judging,
                       char** found) {
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
      if (!debug || judging == nullptr || !has_checksum(debug->get(), checksum, *judging)) continue;
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
  auto* const judging = static_cast<Judging*>(*data);
  sys::Fd fd(look_for_debuginfo(module, main, link, checksum, judging, found));
  if (!fd || (judging != nullptr && make_readable(fd, *found != nullptr ? *found : "the debug file of a server", *judging)))
    return fd.release();
  std::free(std::exchange(*found, nullptr));
  return -1;
}

int find_no_elf(Dwfl_Module*, void**, const char*, Dwarf_Addr, char**, Elf**) { return -1; }
char* no_folder = const_cast<char*>("");  // for libdw's own search: of those in the path it opens the absolute ones

}  // namespace

extern const Dwfl_Callbacks callbacks = {find_no_elf, find_debuginfo, dwfl_offline_section_address, &no_folder};

result<sys::Fd> open_file(const std::string& path) {
  if (path != "[vdso]") return open_judged(path);
  const auto* const image = reinterpret_cast<const u8*>(getauxval(AT_SYSINFO_EHDR));
  sys::Fd fd(memfd_create("vdso", MFD_CLOEXEC));
  if (image == nullptr || !fd || ::write(fd.get(), image, 2 * page_size) < 0)
    return fail(ENOENT, "this process's [vdso] cannot be read");
  return fd;
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

const char* debug_path(Dwfl_Module* module) {
  const char *main = nullptr, *debug = nullptr;
  dwfl_module_info(module, nullptr, nullptr, nullptr, nullptr, nullptr, &main, &debug);
  return debug != nullptr ? debug : main != nullptr ? main : "";
}

// The file that .gnu_debugaltlink names: by its build ID, by its path, from the servers. libdw itself would open any.
Alternate set_alternate(Dwfl_Module* module, Dwarf* dwarf, Judging& judging) {
  Alternate alternate{};
  const char* name = nullptr;
  const void* bytes = nullptr;
  const ssize_t size = dwelf_dwarf_gnu_debugaltlink(dwarf, &name, &bytes);
  if (size <= 0) return alternate;
  dwarf_setalt(dwarf, no_alternate);
  const std::string id = sys::hex({static_cast<const u8*>(bytes), std::min<size_t>(static_cast<size_t>(size), 64)});
  const std::string beside = std::filesystem::path(debug_path(module)).parent_path() / name;
  for (const std::string& path : {installed_debug_file(id), beside, std::string()}) {
    auto fd = path.empty() ? from_servers(module) : open_judged(path);
    if (!fd && fd.error().code != std::errc::no_such_file_or_directory)
      judging.doubt = fd.error().sentence + "; debugging information that " + debug_path(module) + " has there is missing";
    if (!fd || !has_build_id(fd->get(), id)) continue;
    if (!make_readable(*fd, path.empty() ? name : path, judging)) return alternate;
    alternate.dwarf.reset(dwarf_begin(fd->get(), DWARF_C_READ));
    if (alternate.dwarf == nullptr) continue;
    if (!judging.judge.may_list(alternate.dwarf.get())) {
      judging.left_out = true;
      return {};
    }
    alternate.fd = std::move(*fd);
    dwarf_setalt(alternate.dwarf.get(), no_alternate);
    dwarf_setalt(dwarf, alternate.dwarf.get());
    return alternate;
  }
  return alternate;
}

// libdw has no way to take a descriptor of the file that a skeleton names: it opens that by its path, later. So no other user
// may be able to put another one there.
bool may_open_split(Dwfl_Module* module, Dwarf_Die& skeleton, Judging& judging) {
  const auto text = [&](unsigned which, unsigned older) {
    Dwarf_Attribute attribute;
    const bool has = dwarf_attr(&skeleton, which, &attribute) != nullptr || dwarf_attr(&skeleton, older, &attribute) != nullptr;
    const char* const found = has ? dwarf_formstring(&attribute) : nullptr;
    return std::string(found != nullptr ? found : "", found != nullptr ? strnlen(found, PATH_MAX) : 0);
  };
  const std::filesystem::path name = text(DW_AT_dwo_name, DW_AT_GNU_dwo_name), folder = text(DW_AT_comp_dir, DW_AT_comp_dir);
  if (name.empty()) return false;
  const std::string file = debug_path(module);
  const std::filesystem::path beside = std::filesystem::path(file).parent_path();
  for (const std::string& path : {file + ".dwp", (beside / name).string(), (beside / folder / name).string()}) {
    const auto fd = open_judged(path, {.lasting = true});
    const bool is_zstd = fd && has_zstd_sections(fd->get());  // libdw opens it itself
    if (is_zstd) judging.doubt = path + " is compressed by zstd; inlined functions and lines of " + file + " may be missing";
    if (fd ? !is_zstd && !inflates_too_far(fd->get(), judging) : fd.error().code == std::errc::no_such_file_or_directory)
      continue;
    if (!fd && judging.doubt.empty())
      judging.doubt = fd.error().sentence + "; inlined functions and lines of " + file + " may be missing";
    return false;
  }
  return true;
}

}  // namespace ringside::elf
