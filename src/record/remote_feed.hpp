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
    std::function<void(const std::string&)> notice;  // takes messages about a writer that does not answer, but may later
  };
  explicit RemoteFeed(Options options) : options_(std::move(options)), next_(options_.first_ring) {}

  // Finds the next writer, which is not recorded before attach().
  result<void> connect();
  // The same, unless that has been done, and records it. The run must already have this feed.
  result<void> attach(RecordingRun& run);
  bool attached() const { return process_ != nullptr; }
  bool alive() const { return alive_; }  // as of the last poll(): the writer is there, or some of its data is left
  remote::Buffer& buffer() { return process_->buffer(); }
  void end_life(RecordingRun& run);  // stores its closing counters
  u64 lives() const { return lives_; }

  result<void> begin(RecordingRun&) override { return {}; }
  bool poll(RecordingRun& run) override;
  void describe(RecordingMeta& meta) override;
  Counters close(RecordingRun& run) override;

 private:
  struct Ring {
    std::unique_ptr<Source> source;
    u32 as = 0;  // its number in the recording
    bool failed = false;
    std::string silence{};  // the last reported sentence of its silence
  };
  Options options_;
  std::unique_ptr<remote::Process> found_;    // by connect()
  std::unique_ptr<remote::Process> process_;  // attached
  std::vector<Ring> rings_;  // this life's
  bool alive_ = false;
  u32 next_;
  u64 lives_ = 0;
  std::vector<EventInfo> events_;
  std::vector<RingName> threads_;
  std::vector<Counters> all_;
};

}  // namespace ringside
