// Samples of CPU time, live: a recording in the making, which is read as it grows, and whose oldest part goes.
#include <unistd.h>

#include "consumer/input.hpp"
#include "consumer/trace.hpp"
#include "kernel/clock_check.hpp"
#include "record/sample_feed.hpp"
#include "source/temporary_directory.hpp"
#include "sys/try.hpp"

namespace ringside {
namespace {

constexpr u64 most_bytes = 64 << 20;  // of the recording: what was read may go

class SampleInput : public Input {
 public:
  explicit SampleInput(LiveSamples choice) : Input("the samples"), choice_(std::move(choice)) {}
  result<void> open(Trace& trace) override {
    dir_ = TemporaryDirectory::at("/dev/shm/ringside-samples-XXXXXX");
    if (!dir_) dir_ = RS_TRY(TemporaryDirectory::make("samples", "the samples"));
    const std::string recording = dir_.path() + "/live";
    clock_info_ = calibrate(best_clock());
    SampleFeed::Options options;
    options.sampler.hz = choice_.hz;
    options.sampler.pids = choice_.pids;
    options.max_size = most_bytes;
    options.notice = [&trace](const std::string& words) { trace.notices.push_back(words); };
    feed_ = RS_TRY(SampleFeed::create(std::move(options), clock_info_));
    run_ = RS_TRY(RecordingRun::create(recording, clock_info_, most_bytes));
    RS_TRY(run_->add(*feed_));
    if (!feed_->sampler().sees_kernel())
      trace.notices.push_back("samples are of the program's functions alone: those of the kernel are taken " + sys::as_root() +
                              ", or where kernel.perf_event_paranoid allows it");
    growing_ = growing_input(recording);
    RS_TRY(growing_->open(trace));
    growing_->grow(trace, run_->described());
    clock = growing_->clock;
    boot = growing_->boot;
    world = growing_->world;
    return {};
  }
  std::unique_ptr<Input> another() const override { return sample_input(choice_); }
  ClockInfo own_clock() const override { return clock_info_; }
  std::vector<NameChange> take_names() override { return growing_->take_names(); }
  Account account() const override {
    Account of = growing_->account();
    of.doubts.insert(of.doubts.end(), doubts.begin(), doubts.end());
    return of;
  }
  bool live() const override { return true; }
  bool begins_when_opened() const override { return true; }
  bool may_get_rings() const override { return true; }
  void look_for_rings(Trace& trace) override {
    if (!stopped_) run_->poll();
    growing_->grow(trace, run_->described());
  }
  void stop() override {
    if (std::exchange(stopped_, true)) return;
    if (auto finished = run_->finish(); !finished) doubts.push_back(finished.error().sentence);
  }

 private:
  LiveSamples choice_;
  TemporaryDirectory dir_;
  ClockInfo clock_info_{};
  std::unique_ptr<SampleFeed> feed_;
  std::unique_ptr<RecordingRun> run_;
  std::unique_ptr<Input> growing_;
  bool stopped_ = false;
};

}  // namespace

std::unique_ptr<Input> sample_input(const LiveSamples& choice) { return std::make_unique<SampleInput>(choice); }

}  // namespace ringside
