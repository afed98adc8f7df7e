// The group io. Only calls from outside the C library: calls inside fopen and its relatives are not recorded.
#include <fcntl.h>
#include <stdarg.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "preload/hook.hpp"

using namespace ringside::preload;
using ringside::i64;
using ringside::u64;

// The functions that _FORTIFY_SOURCE turns calls into.
extern "C" {
ssize_t __read_chk(int fd, void* to, size_t count, size_t room);
ssize_t __pread_chk(int fd, void* to, size_t count, off_t at, size_t room);
ssize_t __pread64_chk(int fd, void* to, size_t count, off64_t at, size_t room);
ssize_t __recv_chk(int fd, void* to, size_t count, size_t room, int flags);
ssize_t __recvfrom_chk(int fd, void* to, size_t count, size_t room, int flags, sockaddr* from, socklen_t* size);
int __open_2(const char* path, int flags);
int __open64_2(const char* path, int flags);
int __openat_2(int dir, const char* path, int flags);
int __openat64_2(int dir, const char* path, int flags);
}

namespace {

template <class Real>
ssize_t reading(int fd, size_t count, Real real) {
  return hooked(groups.io, real, [=](ssize_t n, u64 ns) { libc::read(fd, count, i64{n}, ns); });
}
template <class Real>
ssize_t writing(int fd, size_t count, Real real) {
  return hooked(groups.io, real, [=](ssize_t n, u64 ns) { libc::write(fd, count, i64{n}, ns); });
}

// The requested bytes; 0 after an error, because the array may be invalid.
u64 bytes_of(const iovec* parts, int count, ssize_t result) noexcept {
  u64 bytes = 0;
  for (int i = 0; result >= 0 && i < count; ++i) bytes += parts[i].iov_len;
  return bytes;
}

template <class Real>
ssize_t reading_parts(int fd, const iovec* parts, int count, Real real) {
  return hooked(groups.io, real, [=](ssize_t n, u64 ns) { libc::read(fd, bytes_of(parts, count, n), i64{n}, ns); });
}
template <class Real>
ssize_t writing_parts(int fd, const iovec* parts, int count, Real real) {
  return hooked(groups.io, real, [=](ssize_t n, u64 ns) { libc::write(fd, bytes_of(parts, count, n), i64{n}, ns); });
}
u64 bytes_of(const msghdr* message, ssize_t result) noexcept {
  return result >= 0 ? bytes_of(message->msg_iov, static_cast<int>(message->msg_iovlen), result) : 0;
}

// The descriptor to which another one is copied is closed, if it was open.
template <class Real>
int replacing(int from, int to, Real real) noexcept {
  if (!wanted(groups.io) || from == to) return real();
  const int before = errno;
  bool was_open = false;
  {
    const ringside::SystemCalls calls;
    if (!calls) {  // nothing shows whether it was open
      const int done = real();
      if (done >= 0) ringside::count_refused();
      return done;
    }
    was_open = fcntl(to, F_GETFD) >= 0;
  }
  errno = before;
  return hooked(groups.io, real, [=](int r, u64) {
    if (was_open && r >= 0) libc::close(to, 0);
  });
}

// The same for a path: the program may pass an invalid one, and gets EFAULT.
const char* readable(const char* path, int fd) noexcept { return fd >= 0 || (errno != EFAULT && errno != EINVAL) ? path : ""; }

template <class Real>
int opening(const char* path, int flags, Real real) {
  return hooked(groups.io, real, [=](int fd, u64 ns) { libc::open(readable(path, fd), flags, fd, ns); });
}

bool needs_mode(int flags) noexcept { return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE; }

}  // namespace

