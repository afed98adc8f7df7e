// The kernel's calls of functions as the tracers function_graph and function record them, added up by the calls that led to
// them.
//
//   FunctionCalls calls(formats, tasks);
//   calls.take(record, ring, root, wanted);     // every record in its order, losses too; wanted: the exit of this call is
//   for (const FunctionCalls::Path& p : calls.paths()) ...       // callers before what they call
//
// A path's own time is that of its calls without the traced functions that they call; times are with what a thread slept in
// between. An exit ends the innermost open call of its function; calls that are open above it have lost theirs and have no
// time. Nothing is paired over a loss. The tracer `function` records no exits: a call is its caller and itself, and has no
// time. Thread-safety: none.
#pragma once
#include <string>
#include <unordered_map>
#include <vector>

#include "decode/formats.hpp"
#include "decode/id_table.hpp"
#include "decode/role.hpp"
#include "decode/tasks.hpp"
#include "timeline/merge.hpp"

namespace ringside {

class FunctionCalls {
 public:
  static constexpr u32 none = ~u32{0};
  static constexpr size_t deepest = 1024;  // open calls of a thread
  struct Path {
    u32 above = none;  // the path of its caller
    u32 root = 0, function = 0;
    u64 own_ns = 0, calls = 0;  // calls: with an exit, or of the tracer `function`
  };
  struct Counts {
    u64 calls = 0;
    u64 unmatched = 0;  // exits without an entry
    u64 cut = 0;        // entries without an exit, by a loss or otherwise
  };

  FunctionCalls(const Formats& formats, const Tasks& tasks) : formats_(formats), tasks_(tasks) {}

  void take(const TraceRecord& record, const RingName& ring, u32 root, bool wanted);
  const std::vector<Path>& paths() const { return paths_; }
  const std::string& function(const Path& path) const { return functions_[path.function]; }
  u64 own_ns() const { return own_ns_; }
  Counts counts() const;  // so far: open calls are cut

 private:
  struct Event {
    enum class What : u8 { unknown, other, entry, exit, plain } what = What::unknown;
    const EventType* type = nullptr;
    EventRole at{}, caller{};
  };
  struct Open {
    u64 function, begin, inner;
    u32 path;
  };
  void find(u32 id, Event& event) const;
  u32 function_at(const EventRole& at, const TraceRecord& record);
  u32 path(u32 above, u32 root, u32 function);

  const Formats& formats_;
  const Tasks& tasks_;
  IdTable<Event> events_;
  std::unordered_map<i64, std::vector<Open>> open_;  // by thread; idle ones by ring
  std::unordered_map<u64, u32> by_address_;          // functions by address, of the machine of `by_address_of_`
  std::unordered_map<std::string, u32> by_name_;
  std::vector<std::string> functions_;
  std::unordered_map<u64, u32> below_, first_;  // paths by caller's path, or root, and function
  std::vector<Path> paths_;
  u32 by_address_of_ = none;
  u64 own_ns_ = 0;
  Counts counts_;
};

}  // namespace ringside
