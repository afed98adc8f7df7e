// The one loop over events: it opens, filters, counts, waits for more, learns new events and rings, and ends. The public
// Consumer and every command that reads events are thin layers over it. The caller provides the clock and the way to wait.
//
//   auto reading = RS_TRY(Reading::open({.where = {"web"}, .filter = "size > 100"}));
//   reading->follow(100'000'000);   // else: what there is now
//   reading->run([&](const TraceRecord& record, const RingName& ring, Reading::Got got) { ... });
#pragma once
#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "analysis/filter.hpp"
#include "analysis/names.hpp"
#include "analysis/running.hpp"
#include "analysis/thread_names.hpp"
#include "consumer/trace.hpp"
#include "consumer/window.hpp"
#include "decode/descriptors.hpp"
#include "stacks/stacks.hpp"
#include "sys/sys.hpp"

namespace ringside {

class Pairs;

class Column;

struct Totals {
  // read: the events that pass the filter; left_out: the others; overrun: those of gaps. complete() knows the other places,
  // too.
  Account account{};
  u64 lost_earlier = 0;  // before the books began
  u64 late = 0;          // events that came after later ones
  u64 seen() const { return account.read + account.left_out; }
  u64 first_ns = ~u64{0}, last_ns = 0;
  double seconds() const { return last_ns > first_ns ? static_cast<double>(last_ns - first_ns) / 1e9 : 0; }
};

class Reading {
 public:
  struct Time {
    std::function<u64()> now;           // ns
    std::function<void(u64 ns)> sleep;  // may end early
    std::function<bool()> over;         // true: later events are not wanted
  };
  struct Options {
    std::vector<std::string> where{}, kernel{};  // these, and the next five, as open_traces() takes them
    std::vector<ringside_remote_reader*> remotes{};
    LiveSamples samples{};
    KernelChoice choice{};
    TracefsOptions make{};
    bool verbose = false;
    const Trace* same = nullptr;
    Window window{};         // nothing outside is read
    EventPatterns only{};    // none: every event
    std::string filter{};    // empty: every event
    bool push_down = false;  // the kernel may filter, too: no event that the filter refuses is wanted
    std::function<void(const std::vector<std::string>&)> notices{};  // takes Trace::notices as they come; none: they stay there
    Time time = real_time();
  };
  enum class Got : u8 { nothing, event, other, gap };  // nothing: for now; other: not wanted

  static Time real_time();
  static result<std::unique_ptr<Reading>> open(Options options);
  // A recording that this process writes, from its beginning; followed at once. grow() takes over what was added to its
  // description.
  static std::unique_ptr<Reading> open_growing(const std::string& dir, const RecordingMeta& now);
  // taken_until: CLOCK_MONOTONIC; what was committed before is in its files.
  void grow(const RecordingMeta& now, u64 taken_until);
  Reading(const Reading&) = delete;
  Reading& operator=(const Reading&) = delete;

  Trace& trace() { return trace_; }
  const Trace& trace() const { return trace_; }

  // Reads later events, too: in order; without look_ahead_ns as they are found (not for instances). Ends after duration_ns, if
  // not 0.
  void follow(std::optional<u64> look_ahead_ns, u64 duration_ns = 0);
  // Sleeps until `look_every` after the last check (not at all, if that took so long), `until` at most, and checks for new
  // events. False: none will come, all were handed out. At the end it stops the reading, and returns true once more. next()
  // stops it, too: events may come faster than they are read, and then nobody waits.
  bool wait(u64 look_every_ns = 10'000'000, u64 until_ns = forever);
  void refresh();
  // From now on events come with their stacks (TraceRecord::stack), whose texts are Formats::stacks(). To be called before the
  // first record; a filter that asks for stacks does it.
  Stacks& join_stacks();
  bool joins_stacks() const { return stacks_ != nullptr; }
  bool has_begun() const { return totals_.first_ns != ~u64{0}; }  // the first record was handed out
  bool stacks_anywhere() const;  // it does, and those of programs may be anywhere before their events
  // Remarks so far, if Options::notices does not take them.
  const std::vector<std::string>& notices() {
    tell();
    return trace_.notices;
  }
  // Sentences about what the stacks lack; none without join_stacks().
  std::vector<std::string> stack_remarks() const;
  // Ends with the events written up to now; those still come.
  void stop();
  bool stopped() const { return stopped_; }
  // To be called with follow(): what was lost before this moment is not in the account (Totals::lost_earlier).
  void begin_books();
  // Of the losses since then, as complete() has them: events that another reader of an instance took before this one saw them;
  // at least.
  u64 taken_by_others() const;
  u64 books_begin_ns() const { return books_begin_ns_; }  // that moment, in the trace's ns; 0: with the first event

