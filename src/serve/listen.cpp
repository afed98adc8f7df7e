#include "serve/listen.hpp"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>

#include "source/get_reader_served.hpp"

namespace ringside {
namespace {

result<void> make_room(const std::string& path, const sockaddr_un& at) {
  struct stat st {};
  if (lstat(path.c_str(), &st) != 0) return {};
  if (!S_ISSOCK(st.st_mode)) return refuse(std::errc::file_exists, path + " is in the way: it is no socket");
  const sys::Fd probe(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const bool reached = connect(probe.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0;
  if (reached || errno == EAGAIN) return refuse(std::errc::address_in_use, "another process serves at " + path);
  if (errno != ECONNREFUSED) return fail(errno, "cannot tell whether somebody serves at " + path);
  if (unlink(path.c_str()) != 0 && errno != ENOENT) return fail(errno, "cannot remove the old socket " + path);
  return {};
}

}  // namespace

result<Listening> listen_at(const std::string& path, u32 mode, std::optional<u32> gid) {
  auto address = socket_address(path);
  if (!address) return tl::unexpected<Error>(address.error());
  sockaddr_un at{};
  at.sun_family = AF_UNIX;
  std::memcpy(at.sun_path, address->path.c_str(), address->path.size() + 1);
  if (auto done = make_room(path, at); !done) return tl::unexpected<Error>(done.error());
  Listening made;
  made.socket = sys::Fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!made.socket) return fail(errno, "cannot make a socket");
  // The name is born with the socket's own mode: nobody else gets in before it is what it should be.
  fchmod(made.socket.get(), 0600);
  if (bind(made.socket.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0)
    return fail(errno, "cannot make the socket " + path);
  struct stat st {};
  const bool named = lstat(path.c_str(), &st) == 0 && S_ISSOCK(st.st_mode);
  made.inode = st.st_ino;
  int error = named ? 0 : ENOENT;
  if (error == 0 && gid && lchown(path.c_str(), static_cast<uid_t>(-1), *gid) != 0) error = errno;
  if (error == 0 && chmod(path.c_str(), mode & 0777) != 0) error = errno;
  if (error == 0 && listen(made.socket.get(), 64) != 0) error = errno;
  if (error != 0) {
    unlink(path.c_str());
    return fail(error, "cannot give the socket " + path + " its mode and group");
  }
  return made;
}

}  // namespace ringside
