// Sources that all exist from the beginning: a guest's ring, the rings of a memory dump. A source that does not answer in time
// has ended.
#pragma once
#include <memory>

#include "record/recording_run.hpp"

namespace ringside {

class SourceFeed final : public Feed {
 public:
  struct Ring {
    std::unique_ptr<Source> source;
    RingName name;     // its name in the recording; a number that is taken there is replaced
    u64 earlier = 0;   // ticks by which its clock is ahead of the recording's
  };
  explicit SourceFeed(std::vector<EventInfo> events, std::vector<RingName> threads = {})
      : events_(std::move(events)), threads_(std::move(threads)) {}
  // To be called before the run gets this feed.
  void add(Ring ring, std::vector<std::string> doubts = {});

  void know(std::vector<RingName> threads) { threads_ = std::move(threads); }  // all of them, from now on

  bool ended() const { return ended_; }  // nothing more can come; known after poll()
  Counters counters() const;             // all its rings' at this moment

  result<void> begin(RecordingRun& run) override;
  bool poll(RecordingRun& run) override;
  void describe(RecordingMeta& meta) override;
  Counters close(RecordingRun& run) override;

 private:
  struct Fed : Ring {
    bool failed = false;
  };
  std::vector<EventInfo> events_;
  std::vector<RingName> threads_;
  std::vector<Fed> rings_;
  bool ended_ = false;
};

}  // namespace ringside
