// A place for instances that a test has to itself.
#pragma once
#include <gtest/gtest.h>
#include <ringside/ringside.h>
#include <stdlib.h>

#include <filesystem>
#include <string>

namespace ringside::test {

// RINGSIDE_ROOT is a new directory while this object lives. Leaves the instance that the process writes to, and restores what
// was before.
class OwnRoot {
 public:
  // memory: in memory, where mappings of rings cost no disk.
  explicit OwnRoot(bool memory = false) {
    std::string pattern = memory ? "/dev/shm/ringside-unit-XXXXXX" : "/tmp/ringside-unit-XXXXXX";
    path_ = mkdtemp(pattern.data());
    if (const char* root = getenv("RINGSIDE_ROOT")) before_ = root;
    setenv("RINGSIDE_ROOT", path_.c_str(), 1);
  }
  ~OwnRoot() {
    ringside_close();
    if (!before_.empty()) setenv("RINGSIDE_ROOT", before_.c_str(), 1);
    std::filesystem::remove_all(path_);
  }
  OwnRoot(const OwnRoot&) = delete;
  OwnRoot& operator=(const OwnRoot&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_, before_;
};

}  // namespace ringside::test
