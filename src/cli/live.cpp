#include "cli/live.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "cli/json.hpp"
#include "export/units.hpp"
#include "sys/try.hpp"

namespace ringside::cli {

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
  add_json(app, options.json, "each picture as one line of JSON");
}

result<std::unique_ptr<AnalysisRun>> AnalysisRun::open(RunOptions options) {
  if (options.interval_ns < look_every_ns) throw UsageError{"--interval must be at least 10ms"};
  catch_signals();
  auto run = std::unique_ptr<AnalysisRun>(new AnalysisRun);
  Reading::Options open = reading_of(options.where, options.filter);
  open.kernel = options.events;
  open.choice = {KernelWay::map, options.source};
  open.make.own_events = options.own;
  open.make.only_followed = options.only_followed;
  open.make.buffer_size = options.kernel_buffer_size;
  if (options.over) open.time.over = [over = options.over] { return asked_to_stop() || over(); };
  open.push_down = options.push_down;
  run->reading_ = RS_TRY(Reading::open(std::move(open)));
  run->live_ = run->trace().live() && (!options.once || run->trace().has_only_just_begun());
  if (run->live_ && options.once) options.duration_ns = options.interval_ns;  // the rings have only just begun
  if (options.once) options.every = false;
  run->options_ = std::move(options);
  return run;
}

void AnalysisRun::begin() {
  reading_->follow(options_.look_ahead_ns, options_.duration_ns);
  screen_ = colours() && !options_.json && !options_.once;
  pictures_ = screen_ || options_.every;
  last_picture_ = sys::now_ns();
  next_picture_ = last_picture_ + options_.interval_ns;
}

double AnalysisRun::due() {
  trace().learn_names();  // also if nothing is shown yet: the kernel forgets them
  const u64 now = sys::now_ns();
  const double seconds = static_cast<double>(now - last_picture_) / 1e9;
  last_picture_ = now;
  next_picture_ = now + options_.interval_ns;
  return seconds;
}

bool AnalysisRun::show(std::string picture) { return put(screen_ ? "\033[H\033[J" + picture : picture); }

int AnalysisRun::finish() {
  if (reading_->cut()) say(Reading::too_late);
  return say_problems(*reading_) || (reading_->cut() && live_) ? exit_failure : exit_ok;
}

std::string closing_line(const Totals& totals, u64 evicted_keys, u64 evicted_events) {
  std::string line = format_count(totals.events) + " events, " + (totals.missing.nothing() ? "none" : lost_count(totals.missing)) + " lost";
  if (evicted_keys != 0)
    line += fmt::format("; {} keys with {} events were given up for others (--keys)", format_count(evicted_keys), format_count(evicted_events));
  if (totals.late != 0) line += fmt::format("; {} came later than --look-ahead waits", format_count(totals.late));
  return line + (totals.missing.nothing() && evicted_keys == 0 ? ": the numbers are exact" : ": the numbers lack those");
}

}  // namespace ringside::cli
