#include "cli/command_file.hpp"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <set>

#include "stacks/judged.hpp"
#include "sys/sys.hpp"

namespace ringside::cli {
namespace {

template <class T>
bool read_at(int fd, u64 at, T& value) {
  return pread(fd, &value, sizeof value, static_cast<off_t>(at)) == static_cast<ssize_t>(sizeof value);
}

struct Binary {
  bool elf = false, loaded_by_interpreter = false, go = false;
};

Binary binary_of(int fd) {
  Binary b;
  Elf64_Ehdr header{};
  if (!read_at(fd, 0, header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64)
    return b;
  b.elf = true;
  for (u32 n = 0; n < header.e_phnum; ++n) {
    Elf64_Phdr part{};
    if (!read_at(fd, header.e_phoff + u64{n} * header.e_phentsize, part)) break;
    b.loaded_by_interpreter = b.loaded_by_interpreter || part.p_type == PT_INTERP;
    Elf64_Nhdr note{};
    char name[4] = {};
    if (part.p_type == PT_NOTE && read_at(fd, part.p_offset, note) && note.n_namesz == sizeof name &&
        read_at(fd, part.p_offset + sizeof note, name))
      b.go = b.go || std::memcmp(name, "Go\0", sizeof name) == 0;
  }
  return b;
}

// What the dynamic linker reads of a file: the libraries that it names, and the symbols that it defines for others.
struct Linked {
  std::vector<std::string> needed;
  std::set<std::string> defined;
};

Linked linked_in(int fd) {
  constexpr u64 most = 64 << 20;
  Linked out;
  Elf64_Ehdr header{};
  if (!binary_of(fd).elf || !read_at(fd, 0, header)) return out;
  const auto section = [&](u32 n, Elf64_Shdr& s) { return read_at(fd, header.e_shoff + u64{n} * header.e_shentsize, s); };
  const auto bytes_of = [&](const Elf64_Shdr& s) {
    std::string bytes(std::min<u64>(s.sh_size, most), 0);
    const ssize_t got = pread(fd, bytes.data(), bytes.size(), static_cast<off_t>(s.sh_offset));
    bytes.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
    return bytes;
  };
  const auto each = [](const std::string& bytes, auto entry, const auto& use) {
    for (size_t at = 0; at + sizeof entry <= bytes.size(); at += sizeof entry) {
      std::memcpy(&entry, bytes.data() + at, sizeof entry);
      use(entry);
    }
  };
  for (u32 n = 0; n < header.e_shnum; ++n) {
    Elf64_Shdr here{}, of_names{};
    if (!section(n, here)) break;
    if ((here.sh_type != SHT_DYNAMIC && here.sh_type != SHT_DYNSYM) || !section(here.sh_link, of_names)) continue;
    const std::string names = bytes_of(of_names), bytes = bytes_of(here);
    const auto name = [&](u64 at) { return at < names.size() ? std::string(names.c_str() + at) : std::string(); };
    if (here.sh_type == SHT_DYNAMIC)
      each(bytes, Elf64_Dyn{}, [&](const Elf64_Dyn& d) {
        if (d.d_tag == DT_NEEDED) out.needed.push_back(name(d.d_un.d_val));
      });
    else
      each(bytes, Elf64_Sym{}, [&](const Elf64_Sym& symbol) {
        if (symbol.st_shndx != SHN_UNDEF && ELF64_ST_TYPE(symbol.st_info) == STT_FUNC) out.defined.insert(name(symbol.st_name));
      });
  }
  return out;
}

// The interpreter of a script; empty: it is none.
std::string interpreter_of(int fd) {
  char line[256] = {};
  const ssize_t n = pread(fd, line, sizeof line - 1, 0);
  if (n < 3 || line[0] != '#' || line[1] != '!') return "";
  const std::string text(line + 2, std::strcspn(line + 2, "\n"));
  const size_t begin = text.find_first_not_of(" \t");
  return begin == std::string::npos ? "" : text.substr(begin, text.find_first_of(" \t", begin) - begin);
}

// The kernel raises its rights, so the loader ignores LD_PRELOAD.
bool gains_rights(int fd, const struct stat& st) {
  if ((st.st_mode & S_ISUID) != 0 && st.st_uid != getuid()) return true;
  if ((st.st_mode & S_ISGID) != 0 && (st.st_mode & S_IXGRP) != 0 && st.st_gid != getgid()) return true;
  return geteuid() != 0 && fgetxattr(fd, "security.capability", nullptr, 0) > 0;
}

// The program that the kernel starts for this file: of a script, its interpreter. Empty: it is not known.
sys::Fd program_of(const std::string& path) {
  std::string file = path;
  for (int depth = 0; depth < 2; ++depth) {
    auto opened = sys::open_data(file);
    if (!opened) return {};
    sys::Fd fd = std::move(*opened);
    if (binary_of(fd.get()).elf) return fd;
    file = interpreter_of(fd.get());
    if (file.empty()) return {};
  }
  return {};
}

}  // namespace

std::vector<std::string> calls_of_its_own(const std::string& path, const std::vector<std::string>& calls) {
  const sys::Fd program = program_of(path);
  const Linked linked = program ? linked_in(program.get()) : Linked{};
  std::vector<std::string> own;
  for (const std::string& call : calls)
    if (linked.defined.count(call) != 0) own.push_back(call);
  return own;
}

std::string why_sanitizer_ends(const std::string& path) {
  const char* const options = std::getenv("ASAN_OPTIONS");
  if (options != nullptr && std::strstr(options, "verify_asan_link_order=0") != nullptr) return "";
  const sys::Fd program = program_of(path);
  for (const std::string& library : program ? linked_in(program.get()).needed : std::vector<std::string>())
    if (library.starts_with("libasan.so"))
      return path + " is built with AddressSanitizer (" + library +
             "), which ends a program before main where another library is preloaded: with "
             "ASAN_OPTIONS=verify_asan_link_order=0 in "
             "the environment it goes on";
  return "";
}

result<std::string> find_command(const std::string& name) {
  const auto missing = [&] {
    const bool line = name.find(' ') != std::string::npos;
    const bool here = name.find('/') == std::string::npos && access(("./" + name).c_str(), X_OK) == 0;
    return fail(ENOENT, "cannot execute " + name +
                            (line   ? " (for a line of the shell: sh -c '" + name + "')"
                             : here ? " (the one in this directory: ./" + name + ")"
                                    : ""));
  };
  if (name.find('/') != std::string::npos) return access(name.c_str(), F_OK) == 0 ? result<std::string>(name) : missing();
  const char* const places = std::getenv("PATH");
  const std::string path = places != nullptr ? places : "/bin:/usr/bin";
  std::string other;  // execvp() reports EACCES for it
  for (size_t at = 0; at <= path.size();) {
    const size_t end = std::min(path.find(':', at), path.size());
    const std::string file = (end == at ? "." : path.substr(at, end - at)) + "/" + name;
    struct stat st {};
    if (stat(file.c_str(), &st) == 0 && S_ISREG(st.st_mode)) {
      if (access(file.c_str(), X_OK) == 0) return file;
      if (other.empty()) other = file;
    }
    at = end + 1;
  }
  return other.empty() ? missing() : result<std::string>(other);
}

std::string why_preload_fails(const std::string& path) {
  std::string file = path;
  for (int depth = 0; depth < 2; ++depth) {
    sys::Fd fd;
    if (auto named = depth == 0 ? sys::open_data(file) : open_judged(file)) fd = std::move(*named);  // 1: by the program
    struct stat st {};
    if (!fd || fstat(fd.get(), &st) != 0 || !S_ISREG(st.st_mode)) return "";
    if (gains_rights(fd.get(), st))
      return file + " is setuid, setgid or has capabilities, so the loader preloads nothing into it";
    const Binary binary = binary_of(fd.get());
    if (binary.go) return file + " is a Go program, which calls the kernel without the C library";
    if (binary.elf)
      return binary.loaded_by_interpreter ? "" : file + " is a static program, into which nothing can be preloaded";
    file = interpreter_of(fd.get());
    if (file.empty()) return "";
  }
  return "";
}

}  // namespace ringside::cli
