#include "sys/memory_limit.hpp"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <string>

namespace ringside::test {
namespace {

constexpr u64 mib = u64{1} << 20;
enum Answer : int { no_room, room, not_here };

// memory_left() in a process whose control group of version 2 shows these files. The files stand on a file system of this
// process alone, so the machine may use either version.
int memory_left_where(const std::string& limit, u64 use, u64 inactive_file, u64 size) {
  const pid_t child = fork();
  if (child == 0) {
    if (unshare(CLONE_NEWNS) != 0 || ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("none", "/sys/fs/cgroup", "tmpfs", 0, nullptr) != 0)
      _exit(not_here);
    const std::string at = "/sys/fs/cgroup/";
    std::ofstream(at + "memory.max") << limit << '\n';
    std::ofstream(at + "memory.current") << use << '\n';
    std::ofstream(at + "memory.stat") << "anon " << use - inactive_file << "\nfile " << inactive_file
                                      << "\ninactive_anon 7\nactive_anon 9\ninactive_file " << inactive_file
                                      << "\nactive_file 0\n";
    _exit(sys::memory_left(size) ? room : no_room);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(MemoryLimit, ControlGroupsOfVersion2) {
  const std::string gib = std::to_string(1024 * mib);
  const int unlimited = memory_left_where("max", 1024 * mib, 0, 1024 * mib);
  if (unlimited == not_here) GTEST_SKIP() << "a mount namespace needs root";
  EXPECT_EQ(unlimited, room);
  EXPECT_EQ(memory_left_where(gib, 100 * mib, 0, 100 * mib), room);
  EXPECT_EQ(memory_left_where(gib, 1000 * mib, 0, 4 * mib), no_room) << "a sixteenth of the limit is kept";
  EXPECT_EQ(memory_left_where(gib, 100 * mib, 0, 900 * mib), no_room);
  EXPECT_EQ(memory_left_where(gib, 1000 * mib, 500 * mib, 4 * mib), room) << "the kernel would reclaim its page cache";
}

}  // namespace
}  // namespace ringside::test
