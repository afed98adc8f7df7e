#pragma once
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <optional>

namespace bench {

inline constexpr const char* no_rival = "LTTng-UST is not installed, or its session daemon does not start";

// LTTng-UST's side: a process under a session daemon of its own (lttng/session), which answers ns per event for a number of
// events.
class Rival {
 public:
  // Null if LTTng-UST is not installed, or its session daemon does not start.
  static std::unique_ptr<Rival> start() {
    if (access(RINGSIDE_LTTNG_RIVAL, X_OK) != 0) return nullptr;
    signal(SIGPIPE, SIG_IGN);
    auto rival = std::make_unique<Rival>();
    return rival->run(1000) ? std::move(rival) : nullptr;
  }
  Rival() {
    int to[2], from[2];
    if (pipe(to) != 0 || pipe(from) != 0) return;
    child_ = fork();
    if (child_ == 0) {
      dup2(to[0], 0);
      dup2(from[1], 1);
      for (int fd : {to[0], to[1], from[0], from[1]}) close(fd);
      execl(RINGSIDE_LTTNG_SESSION, RINGSIDE_LTTNG_SESSION, RINGSIDE_LTTNG_RIVAL, nullptr);
      _exit(127);
    }
    close(to[0]);
    close(from[1]);
    ask_ = fdopen(to[1], "w");
    answer_ = fdopen(from[0], "r");
  }
  ~Rival() {
    if (ask_) fclose(ask_);
    if (answer_) fclose(answer_);
    if (child_ > 0) waitpid(child_, nullptr, 0);
  }
  std::optional<double> run(long events) {
    if (ask_ == nullptr) return std::nullopt;
    double ns = 0;
    if (fprintf(ask_, "%ld\n", events) < 0 || fflush(ask_) != 0 || fscanf(answer_, "%lf", &ns) != 1) return std::nullopt;
    return ns;
  }

 private:
  pid_t child_ = -1;
  FILE *ask_ = nullptr, *answer_ = nullptr;
};

}  // namespace bench
