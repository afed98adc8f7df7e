// Runs an analysis, whatever it computes: over the whole of a recording, or live until Ctrl-C, with a picture from time to time
// and an exact one at the end.
//
//   RunOptions options; add_run(*command, options);
//   auto run = AnalysisRun::open(options);
//   return run->go([&](const TraceRecord& record, const RingName& ring) { ... },          // every wanted event
//                  [&](const Totals& totals, double seconds) -> std::string { ... });     // a picture: text, or JSON
#pragma once
#include <algorithm>
#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "analysis/column.hpp"
#include "watch/signals.hpp"
#include "cli/in_order.hpp"
#include "cli/options.hpp"
#include "sys/sys.hpp"
#include "sys/thread.hpp"

namespace ringside::cli {

struct RunOptions {
  std::vector<std::string> where;  // none, and no events of the kernel: the default recording
  std::vector<std::string> inputs;  // -i: more of where
  Window window;
  std::string filter;
  std::vector<std::string> events;  // only these: of what WHERE names, and the live kernel's
  std::optional<KernelWay> source;
  u64 interval_ns = 1'000'000'000, duration_ns = 0, look_ahead_ns = 100'000'000;
  bool every = false;  // a picture each interval, on any stdout
  bool once = false, json = false, own = false;
  u64 kernel_buffer_size = 4 << 20;       // bytes for each CPU
  LiveSamples samples{};                  // instead of what WHERE names, and of the kernel's events
  bool only_kernel = false;               // `events` are the live kernel's, and no recording takes its place
  bool only_followed = false;             // TracefsOptions::only_followed
  bool files = false;                     // TracefsOptions::files
  std::function<bool()> over = nullptr;   // true: the end of a live run, beside --duration; none: Ctrl-C is
  u32 jobs = 0;            // threads for a recording; 0: one core is left for others
  bool push_down = false;  // the kernel may filter, too: no event that the filter refuses is wanted
};
// WHERE... -e, and the options of add_run_options: -i -f --cpu --time --source --interval --duration --look-ahead --once --json
void add_run(CLI::App& app, RunOptions& options);
void add_run_options(CLI::App& app, RunOptions& options);
void add_samples(CLI::App& app, RunOptions& options);  // --sample --pid

// stderr: that ./ringside.data is read, which no word named.
void say_of_default();

bool is_recorded(const std::string& where);  // what it names now

// A picture of at most `height` lines: the first ones, and the last ones, which have the sums.
std::string fit(const std::string& picture, size_t height);

class AnalysisRun {
 public:
  static result<std::unique_ptr<AnalysisRun>> open(RunOptions options);
  Reading& reading() { return *reading_; }
  Trace& trace() { return reading_->trace(); }
  const RunOptions& options() const { return options_; }
  bool live() const { return live_; }
  // Callers that take the records themselves call it before the first record.
  void begin();
  double elapsed() const { return static_cast<double>(last_picture_ - began_) / 1e9; }  // live: seconds up to the last picture
  // Prints the new ones; a screen keeps them for its end.
  void say_new_problems() { if (!screen_) ringside::cli::say_new_problems(*reading_); }

  // Fills `table`: make(trace) an empty one, add(table, record, ring) for every wanted event. A large recording is cut into
  // parts. Each job has a table for those that it reads, and these are added up, if nothing depends on the order: not the
  // columns, not the filter, no key is given up.
  template <class Table, class Make, class Add, class Picture>
  int add_up(Table& table, u64 most_keys, const std::vector<Column>& columns, const Make& make, const Add& add,
             const Picture& picture) {
    check_columns(columns);
    find_mixtures(columns);
    for (const Column& column : columns) reading_->look_up_for(column);
    const u32 jobs = has_parts(columns) ? jobs_of(*reading_, options_.jobs) : 1;
    std::vector<std::unique_ptr<Table>> tables(jobs);  // apart: each event changes one, and no cache line is to belong to two
    std::atomic<bool> good{true};
    const auto part = [&](u32 job, Reading& reading, size_t) {
      if (tables[job] == nullptr) {
        auto made = make(reading.trace());
        if (!made) return good = false;
        tables[job] = std::make_unique<Table>(std::move(*made));
      }
      Table& mine = *tables[job];
      reading.take_rest([&](const TraceRecord& record, const RingName& ring, Reading::Got got) {
        if (got == Reading::Got::event) add(mine, record, ring);
      });
      if (mine.evicted().keys != 0 || !is_sound(reading)) good = false;
      return good && !reading.cut();
    };
    const auto readings = in_parts(seams_for(*reading_, jobs, 16 << 20), jobs, part, [&] { good = false; });
    std::erase(tables, nullptr);
    u64 keys = 0;
    for (const auto& one : tables) keys += one->size();
    if (readings.empty() || !good || keys > most_keys)
      return go([&](const TraceRecord& record, const RingName& ring) { add(table, record, ring); }, picture);
    for (const auto& one : tables) table.merge(*one);
    take_over(readings);
    return end(picture);
  }

