#include "cli/command_file.hpp"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

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

}  // namespace

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
    if (depth == 0) fd = sys::Fd(open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    else if (auto named = open_judged(file)) fd = std::move(*named);  // by the program
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
