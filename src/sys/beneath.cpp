#include "sys/beneath.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "sys/try.hpp"

namespace ringside::sys {
namespace {

constexpr int deepest = 16;  // an instance with a snapshot is five directories deep

// For kernels before 5.6, and for filters of system calls that do not know openat2. Other file systems are entered.
int walk(int dir, const char* path, int flags, mode_t mode) noexcept {
  for (int at = dir;;) {
    char name[NAME_MAX + 1];
    const size_t length = strcspn(path, "/");
    const char* const rest = path + length + strspn(path + length, "/");
    const bool last = *rest == 0;
    int fd = -1;
    if (length == 0 || length > NAME_MAX) {
      errno = length == 0 ? ENOENT : ENAMETOOLONG;
    } else if (length == 2 && path[0] == '.' && path[1] == '.') {
      errno = EXDEV;
    } else {
      std::memcpy(name, path, length);
      name[length] = 0;
      const bool folder = !last || path[length] == '/';
      fd = openat(at, name, (last ? flags : O_PATH) | (folder ? O_DIRECTORY : 0) | O_NOFOLLOW | O_CLOEXEC, mode);
    }
    const int error = errno;
    if (at != dir) close(at);
    errno = error;
    if (fd < 0 || last) return fd;
    at = fd;
    path = rest;
  }
}

int enter(int dir, const char* path, int flags, u64 resolve, mode_t mode = 0) noexcept {
  open_how how{};
  how.flags = static_cast<u64>(flags);
  how.mode = (flags & O_CREAT) != 0 ? mode : 0;
  how.resolve = resolve;
  return static_cast<int>(syscall(SYS_openat2, dir, path, &how, sizeof how));
}

// Opens a path of any directories; its symlinks must belong to root or to this user.
Fd follow(std::string path) {
  if (path.empty()) return errno = ENOENT, Fd();
  Fd at(enter(AT_FDCWD, path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC, RESOLVE_NO_SYMLINKS));
  if (at || (errno != ELOOP && errno != ENOSYS && errno != EPERM)) return at;
  at = Fd(::open(path[0] == '/' ? "/" : ".", O_PATH | O_DIRECTORY | O_CLOEXEC));
  for (int links = 0; at;) {
    path.erase(0, path.find_first_not_of('/'));
    if (path.empty()) break;
    const std::string name = path.substr(0, path.find('/'));
    Fd next(openat(at.get(), name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
    struct stat st {};
    if (!next || fstat(next.get(), &st) != 0) return {};
    path.erase(0, name.size());
    if (!S_ISLNK(st.st_mode)) {
      at = std::move(next);
      continue;
    }
    char text[PATH_MAX];
    const ssize_t n = readlinkat(next.get(), "", text, sizeof text);
    if (n <= 0) return {};
    const bool believed = st.st_uid == 0 || st.st_uid == geteuid();
    if (!believed || ++links > 40) return errno = believed ? ELOOP : EPERM, Fd();
    path.insert(0, text, static_cast<size_t>(n));
    if (text[0] == '/') at = Fd(::open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
  }
  struct stat st {};
  if (at && fstat(at.get(), &st) == 0 && !S_ISDIR(st.st_mode)) return errno = ENOTDIR, Fd();
  return at;
}

bool others_write(const struct stat& st) noexcept { return (st.st_mode & (S_IWGRP | S_IWOTH)) != 0; }

bool is_owned(int fd, int dir) noexcept {
  struct stat st {}, owner {};
  if (fstat(fd, &st) != 0 || fstat(dir, &owner) != 0) return false;
  if (st.st_uid == owner.st_uid && !others_write(st)) return true;
  errno = EPERM;
  return false;
}

// Gives a file that this process has just made, perhaps as root, to the owner of `dir`.
void give_to_owner(int fd, int dir) noexcept {
  struct stat owner {};
  if (fstat(dir, &owner) == 0 && owner.st_uid != geteuid()) (void)!fchown(fd, owner.st_uid, owner.st_gid);
}

result<std::string> read_all(const Fd& fd, const std::string& path) {
  return fd ? read_text(fd.get(), path) : fail_beneath(errno, "cannot open " + path);
}

bool is_on_procfs(int dir) noexcept {
  struct statfs fs {};
  return fstatfs(dir, &fs) == 0 && fs.f_type == PROC_SUPER_MAGIC;
}

// Of a link in /proc/self/fd, by any path; -1: it is elsewhere.
int own_descriptor(const Entry& link) noexcept {
  struct stat dir {}, own {};
  const bool ours = fstat(link.dir.get(), &dir) == 0 && stat("/proc/self/fd", &own) == 0 && dir.st_dev == own.st_dev &&
                    dir.st_ino == own.st_ino;
  return ours ? std::atoi(link.name.c_str()) : -1;
}

bool remove_at(int dir, const char* name, int depth) noexcept;

bool clear(int dir, int depth) noexcept {
  if (depth > deepest) return errno = ELOOP, false;
  const auto names = names_in(dir);
  if (!names) return errno = errno_of(names.error()), false;
  for (const std::string& one : *names)
    if (!remove_at(dir, one.c_str(), depth)) return false;
  return true;
}

bool remove_at(int dir, const char* name, int depth) noexcept {
  if (unlinkat(dir, name, 0) == 0 || errno == ENOENT) return true;
  if (errno != EISDIR) return false;
  const Fd folder = open_beneath(dir, name, O_PATH | O_DIRECTORY);
  if (!folder || !clear(folder.get(), depth + 1)) return false;
  return unlinkat(dir, name, AT_REMOVEDIR) == 0 || errno == ENOENT;
}

}  // namespace

result<Fd> open_trusted(const std::string& path, Role role) {
  Fd dir = follow(path);
  if (!dir && errno == EPERM)
    return refuse(std::errc::permission_denied,
                  "will not follow " + path + ": a symlink on the way was made by another user; name the directory itself");
  if (!dir) return fail(errno, "cannot open " + path);
  RS_TRY(judge(dir.get(), path, role));
  return result<Fd>(std::move(dir));
}

result<Entry> open_parent(const std::string& path) {
  const std::string clean = path.substr(0, path.find_last_not_of('/') + 1);
  const size_t slash = clean.rfind('/');
  Entry entry{{}, clean.substr(slash + 1)};  // npos + 1 is 0
  if (entry.name.empty() || entry.name == "..") return refuse(std::errc::invalid_argument, "'" + path + "' is no valid name");
  auto dir = RS_TRY(open_trusted(slash == std::string::npos ? "." : slash == 0 ? "/" : clean.substr(0, slash), Role::other));
  entry.dir = std::move(dir);
  return result<Entry>(std::move(entry));
}

result<void> judge(int dir, const std::string& path, Role role) {
  struct stat st {};
  if (fstat(dir, &st) != 0) return fail(errno, "cannot look at " + path);
  if (role == Role::other) return {};
  const char* const instead = "set RINGSIDE_ROOT to a directory of your own";
  const uid_t us = geteuid();
  if (st.st_uid != us && (us != 0 || role != Role::instance))
    return refuse(std::errc::permission_denied, "will not use " + path + ": it belongs to user " + std::to_string(st.st_uid) +
                                                    ", who could put anything there; " + instead);
  if (others_write(st)) {
    char mode[8];
    std::snprintf(mode, sizeof mode, "%04o", static_cast<unsigned>(st.st_mode & 07777));
    return refuse(std::errc::permission_denied, "will not use " + path + ": other users may write there (mode " + mode +
                                                    "); check its content, then chmod go-w, or " + instead);
  }
  return {};
}

Fd open_beneath(int dir, const char* path, int flags, mode_t mode) noexcept {
  const int more = O_CLOEXEC | ((flags & O_PATH) != 0 ? 0 : O_NONBLOCK | O_NOCTTY);
  const int how = (flags & ~O_TRUNC) | more;  // truncated after the checks
  int fd = enter(dir, path, how, RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV, mode);
  if (fd < 0 && (errno == ENOSYS || errno == EPERM)) fd = walk(dir, path, how, mode);
  Fd opened(fd);
  if ((flags & O_CREAT) != 0 && (flags & O_EXCL) != 0) return opened;  // a new file is a regular one
  struct stat st {};
  if (!opened || fstat(fd, &st) != 0) return {};
  const bool good = (flags & O_DIRECTORY) != 0 ? S_ISDIR(st.st_mode) : S_ISREG(st.st_mode);
  if (!good) return errno = EINVAL, Fd();
  if ((flags & O_TRUNC) != 0 && ftruncate(fd, 0) != 0) return {};
  return opened;
}

Fd open_owned(int dir, const char* path, int flags) noexcept {
  const auto make = [&] {
    Fd made = open_beneath(dir, path, (flags & ~O_TRUNC) | O_EXCL);
    if (made) give_to_owner(made.get(), dir);
    return made;
  };
  if ((flags & O_EXCL) != 0) return make();
  // One that is to be empty is mostly new.
  bool make_next = (flags & O_CREAT) != 0 && (flags & O_TRUNC) != 0;
  for (int tries = 0; tries < 16; ++tries, make_next = !make_next) {
    if (make_next) {
      Fd made = make();
      if (made || errno != EEXIST) return made;
    } else {
      Fd there = open_beneath(dir, path, flags & ~(O_CREAT | O_TRUNC));
      if (there && (!is_owned(there.get(), dir) || ((flags & O_TRUNC) != 0 && ftruncate(there.get(), 0) != 0))) return {};
      if (there || errno != ENOENT || (flags & O_CREAT) == 0) return there;
    }
  }
  return {};
}

Fd make_owned_directory(int dir, const char* path) noexcept {
  char above[256] = "";
  const char* const slash = std::strrchr(path, '/');
  const char* const name = slash != nullptr ? slash + 1 : path;
  if (std::strlen(path) >= sizeof above) return errno = ENAMETOOLONG, Fd();
  Fd parent;
  if (slash != nullptr) {
    std::memcpy(above, path, static_cast<size_t>(slash - path));
    if (!(parent = open_owned(dir, above, O_PATH | O_DIRECTORY))) return {};
  }
  const int in = slash != nullptr ? parent.get() : dir;
  if (mkdirat(in, name, 0700) != 0) return errno == EEXIST ? open_owned(dir, path, O_PATH | O_DIRECTORY) : Fd();
  Fd made = open_beneath(in, name, O_RDONLY | O_DIRECTORY);
  struct stat st {};
  if (made && fstat(made.get(), &st) == 0 && st.st_uid == geteuid() && st.st_nlink <= 2) give_to_owner(made.get(), dir);
  return made;
}

tl::unexpected<Error> fail_beneath(int error, const std::string& what) {
  if (error == EPERM)
    return refuse(std::errc::operation_not_permitted, what + ": it belongs to another user, or others may write to it");
  if (error == ELOOP)
    return refuse(std::errc::too_many_symbolic_link_levels, what + ": a symlink is in its place or on the way");
  if (error == EXDEV) return refuse(std::errc::cross_device_link, what + ": the path leads out of its directory");
  if (error == EINVAL || error == ENXIO) return refuse(std::errc::invalid_argument, what + ": it is no regular file");
  return fail(error, what);
}

result<std::string> read_beneath(int dir, const std::string& path) {
  return read_all(open_beneath(dir, path.c_str(), O_RDONLY), path);
}
result<std::string> read_owned(int dir, const std::string& path) {
  return read_all(open_owned(dir, path.c_str(), O_RDONLY), path);
}

result<void> write_owned(int dir, const std::string& path, const std::string& text, bool append) {
  const Fd fd = open_owned(dir, path.c_str(), O_WRONLY | O_CREAT | (append ? O_APPEND : O_TRUNC));
  return fd ? write_text(fd.get(), path, text) : fail_beneath(errno, "cannot write " + path);
}

result<void> copy_owned(int from, const char* file, int to, const char* copy) {
  const Fd in = open_owned(from, file, O_RDONLY);
  if (!in) return fail_beneath(errno, std::string("cannot open ") + file);
  const Fd out = open_owned(to, copy, O_WRONLY | O_CREAT | O_EXCL);
  if (!out) return fail_beneath(errno, std::string("cannot make ") + copy);
  const off_t size = lseek(in.get(), 0, SEEK_END);
  if (size < 0 || !set_size(out.get(), static_cast<u64>(size))) return fail(errno, std::string("cannot size ") + copy);
  for (off_t at = 0; at < size;) {
    const off_t data = lseek(in.get(), at, SEEK_DATA);
    if (data < 0) break;  // ENXIO: holes to the end
    const off_t hole = lseek(in.get(), data, SEEK_HOLE);
    char buffer[65536];
    for (at = data; at < hole;) {
      const size_t want = std::min(sizeof buffer, static_cast<size_t>(hole - at));
      errno = 0;
      const ssize_t n = pread(in.get(), buffer, want, at);
      const ssize_t written = n > 0 ? pwrite(out.get(), buffer, static_cast<size_t>(n), at) : -1;
      if (written < 0) return fail(errno != 0 ? errno : EIO, std::string("cannot copy ") + file);
      at += written;  // perhaps only as much as there was room for: the next call returns the error
    }
  }
  return {};
}

result<Output> Output::at(std::string path) {
  const std::string named = path;
  for (int links = 0;; ++links) {
    if (path.ends_with('/')) return fail(EISDIR, "cannot write " + named);
    Output to;
    to.entry = RS_TRY(open_parent(path));
    to.path = path;
    const int dir = to.entry.dir.get();
    const char* const name = to.entry.name.c_str();
    if (fstatat(dir, name, &to.found, AT_SYMLINK_NOFOLLOW) != 0) return to;  // it is new, or making it fails
    if (S_ISREG(to.found.st_mode)) {
      if (to.found.st_uid == geteuid()) to.mode = to.found.st_mode & 0777;
      return to;
    }
    if (S_ISLNK(to.found.st_mode)) {
      const bool believed = to.found.st_uid == 0 || to.found.st_uid == geteuid();
      if (!believed || links == 40) return fail_beneath(believed ? ELOOP : EPERM, "will not follow the symlink " + path);
      if (!is_on_procfs(dir)) {
        char text[PATH_MAX];
        const ssize_t n = readlinkat(dir, name, text, sizeof text);
        if (n <= 0) return fail(errno, "cannot follow the symlink " + path);
        path.replace(text[0] == '/' ? 0 : path.rfind('/') + 1, std::string::npos, text, static_cast<size_t>(n));
        continue;
      }
      // It leads to an open file, which may have no path.
      if (fstatat(dir, name, &to.found, 0) != 0) return fail(errno, "cannot write " + named);
      to.linked = true;
      to.descriptor = own_descriptor(to.entry);
      if (S_ISREG(to.found.st_mode) && to.descriptor < 0)
        return refuse(std::errc::invalid_argument,
                      "cannot write " + named + ": it is a file that another process has open; name the file itself");
    }
    if (S_ISDIR(to.found.st_mode)) return fail(EISDIR, "cannot write " + named);
    to.path = named;
    to.special = true;
    return to;
  }
}

result<Fd> Output::open(bool wait) const {
  survive_broken_pipes();
  if (descriptor >= 0) {  // with its offset: others have written there, or will
    Fd same(fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
    return same ? result<Fd>(std::move(same)) : fail(errno, "cannot write " + path);
  }
  const int flags = O_WRONLY | O_NOCTTY | O_CLOEXEC | (linked ? 0 : O_NOFOLLOW) | (wait ? 0 : O_NONBLOCK);
  Fd fd(openat(entry.dir.get(), entry.name.c_str(), flags));
  if (!fd && errno == ENXIO && !wait && S_ISFIFO(found.st_mode)) return fd;
  struct stat st {};
  if (!fd || fstat(fd.get(), &st) != 0) return fail(errno, "cannot write " + path);
  if (st.st_dev != found.st_dev || st.st_ino != found.st_ino || st.st_rdev != found.st_rdev ||
      (st.st_mode & S_IFMT) != (found.st_mode & S_IFMT))
    return refuse(std::errc::device_or_resource_busy, "cannot write " + path + ": another file has just taken its place");
  if (!wait && fcntl(fd.get(), F_SETFL, 0) != 0) return fail(errno, "cannot write " + path);
  return fd;
}

tl::unexpected<Error> Output::refused() const {
  return refuse(std::errc::invalid_argument,
                "cannot write " + path +
                    ": it is a device, a FIFO or a socket, or leads to an open file, and this format needs a file, which would "
                    "replace it; name a file");
}

result<NewFile> NewFile::create(const std::string& path, mode_t mode) {
  auto at = RS_TRY(open_parent(path));
  const int dir = at.dir.get();
  return create(std::move(at.dir), dir, at.name, path, mode);
}

result<NewFile> NewFile::replace(Output to, mode_t mode) {
  const int dir = to.entry.dir.get();
  auto file = RS_TRY(create(std::move(to.entry.dir), dir, to.entry.name, to.path, mode, ".part" + std::to_string(getpid())));
  if (to.mode && fchmod(file.fd(), *to.mode) != 0) return fail(errno, "cannot give a new file the mode of " + to.path);
  return result<NewFile>(std::move(file));
}

result<NewFile> NewFile::replace(const std::string& path, mode_t mode) {
  auto to = RS_TRY(Output::at(path));
  if (to.special) return to.refused();
  return replace(std::move(to), mode);
}

result<NewFile> NewFile::into(const std::string& path, mode_t mode, bool wait) {
  auto to = RS_TRY(Output::at(path));
  if (!to.special) return replace(std::move(to), mode);
  NewFile file;
  file.fd_ = RS_TRY(to.open(wait));
  file.named_ = true;
  file.path_ = path;
  return result<NewFile>(std::move(file));
}

result<NewFile> NewFile::create(int dir, const std::string& name, const std::string& path) {
  return create({}, dir, name, path, 0600);
}

result<NewFile> NewFile::create(Fd own, int dir, const std::string& name, const std::string& path, mode_t mode,
                                const std::string& ending) {
  NewFile file;
  file.own_ = std::move(own);
  file.dir_ = dir;
  file.name_ = name;
  file.fresh_ = name + ending;
  file.path_ = path;
  if (unlinkat(dir, file.fresh_.c_str(), 0) != 0 && errno != ENOENT) return fail(errno, "cannot replace " + path + ending);
  file.fd_ = open_beneath(dir, file.fresh_.c_str(), O_RDWR | O_CREAT | O_EXCL, mode);
  if (!file.fd_) return fail(errno, "cannot make " + path + ending);
  return result<NewFile>(std::move(file));
}

NewFile::~NewFile() {
  if (fd_ && !named_) unlinkat(dir_, fresh_.c_str(), 0);
}

result<void> NewFile::take_name() {
  if (std::exchange(named_, true) || renameat(dir_, fresh_.c_str(), dir_, name_.c_str()) == 0) return {};
  const int error = errno;
  unlinkat(dir_, fresh_.c_str(), 0);
  return fail(error, "cannot put " + path_ + " in place");
}

result<void> NewFile::put_in_place() {
  // Some file systems report a lack of room only when the file is closed.
  if (close(fd_.release()) == 0) return take_name();
  const int error = errno;
  if (!named_) unlinkat(dir_, fresh_.c_str(), 0);
  return fail(error, "cannot put " + path_ + " in place");
}

result<std::vector<std::string>> names_in(int dir) {
  Fd fd(openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  DIR* const open = fd ? fdopendir(fd.get()) : nullptr;
  if (open == nullptr) return fail(errno, "cannot list a directory");
  (void)fd.release();
  std::vector<std::string> names;
  while (const dirent* entry = readdir(open)) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  closedir(open);
  return names;
}

bool remove_beneath(int dir, const char* name) noexcept { return remove_at(dir, name, 0); }
bool remove_opened(int parent, const char* name, int dir) noexcept {
  return clear(dir, 0) && (unlinkat(parent, name, AT_REMOVEDIR) == 0 || errno == ENOENT);
}

}  // namespace ringside::sys
