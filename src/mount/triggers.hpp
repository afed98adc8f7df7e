// Triggers, as in the kernel: what an event does when it is written. A file `trigger` takes
//
//   [!]traceon|traceoff|snapshot[:COUNT] [if FILTER]
//   [!]enable_event|disable_event:SYSTEM:EVENT[:COUNT] [if FILTER]
//
// Markers are written by the mount, so their triggers act before the write returns. Events of programs are watched in the
// rings, without consuming any, and act some milliseconds later; an event that is overwritten or consumed before that is not
// seen.
#pragma once
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "analysis/filter.hpp"
#include "instance/instance.hpp"

namespace ringside::mount {

struct Trigger {
  enum class Act : u8 { traceon, traceoff, snapshot, enable_event, disable_event };
  Act act = Act::traceon;
  std::string system{}, event{};  // which event enable_event and disable_event switch
  std::optional<u64> left{};      // how often it still acts; none: always
  std::string filter{};           // empty: every event

  bool switches() const { return act == Act::traceon || act == Act::traceoff; }
  bool switches_event() const { return act == Act::enable_event || act == Act::disable_event; }
  // An event has one of each kind.
  bool same_kind(const Trigger& other) const;
  std::string text() const;  // its line in the file
};

// A write to a trigger file.
struct TriggerCommand {
  Trigger trigger;
  bool remove = false;
};
result<TriggerCommand> parse_trigger(std::string_view text);

// All triggers of an instance. Recording that a `traceon` waits for cannot be off in the rings, where it would never be seen:
// it is off for the clients of the mount, who do not see the events of that time.
class Triggers {
 public:
  // acted: called after a trigger has acted, by any thread.
  Triggers(Instance& instance, std::function<void()> acted);
  ~Triggers();

  // EEXIST: the event has such a trigger. A removal of what is not there does nothing.
  result<void> add(const std::string& system, const std::string& event, Trigger trigger);
  void remove(const std::string& system, const std::string& event, const Trigger& trigger);
  std::string text(const std::string& system, const std::string& event);
  bool has_marker(const std::string& event) const;  // is there any of this event of ftrace?
  bool snapshots();  // is there any that takes one?
  // Runs the triggers of a marker that was just written. One whose action finds the instance busy keeps its count: the next
  // marker runs it again.
  void marker(const std::string& event, const TraceRecord& record, const RingName& ring, const Formats& formats,
              const Tasks& tasks);

  u64 now() const;  // by the instance's clock, as the times of its events
  result<void> tracing(bool on);
  bool tracing_on() const;
  // Was recording off for clients at that time? any_hidden: was it ever?
  bool hidden(u64 time);
  bool any_hidden() const { return any_off_.load(std::memory_order_relaxed); }

 private:
  struct Armed {
    std::string system, event;
    Trigger trigger;
    u64 since = 0;  // earlier events do not matter
  };
  struct Off {
    u64 from, until;
  };
  static bool of_markers(const Armed& armed) { return armed.system == "ftrace"; }
  bool waits_for_on() const;  // the lock is held
  void rewatch();
  void watch(const std::vector<Armed>& armed);
  bool use_up(const Armed& armed);
  void give_back(const Armed& armed);
  void run(Instance& instance, const Armed& armed, u64 time);
  result<void> act(Instance& instance, const Trigger& trigger, u64 time);
  void switch_to(bool on, u64 time);

  Instance& instance_;
  std::function<void()> acted_;
  mutable std::mutex mutex_;  // guards all that follows
  std::vector<Armed> armed_;
  std::vector<Off> off_;      // the times in which recording was off while the rings went on
  std::atomic<bool> any_off_{false};
  bool soft_off_ = false;
  std::atomic<bool> over_{false};
  std::thread watch_;         // started and joined by the owner's thread
  u64 watched_until_ =
      0;  // the time of the last event that a watch has seen; for the watch, and for the owner once that has ended
};

}  // namespace ringside::mount
