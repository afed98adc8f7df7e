#include "record/handed_files.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstring>

#include "stacks/judged.hpp"
#include "sys/thread.hpp"

namespace ringside {
namespace {

constexpr const char* socket_name = "files";

}  // namespace

std::unique_ptr<HandedFiles> HandedFiles::listen(Instance& instance) {
  std::unique_ptr<HandedFiles> handed(new HandedFiles);
  handed->instance_ = &instance;
  handed->line_ = sys::Fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  handed->stop_ = sys::Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  const int on = 1;
  sockaddr_un at{};
  at.sun_family = AF_UNIX;
  std::snprintf(at.sun_path, sizeof at.sun_path, "/proc/self/fd/%d/%s", instance.dir(), socket_name);
  (void)unlinkat(instance.dir(), socket_name, 0);  // of a recorder that was killed
  if (!handed->line_ || !handed->stop_ || setsockopt(handed->line_.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof on) != 0 ||
      bind(handed->line_.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0)
    return nullptr;
  auto thread = sys::quiet_thread("that takes the files of programs", [it = handed.get()] { it->take(); });
  if (!thread) return nullptr;
  handed->thread_ = std::move(*thread);
  __atomic_store_n(&instance.words().control->wants_files, u64{1}, __ATOMIC_RELAXED);
  return handed;
}

HandedFiles::~HandedFiles() {
  if (!thread_.joinable()) return;
  __atomic_store_n(&instance_->words().control->wants_files, u64{0}, __ATOMIC_RELAXED);
  (void)unlinkat(instance_->dir(), socket_name, 0);
  eventfd_write(stop_.get(), 1);
  thread_.join();
}

void HandedFiles::take() {
  pollfd wait[] = {{line_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
  while (poll(wait, 2, -1) >= 0 || errno == EINTR) {
    if ((wait[0].revents & POLLIN) != 0)
      (void)take_one();
    else if ((wait[1].revents & POLLIN) != 0)
      return;
  }
}

// What a process of another user sends is not looked at. To read a file of this user's is to act on nothing, if it is on a file
// system that keeps files.
bool HandedFiles::take_one() {
  char name[PATH_MAX + 64];
  alignas(cmsghdr) char room[CMSG_SPACE(4 * sizeof(int)) + CMSG_SPACE(sizeof(ucred))];
  iovec text{name, sizeof name};
  msghdr message{};
  message.msg_iov = &text;
  message.msg_iovlen = 1;
  message.msg_control = room;
  message.msg_controllen = sizeof room;
  const std::lock_guard alone(mutex_);  // what has left the line is in files_
  const ssize_t size = recvmsg(line_.get(), &message, MSG_CMSG_CLOEXEC);
  if (size < 0) return false;
  sys::Fd file;
  bool known = false;
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr; part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET) continue;
    for (size_t n = 0; part->cmsg_type == SCM_RIGHTS && CMSG_LEN((n + 1) * sizeof(int)) <= part->cmsg_len; ++n) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + n * sizeof fd, sizeof fd);
      file = sys::Fd(fd);
    }
    if (part->cmsg_type != SCM_CREDENTIALS) continue;
    ucred sender{};
    std::memcpy(&sender, CMSG_DATA(part), sizeof sender);
    known = sender.uid == geteuid() || sender.uid == 0;
  }
  struct stat st {};
  if (!file || !known || fstat(file.get(), &st) != 0 || !S_ISREG(st.st_mode) || !keeps_files(file.get())) return true;
  add({std::string(name, static_cast<size_t>(size)), std::to_string(st.st_dev) + ":" + std::to_string(st.st_ino), 0},
      [&] { return std::move(file); });
  return true;
}

void HandedFiles::add(File file, const std::function<sys::Fd()>& find) {
  const auto is_same = [&](const File& other) { return other.version == file.version && other.name == file.name; };
  if (std::any_of(files_.begin(), files_.end(), is_same) || !(file.fd = find())) return;
  if (files_.size() == most) files_.pop_front();
  files_.push_back(std::move(file));
}

void HandedFiles::hold(const std::string& name, const std::string& version, i32 pid, const std::function<sys::Fd()>& find) {
  const std::lock_guard alone(mutex_);
  add({name, version, pid}, find);
}

std::vector<sys::Fd> HandedFiles::files(const std::string& name) {
  for (size_t n = 0; line_ && n < most && take_one();) ++n;
  const std::lock_guard alone(mutex_);
  std::vector<sys::Fd> all;
  for (auto file = files_.rbegin(); file != files_.rend(); ++file) {
    if (file->name != name) continue;
    sys::Fd copy(fcntl(file->fd.get(), F_DUPFD_CLOEXEC, 3));
    if (copy && file->pid != 0) copy = open_held(std::move(copy), name, {.pid = file->pid}).value_or(sys::Fd());
    if (copy) all.push_back(std::move(copy));
  }
  return all;
}

}  // namespace ringside
