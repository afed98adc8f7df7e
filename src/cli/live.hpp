// How an analysis is run, whatever it computes: over the whole of a recording, or live until Ctrl-C, with a picture now and then
// and an exact one at the end.
//
//   RunOptions options; add_run(*command, options);
//   auto run = AnalysisRun::open(options);
//   return run->go([&](const TraceRecord& record, const RingName& ring) { ... },          // every wanted event
//                  [&](const Totals& totals, double seconds) -> std::string { ... });     // a picture: text, or JSON
#pragma once
#include <string>
#include <vector>

#include "watch/signals.hpp"
#include "cli/options.hpp"
#include "sys/sys.hpp"

namespace ringside::cli {

struct RunOptions {
  std::vector<std::string> where;  // none, and no events of the kernel: the default recording
  std::string filter;
  std::vector<std::string> events;  // the kernel's, beside them
  std::optional<KernelWay> source;
  u64 interval_ns = 1'000'000'000, duration_ns = 0, look_ahead_ns = 100'000'000;
  bool every = false;  // a picture each interval, whatever stdout is
  bool once = false, json = false, own = false;
  bool push_down = false;  // the kernel may filter, too: nothing is wanted of what the filter refuses
};
// WHERE... -e, and what add_run_options adds: -F --source --interval --duration --look-ahead --once --json
void add_run(CLI::App& app, RunOptions& options);
void add_run_options(CLI::App& app, RunOptions& options);

inline constexpr const char* too_late = "what was not read in time is not in the numbers";

struct Totals {
  u64 events = 0, lost = 0, late = 0;  // those the filter lets through; all that got lost between others; all that came behind later ones
  Missing missing{};                   // of a picture: what is not in it
  u64 first_ns = ~u64{0}, last_ns = 0;
  double seconds() const { return last_ns > first_ns ? static_cast<double>(last_ns - first_ns) / 1e9 : 0; }
};

class AnalysisRun {
 public:
  static result<std::unique_ptr<AnalysisRun>> open(RunOptions options);
  Trace& trace() { return *trace_; }
  const RunOptions& options() const { return options_; }
  bool live() const { return live_; }
  // For who takes the records of trace() itself: before the first, while it goes on (new rings), before the last.
  void begin();
  void refresh();
  void stop();       // no more events from now on
  int finish();      // the exit code

  // The exit code. A picture gets the seconds since the one before, and whether it is the last. `other`: losses, and what the filter
  // does not let through.
  template <class Use, class Picture>
  int go(const Use& use, const Picture& picture) {
    return go(use, picture, [](const TraceRecord&, const RingName&) {});
  }
  template <class Use, class Picture, class Other>
  int go(const Use& use, const Picture& picture, const Other& other) {
    if (!live_) {
      cut_ = !take(use, other, ~u64{0});
      put(picture(complete(), totals_.seconds(), true));
      return finish();
    }
    begin();
    while (wait()) {
      refresh();
      take(use, other, next_picture_);
      if (sys::now_ns() < next_picture_) continue;
      if (const double seconds = due(); pictures_ && !show(picture(complete(), seconds, false))) break;
    }
    stop();
    cut_ = !take(use, other, sys::now_ns() + 5'000'000'000);  // what is still in the rings
    const double seconds = due();
    show(picture(complete(), seconds, true));
    return finish();
  }

 private:
  // Until nothing is left, or (false) the deadline: a picture is due, whatever the writers do.
  template <class Use, class Other>
  bool take(const Use& use, const Other& other, u64 deadline_ns) {
    TraceRecord record;
    for (u64 n = 1; trace_->next(record); ++n) {
      if (record.time < totals_.first_ns) totals_.first_ns = record.time;
      if (record.time > totals_.last_ns) totals_.last_ns = record.time;
      totals_.lost += record.lost;
      totals_.late += record.late;
      const RingName& ring = trace_->timeline.name(record.source);
      if (record.lost == 0 && filter_.wants(record)) {
        ++totals_.events;
        use(record, ring);
      } else {
        other(record, ring);
      }
      if (n % 65536 == 0 && (sys::now_ns() > deadline_ns || (!live_ && asked_to_stop()))) return false;
    }
    return true;
  }
  const Totals& complete() {
    totals_.missing = trace_->missing(totals_.lost);
    if (cut_) totals_.missing.doubts.emplace_back(too_late);
    return totals_;
  }
  bool wait();       // false: it is time to end
  double due();      // the seconds of the picture that is due now
  bool show(std::string picture);

  RunOptions options_;
  std::optional<Trace> trace_;
  RecordFilter filter_;
  Totals totals_;
  bool cut_ = false;  // there was more than was read
  bool live_ = false, pictures_ = false, screen_ = false;
  u64 end_ = 0, last_picture_ = 0, next_picture_ = 0, woken_ = 0;
  size_t said_ = 0;  // problems
};

// What the numbers above are worth: "1,234 events, none lost", or how many are missing.
std::string closing_line(const Totals& totals, u64 evicted_keys, u64 evicted_events);

}  // namespace ringside::cli
