// Makes one system call of a program fail, from outside: a seccomp filter notifies this process of the calls, of all threads
// and of whatever the program starts, also those of inline system calls and of libraries. Nothing is replaced in the program.
//
// Calls count from where tests/fault/begin.c stands in the loader's order, in programs of one name (`role`), and not while a
// thread says syscall(5001, 1).
#pragma once
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/magic.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace ringside::test {

using Call = seccomp_data;

constexpr int begin_mark = 5000, exempt_mark = 5001;
constexpr std::chrono::seconds patience{60};  // with a run: what takes longer hangs
constexpr int cut_short = -1;  // in the place of an error: half of what was asked for

// What may fail, and how. No errno that contradicts what is: EPIPE from a peer that is there, a signal that nobody may send.
struct Fault {
  const char* call;
  int number;
  int error;                               // or cut_short
  bool (*fits)(const Call&) = nullptr;     // only such calls
};

inline bool not_to_stderr(const Call& c) { return c.args[0] != 2; }  // nothing can be said of that
inline bool creates(const Call& c) { return (c.args[c.nr == SYS_open ? 1 : 2] & O_CREAT) != 0; }
inline bool waits(const Call& c) {
  return (c.args[1] & FUTEX_CMD_MASK) == FUTEX_WAIT || (c.args[1] & FUTEX_CMD_MASK) == FUTEX_WAIT_BITSET;
}
inline bool locks(const Call& c) {
  return c.args[1] == F_SETLK || c.args[1] == F_SETLKW || c.args[1] == F_OFD_SETLK || c.args[1] == F_OFD_SETLKW;
}
inline bool duplicates(const Call& c) { return c.args[1] == F_DUPFD || c.args[1] == F_DUPFD_CLOEXEC; }
inline bool sleeps(const Call& c) { return c.args[c.nr == SYS_epoll_wait || c.nr == SYS_epoll_pwait ? 3 : 2] != 0; }

inline const std::vector<Fault>& faults() {
#define CALL(name) #name, SYS_##name
  static const std::vector<Fault> all{
      {CALL(open), EMFILE},
      {CALL(open), ENOSPC, creates},
      {CALL(openat), EMFILE},
      {CALL(openat), ENFILE},
      {CALL(openat), ENOMEM},
      {CALL(openat), EACCES},
      {CALL(openat), EINTR},
      {CALL(openat), ENOSPC, creates},
      {CALL(openat2), EMFILE},
      {CALL(openat2), ENOSYS},
      {CALL(openat2), EAGAIN},
      {CALL(openat2), ENOMEM},
      {CALL(mmap), ENOMEM},
      {CALL(mremap), ENOMEM},
      {CALL(mprotect), ENOMEM},
      {CALL(madvise), EINVAL},
      {CALL(munmap), ENOMEM},
      {CALL(clone), EAGAIN},
      {CALL(clone), ENOMEM},
      {CALL(clone3), EAGAIN},
      {CALL(clone3), ENOSYS},
      {CALL(fork), EAGAIN},
      {CALL(vfork), EAGAIN},
      {CALL(execve), ENOMEM},
      {CALL(execve), EAGAIN},
      {CALL(wait4), EINTR},
      {CALL(memfd_create), EMFILE},
      {CALL(memfd_create), ENOSYS},
      {CALL(eventfd2), EMFILE},
      {CALL(timerfd_create), EMFILE},
      {CALL(signalfd4), EMFILE},
      {CALL(epoll_create1), EMFILE},
      {CALL(epoll_ctl), ENOMEM},
      {CALL(epoll_ctl), ENOSPC},
      {CALL(inotify_init1), EMFILE},
      {CALL(inotify_add_watch), ENOSPC},
      {CALL(socket), EMFILE},
      {CALL(socketpair), EMFILE},
      {CALL(pipe2), EMFILE},
      {CALL(pipe2), ENFILE},
      {CALL(dup), EMFILE},
      {CALL(dup2), EBUSY},
      {CALL(accept4), EMFILE},
      {CALL(accept4), ECONNABORTED},
      {CALL(accept4), EINTR},
      {CALL(fcntl), EMFILE, duplicates},
      {CALL(fcntl), ENOLCK, locks},
      {CALL(fcntl), EINTR, locks},
      {CALL(flock), ENOLCK},
      {CALL(flock), EINTR},
      {CALL(bind), ENOMEM},
      {CALL(listen), ENOMEM},
      {CALL(connect), EAGAIN},
      {CALL(connect), EINTR},
      {CALL(setsockopt), ENOMEM},
      {CALL(getsockopt), ENOMEM},
      {CALL(sendmsg), ENOMEM},
      {CALL(sendmsg), ETOOMANYREFS},
      {CALL(sendmsg), EINTR},
      {CALL(sendto), ENOBUFS},
      {CALL(recvmsg), ENOMEM},
      {CALL(recvmsg), ECONNRESET},
      {CALL(recvmsg), EINTR},
      {CALL(recvfrom), ENOMEM},
      {CALL(recvfrom), ECONNRESET},
      {CALL(write), ENOSPC, not_to_stderr},
      {CALL(write), EIO, not_to_stderr},
      {CALL(write), EINTR},
      {CALL(write), cut_short},
      {CALL(pwrite64), ENOSPC},
      {CALL(pwrite64), EIO},
      {CALL(pwrite64), EINTR},
      {CALL(pwrite64), cut_short},
      {CALL(writev), ENOSPC},
      {CALL(writev), EIO},
      {CALL(writev), EINTR},
      {CALL(pwritev), ENOSPC},
      {CALL(pwritev), EIO},
      {CALL(read), EIO},
      {CALL(read), EINTR},
      {CALL(read), ENOMEM},
      {CALL(read), cut_short},
      {CALL(pread64), EIO},
      {CALL(pread64), EINTR},
      {CALL(pread64), cut_short},
      {CALL(readv), EIO},
      {CALL(lseek), EIO},
      {CALL(ftruncate), ENOSPC},
      {CALL(ftruncate), EIO},
      {CALL(ftruncate), EINTR},
      {CALL(fallocate), ENOSPC},
      {CALL(fallocate), EOPNOTSUPP},
      {CALL(fallocate), EINTR},
      {CALL(copy_file_range), ENOSPC},
      {CALL(copy_file_range), EIO},
      {CALL(copy_file_range), ENOSYS},
      {CALL(copy_file_range), EXDEV},
      {CALL(copy_file_range), cut_short},
      {CALL(sendfile), EIO},
      {CALL(sendfile), EINVAL},
      {CALL(splice), EINVAL},
      {CALL(splice), EIO},
      {CALL(fsync), EIO},
      {CALL(fsync), ENOSPC},
      {CALL(fdatasync), EIO},
      {CALL(msync), EIO},
      {CALL(rename), ENOSPC},
      {CALL(rename), EIO},
      {CALL(renameat), ENOSPC},
      {CALL(renameat), EIO},
      {CALL(renameat2), ENOSPC},
      {CALL(renameat2), ENOSYS},
      {CALL(renameat2), EINVAL},
      {CALL(mkdir), ENOSPC},
      {CALL(mkdir), EIO},
      {CALL(mkdirat), ENOSPC},
      {CALL(mkdirat), EIO},
      {CALL(rmdir), EBUSY},
      {CALL(unlink), EIO},
      {CALL(unlinkat), EIO},
      {CALL(link), ENOSPC},
      {CALL(linkat), ENOSPC},
      {CALL(symlink), ENOSPC},
      {CALL(symlinkat), ENOSPC},
      {CALL(chmod), EPERM},
      {CALL(fchmod), EPERM},
      {CALL(fchmodat), EPERM},
      {CALL(fchown), EPERM},
      {CALL(chown), EPERM},
      {CALL(readlink), EIO},
      {CALL(readlinkat), EIO},
      {CALL(getcwd), ENOMEM},
      {CALL(stat), ENOMEM},
      {CALL(lstat), ENOMEM},
      {CALL(fstat), ENOMEM},
      {CALL(newfstatat), ENOMEM},
      {CALL(newfstatat), EACCES},
      {CALL(statx), ENOSYS},
      {CALL(statx), ENOMEM},
      {CALL(statfs), EIO},
      {CALL(fstatfs), EIO},
      {CALL(access), EACCES},
      {CALL(faccessat), EACCES},
      {CALL(getdents64), EIO},
      {CALL(getdents64), ENOMEM},
      {CALL(futex), EINTR, waits},
      {CALL(futex), EAGAIN, waits},
      {CALL(poll), EINTR},
      {CALL(poll), ENOMEM},
      {CALL(ppoll), EINTR},
      {CALL(ppoll), ENOMEM},
      {CALL(epoll_wait), EINTR, sleeps},
      {CALL(epoll_pwait), EINTR, sleeps},
      {CALL(select), EINTR},
      {CALL(pselect6), EINTR},
      {CALL(nanosleep), EINTR},
      {CALL(clock_nanosleep), EINTR},
      {CALL(getrandom), ENOSYS},
      {CALL(membarrier), ENOSYS},
      {CALL(membarrier), EINVAL},
      {CALL(sched_getaffinity), EPERM},
      {CALL(sched_setaffinity), EINVAL},
      {CALL(ioctl), EIO},
      {CALL(ioctl), ENOTTY},
      {CALL(ioctl), EINTR},
      {CALL(ioctl), ENOMEM},
      {CALL(mount), ENOMEM},
      {CALL(umount2), EBUSY},
      {CALL(prctl), EPERM},
      {CALL(capset), EPERM},
      {CALL(capget), EPERM},
      {CALL(prlimit64), EPERM},
      {CALL(setitimer), EINVAL},
      {CALL(perf_event_open), EACCES},
      {CALL(pidfd_open), EMFILE},
      {CALL(process_vm_readv), EPERM},
      {CALL(sysinfo), EFAULT},
  };
#undef CALL
  return all;
}

inline std::string to_string(const Fault& f, unsigned n) {
  return std::string(f.call) + "() number " + std::to_string(n) + " " +
         (f.error == cut_short ? "cut short" : strerrorname_np(f.error));
}

class Supervisor {
 public:
  // fault null: nothing fails, all are counted.
  Supervisor(std::string role, const Fault* fault, unsigned n) : role_(std::move(role)), fault_(fault), n_(n) {}
  ~Supervisor() { end(); }

  // -1: not possible; errno says why. In a session of its own.
  pid_t start(std::vector<std::string> command, const std::string& dir, const std::string& out, const std::string& err) {
    std::vector<char*> argv;
    for (std::string& word : command) argv.push_back(word.data());
    argv.push_back(nullptr);
    const int to = ::open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600),
              log = ::open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    loop_ = std::thread([this] { supervise(); });
    std::thread([&] {  // the filter is this thread's, and of what it starts
      listener_ = install();
      const pid_t pid = listener_ >= 0 ? vfork() : -1;  // fork() would hold malloc's locks while the supervisor is asked
      if (pid == 0) {
        setsid();
        dup2(to, 1);
        dup2(log, 2);
        signal(SIGINT, SIG_DFL);
        if (chdir(dir.c_str()) == 0) execv(argv[0], argv.data());
        _exit(99);
      }
      child_ = pid;
    }).join();
    ::close(to);
    ::close(log);
    return child_;
  }

  // Its exit code, 128 + N after signal N; -1: it did not end, and was killed.
  int wait() {
    int status = 0;
    while (waitpid(child_, &status, 0) < 0 && errno == EINTR) {
    }
    return hung_ ? -1 : WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  // What the program has left running is ended. False: something was.
  bool alone() {
    for (int tries = 0; ::kill(-child_, 0) == 0 && tries < 200; ++tries) {
      while (waitpid(-1, nullptr, WNOHANG) > 0) {  // orphans come to this process
      }
      usleep(tries == 0 ? 100 : 10000);
    }
    return ::kill(-child_, SIGKILL) != 0;
  }
  // From here on no call is examined.
  void end() {
    over_ = true;
    if (loop_.joinable()) loop_.join();
    if (listener_ >= 0) ::close(listener_.exchange(-2));
  }
  bool injected() const { return injected_; }
  pid_t child() const { return child_; }
  const std::string& where() const { return where_; }
  const std::map<const Fault*, unsigned>& counts() const { return counts_; }

 private:
  int install() const {
    std::set<int> numbers{begin_mark, exempt_mark, SYS_execve};
    if (fault_ != nullptr)
      numbers.insert(fault_->number);
    else
      for (const Fault& f : faults()) numbers.insert(f.number);
    std::vector<sock_filter> code{BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
    size_t left = numbers.size();
    for (const int number : numbers)
      code.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(number), static_cast<unsigned char>(left--), 0));
    code.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    code.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF));
    const sock_fprog program{static_cast<unsigned short>(code.size()), code.data()};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    return static_cast<int>(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
                                    SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, &program));
  }

  void supervise() {
    while (listener_ == -2 && !over_) usleep(20);
    const auto deadline = std::chrono::steady_clock::now() + patience;
    while (listener_ >= 0) {
      if (!hung_ && std::chrono::steady_clock::now() > deadline) {
        hung_ = true;
        ::kill(-child_, SIGKILL);
      }
      pollfd ready{listener_, POLLIN, 0};
      const int n = poll(&ready, 1, 50);
      if (n <= 0 && over_) return;
      if ((ready.revents & POLLHUP) != 0 && (ready.revents & POLLIN) == 0) return;
      if (n <= 0) continue;
      seccomp_notif asked{};
      if (ioctl(listener_, SECCOMP_IOCTL_NOTIF_RECV, &asked) != 0) continue;
      seccomp_notif_resp answer{asked.id, 0, 0, SECCOMP_USER_NOTIF_FLAG_CONTINUE};
      judge(static_cast<pid_t>(asked.pid), asked.data, answer);
      ioctl(listener_, SECCOMP_IOCTL_NOTIF_SEND, &answer);
    }
  }

  struct Task {
    pid_t process = 0, parent = 0;
    std::string program;
  };
  static std::string program_of(pid_t process) {
    char path[4096];
    const ssize_t n = ::readlink(("/proc/" + std::to_string(process) + "/exe").c_str(), path, sizeof path);
    const std::string whole(path, n > 0 ? static_cast<size_t>(n) : 0);
    return whole.substr(whole.rfind('/') + 1);
  }
  static Task task_of(pid_t thread) {
    Task task;
    std::ifstream status("/proc/" + std::to_string(thread) + "/status");
    for (std::string word; status >> word && task.parent == 0;) {
      if (word == "Tgid:") status >> task.process;
      if (word == "PPid:") status >> task.parent;
    }
    task.program = program_of(task.process);
    return task;
  }

  void judge(pid_t thread, const Call& call, seccomp_notif_resp& answer) {
    if (call.nr == begin_mark) {
      begun_.insert(task_of(thread).process);
      return;
    }
    if (call.nr == exempt_mark) {
      if (call.args[0] != 0)
        exempt_.insert(thread);
      else
        exempt_.erase(thread);
      return;
    }
    if (injected_ || exempt_.count(thread) != 0 ||
        (fault_ != nullptr && (call.nr != fault_->number || (fault_->fits != nullptr && !fault_->fits(call)))))
      return left(thread, call);
    const Task task = task_of(thread);
    const bool counts = task.program == role_ && (begun_.count(task.process) != 0 ||
                                                  (begun_.count(task.parent) != 0 && program_of(task.parent) == role_));
    if (!counts) return left(thread, call);
    // Errors of disks and memory are of files; of pipes, sockets and the kernel's FUSE device there is only EINTR, of an
    // eventfd not even that.
    const bool moves = call.nr == SYS_read || call.nr == SYS_write || call.nr == SYS_writev || call.nr == SYS_readv;
    const std::string file = moves ? link_of(task.process, call.args[0]) : "/";
    const bool on_disk = file[0] == '/' && file != "/dev/fuse";
    const auto can = [&](const Fault& f) {
      return on_disk || (f.error == EINTR && file != "anon_inode:[eventfd]" && (call.nr == SYS_read || file != "/dev/fuse"));
    };
    if (fault_ == nullptr) {
      for (const Fault& f : faults())
        if (f.number == call.nr && (f.fits == nullptr || f.fits(call)) && can(f)) ++counts_[&f];
      return left(thread, call);
    }
    if (!can(*fault_)) return left(thread, call);
    if (fault_->error == cut_short) {
      if (const i64 done = half(task.process, call, count_ + 1 == n_); done != 0 && ++count_ == n_) {
        answer = {answer.id, done > 0 ? done : 0, done > 0 ? 0 : static_cast<int>(done), 0};
        injected_ = true;
      }
    } else if (++count_ == n_) {
      answer = {answer.id, 0, -fault_->error, 0};
      injected_ = true;
      where_ = tell(task, call);
    }
    if (!injected_) left(thread, call);
  }
  void left(pid_t thread, const Call& call) {
    if (call.nr == SYS_execve && !injected_) begun_.erase(task_of(thread).process);
  }

  // What it was asked for, to be printed with a failure.
  static std::string text_at(pid_t process, u64 address) {
    char text[200] = {};
    const iovec here{text, sizeof text - 1}, there{reinterpret_cast<void*>(address), sizeof text - 1};
    if (process_vm_readv(process, &here, 1, &there, 1, 0) < 0) {
      const size_t rest = 4096 - address % 4096;
      const iovec less{text, std::min(rest, sizeof text - 1)},
          part{reinterpret_cast<void*>(address), std::min(rest, sizeof text - 1)};
      if (process_vm_readv(process, &less, 1, &part, 1, 0) < 0) return "";
    }
    return text;
  }
  static std::string link_of(pid_t process, u64 fd) {
    char path[512] = {};
    return readlink(("/proc/" + std::to_string(process) + "/fd/" + std::to_string(static_cast<int>(fd))).c_str(), path,
                    sizeof path - 1) > 0
               ? path
               : "?";
  }
  static std::string tell(const Task& task, const Call& call) {
    std::string text = task.program + " " + std::to_string(task.process) + ":";
    for (int i = 0; i < 4; ++i) text += " " + std::to_string(static_cast<long long>(call.args[i]));
    switch (call.nr) {
      case SYS_openat:
      case SYS_openat2:
      case SYS_newfstatat:
      case SYS_mkdirat:
      case SYS_unlinkat:
      case SYS_readlinkat:
      case SYS_statx:
        text += " " + text_at(task.process, call.args[1]);
        break;
      case SYS_open:
      case SYS_mkdir:
      case SYS_rename:
      case SYS_unlink:
      case SYS_rmdir:
      case SYS_readlink:
      case SYS_access:
      case SYS_stat:
      case SYS_execve:
        text += " " + text_at(task.process, call.args[0]);
        break;
      case SYS_mmap: text += " " + link_of(task.process, call.args[4]); break;
      case SYS_futex: break;
      default: text += " " + link_of(task.process, call.args[0]);
    }
    return text;
  }

  // The call's work on half of its bytes, in its place: how many it were, or -errno. 0: it is not one to cut. do_it false:
  // would it be?
  static i64 half(pid_t process, const Call& call, bool do_it) {
    const bool copies = call.nr == SYS_copy_file_range;
    const u64 size = call.args[copies ? 4 : 2] / 2;
    if (size == 0) return 0;
    const int pidfd = static_cast<int>(syscall(SYS_pidfd_open, process, 0));
    const auto get = [&](u64 fd) { return static_cast<int>(syscall(SYS_pidfd_getfd, pidfd, static_cast<int>(fd), 0)); };
    const int fd = get(call.args[0]), other = copies ? get(call.args[2]) : -1;
    ::close(pidfd);
    struct stat st {};
    i64 done = 0;
    if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
      std::vector<char> bytes(copies ? 0 : size);
      const iovec here{bytes.data(), bytes.size()}, there{reinterpret_cast<void*>(call.args[1]), size};
      const bool writes = call.nr == SYS_write || call.nr == SYS_pwrite64;
      struct statfs on {};
      if (writes && fstatfs(fd, &on) == 0 && on.f_type == TRACEFS_MAGIC) {
        done = 0;  // takes all or nothing
      } else if (!do_it) {
        done = 1;
      } else if (copies) {
        i64 at[2] = {-1, -1};
        for (int i = 0; i < 2; ++i)
          if (const u64 address = call.args[i == 0 ? 1 : 3]; address != 0) {
            const iovec to{&at[i], 8}, from{reinterpret_cast<void*>(address), 8};
            process_vm_readv(process, &to, 1, &from, 1, 0);
          }
        done = copy_file_range(fd, at[0] >= 0 ? &at[0] : nullptr, other, at[1] >= 0 ? &at[1] : nullptr, size, 0);
        for (int i = 0; i < 2; ++i)
          if (const u64 address = call.args[i == 0 ? 1 : 3]; address != 0) {
            const iovec from{&at[i], 8}, to{reinterpret_cast<void*>(address), 8};
            process_vm_writev(process, &from, 1, &to, 1, 0);
          }
      } else if (writes && process_vm_readv(process, &here, 1, &there, 1, 0) == static_cast<ssize_t>(size)) {
        done = call.nr == SYS_write ? ::write(fd, bytes.data(), size)
                                    : pwrite(fd, bytes.data(), size, static_cast<off_t>(call.args[3]));
      } else if (!writes) {
        done = call.nr == SYS_read ? ::read(fd, bytes.data(), size)
                                   : pread(fd, bytes.data(), size, static_cast<off_t>(call.args[3]));
        if (done > 0) {
          const iovec part{bytes.data(), static_cast<size_t>(done)}, to{there.iov_base, static_cast<size_t>(done)};
          process_vm_writev(process, &part, 1, &to, 1, 0);
        }
      }
      if (done < 0) done = -errno;
    }
    if (fd >= 0) ::close(fd);
    if (other >= 0) ::close(other);
    return done;
  }

  const std::string role_;
  const Fault* const fault_;
  const unsigned n_;
  unsigned count_ = 0;
  std::atomic<bool> injected_{false}, over_{false}, hung_{false};
  std::atomic<int> listener_{-2};
  std::thread loop_;
  std::atomic<pid_t> child_{-1};
  std::set<pid_t> begun_, exempt_;
  std::map<const Fault*, unsigned> counts_;
  std::string where_;
};

}  // namespace ringside::test
