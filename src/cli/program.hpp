// The program's side of `record` and `trigger`: an instance of its own, and a command's environment for writing to it.
#pragma once
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "cli/child.hpp"
#include "instance/instance.hpp"

namespace ringside::cli {

// The groups of a list that --libc takes; any other is a UsageError.
std::vector<std::string> libc_groups(const std::string& list);

// An instance for this process, "PREFIX-PID". Removes those of the same prefix that dead processes left (SIGKILL),
// unless they have unread events, or a process has them open.
result<std::unique_ptr<Instance>> make_private_instance(const std::string& prefix, InstanceOptions make);

// Removes such an instance at the command's end. It stays, and recording is on in it, if processes that the command left
// have it open, or if it has events that came after the last reading; only a person removes it then.
class PrivateInstance {
 public:
  // null: the instance is not private. read_out: its command reads it to the end.
  PrivateInstance(Instance* instance, bool read_out) : instance_(instance), read_out_(read_out) {}
  ~PrivateInstance();
  PrivateInstance(const PrivateInstance&) = delete;
  PrivateInstance& operator=(const PrivateInstance&) = delete;
  void leave_unread() { read_out_ = false; }  // what is in it is in the books of a recording that failed

 private:
  Instance* instance_;
  bool read_out_;
};

// The processes that a command has left when it ended: a daemon, a job in the background.
class LeftBehind {
 public:
  LeftBehind(Instance& instance, bool wait) : instance_(instance), wait_(wait) {}
  // Some have its instance open, or may be about to open it. Says the first time which.
  bool awaited();

 private:
  Instance& instance_;
  bool wait_, said_ = false;
};

void add_wait(CLI::App& app, bool& wait);  // --no-wait

// preload: the library of --libc and --sample, or empty. sample_hz: samples a second; 0: none.
Child::Environment environment_of(const Instance& instance, const std::string& preload, const std::string& libc,
                                  u64 sample_hz = 0);

}  // namespace ringside::cli
