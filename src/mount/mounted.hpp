// An instance as the mount shows it: what tracefs keeps for an instance and the instance itself does not (buffer_percent, filters,
// the content of snapshots), its rings as CPUs, and who waits for them. For one thread; only Alarm has another one.
#pragma once
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "analysis/filter.hpp"
#include "decode/formats.hpp"
#include "export/tasks.hpp"
#include "instance/instance.hpp"
#include "mount/marker.hpp"
#include "mount/owner.hpp"
#include "serve/ring_table.hpp"

namespace ringside::mount {

// Sleeps on an instance's behalf, and makes a descriptor readable when a writer has answered (or 100 ms are over: a look costs
// little, and then no missed wake-up can last).
class Alarm {
 public:
  Alarm(Instance& instance, int event_fd);
  ~Alarm();
  // asked: what Instance::ask answered. late: not before 1 ms is over: the last alarm was for nobody who waits here.
  void set(u32 asked, bool late);

 private:
  void run();
  Instance& instance_;
  int event_fd_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<u32> asked_;
  bool late_ = false;
  bool over_ = false;
  std::thread thread_;
};

struct EventFilterText {
  std::string text;             // empty: none
  std::string wrong;            // the last text that was refused, and why: what the file shows then
  std::optional<Filter> filter;
};

class Mounted final : public Owner {
 public:
  // event_fd: written to when who waits should look again.
  // cpus: at least so many are shown.
  static result<std::shared_ptr<Mounted>> open(const std::string& name_or_path, int event_fd, u32 cpus);

  Instance& instance() { return *instance_; }
  const std::string& path() const { return instance_->path(); }
  int dir() const { return instance_->dir(); }
  bool removed() const override;
  u64 inode() const { return inode_; }

  // Rings handed out so far; one for each processor, at least: tools look for those.
  u32 cpus() const;
  bool has_ring(u32 n) const;
  result<RingView> look(u32 ring) const;

  // Lets nobody else serve the instance from the first call on, until release().
  result<RingTable*> serve();
  void release();
  bool serving() const { return table_.has_value(); }
  u32 users = 0;  // open raw files

  // Formats and names, as of now.
  void refresh();
  const Formats& formats() const { return formats_; }
  Tasks& tasks() { return tasks_; }

  // An event's filter acts on what this mount shows as text or copies for read(); the rings hold all that was written.
  std::map<u32, EventFilterText> filters;  // by id
  std::set<i32> pids, notrace_pids;  // set_event_pid, set_event_notrace_pid: act as filters do; markers are not events. As recorded, or as seen here
  static constexpr size_t most_pids = 4096;
  bool wanted(const TraceRecord& record, const RingName& ring);
  bool filtered() const;

  u32 pipes = 0;                    // open trace_pipe of all rings, 0 or 1
  std::map<u32, bool> ring_pipes;   // of one
  bool markers = true;
  Marker& marker() { return marker_; }

  void alarm(int percent, bool late) override;

 private:
  explicit Mounted(std::unique_ptr<Instance> instance) : instance_(std::move(instance)), marker_(instance_->path()) {}
  std::unique_ptr<Instance> instance_;
  u64 inode_ = 0;
  int event_fd_ = -1;
  u32 fewest_cpus_ = 0;
  std::optional<RingTable> table_;
  Formats formats_;
  Tasks tasks_;
  i64 names_size_ = 0;
  u64 threads_seen_ = 0;
  Marker marker_;
  std::unique_ptr<Alarm> alarm_;
};

}  // namespace ringside::mount
