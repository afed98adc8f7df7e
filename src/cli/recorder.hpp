// Consumes an instance's rings into a recording while programs write: rings appear, are retired, reused and given back.
#pragma once
#include <map>
#include <memory>

#include "cli/kernel_recorder.hpp"
#include "instance/instance.hpp"
#include "instance/layout.hpp"
#include "source/recording.hpp"

namespace ringside::cli {

class Recorder {
 public:
  // kernel: null, or what records the kernel's events beside; it must outlive this.
  Recorder(Instance& instance, RecordingWriter writer, KernelRecorder* kernel);

  // Rings that somebody else appends to the same recording: their events, at once, and their books, before finish().
  void also(std::vector<EventInfo> events);
  void account(const Counters& counters, u64 events, u64 bytes);

  // Takes what is there. Errors of one ring are kept (problems) and end that ring only. A disk that cannot take more is returned, and ends
  // the recording: nothing is taken from then on, and finish() counts what was written since.
  result<void> poll();
  // After the last event: everything that was committed before the call. A disk that took no more is returned again.
  result<void> finish(u64 duration_ns);
  bool failed() const { return failure_.has_value(); }

  RecordingWriter& writer() { return writer_; }  // its meta().missing is made by finish()
  u64 events() const { return events_; }
  u64 bytes() const { return bytes_; }
  u64 events_so_far() const { return events_ + (kernel_ != nullptr ? kernel_->events_so_far() : 0); }  // before finish()
  u64 bytes_so_far() const { return bytes_ + (kernel_ != nullptr ? kernel_->bytes_so_far() : 0); }
  const Missing& missing() const { return writer_.meta().missing; }  // after finish()
  u64 lost() const { return missing().count(); }
  Counters totals() const { return totals_; }  // after finish()
  const std::vector<std::string>& problems() const { return problems_; }

 private:
  struct Ring {
    std::unique_ptr<Source> source;
    u64 state = 0;  // of its entry in the ring table when it was looked at last
    u64 opened = 0;  // when it was opened
    u32 as = 0;      // its number in the recording
    u64 round = 0;   // sub-buffers
    bool failed = false;
  };
  result<void> take();
  result<void> take_unnoticed();
  bool look_for_events();         // true: something new in meta
  result<bool> look_for_rings();  // the same
  result<void> save_now_and_then();
  result<void> open(const RingName& name, Ring& ring);
  result<void> drain(u32 number, Ring& ring);
  void list_events();
  void list_threads();
  bool know(RingName thread);

  Instance& instance_;
  KernelRecorder* kernel_;
  InstanceWords words_;
  RecordingWriter writer_;
  std::map<u32, Ring> rings_;
  std::map<i32, RingName> threads_;
  std::vector<EventInfo> other_events_;
  std::vector<Counters> other_counters_;
  size_t known_events_ = 0;
  std::string unnamed_;  // an event whose format could not be read so far
  u64 known_threads_ = 0;
  u32 moved_ = 0;  // rings of CPUs that took another one's place
  u64 polls_ = 0;
  bool unsaved_ = false;
  u64 save_again_ns_ = 0;  // not before
  u64 events_ = 0, bytes_ = 0, lost_ = 0;
  u64 gone_ = 0, recorded_ = 0;  // of the instance's events: before we began, by us
  Counters totals_;
  std::optional<Error> failure_;
  std::vector<std::string> problems_;
};

}  // namespace ringside::cli
