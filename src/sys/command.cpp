#include "sys/command.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>
#include <vector>

#include "sys/sys.hpp"

namespace ringside::sys {
namespace {

std::vector<char*> kept_environment() {
  std::vector<char*> kept;
  for (char** one = environ; one != nullptr && *one != nullptr; ++one) {
    const std::string_view text = *one;
    if (!text.starts_with("LD_PRELOAD=") && !text.starts_with("RINGSIDE_INSTANCE=") && !text.starts_with("RINGSIDE_STACK="))
      kept.push_back(*one);
  }
  kept.push_back(nullptr);
  return kept;
}

int spawn(char* const* arguments, pid_t& pid) {
  const std::vector<char*> kept = kept_environment();
  posix_spawn_file_actions_t files;
  posix_spawnattr_t how;
  if (posix_spawn_file_actions_init(&files) != 0) return ENOMEM;
  if (posix_spawnattr_init(&how) != 0) return posix_spawn_file_actions_destroy(&files), ENOMEM;
  sigset_t all, none;
  sigfillset(&all);
  sigemptyset(&none);
  posix_spawnattr_setsigdefault(&how, &all);
  posix_spawnattr_setsigmask(&how, &none);
  posix_spawnattr_setflags(&how, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
  int done = 0;
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (done == 0) done = posix_spawn_file_actions_addopen(&files, fd, "/dev/null", O_RDWR, 0);
  if (done == 0) done = posix_spawnp(&pid, arguments[0], &files, &how, arguments, kept.data());
  posix_spawnattr_destroy(&how);
  posix_spawn_file_actions_destroy(&files);
  return done;
}

int run_uncancelled(char* const* arguments) noexcept {
  if (environment("PATH") == nullptr) return -ENOENT;
  pid_t pid = 0;
  try {
    if (const int done = spawn(arguments, pid); done != 0) return -done;
  } catch (...) {
    return -ENOMEM;
  }
  int status = 0;
  while (waitpid(pid, &status, 0) < 0)
    if (errno != EINTR) return -errno;
  constexpr int signalled = 128;
  return WIFEXITED(status) ? WEXITSTATUS(status) : signalled;
}

}  // namespace

int run(char* const* arguments) noexcept {
  int before = PTHREAD_CANCEL_ENABLE;
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
  const int done = run_uncancelled(arguments);
  pthread_setcancelstate(before, nullptr);
  return done;
}

}  // namespace ringside::sys
