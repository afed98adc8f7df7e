// The user's half of a sample's calls, where the kernel copied the registers and the top of the stack: by the tables that
// compilers put beside their code (writer/call_frame.hpp), which are read from the files that the process had mapped.
//
//   SampleWalk walk;
//   walk.map(pid, {start, end, offset}, path, build_id);          // also exec, fork, exit, in the order of time
//   StackEnd end = walk.frames(sample, most, out);                // appends, innermost first
//
// Files and stacks are hostile: every read is bounded, and what cannot be followed ends the walk. A file with another build id
// (or, without one, another inode) than the kernel saw is not used. Each second has a budget: a process that maps files made to
// take time delays nobody. Files are opened on a thread of their own: a file system that never answers delays a walk once.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "kernel/perf_ring.hpp"
#include "stacks/mounts.hpp"
#include "sys/aside.hpp"
#include "sys/budget.hpp"
#include "sys/sys.hpp"
#include "writer/unwind.hpp"

namespace ringside {

class SampleWalk {
 public:
  struct Place {
    u64 start = 0, end = 0;
    u64 offset = 0;  // in the file
    u64 inode = 0;   // of the file; 0: unknown
  };
  // What was left out because a second's budget was spent, or there was no room: files whose tables were not read, places of
  // files in a process, stacks that end early.
  struct Skipped {
    u64 files = 0, maps = 0, stacks = 0;
  };
  static constexpr u64 patience = 2'000'000'000;  // with a file system, in ns; half as much after each time that it was in vain
  explicit SampleWalk(std::function<u64()> now = sys::now_ns, u64 patience_ns = patience);
  ~SampleWalk();
  void map(i32 pid, const Place& place, std::string_view path, std::string_view build_id);
  void exec(i32 pid) { exit(pid); }
  void fork(i32 parent, i32 child);
  void exit(i32 pid);
  StackEnd frames(const PerfRecord& sample, size_t most, std::vector<u64>& out);
  const Skipped& skipped() const { return skipped_; }

 private:
  struct File;
  struct Look;
  struct Map {
    Place place;
    std::shared_ptr<File> file;
  };
  using Maps = std::map<u64, Map>;  // by start; shared with a parent until one of the two changes
  struct KeyHash {
    size_t operator()(const std::pair<const File*, u64>& key) const {
      return std::hash<const File*>()(key.first) ^ (key.second * 0x9E3779B97F4A7C15);
    }
  };
  std::shared_ptr<File> file_of(i32 pid, const std::string& path, const std::string& build_id, u64 inode);
  const FrameRow* row_at(const Maps& maps, u64 address);
  Budget& budget();
  bool look_at(File& file);
  void forget_files();

  const std::shared_ptr<Mounts> mounts_ = std::make_shared<Mounts>();  // the thread's
  sys::Aside aside_;
  std::function<u64()> now_;
  u64 patience_;
  bool later_ = false;  // the last row is missing because its file was not looked at in time
  u64 begin_ = 0;       // of the second
  Budget budget_{0, 0};
  Skipped skipped_;
  std::unordered_map<i32, std::shared_ptr<Maps>> processes_;
  std::unordered_map<std::string, std::shared_ptr<File>> files_;  // by build id, or inode, and path
  std::shared_ptr<File> none_;                                    // of all that have no tables, or cannot be read
  std::unordered_map<std::pair<const File*, u64>, std::optional<FrameRow>, KeyHash> rows_;  // by offset
  std::vector<std::string> unreadable_;                                                     // of `files_`
  u64 mapped_ = 0, maps_ = 0;  // bytes of all files; of all processes
};

}  // namespace ringside