HOOK ssize_t read(int fd, void* to, size_t count) {
  return reading(fd, count, [=] { return NEXT(read)(fd, to, count); });
}
HOOK ssize_t __read_chk(int fd, void* to, size_t count, size_t room) {
  return reading(fd, count, [=] { return NEXT(__read_chk)(fd, to, count, room); });
}
HOOK ssize_t pread(int fd, void* to, size_t count, off_t at) {
  return reading(fd, count, [=] { return NEXT(pread)(fd, to, count, at); });
}
HOOK ssize_t pread64(int fd, void* to, size_t count, off64_t at) {
  return reading(fd, count, [=] { return NEXT(pread64)(fd, to, count, at); });
}
HOOK ssize_t __pread_chk(int fd, void* to, size_t count, off_t at, size_t room) {
  return reading(fd, count, [=] { return NEXT(__pread_chk)(fd, to, count, at, room); });
}
HOOK ssize_t __pread64_chk(int fd, void* to, size_t count, off64_t at, size_t room) {
  return reading(fd, count, [=] { return NEXT(__pread64_chk)(fd, to, count, at, room); });
}
HOOK ssize_t readv(int fd, const iovec* parts, int count) {
  return reading_parts(fd, parts, count, [=] { return NEXT(readv)(fd, parts, count); });
}
HOOK ssize_t preadv(int fd, const iovec* parts, int count, off_t at) {
  return reading_parts(fd, parts, count, [=] { return NEXT(preadv)(fd, parts, count, at); });
}
HOOK ssize_t preadv64(int fd, const iovec* parts, int count, off64_t at) {
  return reading_parts(fd, parts, count, [=] { return NEXT(preadv64)(fd, parts, count, at); });
}
HOOK ssize_t preadv2(int fd, const iovec* parts, int count, off_t at, int flags) {
  return reading_parts(fd, parts, count, [=] { return NEXT(preadv2)(fd, parts, count, at, flags); });
}
HOOK ssize_t preadv64v2(int fd, const iovec* parts, int count, off64_t at, int flags) {
  return reading_parts(fd, parts, count, [=] { return NEXT(preadv64v2)(fd, parts, count, at, flags); });
}
HOOK ssize_t recv(int fd, void* to, size_t count, int flags) {
  return reading(fd, count, [=] { return NEXT(recv)(fd, to, count, flags); });
}
HOOK ssize_t __recv_chk(int fd, void* to, size_t count, size_t room, int flags) {
  return reading(fd, count, [=] { return NEXT(__recv_chk)(fd, to, count, room, flags); });
}
HOOK ssize_t recvfrom(int fd, void* to, size_t count, int flags, sockaddr* from, socklen_t* size) {
  return reading(fd, count, [=] { return NEXT(recvfrom)(fd, to, count, flags, from, size); });
}
HOOK ssize_t __recvfrom_chk(int fd, void* to, size_t count, size_t room, int flags, sockaddr* from, socklen_t* size) {
  return reading(fd, count, [=] { return NEXT(__recvfrom_chk)(fd, to, count, room, flags, from, size); });
}
HOOK ssize_t recvmsg(int fd, msghdr* message, int flags) {
  return hooked(groups.io, [=] { return NEXT(recvmsg)(fd, message, flags); },
                [=](ssize_t n, u64 ns) { libc::read(fd, bytes_of(message, n), i64{n}, ns); });
}

