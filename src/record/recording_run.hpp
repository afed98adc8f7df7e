// A recording in the making: it owns the directory's writer and asks its feeds for events until it is finished. However it ends, what
// stands in the directory is closed with counters and the names of the threads.
//
//   auto run = RecordingRun::create(dir, clock);
//   (*run)->add(program);  (*run)->add(kernel);
//   while (...) { (*run)->poll(); wait }
//   (*run)->finish();
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "record/drain.hpp"
#include "source/books.hpp"
#include "source/recording.hpp"

namespace ringside {

constexpr int wake_percent = 25;  // a ring this full is read at once

class RecordingRun;

// Where a recording's events come from: an instance, the kernel, an external writer, a line. All calls are of one thread.
class Feed {
 public:
  virtual ~Feed() = default;
  // Its rings as far as they are known. The run outlives neither the feed nor an error of this call.
  virtual result<void> begin(RecordingRun& run) = 0;
  // Takes what there is; nothing from when the run has failed. True: describe() has something new to say.
  virtual bool poll(RecordingRun& run) = 0;
  // Its events and threads, behind those of the feeds that were added before it.
  virtual void describe(RecordingMeta& meta) = 0;
  // The end: takes the rest unless run.failed(), and leaves its rings' closing counters in the writer's meta.
  virtual Books close(RecordingRun& run) = 0;
  virtual u64 events_so_far() const { return books_.events; }
  virtual u64 bytes_so_far() const { return books_.bytes; }

 protected:
  Books books_;
};

class RecordingRun {
 public:
  static result<std::unique_ptr<RecordingRun>> create(const std::string& dir, const ClockInfo& clock);
  RecordingRun(const RecordingRun&) = delete;
  RecordingRun& operator=(const RecordingRun&) = delete;
  ~RecordingRun();  // finishes what nobody finished; takes nothing more if nothing was ever taken

  // It must outlive the run.
  result<void> add(Feed& feed);
  // What there is now, of all feeds. Takes nothing once the disk is full.
  void poll();
  // After the last event. Faults of feeds and rings stand in missing(); an error is the disk's, whose first refusal is repeated.
  result<void> finish();
  result<void> finish(u64 duration_ns);  // for one that began before the run: a flight recorder

  // Of feeds.
  RecordingWriter& writer() { return writer_; }
  Faults& faults() { return faults_; }
  RecordingMeta& meta() { return writer_.meta(); }  // its events, threads, totals and missing are the feeds'
  Drained take(Source& source, u32 ring, u64 most, Books& books, u64 earlier = 0) { return drain(source, writer_, ring, most, faults_, books, earlier); }
  bool failed() const { return faults_.failure().has_value(); }  // the disk takes no more

  const Faults& faults() const { return faults_; }
  u64 events() const;  // recorded so far
  u64 bytes() const;
  u64 duration_ns() const { return writer_.meta().duration_ns; }            // after finish(), as the following
  const Missing& missing() const { return writer_.meta().missing; }
  const Counters& totals() const { return writer_.meta().totals; }
  size_t rings() const { return writer_.meta().rings.size(); }

 private:
  explicit RecordingRun(RecordingWriter writer);
  void describe();
  void save_now_and_then();

  RecordingWriter writer_;
  std::vector<Feed*> feeds_;
  Faults faults_;
  const u64 start_ns_;
  bool unsaved_ = false, polled_ = false, finished_ = false;
  u64 save_again_ns_ = 0;  // not before
};

}  // namespace ringside
