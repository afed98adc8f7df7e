#include "stacks/judged.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <sstream>

#include "sys/try.hpp"

namespace ringside {
namespace {

// File systems that keep what programs write, on disks, in memory, on servers: opening a file to read acts on none of them.
constexpr u32 ordinary[] = {
    EXT4_SUPER_MAGIC,  // also ext2 and ext3
    XFS_SUPER_MAGIC, BTRFS_SUPER_MAGIC, F2FS_SUPER_MAGIC, TMPFS_MAGIC, RAMFS_MAGIC, OVERLAYFS_SUPER_MAGIC, SQUASHFS_MAGIC,
    EROFS_SUPER_MAGIC_V1, ISOFS_SUPER_MAGIC, UDF_SUPER_MAGIC, MSDOS_SUPER_MAGIC, EXFAT_SUPER_MAGIC, NILFS_SUPER_MAGIC,
    REISERFS_SUPER_MAGIC, CRAMFS_MAGIC, JFFS2_SUPER_MAGIC, ECRYPTFS_SUPER_MAGIC, NFS_SUPER_MAGIC, CIFS_SUPER_MAGIC,
    SMB2_SUPER_MAGIC, V9FS_MAGIC, CEPH_SUPER_MAGIC, AFS_FS_MAGIC,
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

tl::unexpected<Error> not_opened(const std::string& path, const std::string& why) {
  return refuse(std::errc::operation_not_permitted,
                path + " is not opened: " + why + "; a trace may name any file, and opening may act");
}

bool is_ours(uid_t user) { return user == 0 || user == geteuid(); }

// A mount, as mountinfo tells it without asking its file system.
struct Mount {
  u64 id = 0, parent = 0;
  std::string place, type;  // type empty: it is not listed, as the root of a chroot is not
  uid_t user = 0;           // of FUSE: the user that mounted it

  bool is_fuse() const { return type == "fuse" || type == "fuseblk" || type.rfind("fuse.", 0) == 0; }
};

std::vector<Mount> mounts_in(const std::string& text) {
  std::vector<Mount> all;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    Mount mount;
    std::istringstream words(line);
    std::string word;
    words >> mount.id >> mount.parent >> word >> word >> mount.place;
    while (words >> word && word != "-") continue;
    words >> mount.type;
    if (const size_t at = line.rfind("user_id="); at != line.npos)
      mount.user = static_cast<uid_t>(std::strtoul(line.c_str() + at + 8, nullptr, 10));
    all.push_back(std::move(mount));
  }
  return all;
}

class Walk {
 public:
  Walk(const std::string& path, const JudgedPath& how)
      : path_(path), how_(how), process_("/proc/" + (how.pid != 0 ? std::to_string(how.pid) : "self")) {}
  result<sys::Fd> run();

 private:
  result<void> enter(const std::string& name);
  const Mount* find_mount(u64 id);
  result<void> judge();
  result<void> judge_change(const struct stat& dir, const struct stat* child) const;
  result<void> go_to_root();
  tl::unexpected<Error> missing(int error) const { return fail(error, path_ + " cannot be opened"); }

  const std::string& path_;
  const JudgedPath& how_;
  std::string process_, rest_;
  sys::Fd at_;
  struct stat st_ {};
  Mount mount_;  // of at_
  std::vector<Mount> mounts_;
  int links_ = 0;
};

result<void> Walk::go_to_root() {
  at_ = sys::Fd(::open(how_.pid != 0 ? (process_ + "/root").c_str() : "/", O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!at_) return missing(errno);
  RS_TRY(judge());
  if (fstat(at_.get(), &st_) != 0) return missing(errno);
  return {};
}

const Mount* Walk::find_mount(u64 id) {
  for (const bool again : {false, true}) {
    if (again || mounts_.empty()) mounts_ = mounts_in(sys::read_file(process_ + "/mountinfo").value_or(""));
    const auto at = std::find_if(mounts_.begin(), mounts_.end(), [&](const Mount& m) { return m.id == id; });
    if (at != mounts_.end()) return &*at;
  }
  return nullptr;
}

// The file system of at_. Nothing else is asked of it before.
result<void> Walk::judge() {
  const auto info = sys::read_file("/proc/self/fdinfo/" + std::to_string(at_.get()));
  const size_t at = info ? info->find("mnt_id:") : std::string::npos;
  if (at == std::string::npos) return not_opened(path_, "/proc, which tells the file system of a file, is missing");
  const u64 id = std::strtoull(info->c_str() + at + 7, nullptr, 10);
  if (id == mount_.id) return {};
  const Mount* const found = find_mount(id);
  mount_ = found != nullptr ? *found : Mount();
  mount_.id = id;
  if (mount_.type == "autofs" || mount_.type == "virtiofs") return {};  // see enter; its number is that of FUSE
  if (mount_.type == "fuse.ringside") return not_opened(path_, "it is in a mount of ringside");
  if (mount_.is_fuse() && is_ours(mount_.user)) return {};
  if (mount_.is_fuse())
    return not_opened(path_, "user " + std::to_string(mount_.user) + " answers for its file system, FUSE at " + mount_.place);
  struct statfs fs {};
  if (fstatfs(at_.get(), &fs) != 0) return missing(errno);
  const auto type = static_cast<u32>(fs.f_type);
  if (std::find(std::begin(ordinary), std::end(ordinary), type) != std::end(ordinary)) return {};
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
  const auto is_mounted = [&](const Mount& m) { return m.parent == mount_.id && m.place == mount_.place + "/" + name; };
  if (mount_.type == "autofs" && std::none_of(mounts_.begin(), mounts_.end(), is_mounted))
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
  if (!S_ISREG(st_.st_mode)) return refuse(std::errc::invalid_argument, path_ + " is no regular file");
  // Not blocking: another process may have a lease.
  sys::Fd file(::open(("/proc/self/fd/" + std::to_string(at_.get())).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!file) return missing(errno);
  return result<sys::Fd>(std::move(file));
}

}  // namespace

result<sys::Fd> open_judged(const std::string& path, const JudgedPath& how) { return Walk(path, how).run(); }

}  // namespace ringside