  // The same for what depends on the order: make(part) makes something of each part of a large recording, and join(it) takes
  // them over one after the other; false: it was in vain. False: go() is to read the recording, and nothing of what was joined
  // counts.
  template <class Make, class Join>
  bool stitch(const std::vector<Column>& columns, const std::vector<const Filter*>& conditions, const Make& make,
              const Join& join) {
    for (const Column& column : columns) reading_->look_up_for(column);
    for (const Filter* filter : conditions) reading_->look_up_for(*filter);
    if (!has_parts(columns) || reading_->stacks_anywhere()) return false;
    if (std::any_of(conditions.begin(), conditions.end(), [&](const Filter* filter) { return reading_->in_order(*filter); }))
      return false;
    const u32 jobs = jobs_of(*reading_, options_.jobs);
    using Part = typename std::invoke_result_t<Make, Reading&>::value_type;
    InOrder<Part> parts(2 * jobs, join);
    const auto fail = [&] { parts.end_before(0); };
    const auto part = [&](u32, Reading& reading, size_t n) {
      auto made = make(reading);
      if (!made || !is_sound(reading)) return fail(), false;
      if (!parts.add(n, std::move(*made))) return false;
      if (reading.cut()) parts.end_before(n + 1);
      return !reading.cut();
    };
    const auto readings = in_parts(seams_for(*reading_, jobs, 8 << 20), jobs, part, fail);
    if (readings.empty() || parts.end() == 0) return false;
    take_over(readings);
    return true;
  }

  // Prints the last picture, of what was read otherwise, and returns the exit code.
  template <class Picture>
  int end(const Picture& picture) {
    show(picture(reading_->complete(), reading_->totals().seconds(), true));
    return finish();
  }

  void find_mixtures(const std::vector<Column>& columns);  // a remark about each column that is a field of some events only
  int finish();  // prints the remarks; returns the exit code

  // Returns the exit code. A picture gets the seconds since the one before, and whether it is the last. `other`: takes losses,
  // and events that the filter excludes.
  template <class Use, class Picture>
  int go(const Use& use, const Picture& picture) {
    return go(use, picture, [](const TraceRecord&, const RingName&) {});
  }
  template <class Use, class Picture, class Other>
  int go(const Use& use, const Picture& picture, const Other& other) {
    const auto give = [&](const TraceRecord& record, const RingName& ring, Reading::Got got) {
      got == Reading::Got::event ? use(record, ring) : other(record, ring);
    };
    if (live_) begin();
    while (reading_->wait(look_every_ns, next_picture_) && !reading_->stopped()) {
      say_new_problems();
      // A picture is due at its time, whatever the writers do.
      reading_->take(give, [&] { return sys::now_ns() > next_picture_; });
      if (sys::now_ns() < next_picture_) continue;
      if (const double seconds = due(); pictures_ && !show(picture(reading_->complete(), seconds, false))) break;
    }
    reading_->take_rest(give);
    const double seconds = live_ ? due() : reading_->totals().seconds();
    show(picture(reading_->complete(), seconds, true));
    return finish();
  }

 private:
  static constexpr u64 look_every_ns = 10'000'000;
  bool has_parts(const std::vector<Column>& columns);  // it is a recording, and nothing here depends on the order
  using Readings = std::vector<std::unique_ptr<Reading>>;
  // Several threads read what the seams cut, each with a reading of its own: part(job, reading, n) takes the events of the
  // n-th; false: it is the thread's last one. fail(): something is missing. Returns the readings; none: there are no seams.
  template <class Part, class Fail>
  Readings in_parts(const std::vector<u64>& seams, u32 jobs, const Part& part, const Fail& fail) {
    if (seams.empty()) return {};
    Readings readings(jobs);
    std::atomic<size_t> next{0};
    sys::parallel(jobs, [&](u32 job) {
      try {
        auto opened = Reading::open(again_);
        if (!opened) return fail();
        Reading& reading = *(readings[job] = std::move(*opened));
        if (reading_->joins_stacks()) reading.join_stacks();
        for (size_t n; (n = next++) <= seams.size();) {
          reading.go_to(n == 0 ? 0 : seams[n - 1], n == seams.size() ? Timeline::forever : seams[n], false);
          if (!part(job, reading, n)) return;
        }
      } catch (...) {
        fail();
        throw;
      }
    });
    return readings;
  }
  static bool is_sound(const Reading& reading) {
    return reading.trace().timeline.problems().empty() && reading.totals().late == 0;
  }
  void take_over(const Readings& readings) {
    for (const auto& reading : readings)
      if (reading != nullptr) reading_->add(*reading);
  }
  // A UsageError, if no event of -e has one of them, and later ones cannot come.
  void check_columns(const std::vector<Column>& columns) const;
  std::string awaited() const;  // a sentence about events of -e that are not there yet; empty: all are
  double due();  // the seconds of the picture that is due now
  bool show(std::string picture);

  RunOptions options_;
  std::unique_ptr<Reading> reading_;
  Reading::Options again_{};  // opens it once more
  EventPatterns only_{};
  std::vector<std::string> remarks_{};
  bool live_ = false, pictures_ = false, screen_ = false;
  u64 began_ = 0, last_picture_ = 0, next_picture_ = 0;
};

// What the numbers above are worth: "1,234 events, none lost", or how many are missing.
// quantiles: those above are the middles of buckets.
std::string closing_line(const Totals& totals, u64 evicted_keys, u64 evicted_events, bool quantiles = false);
// The events of Groups::misfits(); empty: there are none.
std::string misfits_line(u64 misfits);

}  // namespace ringside::cli
