// Which file's code is at an address of a process, as long as the process lives: what the events ringside:code_map say.
//
//   maps.add(process, {start, end, offset, maps.file(path, build_id)});
//   u32 space = maps.space(process);                 // these maps; a later one that replaces some of them makes a new space
//   const CodeMap* map = maps.find(space, address);
//
// A space stays as it was for those that use it, but for maps that come where there was nothing: an event that is read a little
// too late still counts.
#pragma once
#include <map>
#include <memory>
#include <ringside/base/types.hpp>
#include <string>
#include <unordered_map>
#include <vector>

namespace ringside {

struct CodeMap {
  u64 start = 0, end = 0;
  u64 offset = 0;  // in the file
  u32 file = 0;
  bool operator==(const CodeMap& o) const { return start == o.start && end == o.end && offset == o.offset && file == o.file; }
};

struct CodeFile {
  std::string path, build_id;  // build_id: in hex; empty: unknown
  u32 machine = 0;             // whose file it is: Tasks::machine
};

class CodeMaps {
 public:
  using Process = i64;                             // Tasks::Key
  // Of all spaces together; more are refused and counted. A fork copies its parent's when one of the two changes.
  static constexpr size_t least_maps = 1'000'000, maps_for_each = 64;

  CodeMaps() { spaces_.emplace_back(); }

  u32 file(const std::string& path, const std::string& build_id, u32 machine = 0);
  const CodeFile& file(u32 number) const { return files_[number]; }
  size_t files() const { return files_.size(); }

  void add(Process owner, i32 pid, const CodeMap& map);
  void clear(Process owner, i32 pid);                  // exec: there are none
  void copy(Process child, i32 pid, Process parent);     // fork
  u32 space(Process owner) {                           // 0: nothing is known of it
    const auto at = current_.find(owner);
    if (at == current_.end()) return 0;
    spaces_[at->second].used = true;
    return at->second;
  }
  i32 pid(u32 space) const { return spaces_[space].pid; }
  const CodeMap* find(u32 space, u64 address) const;
  u64 refused() const { return refused_; }

 private:
  using Maps = std::map<u64, CodeMap>;  // by start; they do not overlap
  struct Space {
    std::shared_ptr<Maps> maps = std::make_shared<Maps>();  // shared with a parent until one of the two changes
    i32 pid = 0;
    bool used = false;
  };
  Space& fresh(Process owner, i32 pid);
  Space& own(Process owner, i32 pid);
  bool grow(size_t by);

  std::vector<Space> spaces_;  // 0: empty
  std::unordered_map<Process, u32> current_;
  std::vector<CodeFile> files_;
  std::unordered_map<std::string, u32> file_numbers_;
  size_t maps_ = 0, told_ = 0;
  u64 refused_ = 0;
};

}  // namespace ringside
