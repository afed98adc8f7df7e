// An external writer that listens at a socket, through all its lives: each life has rings of its own in the recording.
#pragma once
#include <chrono>
#include <functional>
#include <memory>

#include "record/recording_run.hpp"
#include "remote/process.hpp"

namespace ringside {

class RemoteFeed final : public Feed {
 public:
  struct Options {
    std::string socket;
    remote::Process::Options attach;
    std::chrono::nanoseconds poll_every{20'000'000};
    u32 first_ring = 0;                              // the number of its first ring in the recording
    u8 number = 1;                                   // of the recording's external writers: RingName::apart
    EventPatterns events{};                          // none: all
    std::function<void(const std::string&)> notice;  // takes messages about a writer that does not answer, but may later
  };
  explicit RemoteFeed(Options options) : options_(std::move(options)), next_(options_.first_ring) {}

  // Finds the next writer, which is not recorded before attach().
  result<void> connect();
  // The same, unless that has been done, and records it. The run must already have this feed.
  result<void> attach(RecordingRun& run);
  // As a flight recorder: it writes from now on, and nothing reads. Frozen, it is attached, saved and handed over; then armed
  // again.
  result<void> arm();
  result<void> freeze() { return (attached() ? process_ : found_)->enable(false); }
  bool attached() const { return process_ != nullptr; }
  bool alive() const { return alive_; }  // as of the last poll(): the writer is there, or some of its data is left
  remote::Buffer& buffer() { return process_->buffer(); }
  void end_life(RecordingRun& run);  // stores its closing counters
  u64 lives() const { return lives_; }
  const std::vector<EventInfo>& events() const { return events_; }

  result<void> begin(RecordingRun& run) override;
  bool poll(RecordingRun& run) override;
  void describe(RecordingMeta& meta) override;
  Counters close(RecordingRun& run) override;

 private:
  struct Ring {
    std::unique_ptr<Source> source;
    RingName name{};  // in the recording
    bool failed = false;
    std::string silence{};  // the last reported sentence of its silence
  };
  Counters take_counters(RecordingRun& run);
  Options options_;
  std::unique_ptr<remote::Process> found_;    // by connect()
  std::unique_ptr<remote::Process> process_;  // attached
  std::vector<Ring> rings_;  // this life's
  bool alive_ = false, armed_ = false;
  u32 next_;
  u64 lives_ = 0;
  std::vector<EventInfo> events_;
  std::vector<RingName> threads_;
  std::vector<Counters> all_;  // of earlier lives
};

}  // namespace ringside