  Got next(TraceRecord& record) {
    if (following_ && ++asked_ % 1024 == 0) [[unlikely]] stop_if_over();
    do {
      if (held_) [[unlikely]] record = *std::exchange(held_, std::nullopt);
      else if (!trace_.timeline.next(record)) return ended_ = true, Got::nothing;
      if (record.time >= part_end_ && is_part() && part_end_ <= until()) [[unlikely]] {  // a gap may end after the window
        held_ = record;
        return Got::nothing;
      }
      if (trace_.timeline.size() != rings_) [[unlikely]] look_at_rings();
      if (narrow_ && record.time < state_from_) [[unlikely]] {  // some rings begin earlier
        totals_.late += record.source < last_ns_.size() && last_ns_[record.source] >= state_from_;  // its times go back
        continue;
      }
      if (tells_names_) {
        const RingName& name = ring(record);
        names_.see(record, name);
        if (tells_cpus_) running_.see(record, name);
        if (looks_up_) [[unlikely]] look_up(record, name);
      }
      if (files_ != nullptr) [[unlikely]] see_files(record);
      if (stacks_ != nullptr && !trace_.timeline.none_near(record)) [[unlikely]] join(record);
    } while ((narrow_ && outside(record)) || (looks_up_ && is_unasked(record)));
    return got(record, ring(record));
  }

  // Several threads read a recording in parts, each thread with a Reading of its own. Before the first record: times that cut
  // it into about `parts` parts of the same size; none, if it cannot be cut. bytes(): of all parts.
  std::vector<u64> seams(u32 parts);
  u64 bytes();
  u64 begin();  // the time of the trace's first event; to be called before the first record
  bool tells_names();  // events give names of threads, or CPUs: from then on
  bool in_order(std::string_view column);  // the column's values depend on earlier events
  bool in_order(const Filter& filter);      // those that it compares do
  // To be called before the first record. From now on events have their stacks, and the thread of each event of the kernel has
  // the name of that moment, if the column, or the filter, asks for it.
  void look_up_for(const Column& column);
  void look_up_for(const Filter& filter);
  void look_up_for(const Pairs& pairs);
  void look_up_names();
  void learn_names();  // for a picture: those of the kernel's threads that nothing else names
  bool filters_in_order() { return filter_ && in_order(*filter_); }
  bool is_of(const Window& window, const TraceRecord& record) const;  // on one of its CPUs; a gap: perhaps
  const Window& window() const { return window_; }                    // its times of day are those of the trace
  bool chooses_cpus() const { return !window_.cpus.empty(); }
  // The next records are those of the times from `from` to before `end`. Each part is later than the one before. ordered: what
  // earlier events say of threads holds, too, as in a reading of the whole; they are all read then.
  void go_to(u64 from, u64 end, bool ordered);
  void add(Reading& part);  // its totals, to a reading that has read nothing itself

  const RingName& ring(const TraceRecord& record) const { return trace_.timeline.name(record.source); }

  // use(record, ring, got) for all present events. False: enough(), which is asked from time to time, cut it short.
  template <class Use, class Enough>
  bool take(const Use& use, const Enough& enough) {
    TraceRecord record;
    for (u64 n = 1;; ++n) {
      const Got got = next(record);
      if (got == Got::nothing) return true;
      use(static_cast<const TraceRecord&>(record), ring(record), got);
      if (n % 1024 == 0 && enough()) return false;
    }
  }
  // Takes all remaining events, until time says that it is over; when following, those written until now, for 5 s at most.
  template <class Use>
  void take_rest(const Use& use) {
    stop();
    const u64 deadline = time_.now() + 5'000'000'000;
    const auto enough = [&] { return following_ ? time_.now() > deadline : time_.over(); };
    cut_ = is_plain() ? !take_runs(use, enough) : !take(use, enough);
  }
  void leave_the_rest() { cut_ = true; }
  bool cut() const { return cut_; }  // not all was read
  // Until the end.
  template <class Use>
  void run(const Use& use) {
    do {
      take(use, [] { return false; });
    } while (wait());
  }

  const Totals& totals() const { return totals_; }
  const Totals& complete();  // so far, with all places of the account
  Account account() const;   // so far, with all places
  // What could not be read, a sentence each; after complete() also why more may be missing, if the reading itself found that.
  // Returns the total number of sentences.
  size_t each_new_problem(const std::function<void(const std::string&)>& use);

  static constexpr const char* too_late = "what was not read in time is not in the numbers";

