// The files of programs' code, which programs hand over while they run, or the recorder holds: names of their addresses can be
// looked up at the end of the recording, also where a file was removed, replaced, or was in a mount namespace that is gone.
// At most 512 are held; each later one takes the place of the oldest.
#pragma once
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "instance/instance.hpp"
#include "sys/sys.hpp"

namespace ringside {

class HandedFiles {
 public:
  HandedFiles() = default;  // no program hands over
  // Programs of the instance hand over from now on. Null: they cannot.
  static std::unique_ptr<HandedFiles> listen(Instance& instance);
  ~HandedFiles();
  // Holds what `find` returns, as O_PATH: a file that a process has mapped. version: separates it from others with this name
  // in code maps; `find` is not called for one that is held.
  void hold(const std::string& name, const std::string& version, i32 pid, const std::function<sys::Fd()>& find);
  // The files of this name in code maps, to read, the last one first, of all that were sent up to now.
  std::vector<sys::Fd> files(const std::string& name);

 private:
  struct File {
    std::string name, version;
    i32 pid = 0;  // of a file that is not judged yet: its process
    sys::Fd fd{};
  };
  void take();
  bool take_one();  // false: none has come
  void add(File file, const std::function<sys::Fd()>& find);

  static constexpr size_t most = 512;  // descriptors
  Instance* instance_ = nullptr;
  sys::Fd line_, stop_;
  std::mutex mutex_;
  std::deque<File> files_;
  std::thread thread_;
};

}  // namespace ringside
