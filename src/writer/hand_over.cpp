// A file whose code a program runs may be gone, or be in a mount namespace that is, when its names are looked up. So a program
// that says where the code of a file is hands a descriptor of that file to the recorder. Signal-safe.
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>

#include "sys/side_stack.hpp"
#include "writer/process.hpp"

namespace ringside {

namespace {

// By its addresses first, which takes CAP_CHECKPOINT_RESTORE: at its path there may be another file by now, or none.
sys::Fd open_code(const char* path, u64 start, u64 end) noexcept {
  char mapped[80];
  snprintf(mapped, sizeof mapped, "/proc/self/map_files/%lx-%lx", start, end);
  int fd = -1;
  for (const char* const name : {static_cast<const char*>(mapped), path})
    if (fd < 0) fd = openat(AT_FDCWD, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  return sys::Fd(fd);
}

void send_file(const Opened& in, const char* name, const char* path, u64 start, u64 end) noexcept {
  const sys::Fd file = open_code(path, start, end), dir = in.directory();
  struct stat st {};
  if (!file || !dir || fstat(file.get(), &st) != 0 || !S_ISREG(st.st_mode)) return;
  const sys::Fd line(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  snprintf(to.sun_path, sizeof to.sun_path, "/proc/self/fd/%d/files", dir.get());  // the instance's path may be too long
  alignas(cmsghdr) char room[CMSG_SPACE(sizeof(int))] = {};
  iovec text{const_cast<char*>(name), strlen(name)};
  msghdr message{};
  message.msg_name = &to;
  message.msg_namelen = sizeof to;
  message.msg_iov = &text;
  message.msg_iovlen = 1;
  message.msg_control = room;
  message.msg_controllen = sizeof room;
  cmsghdr* const part = CMSG_FIRSTHDR(&message);
  part->cmsg_level = SOL_SOCKET;
  part->cmsg_type = SCM_RIGHTS;
  part->cmsg_len = CMSG_LEN(sizeof(int));
  const int fd = file.get();
  std::memcpy(CMSG_DATA(part), &fd, sizeof fd);
  // The recorder takes them at once; a full queue is not waited for longer than this.
  for (int tries = 0; line && tries < 20 && sendmsg(line.get(), &message, MSG_NOSIGNAL) < 0 && errno == EAGAIN; ++tries)
    usleep(100);
}

}  // namespace

void hand_over(const Opened& in, const char* name, const char* path, u64 start, u64 end) noexcept {
  if (__atomic_load_n(&in.words.control->wants_files, __ATOMIC_RELAXED) == 0) return;
  const SignalsOff off;  // no handler leaves open what it opens
  const SystemCalls calls;
  if (!off || !calls) return;
  const Inside inside(off);
  (void)sys::on_side_stack(
      [&]() noexcept { send_file(in, name, path, start, end); });  // without one the names are looked up by path
}

}  // namespace ringside
