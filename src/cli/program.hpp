// The program's side of `record` and `trigger`: an instance of its own, and what a command needs to write to it.
#pragma once
#include <string>

#include "cli/child.hpp"
#include "instance/instance.hpp"

namespace ringside::cli {

// A UsageError unless it is a list of what --libc takes.
void check_libc(const std::string& list);

// An instance for this process, "PREFIX-PID". Those of the same prefix that dead processes left behind (SIGKILL) go, unless somebody
// still writes to them.
result<std::unique_ptr<Instance>> make_private_instance(const std::string& prefix, InstanceOptions make);

// The one-ring-per-thread instance that is ours goes when we go, unless somebody still writes to it. No name: nothing goes.
struct InstanceCleanup {
  std::string name;
  ~InstanceCleanup();
};

// preload: the library of --libc, or empty.
Child::Environment environment_of(const Instance& instance, const std::string& preload, const std::string& libc);

}  // namespace ringside::cli
