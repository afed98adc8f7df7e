// What comes through a pipe, or was packed into one file (gzip, xz, zstd, tar), where it can be mapped: a trace.dat without a
// name, or a recording in a directory that lasts as long as it is used. Both are in TMPDIR.
#pragma once
#include <memory>
#include <ringside/base/result.hpp>
#include <string>

#include "source/temporary_directory.hpp"
#include "sys/sys.hpp"

namespace ringside {

class ByteStream;

class Unpacked {
 public:
  // Null: the file is as it can be used. A pipe gives its bytes once: the next call gets the same. where: a path, or - for
  // stdin.
  static result<std::shared_ptr<const Unpacked>> of(const std::string& where);
  // - and /dev/stdin, /dev/fd/N of <(COMMAND), /proc/self/fd/N, if they are pipes or files.
  static bool is_given_open(const std::string& where);

  bool is_recording() const { return static_cast<bool>(dir_); }
  const std::string& path() const { return path_; }

 private:
  Unpacked() = default;
  result<void> take(ByteStream& from, const std::string& where);
  result<void> take_tar(ByteStream& from, const std::string& where, const u8* first);

  std::string path_;
  TemporaryDirectory dir_;  // of a recording
  sys::Fd file_;            // of a trace.dat
};

}  // namespace ringside
