// Sub-buffers that arrive over a line (remote/stream.hpp): hear() each frame, then poll the run.
#pragma once
#include "record/recording_run.hpp"
#include "remote/stream.hpp"

namespace ringside {

class StreamFeed final : public Feed {
 public:
  // The frame's bytes must stay until the next one. An error concerns the whole line: its version is not known here.
  result<void> hear(const remote::Frame& frame);
  void doubt(std::string sentence) { taken_.account.doubts.push_back(std::move(sentence)); }  // before the run's end
  // As if the writer had said hello: for a reader that comes late. A later hello says it again.
  void begin_like(const ClockInfo& clock, u32 size, const std::vector<EventInfo>& of) { content_.begin_like(clock, size, of); }
  void know(const std::vector<EventInfo>& events) { content_.know(events); }
  const Faults& unheard() const { return unheard_; }  // faults from before the run
  // content().known() must be true before a run can begin: hello brings the clock.
  const remote::StreamContent& content() const { return content_; }

  result<void> begin(RecordingRun& run) override;
  bool poll(RecordingRun& run) override;
  void describe(RecordingMeta& meta) override;
  Counters close(RecordingRun& run) override;

 private:
  remote::StreamContent content_;
  u32 ring_ = 0;
  std::optional<SubBufferView> view_;  // that ring's, not recorded yet
  size_t known_events_ = 0;
  Faults unheard_;  // before the run
};

}  // namespace ringside
