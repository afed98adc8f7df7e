#include "source/temporary_directory.hpp"

#include <stdlib.h>

#include <filesystem>

#include "sys/sys.hpp"

namespace ringside {

std::string temporary_place() {
  const char* const named = std::getenv("TMPDIR");
  return named != nullptr && *named != 0 ? named : "/tmp";
}

TemporaryDirectory TemporaryDirectory::at(std::string pattern) noexcept {
  TemporaryDirectory made;
  if (mkdtemp(pattern.data()) != nullptr) made.path_ = std::move(pattern);
  return made;
}

result<TemporaryDirectory> TemporaryDirectory::make(const std::string& word, const std::string& purpose) {
  const std::string pattern = temporary_place() + "/ringside-" + word + "-XXXXXX";
  TemporaryDirectory made = at(pattern);
  if (!made) return fail(errno, "cannot make a directory for " + purpose + " (" + pattern + "; TMPDIR names another place)");
  return made;
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code none;
  if (!path_.empty()) std::filesystem::remove_all(path_, none);
}

}  // namespace ringside
