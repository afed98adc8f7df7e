#include "cli/live.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "cli/arguments.hpp"
#include "cli/json.hpp"
#include "text/units.hpp"
#include "kernel/tracefs_instance.hpp"
#include "sys/text.hpp"
#include "sys/try.hpp"
#include "watch/picture.hpp"

namespace ringside::cli {

bool is_recorded(const std::string& where) { return Where::now(where).is_recorded(); }

void add_run(CLI::App& app, RunOptions& options) {
  app.add_option("WHERE", options.where,
                 "recording (a directory) or trace.dat, as a whole; or live: an instance, a socket of ringside serve or of an "
                 "external writer; several are merged (default: ringside.data)");
  add_events(app, options.events, "only these events; the kernel's are live, alone or beside a live WHERE");
  add_run_options(app, options);
}

void add_run_options(CLI::App& app, RunOptions& options) {
  add_input(app, options.inputs);
  add_filter(app, options.filter);
  add_window(app, options.window);
  add_source(app, options.source);
  app.add_flag("--own", options.own, "include kernel events that this command causes itself");
  add_time(app, "--interval", options.interval_ns,
           "between two pictures (default 1s); not on a terminal: without it, only the last one is printed")
      ->each([&options](const std::string&) { options.every = true; });
  add_duration(app, options.duration_ns, "end after this time (default: at Ctrl-C)");
  add_time(app, "--look-ahead", options.look_ahead_ns,
           "how long events wait for a source that is stuck in the middle of one (default 100ms)");
  add_jobs(app, options.jobs);
  app.add_flag("--once", options.once, "what is there now, then end");
  add_json(app, options.json, "each picture as one line of JSON");
}

void add_samples(CLI::App& app, RunOptions& options) {
  app.add_option_function<std::string>(
         "--sample",
         [&options](const std::string& rate) {
           try {
             options.samples.hz = rate.empty() ? usual_rate : parse_rate(rate);
           } catch (const UsageError& wrong) {
             throw CLI::ValidationError("--sample", wrong.sentence);
           }
         },
         "instead of events: where CPU time goes, live; each CPU is interrupted RATE times in a second (default 999), and a "
         "row "
         "is a function (as root; else with -p, processes of this user)")
      ->expected(0, 1)
      ->default_str(std::to_string(usual_rate))
      ->type_name("RATE");
  app.add_option("-p,--pid", options.samples.pids,
                 "of --sample: only this process and what it starts; may be repeated, or have commas")
      ->allow_extra_args(false)
      ->delimiter(',');
}

namespace {

// Patterns name events of what WHERE names. Those of the kernel are live, beside a live WHERE or alone; without any, and
// without WHERE, they name events of the default recording.
result<void> place_events(const EventPatterns& patterns, bool only_kernel, Reading::Options& open) {
  if (patterns.empty() || (!open.where.empty() && std::all_of(open.where.begin(), open.where.end(), is_recorded))) return {};
  const auto known = kernel_events();
  const bool alone = open.where.empty();
  for (const EventPattern& pattern : patterns) {
    if (known && means_kernel(pattern, *known)) open.kernel.push_back(pattern.text());
  }
  if (!alone || !open.kernel.empty()) return {};
  if (only_kernel || !is_recording(default_recording)) {
    for (const EventPattern& pattern : patterns)
      if (!pattern.may_name_kernel())
        throw UsageError{"-e " + pattern.text() +
                         " names events of every program, and of the kernel all; name a system of the kernel's, such as "
                         "sched:*, or what to read (WHERE)"};
    return check_kernel_events(patterns);
  }
  open.where = {default_recording};
  return {};
}

}  // namespace

void say_of_default() { say("of the recording " + std::string(default_recording)); }

result<std::unique_ptr<AnalysisRun>> AnalysisRun::open(RunOptions options) {
  if (options.interval_ns < look_every_ns) throw UsageError{"--interval must be at least 10ms"};
  catch_signals();
  auto run = std::unique_ptr<AnalysisRun>(new AnalysisRun);
  options.where.insert(options.where.end(), options.inputs.begin(), options.inputs.end());
  options.inputs.clear();
  Reading::Options open = reading_of(options.where, options.filter);
  const bool named = !options.where.empty();
  open.window = options.window;
  const bool samples = options.samples.hz != 0;
  if (samples && (named || !options.events.empty()))
    throw UsageError{"--sample has no other events beside it: leave out WHERE and -e; record -a --sample has both"};
  if (!samples && !options.samples.pids.empty())
    throw UsageError{"--pid belongs to --sample; -f 'pid == N' chooses the events of a process"};
  if (samples) options.events = {"ringside:sample"};
  open.samples = options.samples;
  run->only_ = open.only = parse_events(options.events);
  if (!samples) RS_TRY(place_events(run->only_, options.only_kernel, open));
  open.choice = {KernelWay::map, options.source};
  open.make.own_events = options.own;
  open.make.only_followed = options.only_followed;
  open.make.files = options.files;
  open.make.buffer_size = options.kernel_buffer_size;
  if (options.over) open.time.over = options.over;
  open.push_down = options.push_down;
  run->again_ = open;
  run->again_.notices = [](const auto&) {};
  const bool by_default = !named && !samples && open.kernel.empty();
  run->reading_ = RS_TRY(Reading::open(std::move(open)));
  if (by_default) say_of_default();
  run->again_.same = &run->trace();
  run->live_ = run->trace().live() && (!options.once || run->trace().has_only_just_begun());
  if (!run->trace().live()) check_wanted(run->only_, options.window, run->reading());
  if (run->live_ && options.once) options.duration_ns = options.interval_ns;  // the rings have only just begun
  if (options.once) options.every = false;
  run->options_ = std::move(options);
  return run;
}

bool AnalysisRun::has_parts(const std::vector<Column>& columns) {
  if (live_ || trace().live() || reading_->filters_in_order()) return false;
  if (reading_->chooses_cpus() && reading_->in_order("cpu")) return false;
  return std::none_of(columns.begin(), columns.end(), [&](const Column& column) {
    return column.shows_names() || (reading_->in_order(column.field()) && !column.of_fields());
  });
}

void AnalysisRun::check_columns(const std::vector<Column>& columns) const {
  if (only_.empty() || (live_ && !options_.where.empty())) return;
  const auto& types = reading_->trace().formats.all();
  for (const Column& column : columns) {
    std::vector<std::string> names;
    const bool found = std::any_of(types.begin(), types.end(), [&](const auto& type) {
      if (!matches(only_, *type)) return false;
      for (const Field& f : type->fields()) names.push_back(f.name);
      return column.in(*type);
    });
    if (found) continue;
    std::sort(names.begin(), names.end());
    names.erase(std::unique(names.begin(), names.end()), names.end());
    const auto near = nearest(column.field(), names);
    throw UsageError{in_quotes(column.name()) + ": no event of -e has it" +
                     (near.empty() ? "; there are " + short_list(names) : did_you_mean(near))};
  }
}

void AnalysisRun::find_mixtures(const std::vector<Column>& columns) {
  for (const Column& column : columns) {
    if (column.name().find('/') != std::string::npos) continue;
    const Mixture mixed = find_mixture(column.field(), trace().formats, [&](const EventType& type) {
      return type.system != "ftrace" && type.system != "ringside" && (only_.empty() || matches(only_, type));
    });
    if (!mixed) continue;
    const std::string name(column.field());
    remarks_.push_back(
        name + " is the field of " + mixed.with->full + " and others that have one, and " + mixed.rest() + " in the rest" +
        (mixed.of_thread ? std::string("; ") + (name == "comm" ? "task" : "thread") + " is always the thread that ran" : ""));
  }
}

std::string fit(const std::string& picture, size_t height) {
  const auto all = static_cast<size_t>(std::count(picture.begin(), picture.end(), '\n'));
  if (all <= height) return picture;
  const size_t last = std::min<size_t>(3, height / 4), first = height - std::min(height, last + 1);
  const auto after = [&](size_t lines) {
    size_t at = 0;
    for (; lines != 0; --lines) at = picture.find('\n', at) + 1;
    return at;
  };
  return picture.substr(0, after(first)) + fmt::format("({})\n", counted(all - first - last, "more line")) +
         picture.substr(after(all - last));
}

std::string AnalysisRun::awaited() const {
  const std::string sentence = live_ ? unmatched(only_, reading_->trace().formats, "what is live") : "";
  return sentence.empty() ? "" : "waiting: " + sentence;
}

void AnalysisRun::begin() {
  reading_->follow(options_.look_ahead_ns, options_.duration_ns);
  reading_->begin_books();
  screen_ = colours() && !options_.json && !options_.once && !options_.over;  // a command has the terminal for itself
  pictures_ = screen_ || options_.every;
  began_ = last_picture_ = sys::now_ns();
  next_picture_ = last_picture_ + options_.interval_ns;
  if (screen_) return;
  if (const std::string sentence = awaited(); !sentence.empty()) say(sentence);
  const bool unlimited = options_.duration_ns == 0 && !options_.over;
  const auto left = [](const auto& input) { return input->has_no_writer(); };
  if (const auto& all = trace().inputs; std::all_of(all.begin(), all.end(), left) && unlimited)
    say("no process writes to " + trace().first().where +
        " now; waiting for one until Ctrl-C; --once: what is there, and no waiting");
  else if (unlimited && !options_.every)
    say("live, until Ctrl-C; --duration 10s ends it, --once takes what is there");
}

double AnalysisRun::due() {
  reading_->learn_names();  // also if nothing is shown yet: the kernel forgets them
  const u64 now = sys::now_ns();
  const double seconds = static_cast<double>(now - last_picture_) / 1e9;
  last_picture_ = now;
  next_picture_ = now + options_.interval_ns;
  return seconds;
}

bool AnalysisRun::show(std::string picture) {
  if (!screen_) return put(picture);
  const std::string clear = "\033[H\033[J";
  if (reading_->stopped()) return put(clear + picture);  // the last one stays, as a whole
  if (const std::string sentence = awaited(); !sentence.empty()) picture += sentence + "\n";
  return put(clear + sys::unwrapped(fit(picture, terminal_height() - 1)));  // the cursor takes a line
}

int AnalysisRun::finish() {
  for (const std::string& remark : remarks_) say(remark);
  if (live_) {
    if (const std::string sentence = unmatched(only_, trace().formats, "all that was read"); !sentence.empty()) say(sentence);
  }
  if (const u64 taken = reading_->taken_by_others(); taken != 0)
    say("of those lost to this command, at least " + counted(taken, "event") + " went to another reader, a recorder perhaps");
  if (reading_->cut()) say(Reading::too_late);
  if (say_problems(*reading_) || (reading_->cut() && live_)) return exit_failure;
  const std::string none = none_within(options_.window, *reading_);
  if (!none.empty()) say(none);
  return none.empty() ? exit_ok : exit_usage;
}

std::string misfits_line(u64 misfits) {
  return misfits == 0 ? ""
                      : counted(misfits, "event has", "events have") +
                            " a field of this name that is an array or of another kind: not counted\n";
}

std::string closing_line(const Totals& totals, u64 evicted_keys, u64 evicted_events, bool quantiles) {
  std::string line = counted(totals.account.read, "event") + ", " +
                     (totals.account.none_lost() ? "none" : lost_count(totals.account)) + " lost" + lost_places(totals.account);
  if (evicted_keys != 0)
    line += fmt::format("; {} with {} given up for others (--keys)", counted(evicted_keys, "key"),
                        counted(evicted_events, "event was", "events were"));
  const bool all = totals.account.none_lost() && evicted_keys == 0;
  line += !all ? ": the numbers lack those" : totals.late == 0 ? ": the numbers are exact" : "";
  if (totals.late != 0)
    line += fmt::format("; {} came after later events: they count, perhaps under a name or a CPU of another moment",
                        format_count(totals.late));
  if (quantiles) line += ", quantiles within 1.6 %";
  if (totals.lost_earlier != 0) line += fmt::format(" ({} had been lost before this began)", format_count(totals.lost_earlier));
  return line;
}

}  // namespace ringside::cli
