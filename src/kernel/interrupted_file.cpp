#include "kernel/interrupted_file.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "sys/try.hpp"

namespace ringside {
namespace {

constexpr long tick_us = 100'000;
constexpr size_t shared_bytes = 4096;
char buffer[16384];  // the process's

void on_tick(int) {}

// Nothing but system calls: other threads of this program may have held any lock.
[[noreturn]] void pass_on(int from, int to, const volatile int* stop, pid_t parent) {
  struct sigaction tick {};
  tick.sa_handler = on_tick;  // without SA_RESTART: read() returns
  sigaction(SIGALRM, &tick, nullptr);
  struct sigaction plain {};
  plain.sa_handler = SIG_DFL;
  sigaction(SIGPIPE, &plain, nullptr);
  sigset_t all;
  sigfillset(&all);
  sigdelset(&all, SIGALRM);
  sigdelset(&all, SIGPIPE);
  sigprocmask(SIG_SETMASK, &all, nullptr);
  from = fcntl(from, F_DUPFD, 2);
  to = fcntl(to, F_DUPFD, 2);
  dup2(from, 0);
  dup2(to, 1);
  syscall(SYS_close_range, 2u, ~0u, 0u);
  const itimerval every{{0, tick_us}, {0, tick_us}};
  setitimer(ITIMER_REAL, &every, nullptr);
  for (;;) {
    ssize_t n = ::read(0, buffer, sizeof buffer);
    const bool nothing = n == 0 || (n < 0 && errno == EINTR);
    if (n < 0 && errno != EINTR) _exit(1);
    if (nothing && (*stop != 0 || getppid() != parent)) _exit(0);
    if (n == 0) pause();
    for (ssize_t at = 0; at < n;) {
      const ssize_t wrote = ::write(1, buffer + at, static_cast<size_t>(n - at));
      if (wrote > 0)
        at += wrote;
      else if (errno != EINTR)
        _exit(1);
      else if (getppid() != parent)
        _exit(0);
    }
  }
}

}  // namespace

result<std::unique_ptr<InterruptedFile>> InterruptedFile::open(const std::string& path) {
  std::unique_ptr<InterruptedFile> file(new InterruptedFile);
  file->path_ = path;
  const sys::Fd from(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!from) return fail(errno, "cannot open " + path);
  void* const shared = mmap(nullptr, shared_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return fail(errno, "no memory for reading " + path);
  file->stop_ = static_cast<volatile int*>(shared);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return fail(errno, "cannot make a pipe for " + path);
  file->pipe_ = sys::Fd(ends[0]);
  const sys::Fd to(ends[1]);
  fcntl(to.get(), F_SETPIPE_SZ, 1 << 20);
  fcntl(file->pipe_.get(), F_SETFL, O_NONBLOCK);
  const pid_t parent = getpid();
  // No signal reports its end, and no handler of fork runs.
  const long pid = syscall(SYS_clone, 0ul, nullptr, nullptr, nullptr, nullptr);
  if (pid == 0) pass_on(from.get(), to.get(), file->stop_, parent);
  if (pid < 0) return fail(errno, "cannot start the process that reads " + path);
  file->pid_ = static_cast<i32>(pid);
  return file;
}

InterruptedFile::~InterruptedFile() {
  pipe_ = sys::Fd();
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    while (waitpid(pid_, nullptr, __WALL) < 0 && errno == EINTR) continue;
  }
  if (stop_ != nullptr) munmap(const_cast<int*>(stop_), shared_bytes);
}

void InterruptedFile::stop() {
  *stop_ = 1;
  stopped_ = true;
}

result<size_t> InterruptedFile::read(char* to, size_t room) {
  for (int ticks = 0; !ended_;) {
    const ssize_t n = ::read(pipe_.get(), to, room);
    if (n > 0) return static_cast<size_t>(n);
    ended_ = n == 0;
    if (ended_ && !stopped_) return refuse(std::errc::io_error, "the process that reads " + path_ + " has ended early");
    if (ended_) break;
    if (errno != EAGAIN && errno != EINTR) return fail(errno, "cannot read " + path_);
    if (!stopped_) break;
    constexpr int most_ticks = 100;  // 10 s
    pollfd p{pipe_.get(), POLLIN, 0};
    if (poll(&p, 1, tick_us / 1000) == 0 && ++ticks == most_ticks)
      return refuse(std::errc::timed_out, "the process that reads " + path_ + " does not end");
  }
  return size_t{0};
}

}  // namespace ringside
