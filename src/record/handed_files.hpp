// The files of programs' code, which they hand over while they run: names of their addresses can be looked up at the end of the
// recording, also where a file was removed, replaced, or was in a mount namespace that is gone.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "instance/instance.hpp"
#include "sys/sys.hpp"

namespace ringside {

class HandedFiles {
 public:
  // Programs of the instance hand over from now on. Null: they cannot.
  static std::unique_ptr<HandedFiles> listen(Instance& instance);
  ~HandedFiles();
  // The file of this name in code maps that came last, of all that were sent up to now. Empty: there is none.
  sys::Fd file(const std::string& name);
  size_t size() const;

 private:
  explicit HandedFiles(Instance& instance) : instance_(instance) {}
  void take();
  bool take_one();  // false: none has come

  static constexpr size_t most = 512;  // descriptors
  Instance& instance_;
  sys::Fd line_, stop_;
  mutable std::mutex mutex_;
  std::map<std::string, sys::Fd> files_;
  std::thread thread_;
};

}  // namespace ringside
