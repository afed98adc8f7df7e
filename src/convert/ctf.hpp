// A CTF trace (LTTng-UST's, or any that babeltrace2 reads) as a recording: babeltrace2 reads it, and our
// sink.ringside.recording (src/babeltrace) writes what it reads into a directory that lasts as long as it is used.
#pragma once
#include <memory>
#include <ringside/base/result.hpp>
#include <string>

#include "source/temporary_directory.hpp"

namespace ringside {

// A directory with a CTF metadata file, or with such a directory below it: an output of `lttng create`.
bool is_ctf(const std::string& dir);

// Of what babeltrace2 said: the innermost cause, which is the last paragraph, on one line.
std::string innermost_cause(const std::string& said);

class CtfAsRecording {
 public:
  static result<std::unique_ptr<CtfAsRecording>> convert(const std::string& ctf);
  std::string recording() const { return dir_.path() + "/recording"; }

 private:
  explicit CtfAsRecording(TemporaryDirectory dir) : dir_(std::move(dir)) {}
  TemporaryDirectory dir_;
};

}  // namespace ringside
