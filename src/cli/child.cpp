#include "cli/child.hpp"

#include "watch/signals.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>

namespace ringside::cli {
namespace {

rlimit files_before{};  // rlim_max 0: not raised

}  // namespace

void raise_file_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  files_before = limit;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

result<Child> Child::start(const std::vector<std::string>& command, const Environment& environment,
                           const std::function<int()>& prepare) {
  // The pipe closes by itself when exec succeeds; otherwise it brings errno.
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) return fail(errno, "cannot make a pipe to start " + command.front());
  std::vector<char*> arguments;
  for (const std::string& argument : command) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  const pid_t pid = fork();
  if (pid < 0) {
    const int error = errno;
    close(fds[0]);
    close(fds[1]);
    return fail(error, "cannot start " + command.front());
  }
  if (pid == 0) {
    for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
      struct sigaction old {};
      sigaction(number, nullptr, &old);
      if (old.sa_handler != SIG_IGN) signal(number, number == SIGINT && interrupt_was_ignored() ? SIG_IGN : SIG_DFL);
    }
    if (files_before.rlim_max != 0) setrlimit(RLIMIT_NOFILE, &files_before);
    for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
    int error = prepare ? prepare() : 0;
    if (error == 0) {
      execvp(arguments.front(), arguments.data());
      error = errno;
    }
    if (write(fds[1], &error, sizeof error) < 0) _exit(126);
    _exit(127);
  }
  close(fds[1]);
  int error = 0;
  ssize_t n;
  do n = read(fds[0], &error, sizeof error);
  while (n < 0 && errno == EINTR);
  close(fds[0]);
  if (n == sizeof error) {
    waitpid(pid, nullptr, 0);
    return fail(error, "cannot execute " + command.front());
  }
  return Child(pid);
}

std::optional<int> Child::ended() {
  if (code_) return code_;
  int status = 0;
  const pid_t got = waitpid(pid_, &status, WNOHANG);
  if (got == pid_) code_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  if (got < 0 && errno == ECHILD) code_ = 1;
  return code_;
}

void Child::pass_on_stop() const {
  if (stop_signal() != SIGINT) pass_on(stop_signal());
  else if (interrupt_was_ignored()) pass_on(SIGTERM);
}

void Child::pass_on(int signal) const {
  if (!code_) kill(pid_, signal);
}

}  // namespace ringside::cli
