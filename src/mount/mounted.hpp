// An instance as the mount shows it: the state that tracefs has and the instance itself has not (buffer_percent, filters), its
// rings as CPUs, and the thread that waits for its writers. For one thread; only Alarm has another one.
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
#include "instance/instance.hpp"
#include "mount/marker.hpp"
#include "mount/ring_set.hpp"
#include "serve/ring_table.hpp"

namespace ringside::mount {

// Sleeps on an instance's behalf, and makes a descriptor readable when a writer has answered (or after 100 ms: a check costs
// little, and so a missed wake-up does not last).
class Alarm {
 public:
  Alarm(Instance& instance, int event_fd);
  ~Alarm();
  // asked: the result of Instance::ask. late: sleep at least 1 ms, because the last alarm helped no waiting request.
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
  std::string wrong;            // the last text that was refused, and why: reading the file shows it then
  std::optional<Filter> filter;
};

class Mounted final : public RingSet {
 public:
  // event_fd: written to when the waiting requests should look again. cpus: at least this number of rings is shown.
  static result<std::shared_ptr<Mounted>> open(const std::string& name_or_path, int event_fd, u32 cpus);
  ~Mounted() override;

  Instance& instance() { return *instance_; }
  const std::string& path() const { return instance_->path(); }
  int dir() const { return instance_->dir(); }
  bool has_ring(u32 n) const;

  // An event's filter acts on what this mount shows as text or copies for read(); the rings hold all written events.
  std::map<u32, EventFilterText> filters;  // by id
  std::set<i32> pids, notrace_pids;  // set_event_pid, set_event_notrace_pid: act as filters do; markers are not events. As recorded, or as seen here
  static constexpr size_t most_pids = 4096;
  bool markers = true;
  Marker& marker() { return marker_; }

  // As a RingSet:
  u32 cpus() const override;  // one for each ring, and for each processor: tools search for those
  RingName name(u32 ring) const override;
  ClockInfo clock() const override { return instance_->clock(); }
  u32 subbuf_size(u32 ring) override;
  result<Counters> counters(u32 ring) override;
  bool on() const override { return instance_->tracing_on(); }
  bool removed() const override;
  u64 refresh() override;
  bool filtered() const override;
  bool wanted(const TraceRecord& record, const RingName& ring) override;
  std::vector<EventName> events() override;
  result<std::shared_ptr<Job>> reset(Only only) override;
  Peeked peek(Only only) override;
  Found look(u32 ring, Asker& asker) override;  // takes the reader's lock until done()
  SubBufferView view(u32 ring) const override;
  void consume(u32 ring, u32 end, u32 events) override;
  void done(u32 ring) override;
  Error error(u32 ring) const override;
  bool ready(u32 ring, u32 percent) override;
  bool can_be_mapped(u32 ring) const override { return has_ring(ring); }
  result<sys::Fd> map(u32 ring) override;
  void unmap(u32 ring) override;
  result<bool> get_reader(u32 ring, Asker& asker, bool must) override;
  void alarm(int percent, bool late) override;

 private:
  struct Lane;
  explicit Mounted(std::unique_ptr<Instance> instance);
  RingView* view_of(u32 ring);
  std::unique_ptr<Instance> instance_;
  u64 inode_ = 0;
  int event_fd_ = -1;
  u32 fewest_cpus_ = 0;
  std::optional<RingTable> table_;  // while rings are mapped: no other server serves the instance then
  u32 mappings_ = 0;
  std::map<u32, Lane> lanes_;
  i64 names_size_ = 0;
  u64 threads_seen_ = 0, changes_ = 0;
  Marker marker_;
  std::unique_ptr<Alarm> alarm_;
};

}  // namespace ringside::mount
