#include "stacks/judged.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <sstream>
#include <string_view>
#include <utility>

#include "stacks/mounts.hpp"
#include "sys/try.hpp"

namespace ringside {
namespace {

// File systems that keep what programs write, on disks, in memory, on servers: opening a file to read acts on none of them.
constexpr u32 ordinary[] = {
    EXT4_SUPER_MAGIC,  // also ext2 and ext3
    XFS_SUPER_MAGIC,   BTRFS_SUPER_MAGIC,    F2FS_SUPER_MAGIC,  TMPFS_MAGIC,       RAMFS_MAGIC,          OVERLAYFS_SUPER_MAGIC,
    SQUASHFS_MAGIC,    EROFS_SUPER_MAGIC_V1, ISOFS_SUPER_MAGIC, UDF_SUPER_MAGIC,   MSDOS_SUPER_MAGIC,    EXFAT_SUPER_MAGIC,
    NILFS_SUPER_MAGIC, REISERFS_SUPER_MAGIC, CRAMFS_MAGIC,      JFFS2_SUPER_MAGIC, ECRYPTFS_SUPER_MAGIC, NFS_SUPER_MAGIC,
    CIFS_SUPER_MAGIC,  SMB2_SUPER_MAGIC,     V9FS_MAGIC,        CEPH_SUPER_MAGIC,  AFS_FS_MAGIC,
    0xCA451A4E,  // bcachefs
    0x2FC12FC1,  // ZFS
    0x3153464A,  // JFS
    0x7366746E,  // NTFS, by the kernel
    0x0000482B,  // HFS+
    0x00007275,  // romfs
    0x24051905,  // UBIFS
    0x61756673,  // AUFS
    0x0BD00BD0,  // Lustre
    0x47504653,  // GPFS
    0x786F4256,  // shared folders of VirtualBox
};

bool is_ordinary(u32 type) { return std::find(std::begin(ordinary), std::end(ordinary), type) != std::end(ordinary); }

tl::unexpected<Error> not_opened(const std::string& path, const std::string& why) {
  return refuse(std::errc::operation_not_permitted,
                path + " is not opened: " + why + "; a trace may name any file, and opening may act");
}

bool is_ours(uid_t user) { return user == 0 || user == geteuid(); }

// By name, for a mount namespace of another user: only these ask neither another file system nor a program. In a user namespace
// anybody may mount overlayfs over FUSE, and what is asked of it is asked of the FUSE below, with the rights of its mounter.
constexpr std::string_view at_the_bottom[] = {
    "ext2", "ext3",     "ext4",  "xfs",    "btrfs",  "f2fs",    "tmpfs", "ramfs", "squashfs", "erofs", "iso9660",  "udf",
    "vfat", "msdos",    "exfat", "nilfs2", "cramfs", "jffs2",   "nfs",   "nfs4",  "cifs",     "smb3",  "9p",       "ceph",
    "afs",  "bcachefs", "zfs",   "jfs",    "ntfs3",  "hfsplus", "romfs", "ubifs", "lustre",   "gpfs",  "reiserfs", "vboxsf"};

// A memfd, which is in no list of mounts. Asks no file system.
bool is_of_memory(int fd) {
  static const u64 of_memory = [] {
    const sys::Fd own(memfd_create("ringside", MFD_CLOEXEC));
    struct stat st {};
    return own && fstat(own.get(), &st) == 0 ? u64{st.st_dev} : 0;
  }();
  struct statx of {};
  return of_memory != 0 && statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, 0, &of) == 0 &&
         makedev(of.stx_dev_major, of.stx_dev_minor) == of_memory;
}

class Walk {
 public:
  Walk(const std::string& path, const JudgedPath& how)
      : path_(path), how_(how), mounts_(how.mounts != nullptr ? *how.mounts : own_) {}
  result<sys::Fd> run();
  result<sys::Fd> take(sys::Fd held);

