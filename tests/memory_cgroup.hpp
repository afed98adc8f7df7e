// A memory cgroup of the test's own, of either version, with a limit; gone with the object.
#pragma once
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <memory>
#include <ringside/base/types.hpp>
#include <string>

namespace ringside::test {

struct MemoryCgroup {
  std::string path;  // empty: none can be made here

  explicit MemoryCgroup(u64 limit) {
    for (const char* at : {"/sys/fs/cgroup", "/sys/fs/cgroup/memory"}) {
      const std::string group = std::string(at) + "/ringside-test-" + std::to_string(getpid());
      const bool version2 = at[14] == 0;
      if (access((std::string(at) + "/cgroup.procs").c_str(), F_OK) != 0 || mkdir(group.c_str(), 0755) != 0) continue;
      path = group;
      if (std::ofstream(group + (version2 ? "/memory.max" : "/memory.limit_in_bytes")) << limit << std::flush) return;
      rmdir(group.c_str());
      path.clear();
    }
  }
  MemoryCgroup(const MemoryCgroup&) = delete;
  MemoryCgroup& operator=(const MemoryCgroup&) = delete;
  ~MemoryCgroup() {
    for (int tries = 0; !path.empty() && rmdir(path.c_str()) != 0 && errno == EBUSY && tries < 1000; ++tries) usleep(10'000);
  }

  // The calling process, from here on. False: it may not be moved.
  bool enter() const { return static_cast<bool>(std::ofstream(path + "/cgroup.procs") << getpid() << std::flush); }
};

inline constexpr const char* no_memory_cgroup = "no memory cgroup can be made here (not root?)";

}  // namespace ringside::test