HOOK ssize_t write(int fd, const void* from, size_t count) {
  return writing(fd, count, [=] { return NEXT(write)(fd, from, count); });
}
HOOK ssize_t pwrite(int fd, const void* from, size_t count, off_t at) {
  return writing(fd, count, [=] { return NEXT(pwrite)(fd, from, count, at); });
}
HOOK ssize_t pwrite64(int fd, const void* from, size_t count, off64_t at) {
  return writing(fd, count, [=] { return NEXT(pwrite64)(fd, from, count, at); });
}
HOOK ssize_t writev(int fd, const iovec* parts, int count) {
  return writing_parts(fd, parts, count, [=] { return NEXT(writev)(fd, parts, count); });
}
HOOK ssize_t pwritev(int fd, const iovec* parts, int count, off_t at) {
  return writing_parts(fd, parts, count, [=] { return NEXT(pwritev)(fd, parts, count, at); });
}
HOOK ssize_t pwritev64(int fd, const iovec* parts, int count, off64_t at) {
  return writing_parts(fd, parts, count, [=] { return NEXT(pwritev64)(fd, parts, count, at); });
}
HOOK ssize_t pwritev2(int fd, const iovec* parts, int count, off_t at, int flags) {
  return writing_parts(fd, parts, count, [=] { return NEXT(pwritev2)(fd, parts, count, at, flags); });
}
HOOK ssize_t pwritev64v2(int fd, const iovec* parts, int count, off64_t at, int flags) {
  return writing_parts(fd, parts, count, [=] { return NEXT(pwritev64v2)(fd, parts, count, at, flags); });
}
HOOK ssize_t send(int fd, const void* from, size_t count, int flags) {
  return writing(fd, count, [=] { return NEXT(send)(fd, from, count, flags); });
}
HOOK ssize_t sendto(int fd, const void* from, size_t count, int flags, const sockaddr* to, socklen_t size) {
  return writing(fd, count, [=] { return NEXT(sendto)(fd, from, count, flags, to, size); });
}
HOOK ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  return hooked(groups.io, [=] { return NEXT(sendmsg)(fd, message, flags); },
                [=](ssize_t n, u64 ns) { libc::write(fd, bytes_of(message, n), i64{n}, ns); });
}

HOOK int close(int fd) {
  return hooked(groups.io, [=] { return NEXT(close)(fd); }, [=](int r, u64) { libc::close(fd, r); });
}

HOOK int dup2(int from, int to) noexcept {
  return replacing(from, to, [=] { return NEXT(dup2)(from, to); });
}
HOOK int dup3(int from, int to, int flags) noexcept {
  return replacing(from, to, [=] { return NEXT(dup3)(from, to, flags); });
}

// The mode is there only for flags that need it.
#define MODE_OF(flags)              \
  mode_t mode = 0;                  \
  if (needs_mode(flags)) {          \
    va_list rest;                   \
    va_start(rest, flags);          \
    mode = va_arg(rest, mode_t);    \
    va_end(rest);                   \
  }

HOOK int open(const char* path, int flags, ...) {
  MODE_OF(flags)
  return opening(path, flags, [=] { return NEXT(open)(path, flags, mode); });
}
HOOK int open64(const char* path, int flags, ...) {
  MODE_OF(flags)
  return opening(path, flags, [=] { return NEXT(open64)(path, flags, mode); });
}
HOOK int openat(int dir, const char* path, int flags, ...) {
  MODE_OF(flags)
  return opening(path, flags, [=] { return NEXT(openat)(dir, path, flags, mode); });
}
HOOK int openat64(int dir, const char* path, int flags, ...) {
  MODE_OF(flags)
  return opening(path, flags, [=] { return NEXT(openat64)(dir, path, flags, mode); });
}
HOOK int creat(const char* path, mode_t mode) {
  return opening(path, O_CREAT | O_WRONLY | O_TRUNC, [=] { return NEXT(creat)(path, mode); });
}
HOOK int creat64(const char* path, mode_t mode) {
  return opening(path, O_CREAT | O_WRONLY | O_TRUNC, [=] { return NEXT(creat64)(path, mode); });
}
HOOK int __open_2(const char* path, int flags) {
  return opening(path, flags, [=] { return NEXT(__open_2)(path, flags); });
}
HOOK int __open64_2(const char* path, int flags) {
  return opening(path, flags, [=] { return NEXT(__open64_2)(path, flags); });
}
HOOK int __openat_2(int dir, const char* path, int flags) {
  return opening(path, flags, [=] { return NEXT(__openat_2)(dir, path, flags); });
}
HOOK int __openat64_2(int dir, const char* path, int flags) {
  return opening(path, flags, [=] { return NEXT(__openat64_2)(dir, path, flags); });
}
