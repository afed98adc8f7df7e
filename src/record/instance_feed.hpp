// Consumes an instance's rings into a recording while programs write: rings appear, are retired, reused and given back.
#pragma once
#include <map>
#include <memory>

#include "instance/instance.hpp"
#include "writer/layout.hpp"
#include "record/recording_run.hpp"
#include "source/selection.hpp"
#include "schema/event_pattern.hpp"

namespace ringside {

class InstanceFeed final : public Feed {
 public:
  // only: the events to record; none: all. The others are consumed with them.
  explicit InstanceFeed(Instance& instance, EventPatterns only = {});
  result<void> begin(RecordingRun& run) override;
  bool poll(RecordingRun& run) override;
  void describe(RecordingMeta& meta) override;
  u64 lost_so_far() const override;
  Counters close(RecordingRun& run) override;
  void books_are_kept() override;
  bool keeps_the_rest() const override { return true; }  // in the instance's rings
  u64 taken_until() const override { return taken_until_; }
  // Events that were written before begin() and that no reader had taken.
  u64 unread_at_begin() const { return unread_at_begin_; }

 private:
  struct Ring {
    std::unique_ptr<Source> source;
    u64 state = 0;   // its entry in the ring table at the last poll
    u64 opened = 0;  // the same when it was opened
    u32 as = 0;      // its number in the recording
    u64 round = 0;   // in sub-buffers
    bool failed = false;
    Selection selection{};
  };
  enum class News { none, events, a_format };  // a_format: of an event that was known without it
  News read_events();
  bool look_for_events(RecordingRun& run);  // saves those that are new; true: describe() has other news
  bool has_more_events() const { return words_.nr_events() != known_events_; }
  bool wants(RecordingRun& run, u16 id);
  bool look_for_rings(RecordingRun& run);
  void want_stacks_again();
  void take_unnoticed(RecordingRun& run);
  void open(RecordingRun& run, const RingName& name, Ring& ring);
  Drained take(RecordingRun& run, u32 number, Ring& ring);
  bool know(RingName thread);

  Instance& instance_;
  InstanceWords words_;
  std::map<u32, Ring> rings_;
  std::map<i32, RingName> threads_;
  std::vector<NameChange> names_;
  u64 names_seen_ = 0;  // by the instance, of these
  const EventPatterns only_;
  std::vector<EventInfo> events_;
  std::map<u16, bool> wanted_;  // by id
  size_t known_events_ = 0;
  std::string unnamed_;  // an event whose format could not be read yet
  u64 known_threads_ = 0;
  u32 untraced_at_begin_ = 0;
  u32 moved_ = 0;  // the number of CPU rings that replaced another one
  u64 polls_ = 0, taken_until_ = 0, unread_at_begin_ = 0;
};

}  // namespace ringside
