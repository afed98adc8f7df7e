#include "cli/live.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>

#include "export/units.hpp"
#include "sys/try.hpp"

namespace ringside::cli {
namespace {

constexpr u64 look_every_ns = 10'000'000;

}  // namespace

void add_run(CLI::App& app, RunOptions& options) {
  app.add_option("WHERE", options.where,
                 "recording (a directory) or trace.dat, as a whole; or live: an instance, an external writer's socket; several are merged (default: ringside.data)");
  add_events(app, options.events, "live events of the kernel, beside WHERE or alone");
  add_run_options(app, options);
}

void add_run_options(CLI::App& app, RunOptions& options) {
  add_filter(app, options.filter);
  add_source(app, options.source);
  app.add_flag("--own", options.own, "include kernel events that this command causes, and interrupts that come while it runs");
  add_time(app, "--interval", options.interval_ns, "between two pictures (default 1s); not on a terminal: without it, only the last one is printed")
      ->each([&options](const std::string&) { options.every = true; });
  add_duration(app, options.duration_ns, "end after this time (default: at Ctrl-C)");
  add_time(app, "--look-ahead", options.look_ahead_ns, "how long events wait for a source that is stuck in the middle of one (default 100ms)");
  app.add_flag("--once", options.once, "what is there now, then end");
  app.add_flag("--json", options.json, "each picture as one line of JSON");
}

result<std::unique_ptr<AnalysisRun>> AnalysisRun::open(RunOptions options) {
  if (options.interval_ns < look_every_ns) throw UsageError{"--interval must be at least 10ms"};
  catch_signals();
  auto run = std::unique_ptr<AnalysisRun>(new AnalysisRun);
  TracefsOptions make;
  make.own_events = options.own;
  run->trace_.emplace(RS_TRY(open_traces(options.where, options.events, {KernelWay::map, options.source}, false, make)));
  Trace& trace = *run->trace_;
  say_notices(trace);
  run->filter_ = RS_TRY(RecordFilter::make(options.filter, trace));
  if (options.push_down) run->filter_.push_down(trace);
  run->live_ = trace.live() && (!options.once || trace.has_only_just_begun());
  if (run->live_ && options.once) options.duration_ns = options.interval_ns;  // the rings have only just begun
  if (options.once) options.every = false;
  run->options_ = std::move(options);
  return run;
}

void AnalysisRun::begin() {
  trace_->follow(options_.look_ahead_ns);
  say_notices(*trace_);
  screen_ = colours() && !options_.json && !options_.once;
  pictures_ = screen_ || options_.every;
  last_picture_ = woken_ = sys::now_ns();
  next_picture_ = last_picture_ + options_.interval_ns;
  end_ = options_.duration_ns != 0 ? last_picture_ + options_.duration_ns : ~u64{0};
}

bool AnalysisRun::wait() {
  const u64 now = sys::now_ns();
  if (asked_to_stop() || now >= end_) return false;
  // What took long to read comes fast: back to it soon.
  const u64 rest = look_every_ns - std::min(now - woken_, look_every_ns - 100'000);
  sleep_ns(std::min({rest, end_ - now, next_picture_ > now ? next_picture_ - now : 1}));
  woken_ = sys::now_ns();
  return !asked_to_stop();
}

void AnalysisRun::refresh() {
  trace_->refresh();
  say_notices(*trace_);
  if (!screen_) said_ = report_problems(trace_->timeline, said_);  // a screen keeps them for its end
}

double AnalysisRun::due() {
  trace_->learn_names();  // also where nothing is shown yet: the kernel forgets them
  const u64 now = sys::now_ns();
  const double seconds = static_cast<double>(now - last_picture_) / 1e9;
  last_picture_ = now;
  next_picture_ = now + options_.interval_ns;
  return seconds;
}

bool AnalysisRun::show(std::string picture) { return put(screen_ ? "\033[H\033[J" + picture : picture); }

void AnalysisRun::stop() {
  trace_->stop();
  say_notices(*trace_);
}

int AnalysisRun::finish() {
  if (cut_) say(too_late);
  return report_problems(trace_->timeline, said_) != 0 || (cut_ && live_) ? exit_failure : exit_ok;
}

std::string closing_line(const Totals& totals, u64 evicted_keys, u64 evicted_events) {
  std::string line = format_count(totals.events) + " events, " + (totals.missing.nothing() ? "none" : lost_count(totals.missing)) + " lost";
  if (evicted_keys != 0)
    line += fmt::format("; {} keys with {} events were given up for others (--keys)", format_count(evicted_keys), format_count(evicted_events));
  if (totals.late != 0) line += fmt::format("; {} came later than --look-ahead waits", format_count(totals.late));
  return line + (totals.missing.nothing() && evicted_keys == 0 ? ": the numbers are exact" : ": the numbers lack those");
}

}  // namespace ringside::cli
