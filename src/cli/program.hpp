// The program's side of `record` and `trigger`: an instance of its own, and a command's environment for writing to it.
#pragma once
#include <string>

#include "cli/child.hpp"
#include "instance/instance.hpp"

namespace ringside::cli {

// A UsageError unless it is a list of values that --libc takes.
void check_libc(const std::string& list);

// An instance for this process, "PREFIX-PID". Removes those of the same prefix that dead processes left behind (SIGKILL),
// unless a process still writes to them.
result<std::unique_ptr<Instance>> make_private_instance(const std::string& prefix, InstanceOptions make);

// Removes this process's one-ring-per-thread instance at its end, unless a process still writes to it. No name: removes
// nothing.
struct InstanceCleanup {
  std::string name;
  ~InstanceCleanup();
};

// preload: the library of --libc and --sample, or empty. sample_hz: samples a second; 0: none.
Child::Environment environment_of(const Instance& instance, const std::string& preload, const std::string& libc,
                                  u64 sample_hz = 0);

}  // namespace ringside::cli
