#include "cli/child.hpp"

#include "watch/signals.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>

#include "cli/command_file.hpp"
#include "sys/sys.hpp"

namespace ringside::cli {
namespace {

rlimit files_before{};  // rlim_max 0: not raised

// Until it waits at its gate: else a tracer sees it come there. Without /proc it is not known.
void await_sleep(pid_t pid) {
  for (u32 tries = 0; tries < 10'000 && sys::proc_is_ours(); ++tries) {
    const auto stat = sys::read_file("/proc/" + std::to_string(pid) + "/stat");
    const size_t at = stat ? stat->rfind(") ") : std::string::npos;
    if (at == std::string::npos || at + 2 >= stat->size() || std::strchr("SZX", (*stat)[at + 2]) != nullptr) return;
    usleep(100);
  }
}

}  // namespace

void raise_file_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  files_before = limit;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

result<Child> Child::start(const std::vector<std::string>& command, const Environment& environment,
                           const std::function<result<void>(pid_t)>& prepare, int said) {
  // The pipe closes by itself when exec succeeds; otherwise it brings errno. The child waits for the other one's end.
  int fds[2], gate[2];
  if (pipe2(fds, O_CLOEXEC) != 0) return fail(errno, "cannot make a pipe to start " + command.front());
  sys::Fd told(fds[0]), tell(fds[1]);
  if (pipe2(gate, O_CLOEXEC) != 0) return fail(errno, "cannot make a pipe to start " + command.front());
  sys::Fd go(gate[0]), hold(gate[1]);
  const std::string path =
      find_command(command.front()).value_or("");  // its first calls are then its own, not a search of PATH
  std::vector<char*> arguments;
  for (const std::string& argument : command) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  const std::string file_name = std::filesystem::path(command.front()).filename();
  // Signals are held back over the fork, so that none is lost between the two.
  sigset_t stopping, before;
  sigemptyset(&stopping);
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&stopping, number);
  sigprocmask(SIG_BLOCK, &stopping, &before);
  const pid_t pid = asked_to_stop() ? -1 : fork();
  if (pid != 0) {
    const bool stopped = asked_to_stop();
    const int error = errno;
    sigprocmask(SIG_SETMASK, &before, nullptr);
    if (stopped) return refuse(std::errc::operation_canceled, "stopped before " + command.front() + " was started");
    if (pid < 0) return fail(error, "cannot start " + command.front());
    if (asked_to_stop()) kill(pid, stop_signal());  // it may have come before the fork
  }
  if (pid == 0) {  // no exception may come here: it would undo what is the parent's
    for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
      struct sigaction old {};
      sigaction(number, nullptr, &old);
      if (old.sa_handler != SIG_IGN) signal(number, number == SIGINT && interrupt_was_ignored() ? SIG_IGN : SIG_DFL);
    }
    sigprocmask(SIG_SETMASK, &before, nullptr);
    if (files_before.rlim_max != 0) setrlimit(RLIMIT_NOFILE, &files_before);
    if (said >= 0) (void)!dup2(said, STDERR_FILENO);
    for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
    hold = sys::Fd();
    prctl(PR_SET_NAME, file_name.c_str());  // as after its execve
    char sign = 0;
    ssize_t got;
    do got = read(go.get(), &sign, sizeof sign);
    while (got < 0 && errno == EINTR);
    if (got != 1) _exit(127);
    if (!path.empty()) execv(path.c_str(), arguments.data());
    execvp(arguments.front(), arguments.data());  // also a shell's script without its first line
    const int error = errno;
    if (write(tell.get(), &error, sizeof error) < 0) _exit(126);
    _exit(127);
  }
  tell = sys::Fd();
  if (prepare) await_sleep(pid);
  const auto prepared = prepare ? prepare(pid) : result<void>();
  if (prepared && write(hold.get(), "g", 1) < 0) return fail(errno, "cannot start " + command.front());
  hold = sys::Fd();
  if (!prepared) {
    waitpid(pid, nullptr, 0);
    return tl::unexpected<Error>(prepared.error());
  }
  int error = 0;
  ssize_t n;
  do n = read(told.get(), &error, sizeof error);
  while (n < 0 && errno == EINTR);
  if (n == sizeof error) {
    waitpid(pid, nullptr, 0);
    return fail(error, "cannot execute " + command.front());
  }
  return Child(pid);
}

std::optional<int> Child::ended() {
  if (code_) return code_;
  int status = 0;
  rusage used{};
  const pid_t got = wait4(pid_, &status, WNOHANG, &used);
  if (got == pid_) {
    code_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    for (const timeval& t : {used.ru_utime, used.ru_stime})
      cpu_ns_ += static_cast<u64>(t.tv_sec) * 1'000'000'000 + static_cast<u64>(t.tv_usec) * 1000;
  }
  if (got < 0 && errno == ECHILD) code_ = 1;
  return code_;
}

void Child::pass_on_stop() {
  constexpr u64 end_ns = 200'000'000;
  if (!asked_to_stop() || passed_on_) return;
  const int signal = stop_signal();
  if (signal == SIGINT && !stop_was_typed()) {
    if (asked_ns_ == 0) asked_ns_ = sys::now_ns();
    if (sys::now_ns() - asked_ns_ < end_ns) return;
  }
  passed_on_ = true;
  if (signal == SIGINT && interrupt_was_ignored()) pass_on(SIGTERM);
  else if (signal != SIGINT || !stop_was_typed()) pass_on(signal);
}

void Child::pass_on(int signal) const {
  if (!code_) kill(pid_, signal);
}

void Child::stop(int signal) {
  if (ended()) return;
  pass_on(signal);
  for (int tries = 0; tries < 500 && !ended(); ++tries) usleep(2000);
}

}  // namespace ringside::cli