 private:
  result<void> enter(const std::string& name);
  result<void> judge();
  result<void> judge_change(const struct stat& dir, const struct stat* child) const;
  result<void> go_to_root();
  result<sys::Fd> open();
  tl::unexpected<Error> missing(int error) const { return fail(error, path_ + " cannot be opened"); }

  const std::string& path_;
  const JudgedPath& how_;
  Mounts own_;
  Mounts& mounts_;
  std::string rest_;
  sys::Fd at_;
  struct stat st_ {};
  Mount mount_;  // of at_
  int links_ = 0;
};

result<void> Walk::go_to_root() {
  const std::string root = how_.pid != 0 ? "/proc/" + std::to_string(how_.pid) + "/root" : "/";
  at_ = sys::Fd(::open(root.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!at_) return missing(errno);
  RS_TRY(judge());
  if (fstat(at_.get(), &st_) != 0) return missing(errno);
  return {};
}

// The file system of at_. Nothing else is asked of it before.
result<void> Walk::judge() {
  const auto info = sys::read_file("/proc/self/fdinfo/" + std::to_string(at_.get()));
  const size_t at = info ? info->find("mnt_id:") : std::string::npos;
  if (at == std::string::npos) return not_opened(path_, "/proc, which has the file system of a file, is missing");
  const u64 id = std::strtoull(info->c_str() + at + 7, nullptr, 10);
  if (id == mount_.id) return {};
  const Mount* const found = RS_TRY(mounts_.find(how_.pid, id, how_.budget));
  if (found == nullptr && how_.pid != 0) return not_opened(path_, "its file system is in no list of mounts that can be read");
  mount_ = found != nullptr ? *found : Mount();
  mount_.trusted = mount_.trusted || found == nullptr;
  mount_.id = id;
  if (mount_.type == "autofs" || mount_.type == "virtiofs") return {};  // see enter; its number is that of FUSE
  if (mount_.type == "fuse.ringside") return not_opened(path_, "it is in a mount of ringside");
  if (mount_.is_fuse() && mount_.trusted && is_ours(mount_.user)) return {};
  if (mount_.is_fuse())
    return not_opened(path_, (mount_.trusted ? "user " + std::to_string(mount_.user) : "a user of another user namespace") +
                                 " answers for its file system, FUSE at " + mount_.place);
  if (!mount_.trusted && std::find(std::begin(at_the_bottom), std::end(at_the_bottom), mount_.type) == std::end(at_the_bottom))
    return not_opened(path_, "in another user namespace its file system, " + mount_.type + " at " + mount_.place +
                                 ", may lie on one that a user answers for");
  struct statfs fs {};
  if (fstatfs(at_.get(), &fs) != 0) return missing(errno);
  const auto type = static_cast<u32>(fs.f_type);
  if (is_ordinary(type)) return {};
  char number[16];
  std::snprintf(number, sizeof number, "%#x", type);
  return not_opened(path_, "its file system, " + (mount_.type.empty() ? "of the type " + std::string(number) : mount_.type) +
                               ", is none that is known to keep files only");
}

// Whether another user could put another file in the place of the child, null: where there is none.
result<void> Walk::judge_change(const struct stat& dir, const struct stat* child) const {
  if (!how_.lasting) return {};
  const bool group = (dir.st_mode & S_IWGRP) != 0 && dir.st_gid != getegid(), others = (dir.st_mode & S_IWOTH) != 0;
  const bool kept = (dir.st_mode & S_ISVTX) != 0 && child != nullptr && is_ours(child->st_uid);
  if (is_ours(dir.st_uid) && ((!group && !others) || kept)) return {};
  return not_opened(path_, "another user could replace it");
}

result<void> Walk::enter(const std::string& name) {
  if (!S_ISDIR(st_.st_mode)) return missing(ENOTDIR);
  if (mount_.type == "autofs" && !mounts_.has(mount_.id, mount_.place + "/" + name))
    return not_opened(path_, "autofs would mount it at " + mount_.place);
  if (name == ".." && how_.pid != 0) return not_opened(path_, "'..' may lead out of the process's root");
  sys::Fd next(openat(at_.get(), name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  if (!next) {
    const int error = errno;
    if (error == ENOENT) RS_TRY(judge_change(st_, nullptr));
    return missing(error);
  }
  std::swap(at_, next);  // from here on `next` is the directory
  const struct stat dir = st_;
  const Mount above = mount_;
  RS_TRY(judge());
  if (fstat(at_.get(), &st_) != 0) return missing(errno);
  RS_TRY(judge_change(dir, &st_));
  if (!S_ISLNK(st_.st_mode)) return {};
  if (how_.pid != 0 || !is_ours(st_.st_uid))
    return not_opened(path_, "the symlink " + name + " on the way was made by another user");
  char text[PATH_MAX];
  const ssize_t n = readlinkat(at_.get(), "", text, sizeof text);
  if (n <= 0 || ++links_ > 40) return missing(n <= 0 ? errno : ELOOP);
  rest_.insert(0, std::string(text, static_cast<size_t>(n)) + "/");
  if (text[0] == '/') return go_to_root();
  std::swap(at_, next);
  st_ = dir;
  mount_ = above;
  return {};
}

result<sys::Fd> Walk::run() {
  if (path_.empty() || path_[0] != '/') return not_opened(path_, "it is no absolute path");
  RS_TRY(go_to_root());
  rest_ = path_;
  for (;;) {
    rest_.erase(0, std::min(rest_.find_first_not_of('/'), rest_.size()));
    if (rest_.empty()) break;
    const std::string name = rest_.substr(0, rest_.find('/'));
    rest_.erase(0, name.size());
    RS_TRY(enter(name));
  }
  return open();
}

result<sys::Fd> Walk::take(sys::Fd held) {
  at_ = std::move(held);
  if (!is_of_memory(at_.get())) RS_TRY(judge());
  if (fstat(at_.get(), &st_) != 0) return missing(errno);
  return open();
}

result<sys::Fd> Walk::open() {
  if (!S_ISREG(st_.st_mode)) return refuse(std::errc::invalid_argument, path_ + " is no regular file");
  // Not blocking: another process may have a lease.
  sys::Fd file(::open(("/proc/self/fd/" + std::to_string(at_.get())).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file) return missing(errno);
  return result<sys::Fd>(std::move(file));
}

}  // namespace

bool keeps_files(int fd) {
  struct statfs fs {};
  return fstatfs(fd, &fs) == 0 && is_ordinary(static_cast<u32>(fs.f_type));
}

result<sys::Fd> open_judged(const std::string& path, const JudgedPath& how) { return Walk(path, how).run(); }

sys::Fd hold_mapped(i32 pid, u64 start, u64 end, const std::string& path) {
  const std::string process = "/proc/" + std::to_string(pid);
  sys::Fd file(::open(fmt::format("{}/map_files/{:x}-{:x}", process, start, end).c_str(), O_PATH | O_CLOEXEC));
  if (file || errno == ENOENT) return file;
  const std::string program = sys::link_text(process + "/exe");
  if (program != path && program != path + " (deleted)") return {};
  return sys::Fd(::open((process + "/exe").c_str(), O_PATH | O_CLOEXEC));
}

sys::Fd hold_mapped(i32 pid, const std::string& path) {
  std::istringstream lines(sys::read_file("/proc/" + std::to_string(pid) + "/maps").value_or(""));
  for (std::string line; std::getline(lines, line);) {
    u64 start = 0, end = 0;
    char rights[5] = {};
    int after = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx %4s %*s %*s %*s %n", &start, &end, rights, &after) < 3 || rights[2] != 'x') continue;
    const std::string_view file = std::string_view(line).substr(std::min(static_cast<size_t>(after), line.size()));
    if (file == path || file == path + " (deleted)") return hold_mapped(pid, start, end, path);
  }
  return {};
}

result<sys::Fd> open_held(sys::Fd held, const std::string& path, const JudgedPath& how) {
  return Walk(path, how).take(std::move(held));
}

}  // namespace ringside
