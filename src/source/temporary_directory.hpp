// A directory of this program's own, in TMPDIR or /tmp, which goes with this object.
#pragma once
#include <ringside/base/result.hpp>
#include <string>
#include <utility>

namespace ringside {

std::string temporary_place();  // TMPDIR, else /tmp

class TemporaryDirectory {
 public:
  // ringside-WORD-XXXXXX. purpose: for the error's sentence, "the events of HOST".
  static result<TemporaryDirectory> make(const std::string& word, const std::string& purpose);
  // Elsewhere: a path that ends in XXXXXX. An error has errno alone.
  static TemporaryDirectory at(std::string pattern) noexcept;
  TemporaryDirectory() = default;
  TemporaryDirectory(TemporaryDirectory&& from) noexcept : path_(std::exchange(from.path_, {})) {}
  TemporaryDirectory& operator=(TemporaryDirectory&& from) noexcept {
    path_.swap(from.path_);
    return *this;
  }
  ~TemporaryDirectory();
  explicit operator bool() const { return !path_.empty(); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;  // empty: there is none
};

}  // namespace ringside