 private:
  static constexpr u64 forever = ~u64{0};
  Reading() = default;
  void tell();  // notices
  // Records stay as they come: no joined stack, no CPU that earlier ones gave, no gap that is moved into a window.
  bool is_plain() {
    look_at_rings();
    return !following_ && !trace_.live() && !held_ && window_.whole() && !has_stacks() && !tells_cpus_ && files_ == nullptr;
  }
  bool has_stacks() const;  // and joins them
  // take() for plain ones, by the run. use() must not ask for records.
  template <class Use, class Enough>
  bool take_runs(const Use& use, const Enough& enough) {
    const u64 from = narrow_ ? std::max(part_from_, state_from_) : 0, end = part_end_;
    u64 n = 0;
    bool all = true, more = true;
    const auto one = [&](const TraceRecord& record) {
      if (record.time >= end && is_part()) [[unlikely]] {
        held_ = record;
        return more = false;
      }
      if (narrow_) {
        if (record.source >= last_ns_.size()) [[unlikely]] last_ns_.resize(record.source + 1);
        if (record.time < from) [[unlikely]] {
          totals_.late += last_ns_[record.source] >= from;
          return true;
        }
        last_ns_[record.source] = record.time;
      }
      const RingName& name = ring(record);
      if (tells_names_) names_.see(record, name);
      use(record, name, got(record, name));
      return ++n % 1024 != 0 || (all = more = !enough());
    };
    while (more && trace_.timeline.next_run(one)) continue;
    ended_ = ended_ || more;
    return all;
  }
  // Counts it.
  Got got(const TraceRecord& record, const RingName& name) {
    if (record.time < totals_.first_ns) totals_.first_ns = record.time;
    if (record.time > totals_.last_ns) totals_.last_ns = record.time;
    totals_.late += record.late;
    if (record.lost != 0) {
      const bool earlier = record.time < books_begin_ns_;
      (earlier ? totals_.lost_earlier : totals_.account.overrun) += record.lost;
      totals_.account.overrun_at_least |= record.lost_at_least && !earlier;
      if (!earlier && !name.kernel) lost_of_programs_ += record.lost;
      return Got::gap;
    }
    const bool wanted = only_.wants(record.number(), trace_.formats) && (!filter_ || filter_->matches(record, name));
    ++(wanted ? totals_.account.read : totals_.account.left_out);
    return wanted ? Got::event : Got::other;
  }
  bool is_over() const { return time_.over() || time_.now() >= end_ns_; }
  void stop_if_over() {
    if (!stopped_ && is_over()) stop();
  }
  bool is_part() const { return part_end_ != forever; }  // an event may have that time, too
  u64 from() const { return window_.from.given ? window_.from.at(begin_ns_.value_or(0)) : 0; }
  u64 until() const { return window_.until.given ? window_.until.at(begin_ns_.value_or(0)) : forever; }
  u64 recorded_events() const;
  std::vector<std::string> found_doubts() const;
  void narrow(u64 lead);
  bool outside(TraceRecord& record);
  void join(TraceRecord& record);
  void look_up(const TraceRecord& record, const RingName& name);
  void know_files();  // if its events name them
  void see_files(TraceRecord& record);
  bool is_unasked(const TraceRecord& record) const {
    return record.lost == 0 && std::find(unasked_.begin(), unasked_.end(), record.number()) != unasked_.end();
  }
  void tell_of_numbers(const Filter& filter);
  void look_at_rings();

  Trace trace_;
  EventFilter only_;
  std::optional<Filter> filter_;
  Window window_;
  bool narrow_ = false, narrowed_ = false;  // not all is wanted; the sources leave out what is not
  u64 part_from_ = 0, part_end_ = forever;
  std::optional<TraceRecord> held_{};  // the first one after the part
  std::optional<u64> begin_ns_{};  // the time of the trace's first event
  u64 state_from_ = 0;             // what is earlier is not looked at
  std::vector<u64> last_ns_{};     // by ring: its last record
  std::unique_ptr<Stacks> stacks_;
  std::unique_ptr<Descriptors> files_;
  u64 stacks_behind_ = 0, stacks_joined_ = 0;  // the kernel's stack events; those that belong to an event
  ThreadNames names_{trace_.formats, trace_.tasks};
  RunningThreads running_{trace_.formats, trace_.tasks};
  u32 rings_ = 0;
  bool tells_names_ = false;  // it has rings of the kernel
  bool tells_numbers_ = false;  // a remark did
  bool tells_cpus_ = false;  // it has rings of threads, and the kernel's beside them
  bool looked_ahead_ = false;
  bool looks_up_ = false, names_decide_ = false;  // names_decide_: which events are counted
  std::vector<u32> unasked_{};                    // numbers of events that only give names
  u64 unnamed_ = 0;                               // events of threads whose names are unknown
  u64 look_again_ns_ = 0;                         // for threads of this PID namespace among those that seem to be outside
  std::unordered_map<i32, bool> named_{};         // threads that were looked up; false: in vain
  std::function<void(const std::vector<std::string>&)> notices_;
  Time time_;
  Totals totals_, complete_;
  u64 grown_until_ = 0;  // open_growing: in the trace's ns
  u64 books_begin_ns_ = 0;
  RefusedCounts refused_before_{};  // when the books began
  // What left the rings that others empty: none of it was handed out, or reported as lost.
  struct Settled {
    u64 unseen = 0, overrun = 0;
    bool sure = true;  // no ring was given back just then
  };
  Settled settle() const;
  std::optional<Settled> settled_before_{};  // when the books began, or the following
  Settled settled_{};                        // since
  u64 lost_of_programs_ = 0;                 // of the gaps' events
  bool following_ = false, stopped_ = false, cut_ = false, ended_ = false;
  u64 end_ns_ = forever, looked_ns_ = 0;
  u32 asked_ = 0;  // calls of next() when following
  size_t told_ = 0;  // problems of the timeline
  std::vector<std::string> told_doubts_{};
};

// Lets the kernel filter its live events, too, where its filter means the same. Returns the number of event types that it
// filters.
u32 push_down(const Filter& filter, const Trace& trace);

}  // namespace ringside
