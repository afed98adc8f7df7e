#include "instance/pid_map.hpp"

#include <dirent.h>
#include <sys/stat.h>

#include <cstdlib>

#include "sys/sys.hpp"

namespace ringside {
namespace {

template <class Use>
void each_number(const std::string& dir, const Use& use) {
  DIR* const all = opendir(dir.c_str());
  if (all == nullptr) return;
  while (const dirent* entry = readdir(all)) {
    if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9') use(std::atoi(entry->d_name));
  }
  closedir(all);
}

}  // namespace

void PidMap::scan() {
  processes_.clear();
  const u64 own = sys::pid_namespace();
  each_number("/proc", [&](i32 pid) {
    const std::string dir = "/proc/" + std::to_string(pid);
    struct stat st {};
    if (stat((dir + "/ns/pid").c_str(), &st) != 0 || st.st_ino == own)
      return;  // not permitted, or its threads are visible anyway
    if (const i32 there = sys::number_inside(pid); there != 0) processes_[{st.st_ino, there}].here = pid;
  });
}

void PidMap::find(Elsewhere& thread, const Start& start, u64 seen) {
  const Key key{thread.pid_namespace, thread.pid, thread.tid, start};
  const auto take = [&](const Elsewhere& found) {
    thread.here_tid = found.here_tid;
    thread.here_pid = found.here_pid;
  };
  const auto known = known_.find(key);
  if (known != known_.end()) take(known->second);
  if (known != known_.end() && (start.start != 0 || seen == scanned_for_)) return;
  if (seen != scanned_for_) scan();
  scanned_for_ = seen;
  const auto at = processes_.find({thread.pid_namespace, thread.pid});
  if (at == processes_.end()) return;
  Process& p = at->second;
  if (!p.listed) {
    const std::string tasks = "/proc/" + std::to_string(p.here) + "/task";
    each_number(tasks, [&](i32 tid) { p.threads[sys::number_inside(p.here, tid)] = tid; });
    p.listed = true;
  }
  const auto found = p.threads.find(thread.tid);
  if (found == p.threads.end()) return;
  const bool comparable = start.start != 0 && start.time_namespace != 0 && start.time_namespace == sys::time_namespace();
  if (comparable && sys::start_time(p.here, found->second) != start.start) return;
  Elsewhere here = thread;
  here.here_tid = found->second;
  here.here_pid = p.here;
  known_[key] = here;
  take(here);
}

}  // namespace ringside
