// The command after `record ... --`: started with an environment of its own, watched, its exit code passed on.
#pragma once
#include <sys/types.h>

#include <functional>
#include <optional>
#include <ringside/base/result.hpp>
#include <ringside/base/types.hpp>
#include <string>
#include <utility>
#include <vector>

namespace ringside::cli {

// To the hard limit: a consumer has a file or two open for each source. A Child gets the old limit.
void raise_file_limit();

class Child {
 public:
  using Environment = std::vector<std::pair<std::string, std::string>>;
  // Fails when the command cannot be executed (ENOENT, EACCES, ...), or with the error of `prepare`, which gets the child's PID
  // while that sleeps. All that the child does afterwards is to execute the command. said: an open file for its stderr.
  static result<Child> start(const std::vector<std::string>& command, const Environment& environment,
                             const std::function<result<void>(pid_t)>& prepare = nullptr, int said = -1);
  // Its exit code once it has ended, 128 + N after signal N.
  std::optional<int> ended();
  u64 cpu_ns() const { return cpu_ns_; }  // that it used, with its children that it waited for; 0: it has not ended
  void pass_on(int signal) const;
  // To be called again and again: once, passes on the signal that asked this process to stop. A Ctrl-C reached the command as
  // well, and so, perhaps, did another SIGINT, which may have gone to the group: a command that ends at it has some time for
  // that. Where SIGINT was inherited as ignored the command ignores it, too, and SIGTERM replaces it.
  void pass_on_stop();
  // If it still runs: sends this signal, and waits until it ends, for a second at most.
  void stop(int signal);

 private:
  explicit Child(pid_t pid) : pid_(pid) {}
  pid_t pid_;
  std::optional<int> code_;
  u64 asked_ns_ = 0;
  bool passed_on_ = false;
  u64 cpu_ns_ = 0;
};

}  // namespace ringside::cli
