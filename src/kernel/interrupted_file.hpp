// A file whose read() waits for data without a time-out, and which poll() knows nothing of: a process of its own reads it into
// a pipe, and a timer of that process interrupts the waiting.
#pragma once
#include <memory>
#include <ringside/base/result.hpp>
#include <string>

#include "sys/sys.hpp"

namespace ringside {

class InterruptedFile {
 public:
  static result<std::unique_ptr<InterruptedFile>> open(const std::string& path);
  ~InterruptedFile();
  InterruptedFile(const InterruptedFile&) = delete;
  InterruptedFile& operator=(const InterruptedFile&) = delete;

  // What has come; 0: nothing has, or ended().
  result<size_t> read(char* to, size_t room);
  // From now on read() waits, until nothing is left in the file: then it has ended.
  void stop();
  bool ended() const { return ended_; }

 private:
  InterruptedFile() = default;
  std::string path_;
  sys::Fd pipe_;
  volatile int* stop_ = nullptr;  // shared with the process
  i32 pid_ = 0;
  bool stopped_ = false, ended_ = false;
};

}  // namespace ringside
