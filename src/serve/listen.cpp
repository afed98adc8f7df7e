#include "serve/listen.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>

#include "sys/try.hpp"

namespace ringside {
namespace {

result<void> make_room(const std::string& path, const sys::Entry& entry, const sockaddr_un& at) {
  struct stat st {};
  if (fstatat(entry.dir.get(), entry.name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0) return {};
  if (!S_ISSOCK(st.st_mode)) return refuse(std::errc::file_exists, path + " is in the way: it is no socket");
  const sys::Fd probe(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const bool reached = connect(probe.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0;
  if (reached || errno == EAGAIN) return refuse(std::errc::address_in_use, "another process serves at " + path);
  if (errno != ECONNREFUSED) return fail(errno, "cannot find out whether a process serves at " + path);
  if (unlinkat(entry.dir.get(), entry.name.c_str(), 0) != 0 && errno != ENOENT)
    return fail(errno, "cannot remove the old socket " + path);
  return {};
}

}  // namespace

result<Listening> listen_at(const std::string& path, u32 mode, std::optional<u32> gid) {
  Listening made{{}, RS_TRY(sys::open_parent(path)), 0};
  const int dir = made.at.dir.get();
  const char* const name = made.at.name.c_str();
  sockaddr_un at{};
  at.sun_family = AF_UNIX;
  const std::string through = "/proc/self/fd/" + std::to_string(dir) + "/" + name;
  if (through.size() >= sizeof at.sun_path)
    return refuse(std::errc::filename_too_long, "the name of the socket " + path + " is too long: use one of at most 64 bytes");
  std::memcpy(at.sun_path, through.c_str(), through.size() + 1);
  RS_TRY(make_room(path, made.at, at));
  made.socket = sys::Fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!made.socket) return fail(errno, "cannot make a socket");
  // The name is made with the socket's own mode: no other user gets in before the mode is right.
  fchmod(made.socket.get(), 0600);
  if (bind(made.socket.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0)
    return fail(errno, "cannot make the socket " + path);
  const sys::Fd named(openat(dir, name, O_PATH | O_NOFOLLOW | O_CLOEXEC));
  struct stat st {};
  int error = 0;
  if (!named || fstat(named.get(), &st) != 0) error = errno;
  if (error == 0 && (!S_ISSOCK(st.st_mode) || st.st_uid != geteuid())) error = EEXIST;
  made.inode = st.st_ino;
  if (error == 0 && gid && fchownat(named.get(), "", static_cast<uid_t>(-1), *gid, AT_EMPTY_PATH) != 0) error = errno;
  if (error == 0 && chmod(("/proc/self/fd/" + std::to_string(named.get())).c_str(), mode & 0777) != 0) error = errno;
  if (error == 0 && listen(made.socket.get(), 64) != 0) error = errno;
  if (error != 0) {
    unlinkat(dir, name, 0);
    return fail(error, "cannot give the socket " + path + " its mode and group");
  }
  return result<Listening>(std::move(made));
}

}  // namespace ringside
