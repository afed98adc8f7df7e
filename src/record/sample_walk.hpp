// The user's half of a sample's calls, where the kernel copied the registers and the top of the stack: by the tables that
// compilers put beside their code (writer/call_frame.hpp), which are read from the files that the process had mapped.
//
//   SampleWalk walk;
//   walk.map(pid, {start, end, offset}, path, build_id);          // also exec, fork, exit, in the order of time
//   StackEnd end = walk.frames(sample, most, out);                // appends, innermost first
//
// Files and stacks are hostile: every read is bounded, and what cannot be followed ends the walk. A file with another build id
// or, without one, with another inode than the kernel saw is not used.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "kernel/perf_ring.hpp"
#include "writer/unwind.hpp"

namespace ringside {

class SampleWalk {
 public:
  struct Place {
    u64 start = 0, end = 0;
    u64 offset = 0;  // in the file
    u64 inode = 0;   // of the file; 0: unknown
  };
  SampleWalk();
  ~SampleWalk();
  void map(i32 pid, const Place& place, std::string_view path, std::string_view build_id);
  void exec(i32 pid) { processes_.erase(pid); }
  void fork(i32 parent, i32 child) { processes_[child] = processes_[parent]; }
  void exit(i32 pid) { processes_.erase(pid); }
  StackEnd frames(const PerfRecord& sample, size_t most, std::vector<u64>& out);

 private:
  struct File;
  struct Map {
    Place place;
    File* file = nullptr;
  };
  using Maps = std::map<u64, Map>;  // by start; shared with a parent until one of the two changes
  File* file_of(i32 pid, const std::string& path, const std::string& build_id, u64 inode);
  const FrameRow* row_at(const Maps& maps, u64 address) const;

  std::unordered_map<i32, std::shared_ptr<Maps>> processes_;
  std::unordered_map<std::string, std::unique_ptr<File>> files_;  // by build id, or inode, and path
  std::unique_ptr<File> none_;                                     // of all that have no tables, or cannot be read
  u64 bytes_ = 0;                                                  // of all files
};

}  // namespace ringside
