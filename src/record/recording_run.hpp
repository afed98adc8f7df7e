// A recording in progress: it owns the directory's writer and asks its feeds for events until it is finished. However it ends,
// it closes the recording with counters and the names of the threads.
//
//   auto run = RecordingRun::create(dir, clock);
//   (*run)->add(program);  (*run)->add(kernel);
//   while (...) { (*run)->poll(); wait }
//   (*run)->finish();
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "record/drain.hpp"
#include "source/account.hpp"
#include "source/clock_watch.hpp"
#include "source/recording.hpp"

namespace ringside {

constexpr int wake_percent = 25;  // a ring this full is read at once

class RecordingRun;

// An origin of a recording's events: an instance, the kernel, an external writer, a line. One thread makes all calls.
class Feed {
 public:
  virtual ~Feed() = default;
  // Adds its known rings. The feed must outlive the run. An error of this call ends the run.
  virtual result<void> begin(RecordingRun& run) = 0;
  // Takes the present events; none once the run has failed. True: describe() has news.
  virtual bool poll(RecordingRun& run) = 0;
  // Appends its events and threads to those of the feeds added before it.
  virtual void describe(RecordingMeta& meta) = 0;
  // The end: takes the rest unless run.failed(), and puts its rings' closing counters into the writer's meta. Returns the sum
  // of these, with those of rings whose memory was given back.
  virtual Counters close(RecordingRun& run) = 0;
  // After close(): each event that was written has a place. failed: the recording could take no more. rest_is_kept: a later one
  // takes what this one did not.
  Account settled(const Counters& totals, bool failed, bool rest_is_kept) const;
  // After close(), when the recording with those books is complete on disk.
  virtual void books_are_kept() {}
  // Before close(): recording goes on, and the next run takes what is not read yet. The kernel's feed itself goes on there
  // (add, then on()), without a loss between the two.
  void hand_over() { handing_over_ = true; }
  // A later run can take what this one does not: it is not missing.
  virtual bool keeps_the_rest() const { return handing_over_; }
  bool hands_over() const { return handing_over_; }
  // After hand_over() and close(), for a feed that takes over from this one in the next recording, where the overwritten events
  // that are no gaps yet will be.
  Account accounted() const;
  void go_on_from(const Account& earlier) { told_ = earlier; }
  virtual u64 events_so_far() const { return taken_.account.read; }
  virtual u64 lost_so_far() const { return taken_.account.overrun; }  // at least; includes those before the recording began
  // CLOCK_MONOTONIC: what was committed before is in the recording. 0: unknown.
  virtual u64 taken_until() const { return 0; }
  virtual u64 bytes_so_far() const { return taken_.bytes; }

 protected:
  // In the next recording. told: what the account has until now is in an earlier one; else that recording never was.
  void begin_account(bool told);
  // What external writers and lines have refused, as their counters show.
  void add_refused(const Counters& totals) {
    taken_.account.refused += refused_of(totals);
    taken_.account.refused_at_least |= totals.refusals == Refusals::at_least;
  }
  static void add_unknown(RecordingMeta& meta, const std::map<i32, RingName>& threads);  // those that it does not have yet

  Taken taken_;            // and refused events, which are those since the rings were made
  Account told_;           // its overrun and refused: earlier recordings have reported them
  bool complete_ = false;  // after close(): no writer is left, so every event that is not recorded is missing
  bool handing_over_ = false;
};

class RecordingRun {
 public:
  static result<std::unique_ptr<RecordingRun>> create(const std::string& dir, const ClockInfo& clock, u64 max_size = 0,
                                                      bool compress = false);
  static std::unique_ptr<RecordingRun> of(RecordingWriter writer);
  RecordingRun(const RecordingRun&) = delete;
  RecordingRun& operator=(const RecordingRun&) = delete;
  // Finishes an unfinished run, if there is memory for that; takes nothing more if nothing was ever taken.
  ~RecordingRun();

  // The clock is this machine's: when it jumps, that is missing.
  void watch_clock() { clock_watch_.emplace(writer_.meta().clock); }
  // Its events are of this machine, from about now on: it keeps their time of day. Before add().
  void keep_wall();
  result<void> add(Feed& feed);  // it must outlive the run
  // Takes the present events of all feeds. Takes nothing once the disk is full.
  void poll();
  // To be called after the last event. Faults of feeds and rings are in account(); an error is the disk's first one, repeated.
  result<void> finish();
  result<void> finish(u64 duration_ns);  // for a recording that began before the run: a flight recorder's

  // If this one fails, another one takes over what is still in the rings: it is not lost.
  void another_follows() { another_follows_ = true; }  // to be called before feeds are added
  bool is_followed() const { return another_follows_; }

  // For feeds.
  RecordingWriter& writer() { return writer_; }
  Faults& faults() { return faults_; }
  // There are new events: saves their formats, before one of them is recorded. The recorder may be killed at any moment.
  void know_events();
  // This recording goes on after that one, a directory beside it: a file that both keep is one file. Before add().
  void goes_on_after(std::string earlier) { earlier_ = std::move(earlier); }
  // Keeps the names of the kernel's addresses, once. Without room for them, or without privileges, the addresses stay numbers.
  void keep_kernel_symbols(const std::function<void(const std::string&)>& notice);
  // With the latest events, rings and threads.
  const RecordingMeta& described();
  RecordingMeta& meta() { return writer_.meta(); }  // the feeds set its events and threads
  Drained take(Source& source, u32 ring, u64 most, Taken& taken, u64 earlier = 0, const Select& select = nullptr) {
    return drain(source, writer_, ring, most, faults_, taken, earlier, select);
  }
  bool books_are_kept() const { return kept_; }                  // after finish(): its books are on disk
  bool failed() const { return faults_.failure().has_value(); }  // the disk is full

  const Faults& faults() const { return faults_; }
  u64 events() const;  // recorded so far
  u64 bytes() const;
  u64 lost() const;         // since the feeds were added; at least
  u64 taken_until() const;  // of all feeds
  u64 duration_ns() const { return writer_.meta().duration_ns; }            // after finish(), like the following
  u64 compressed_bytes() const { return writer_.compressed_bytes(); }       // 0: it is not compressed
  const Account& account() const { return writer_.meta().account; }
  Removed removed() const { return writer_.meta().removed(); }
  const Counters& totals() const { return writer_.meta().totals; }
  size_t rings() const { return writer_.meta().rings.size(); }

 private:
  explicit RecordingRun(RecordingWriter writer);
  void describe();
  void save_now_and_then();

  RecordingWriter writer_;
  std::vector<Feed*> feeds_;
  u64 lost_before_ = 0;  // lost_so_far() of the feeds, when they were added
  std::string earlier_;  // empty: this is the first
  Faults faults_;
  std::optional<ClockWatch> clock_watch_;
  const u64 start_ns_;
  bool unsaved_ = false, has_symbols_ = false, polled_ = false, finished_ = false, another_follows_ = false, kept_ = false;
  u64 save_again_ns_ = 0;  // no save before this time
};

}  // namespace ringside
