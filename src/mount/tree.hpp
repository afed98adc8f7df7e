// The names below the mount, and the object of each: one table of files (tree.cpp), and directories that are made from the
// instances as they are now.
//
//   top, instances/NAME    the files of an instance; options/, events/, per_cpu/
//   instances/             all instances but the top one; mkdir and rmdir make and remove them
//   events/SYSTEM/EVENT/   registered events; events/ftrace/: print and raw_data, the events of markers
//   per_cpu/cpuN/          ring N
//   remotes/NAME/          an external writer's rings: the same directories; its files are in remote_files.cpp
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "mount/mounted.hpp"
#include "mount/open_file.hpp"
#include "mount/remote.hpp"

namespace ringside::mount {

enum class Dir : u32 {
  top = 1,
  instances = 2,
  instance = 4,
  per_cpu = 8,
  cpu = 16,
  options = 32,
  events = 64,
  system = 128,
  event = 256,
  remotes = 512,
  remote = 1024,
};
inline constexpr u32 in_top = static_cast<u32>(Dir::top), in_instance = in_top | static_cast<u32>(Dir::instance),
                     in_cpu = static_cast<u32>(Dir::cpu), in_options = static_cast<u32>(Dir::options),
                     in_events = static_cast<u32>(Dir::events), in_system = static_cast<u32>(Dir::system),
                     in_event = static_cast<u32>(Dir::event), in_remote = static_cast<u32>(Dir::remote);

struct FileType;
struct Node {
  Dir dir = Dir::top;
  std::shared_ptr<Mounted> on = nullptr;  // for all but `instances` and the names below `remotes`
  u32 ring = 0;
  std::string system{}, event{};
  const FileType* file = nullptr;            // null: the directory itself
  std::shared_ptr<Remote> remote = nullptr;  // below remotes/NAME
  std::shared_ptr<RingSet> rings() const { return remote != nullptr ? std::shared_ptr<RingSet>(remote) : on; }
  Only only() const { return dir == Dir::cpu ? Only(ring) : std::nullopt; }
};

struct FileType {
  u32 in;  // bits of Dir
  const char* name;
  u32 mode;
  // The content of a text file, and the effect of a write to it; null: refused with EINVAL.
  result<std::string> (*read)(const Node& at);
  result<Written> (*write)(const Node& at, std::string_view bytes, const Client& client);
  // Opens a file that is more than a text.
  result<std::unique_ptr<OpenFile>> (*open)(const Node& at, const Opening& how);
  bool is_raw = false;  // trace_pipe_raw, snapshot_raw: never writable, and mapped
};

struct Listed {
  std::string name;
  bool directory = false;
};

class Tree {
 public:
  // instances: the first is the top level, only the others appear under instances/; none: an empty top level, all under
  // instances/. cpus: each instance shows at least this number of rings, even if they do not exist. remotes: external writers,
  // NAME=SOCKET, beside those that are announced; each gets `cpus` rings.
  static result<std::unique_ptr<Tree>> create(const std::vector<std::string>& instances,
                                              const std::vector<std::string>& remotes, u32 cpus,
                                              std::chrono::nanoseconds patience, int event_fd);
  ~Tree();

  Node root() const { return {.dir = Dir::top, .on = top_}; }
  result<Node> find(const Node& in, const std::string& name);
  result<std::vector<Listed>> list(const Node& of);
  result<void> make_directory(const Node& in, const std::string& name);
  result<void> remove_directory(const Node& in, const std::string& name, const std::function<bool(const Mounted&)>& in_use);

 private:
  Tree() = default;
  std::vector<std::string> names() const;  // under instances/
  std::vector<std::shared_ptr<Mounted>> others();
  result<std::shared_ptr<Mounted>> mounted(const std::string& name);
  std::unique_ptr<Remotes> remotes_;
  std::shared_ptr<Mounted> top_;
  std::string own_;  // the path of the empty top level, which this removes
  std::unique_ptr<Instance> own_instance_;  // shows that its maker lives
  std::vector<std::string> only_;
  std::map<std::string, std::shared_ptr<Mounted>> mounted_;
  int event_fd_ = -1;
  u32 cpus_ = 0;
};

// Opens the kind of file that its row of the table says.
result<std::unique_ptr<OpenFile>> open_file(const Node& at, const Opening& how);

}  // namespace ringside::mount
