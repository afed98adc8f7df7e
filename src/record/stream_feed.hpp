// Sub-buffers that come over a line (remote/stream.hpp), a frame at a time: hear() it, then poll the run.
#pragma once
#include "record/recording_run.hpp"
#include "remote/stream.hpp"

namespace ringside {

class StreamFeed final : public Feed {
 public:
  // Its bytes stay until the next one. An error is the whole line's: a version that is not known here.
  result<void> hear(const remote::Frame& frame);
  const Faults& unheard() const { return unheard_; }  // what was wrong while there was no run
  // Its content().known() before there can be a run: hello tells the clock.
  const remote::StreamContent& content() const { return content_; }

  result<void> begin(RecordingRun& run) override;
  bool poll(RecordingRun& run) override;
  void describe(RecordingMeta& meta) override;
  Books close(RecordingRun& run) override;

 private:
  remote::StreamContent content_;
  u32 ring_ = 0;
  std::optional<SubBufferView> view_;  // of that ring, not recorded yet
  size_t known_events_ = 0;
  Faults unheard_;  // until there is a run
};

}  // namespace ringside
