// The tables of files: their rows are in files.cpp and, below remotes/, in remote_files.cpp, one for each.
#pragma once
#include "mount/tree.hpp"

namespace ringside::mount {

struct EventName {
  u32 number;  // in the instance's event table
  u16 id;
  std::string system, name;
  bool enabled;
};
std::vector<EventName> event_names(Mounted& on);  // all that have a format
bool has_system(Mounted& on, const std::string& system);
bool has_event(Mounted& on, const std::string& system, const std::string& event);

// What the functions of the tables say, and what a write that makes no sense is answered with.
using Text = result<std::string>;
using Taken = result<size_t>;
inline tl::unexpected<Error> invalid() { return fail(EINVAL, "this is not taken here"); }

const FileType* file_of(Dir dir, const std::string& name);
void for_each_file(Dir dir, const std::function<void(const FileType&)>& use);
void for_each_remote_file(Dir dir, const std::function<void(const FileType&)>& use);  // remote_files.cpp
// As the kernel reads numbers from its users: digits, one newline may follow.
std::optional<u64> number(std::string_view text);
std::string stats_text(const Counters& counters, const ClockInfo& clock);  // of per_cpu/cpuN/stats
bool file_is_shown(const FileType& file, const Place& in);  // events/ftrace cannot be switched

}  // namespace ringside::mount
