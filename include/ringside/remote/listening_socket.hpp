// The socket at which a writer process waits for its reader.
#pragma once
#include <ringside/base/cxx20.hpp>

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>

namespace ringside::remote::detail {

// For one thread. Functions answer 0 or an errno.
class ListeningSocket {
 public:
  explicit ListeningSocket(std::string path) : path_(std::move(path)) {}
  ~ListeningSocket() {
    if (fd_ >= 0) ::close(fd_);
  }
  ListeningSocket(const ListeningSocket&) = delete;
  ListeningSocket& operator=(const ListeningSocket&) = delete;

  int fd() const noexcept { return fd_; }
  // The socket listens under a name of its own first, and is then moved to the path, which replaces nothing: of two writers
  // that start at once one gets the path, and a reader that finds the socket there is not refused. Where that is impossible
  // (a long path, a file system that cannot), it is bound to the path itself.
  int listen() {
    if (path_.empty()) return EACCES;
    if (path_.size() >= sizeof sockaddr_un{}.sun_path) return ENAMETOOLONG;
    const size_t name = path_.rfind('/') + 1;
    const std::string own = path_.substr(0, name) + "." + path_.substr(name) + "." + std::to_string(syscall(SYS_gettid));
    if (path_[0] != 0 && listen_at(own) == 0) {
      const int error = move_to_path(own);
      if (error == 0) return 0;
      ::unlink(own.c_str());
      if (error == EADDRINUSE || error == EEXIST) return error;
    }
    const int error = make_room(own + ".old");
    return error != 0 ? error : listen_at(path_);
  }
  // The path may lead to another file by now. No other one has this inode's number while the socket is open.
  void unlink() const noexcept {
    if (is_at(path_, bound_)) ::unlink(path_.c_str());
  }

 private:
  static int new_socket() noexcept { return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); }
  static sockaddr_un address(const std::string& path) noexcept {
    sockaddr_un at{};
    at.sun_family = AF_UNIX;
    std::memcpy(at.sun_path, path.c_str(), path.size());
    return at;
  }
  int listen_at(const std::string& path) {
    if (path.size() >= sizeof sockaddr_un{}.sun_path) return ENAMETOOLONG;
    if (fd_ >= 0) ::close(fd_);
    fd_ = new_socket();
    const sockaddr_un at = address(path);
    if (fd_ < 0 || fchmod(fd_, 0600) != 0 || bind(fd_, reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0)
      return errno;
    (void)lstat(path.c_str(), &bound_);
    if (::listen(fd_, 4) == 0) return 0;
    const int error = errno;
    ::unlink(path.c_str());
    return error;
  }
  static int move(const std::string& from, const std::string& to) noexcept {
    constexpr unsigned no_replace = 1;  // RENAME_NOREPLACE
    return static_cast<int>(syscall(SYS_renameat2, AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), no_replace));
  }
  int move_to_path(const std::string& own) const {
    for (int tries = 0; tries < 100; ++tries) {
      if (move(own, path_) == 0) return 0;
      if (errno != EEXIST) return errno;
      if (const int error = make_room(own + ".old"); error != 0) return error;
    }
    return EADDRINUSE;
  }
  // A socket on which nobody listens was left by a dead writer. Every other file refuses connections, too, and stays.
  // Between the test and the removal another writer may have taken the path: its socket goes back.
  int make_room(const std::string& aside) const {
    const char* const path = path_.c_str();
    struct stat dead {};
    const bool there = lstat(path, &dead) == 0;
    const int probe = new_socket();
    if (probe < 0) return errno;
    const sockaddr_un at = address(path_);
    const int refusal = connect(probe, reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0 ? 0 : errno;
    ::close(probe);
    if (refusal == 0 || refusal == EAGAIN) return EADDRINUSE;
    if (!there || refusal != ECONNREFUSED) return there && refusal != ENOENT ? EADDRINUSE : 0;
    if (!S_ISSOCK(dead.st_mode)) return EEXIST;
    if (rename(path, aside.c_str()) != 0) return errno == ENOENT ? 0 : errno;
    const bool was_dead = is_at(aside, dead);
    if (was_dead || move(aside, path_) != 0) ::unlink(aside.c_str());
    return was_dead ? 0 : EADDRINUSE;
  }
  static bool is_at(const std::string& path, const struct stat& file) noexcept {
    struct stat st {};
    return lstat(path.c_str(), &st) == 0 && S_ISSOCK(st.st_mode) && st.st_dev == file.st_dev && st.st_ino == file.st_ino;
  }

  const std::string path_;
  int fd_ = -1;
  struct stat bound_ {};  // the socket's file
};

}  // namespace ringside::remote::detail
