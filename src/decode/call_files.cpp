#include "decode/call_files.hpp"

#include <fcntl.h>
#include <sys/mman.h>

#include <array>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "decode/syscalls.hpp"

namespace ringside {
namespace {

constexpr u8 argument_0 = 1, argument_1 = 2, argument_2 = 4, argument_3 = 8, argument_4 = 16;
constexpr u64 o_cloexec = 02000000;  // of all processors but Alpha, PA-RISC and SPARC

}  // namespace

const std::vector<CallFiles>& all_call_files() {
  static const std::vector<CallFiles> all = [] {
    std::vector<CallFiles> calls{
        {"open", 0, argument_0, CallFiles::Does::open, nullptr, 1, o_cloexec},
        {"openat", argument_0, argument_1, CallFiles::Does::open, nullptr, 2, o_cloexec},
        {"openat2", argument_0, argument_1, CallFiles::Does::opens_by_structure},
        {"creat", 0, argument_0, CallFiles::Does::creat},
        {"close", argument_0, 0, CallFiles::Does::close},
        {"close_range", 0, 0, CallFiles::Does::close_range},
        {"dup", argument_0, 0, CallFiles::Does::dup},
        {"dup2", argument_0 | argument_1, 0, CallFiles::Does::dup2},
        {"dup3", argument_0 | argument_1, 0, CallFiles::Does::dup3, nullptr, 2, o_cloexec},
        {"fcntl", argument_0, 0, CallFiles::Does::fcntl},
        {"fcntl64", argument_0, 0, CallFiles::Does::fcntl},
        {"socket", 0, 0, CallFiles::Does::socket, nullptr, 1, o_cloexec},
        {"accept", argument_0, 0, CallFiles::Does::accept},
        {"accept4", argument_0, 0, CallFiles::Does::accept, nullptr, 3, o_cloexec},
        {"connect", argument_0, 0, CallFiles::Does::connect},
        {"execve", 0, argument_0, CallFiles::Does::exec},
        {"execveat", argument_0, argument_1, CallFiles::Does::exec},
        {"clone", 0, 0, CallFiles::Does::clone},
        {"clone3", 0, 0, CallFiles::Does::clone},
        {"fork", 0, 0, CallFiles::Does::clone},
        {"vfork", 0, 0, CallFiles::Does::clone},
        {"unshare", 0, 0, CallFiles::Does::unshare},
        {"setns", argument_0, 0, CallFiles::Does::setns},
        {"chdir", 0, argument_0, CallFiles::Does::chdir},
        {"fchdir", argument_0, 0, CallFiles::Does::fchdir},
        {"chroot", 0, argument_0, CallFiles::Does::setns},
        {"pivot_root", 0, argument_0 | argument_1, CallFiles::Does::setns},
        {"io_uring_setup", 0, 0, CallFiles::Does::uring},
        {"io_uring_enter", argument_0, 0, CallFiles::Does::uring},
        {"epoll_create", 0, 0, CallFiles::Does::makes_file, "anon_inode:[eventpoll]"},
        {"epoll_create1", 0, 0, CallFiles::Does::makes_file, "anon_inode:[eventpoll]", 0, o_cloexec},
        {"eventfd", 0, 0, CallFiles::Does::makes_file, "anon_inode:[eventfd]"},
        {"eventfd2", 0, 0, CallFiles::Does::makes_file, "anon_inode:[eventfd]", 1, o_cloexec},
        {"timerfd_create", 0, 0, CallFiles::Does::makes_file, "anon_inode:[timerfd]", 1, o_cloexec},
        {"inotify_init", 0, 0, CallFiles::Does::makes_file, "anon_inode:inotify"},
        {"inotify_init1", 0, 0, CallFiles::Does::makes_file, "anon_inode:inotify", 0, o_cloexec},
        {"memfd_create", 0, argument_0, CallFiles::Does::makes_file, "/memfd:", 1, MFD_CLOEXEC},
        {"pidfd_open", 0, 0, CallFiles::Does::makes_file, "anon_inode:[pidfd]", 0, ~u64{0}},
        {"pipe", 0, 0, CallFiles::Does::pair, "pipe"},
        {"pipe2", 0, 0, CallFiles::Does::pair, "pipe", 1, o_cloexec},
        {"socketpair", 0, 0, CallFiles::Does::pair, "UNIX", 1, o_cloexec},
        {"mmap", argument_4, 0},
        {"mmap2", argument_4, 0},
        {"epoll_ctl", argument_0 | argument_2, 0},
        {"splice", argument_0 | argument_2, 0},
        {"copy_file_range", argument_0 | argument_2, 0},
        {"tee", argument_0 | argument_1, 0},
        {"sendfile", argument_0 | argument_1, 0},
        {"sendfile64", argument_0 | argument_1, 0},
        {"inotify_add_watch", argument_0, argument_1},
        {"symlink", 0, argument_1},
        {"mount", 0, argument_1},
        {"symlinkat", argument_1, argument_2},
        {"fanotify_mark", argument_0 | argument_3, argument_4}};
    for (const char* const name :
         {"read", "write", "pread64", "pwrite64", "readv", "writev", "preadv", "pwritev", "preadv2", "pwritev2", "fstat",
          "fstat64", "lseek", "_llseek", "ioctl", "fsync", "fdatasync", "ftruncate", "ftruncate64", "getdents", "getdents64",
          "fchmod", "fchown", "flock", "fallocate", "fadvise64", "readahead", "sync_file_range", "syncfs", "fstatfs",
          "fstatfs64", "bind", "listen", "getsockname", "getpeername", "sendto", "recvfrom", "send", "recv", "sendmsg",
          "recvmsg", "sendmmsg", "recvmmsg", "shutdown", "setsockopt", "getsockopt", "epoll_wait", "epoll_pwait",
          "epoll_pwait2", "fsetxattr", "fgetxattr", "flistxattr", "fremovexattr", "inotify_rm_watch", "timerfd_settime",
          "timerfd_gettime", "signalfd", "signalfd4", "vmsplice", "finit_module", "pidfd_send_signal", "cachestat",
          "io_uring_register"})
      calls.push_back({name, argument_0, 0});
    for (const char* const name :
         {"stat", "stat64", "lstat", "lstat64", "access", "mkdir", "rmdir", "unlink", "readlink", "chmod", "chown", "lchown",
          "truncate", "truncate64", "statfs", "statfs64", "mknod", "utime", "utimes", "umount2", "swapon", "swapoff", "acct",
          "getxattr", "lgetxattr", "setxattr", "lsetxattr", "listxattr", "llistxattr", "removexattr", "lremovexattr"})
      calls.push_back({name, 0, argument_0});
    for (const char* const name : {"rename", "link"}) calls.push_back({name, 0, argument_0 | argument_1});
    for (const char* const name : {"newfstatat", "fstatat64", "statx", "faccessat", "faccessat2", "mkdirat", "unlinkat",
                                   "readlinkat", "fchmodat", "fchmodat2", "fchownat", "mknodat", "utimensat", "futimesat",
                                   "name_to_handle_at", "open_tree"})
      calls.push_back({name, argument_0, argument_1});
    for (const char* const name : {"renameat", "renameat2", "linkat", "move_mount"})
      calls.push_back({name, argument_0 | argument_2, argument_1 | argument_3});
    return calls;
  }();
  return all;
}

const CallFiles* call_files(i64 number, Architecture of) {
  using Table = std::unordered_map<i64, const CallFiles*>;
  static std::array<std::unique_ptr<Table>, architectures> tables;
  static std::mutex mutex;
  const std::lock_guard alone(mutex);
  auto& table = tables[static_cast<size_t>(of)];
  if (table == nullptr) {
    table = std::make_unique<Table>();
    for (const CallFiles& call : all_call_files())
      if (const auto its = syscall_number(call.name, of)) table->emplace(*its, &call);
  }
  const auto at = table->find(number);
  return at == table->end() ? nullptr : at->second;
}

}  // namespace ringside
