#include "cli/program.hpp"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <set>

#include "cli/command.hpp"
#include "instance/cpu_rings.hpp"
#include "sys/sys.hpp"

namespace ringside::cli {

void check_libc(const std::string& list) {
  static const std::set<std::string> known{"malloc", "io", "mutex"};
  for (size_t at = 0; at <= list.size();) {
    const size_t end = std::min(list.find(',', at), list.size());
    const std::string word = list.substr(at, end - at);
    if (known.count(word) == 0)
      throw UsageError{"--libc does not know \"" + word + "\"; it takes malloc, io, mutex, with commas"};
    at = end + 1;
  }
}

namespace {

constexpr int most_of_a_name = 1000;

// Made by a process of this PID namespace: only then does the PID in its name say which.
bool is_of_here(const std::string& name) {
  const auto instance = Instance::open(name);
  const u64 here = sys::pid_namespace();
  return instance && here != 0 && (*instance)->control().pid_namespace == here && (*instance)->control().boot == boot_hash();
}

}  // namespace

result<std::unique_ptr<Instance>> make_private_instance(const std::string& prefix, InstanceOptions make) {
  for (const std::string& name : Instance::list()) {
    if (name.rfind(prefix + "-", 0) != 0 || name.find_first_not_of("0123456789", prefix.size() + 1) != std::string::npos) continue;
    const i32 pid = std::atoi(name.c_str() + prefix.size() + 1);
    if (pid > 0 && pid != getpid() && is_of_here(name) && sys::start_time(pid) == 0) (void)Instance::remove(name);
  }
  const std::string own = prefix + "-" + std::to_string(getpid());
  make.name = own;
  for (int n = 2;; ++n) {
    auto made = Instance::create(make);
    if (made || made.error().code != std::errc::file_exists || n > most_of_a_name) return made;
    // An earlier process of the same pid was killed. Refused while somebody still writes to its instance.
    if (is_of_here(make.name) && Instance::remove(make.name)) made = Instance::create(make);
    if (made || made.error().code != std::errc::file_exists) return made;
    make.name = own + "." + std::to_string(n);  // of a recorder with the same PID in another namespace
  }
}

InstanceCleanup::~InstanceCleanup() {
  if (name.empty()) return;
  if (auto gone = Instance::remove(name); !gone)
    say("instance " + name + " stays: " + gone.error().sentence + "; remove it later with: ringside rm " + name);
}

Child::Environment environment_of(const Instance& instance, const std::string& preload, const std::string& libc) {
  Child::Environment environment{{"RINGSIDE_INSTANCE", std::filesystem::absolute(instance.path())}};
  if (preload.empty()) return environment;
  const char* before = std::getenv("LD_PRELOAD");
  environment.emplace_back("LD_PRELOAD", before != nullptr && *before != 0 ? preload + ":" + before : preload);
  environment.emplace_back("RINGSIDE_LIBC", libc);
  return environment;
}

}  // namespace ringside::cli
