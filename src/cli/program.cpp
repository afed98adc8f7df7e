#include "cli/program.hpp"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <set>

#include "cli/command.hpp"
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

result<std::unique_ptr<Instance>> make_private_instance(const std::string& prefix, InstanceOptions make) {
  for (const std::string& name : Instance::list()) {
    if (name.rfind(prefix + "-", 0) != 0) continue;
    const auto opened = Instance::open(name);
    if (!opened || !(*opened)->of_one_command() || (*opened)->maker_lives()) continue;
    u64 unread = 0;
    for (const RingInfo& ring : (*opened)->rings()) unread += ring.counters.unread;
    if (Instance::remove(name) && unread != 0)  // refused while a process writes
      say("removed the instance " + name + ", which a killed command left, with " + counted(unread, "event") +
          " that nobody had read");
  }
  make.one_command = true;
  // The name may be in use: by a process that has this number in another PID namespace, or by the children of a killed one,
  // which still write.
  for (u64 number = static_cast<u64>(getpid());; number += u64{1} << 32) {
    make.name = prefix + "-" + std::to_string(number);
    auto made = Instance::create(make);
    if (made || made.error().code != std::errc::file_exists) return made;
  }
}

InstanceCleanup::~InstanceCleanup() {
  if (name.empty()) return;
  if (auto gone = Instance::remove(name); !gone)
    say("instance " + name + " stays: " + gone.error().sentence + "; remove it later with: ringside rm " + name);
}

Child::Environment environment_of(const Instance& instance, const std::string& preload, const std::string& libc,
                                  u64 sample_hz) {
  Child::Environment environment{{"RINGSIDE_INSTANCE", std::filesystem::absolute(instance.path())}};
  if (preload.empty()) return environment;
  const char* before = std::getenv("LD_PRELOAD");
  environment.emplace_back("LD_PRELOAD", before != nullptr && *before != 0 ? preload + ":" + before : preload);
  environment.emplace_back("RINGSIDE_LIBC", libc);
  if (sample_hz != 0) environment.emplace_back("RINGSIDE_SAMPLE", std::to_string(sample_hz));
  return environment;
}

}  // namespace ringside::cli
