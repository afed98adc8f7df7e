// An instance as the mount shows it: the state that tracefs has and the instance itself has not (buffer_percent, filters), its
// rings as CPUs, and the thread that waits for its writers. For one thread; only Alarm has another one.
#pragma once
#include <condition_variable>
#include <functional>
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
#include "mount/triggers.hpp"
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

// The options that an instance has at first, or those that it inherits from the one at the top (files.cpp). See
// Mounted::options.
u64 options_at_first(u64 inherited = 0);

struct EventFilterText {
  std::string text;             // empty: none
  std::string wrong;            // the last text that was refused, and why: reading the file shows it then
  std::optional<Filter> filter;
};

class Mounted final : public RingSet {
 public:
  // event_fd: written to when the waiting requests should check again. cpus: at least this number of rings is shown.
  static result<std::shared_ptr<Mounted>> open(const std::string& name_or_path, int event_fd, u32 cpus);
  ~Mounted() override;

  Instance& instance() { return *instance_; }
  u32 mask_cpus() const { return instance_->cpu_rings() != 0 ? instance_->cpu_rings() : fewest_cpus_; }  // in tracing_cpumask
  const std::string& path() const { return instance_->path(); }
  int dir() const { return instance_->dir(); }
  bool has_ring(u32 n) const;

  // An event's filter acts on what this mount shows as text or copies for read(); the rings hold all written events.
  std::map<u32, EventFilterText> filters;  // by id
  std::set<i32> pids, notrace_pids;  // set_event_pid, set_event_notrace_pid: act as filters do; markers are not events. As
                                     // recorded, or as seen here
  static constexpr size_t most_pids = 4096;
  u64 options =
      options_at_first();  // those that are on, by their place in the table (files.cpp); `overwrite` is the instance's own
  bool has_option(const char* name) const;
  std::string tracer = "nop";  // current_tracer
  // Writes a marker as the thread of this TID, and lets its triggers act.
  result<void> mark(bool raw, std::string_view bytes, i32 tid);
  result<void> start_marker();
  // The mount's other instances, for the one at the top: it lists their events and names, as the kernel's does.
  std::function<std::vector<std::shared_ptr<Mounted>>()> others = nullptr;
  // The text of one of events().
  result<std::string> format_of(const EventName& event) const;
  void know_formats();    // of all events(), beyond those that refresh() finds
  u32 most_names = 4096;  // saved_cmdlines_size
  // buffer_size_kb stays as it was when the sub-buffers get another size: it shows this as long as rings have these sizes.
  u64 kept_kilobytes = 0;
  Geometry kept_for{};
  Marker& marker() { return marker_; }
  Triggers& triggers() { return *triggers_; }
  bool mapped() const { return mappings_ != 0; }
  // The snapshot, which all clients share: a second one could not map its rings.
  result<std::shared_ptr<Mounted>> snapshot();

  // As a RingSet:
  u32 cpus() const override;  // one for each ring, and for each processor: tools search for those
  RingName name(u32 ring) const override;
  ClockInfo clock() const override { return instance_->clock(); }
  u32 subbuf_size(u32 ring) override;
  result<Counters> counters(u32 ring) override;
  bool on() const override { return triggers_->tracing_on(); }
  bool shows_processes() const override { return has_option("record-tgid"); }
  bool removed() const override;
  u64 refresh() override;
  bool filtered() const override;
  bool wanted(const TraceRecord& record, const RingName& ring) override;
  std::vector<EventName> events() override;
  result<std::shared_ptr<Job>> reset(Only only) override;
  Peeked peek(Only only) override;
  Found find(u32 ring, Asker& asker) override;  // takes the reader's lock until done()
  SubBufferView view(u32 ring) const override;
  void consume(u32 ring, u32 end, u32 events) override;
  void done(u32 ring) override;
  Error error(u32 ring) const override;
  bool ready(u32 ring, u32 percent) override;
  bool can_be_mapped(u32 ring) const override { return has_ring(ring) && !triggers_->snapshots(); }
  result<sys::Fd> map(u32 ring) override;
  void unmap(u32 ring) override;
  result<bool> get_reader(u32 ring, Asker& asker, bool must) override;
  void alarm(int percent, bool late) override;

 private:
  struct Lane;
  explicit Mounted(std::unique_ptr<Instance> instance);
  RingView* view_of(u32 ring);
  void follow_forks(const std::vector<RingName>& threads);
  std::vector<EventName> own_events() const;
  std::unique_ptr<Instance> instance_;
  u64 inode_ = 0;
  int event_fd_ = -1;
  u32 fewest_cpus_ = 0;
  std::optional<RingTable> table_;  // while rings are mapped: no other server serves the instance then
  u32 mappings_ = 0;
  std::map<u32, Lane> lanes_;
  i64 names_size_ = 0;
  u64 events_seen_ = 0;
  struct Elsewhere {
    std::weak_ptr<Mounted> in;
    std::string folder;
  };
  std::map<u16, Elsewhere> elsewhere_;  // by id
  std::set<u32> own_formats_;           // those of this instance's events that formats_ has
  u64 threads_seen_ = 0, changes_ = 0;
  std::set<i32> born_;  // the threads whose parents were looked for
  Marker marker_;
  std::unique_ptr<Triggers> triggers_;
  std::unique_ptr<Alarm> alarm_;
  std::weak_ptr<Mounted> snapshot_;
};

}  // namespace ringside::mount
