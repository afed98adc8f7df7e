// A directory that goes with this object.
#pragma once
#include <filesystem>
#include <string>

namespace ringside::cli {

struct TemporaryDirectory {
  std::string dir;  // for mkdtemp()
  std::string trace() const { return dir + "/trace"; }
  ~TemporaryDirectory() {
    std::error_code none;
    std::filesystem::remove_all(dir, none);
  }
};

}  // namespace ringside::cli
