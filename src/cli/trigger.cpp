// ringside trigger: a flight recorder. Unread rings go round until an event meets a condition; then they are frozen and become
// a recording.
//
// The condition is checked elsewhere: in a second instance of the kernel's with only those of its events that can meet it, and
// by peeking at the program's rings, which consumes nothing.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <ringside/consumer.hpp>
#include <set>

#include "analysis/mistyped.hpp"
#include "analysis/names.hpp"
#include "analysis/pairs.hpp"
#include "cli/child.hpp"
#include "cli/options.hpp"
#include "cli/preload.hpp"
#include "cli/program.hpp"
#include "cli/progress.hpp"
#include "cli/record_names.hpp"
#include "cli/recording.hpp"
#include "cli/trigger_condition.hpp"
#include "cli/writers.hpp"
#include "consumer/where.hpp"
#include "export/text.hpp"
#include "text/units.hpp"
#include "instance/borrowed.hpp"
#include "record/instance_feed.hpp"
#include "record/kernel_feed.hpp"
#include "sys/try.hpp"
#include "watch/signals.hpp"

namespace ringside::cli {
namespace {

struct TriggerOptions {
  bool compress = false;
  std::string condition, instance, libc, keys, exec, snapshot = default_recording;
  std::vector<std::string> events, latency, command, remotes;
  std::optional<KernelWay> source;
  u64 count = 1, after_ns = 0, duration_ns = 0, look_ahead_ns = 100'000'000;
  u64 buffer_size = 4 << 20, subbuf_size = 16384;
  bool quiet = false, wait = true;
};

constexpr u64 watch_every_ns = 2'000'000;
constexpr u64 same_event_ns =
    1'000'000;  // finds the event in the recording: the same bytes, at most this far from the watch's time

struct Hit {
  std::function<std::string(u64 time)> line_at{};  // the event as text, as long as no other one is read
  std::string line;
  std::vector<u8> payload;
  u64 time = 0;  // by `clock`
  ClockInfo clock;
  std::optional<u64> latency;
};

// The part of a recording around the event.
struct Around {
  u64 before = 0, after = 0, lost = 0, first = ~u64{0};
  std::optional<u64> time;  // the event's: each instance of the kernel's reads the clock for itself, 1 us apart or so
};

result<Around> window_of(const std::string& dir, const Hit& hit) {
  auto consumer = RS_TRY(Consumer::open({.where = {std::filesystem::absolute(dir).string()}}));
  Around w;
  const auto apart = [&](u64 time) { return time > hit.time ? time - hit.time : hit.time - time; };
  u64 seen = 0;
  consumer.run([&](const Event& e) {
    w.lost += e.lost;
    if (e.lost != 0) return;
    w.first = std::min(w.first, e.time);
    if (!w.time && e.time <= hit.time) w.before = seen + 1;
    ++seen;
    if (apart(e.time) > same_event_ns || (w.time && apart(*w.time) <= apart(e.time))) return;
    if (e.size != hit.payload.size() || std::memcmp(e.data, hit.payload.data(), e.size) != 0) return;
    w.time = e.time;
    w.before = seen - 1;
  });
  w.after = seen - w.before - (w.time ? 1 : 0);
  return w;
}

// DIR, including the number of the recording.
std::string numbered(const TriggerOptions& options, u64 number) {
  std::string dir = options.snapshot;
  const size_t at = dir.find("%n");
  if (at != std::string::npos) return dir.replace(at, 2, std::to_string(number));
  return options.count == 1 ? dir : dir + "." + std::to_string(number);
}

// An error is better now than after a week of waiting.
result<void> check_place(const std::string& dir) {
  RS_TRY(can_set_aside(dir));
  std::string parent = std::filesystem::path(dir).lexically_normal().parent_path().string();
  if (parent.empty()) parent = ".";
  if (access(parent.c_str(), W_OK | X_OK) != 0) return fail(errno, "cannot make " + dir);
  return {};
}

class FlightRecorder {
 public:
  FlightRecorder(const TriggerOptions& options, Instance& instance, KernelFeed* kernel,
                 std::vector<std::unique_ptr<RemoteFeed>> remotes, bool has_program)
      : options_(options),
        instance_(instance),
        kernel_(kernel),
        remotes_(std::move(remotes)),
        files_(has_program ? HandedFiles::listen(instance) : nullptr) {}

  result<void> arm() {
    armed_ = sys::now_ns();
    RS_TRY(instance_.tracing(true));
    // One that has ended was saved with its last events.
    std::erase_if(remotes_, [](const auto& remote) {
      const auto armed = remote->arm();
      if (!armed) say(armed.error().sentence);
      return !armed;
    });
    return kernel_ != nullptr ? kernel_->arm() : result<void>();
  }
  result<void> freeze() {
    const auto kernel = kernel_ != nullptr ? kernel_->freeze() : result<void>();
    const auto program = instance_.tracing(false);
    for (const auto& remote : remotes_)
      if (const auto frozen = remote->freeze(); !frozen) say(frozen.error().sentence);
    return kernel ? program : kernel;
  }
  // Saves the content of the rings as the recording of this number.
  result<void> save(Hit& hit, u64 number) {
    const std::string dir = numbered(options_, number);
    const u64 duration = sys::now_ns() - armed_;
    // Uses the watch's own calibration of the clock, so that times are the same there and here.
    const ClockInfo& own = instance_.clock();
    InstanceFeed program(instance_);
    auto made = RS_TRY(new_recording(dir, hit.clock.kind == own.kind ? hit.clock : own, options_.compress));
    RecordingRun& run = *made;
    run.keep_wall();
    run.meta().start_ns -= std::min(run.meta().start_ns, duration);
    run.meta().command = options_.command;
    run.meta().trigger = RecordedTrigger{options_.condition, hit.line, hit.time, hit.latency};
    RS_TRY(run.add(program));
    if (kernel_ != nullptr) {
      RS_TRY(run.add(*kernel_));
    }
    for (const auto& remote : remotes_) {
      RS_TRY(run.add(*remote));
      RS_TRY(remote->attach(run));
      remote->hand_over();
    }
    auto finished = run.finish(duration);
    has_stacks_ = finished && has_stacks(run);
    Told().doubts(run);
    if (!finished) return finished;
    const Around w = RS_TRY(window_of(dir, hit));
    const bool moved = w.time && *w.time != hit.time;
    if (w.time) {
      hit.line = hit.line_at(*w.time);
      run.meta().trigger->event = hit.line;
      run.meta().trigger->time_ns = *w.time;
      RS_TRY(run.writer().save());
    }
    if (!options_.quiet) {
      const u64 span = hit.time > w.first ? hit.time - w.first : 0;
      const std::string before = w.before == 0
                                     ? w.time ? "the event, and none" : "no event"
                                     : counted(w.before, "event") + " of the last " + format_time(static_cast<double>(span));
      say(fmt::format("saved {} before it, {} after{}; {}{}", before, format_count(w.after),
                      w.lost == 0 ? "" : fmt::format("; {} older ones were overwritten or lost", format_count(w.lost)), dir,
                      moved ? "; there it is " + hit.line : ""));
    }
    if (!w.time)
      say("the event itself is not in the recording: the rings had gone round before they were frozen; give them more room "
          "with -b");
    return run.account().proved() ? result<void>() : refuse(std::errc::io_error, dir + " is incomplete");
  }
  // Of the recording that was saved last. This takes a while, in which the rings are not frozen.
  void keep_names(u64 number) const {
    if (has_stacks_) keep_stack_names(numbered(options_, number), files_.get(), options_.quiet);
  }

 private:
  const TriggerOptions& options_;
  Instance& instance_;
  KernelFeed* kernel_;
  std::vector<std::unique_ptr<RemoteFeed>> remotes_;
  std::unique_ptr<HandedFiles> files_;  // of programs' code
  u64 armed_ = 0;
  bool has_stacks_ = false;
};

class Watch {
 public:
  // from_ns: when it was armed, by the instance's clock; what was written before is not checked.
  Watch(const TriggerOptions& options, Reading& reading, Condition& condition, FlightRecorder& recorder, KernelFeed* kernel,
        u64 from_ns)
      : options_(options), reading_(reading), condition_(condition), recorder_(recorder), kernel_(kernel), from_ns_(from_ns) {}

  // Runs until the last recording is made, the reading ends (the command did, or the time is up) or Ctrl-C.
  result<void> go(std::optional<Child>& child) {
    Progress progress(options_.quiet);
    u64 learned = 0;
    do {
      RS_TRY(check_events(progress));
      if (all_made()) return {};
      if (asked_to_stop()) {
        if (!child || child->ended()) return {};
        child->pass_on_stop();
      }
      if (const u64 now = sys::now_ns(); kernel_ != nullptr && now - learned > KernelFeed::learn_every_ns) {
        kernel_->learn_names();
        learned = now;
      }
      progress.update([&](double seconds) {
        return fmt::format("armed; {} checked, {} s", counted(looked_at_, "event"), static_cast<u64>(seconds));
      });
    } while (reading_.wait(watch_every_ns));
    return {};
  }
  u64 made() const { return made_; }
  u64 lost() const { return lost_; }

 private:
  bool all_made() const { return options_.count != 0 && made_ >= options_.count; }

  // Checks the present events, for a limited time: writers may be faster than this loop.
  result<void> check_events(Progress& progress) {
    RS_TRY(condition_.compile());
    condition_.look_up_in(reading_);
    TraceRecord record;
    for (u32 n = 0; n < 1'000'000 && reading_.next(record) != Reading::Got::nothing; ++n) {
      if (record.time < from_ns_) continue;  // written before, or on its way when the rings were frozen
      lost_ += record.lost;
      ++looked_at_;
      if (!condition_.met(record, reading_.ring(record))) continue;
      progress.clear();
      RS_TRY(trigger(record));
      if (all_made()) return {};
    }
    return {};
  }

  result<void> trigger(const TraceRecord& record) {
    Trace& trace = reading_.trace();
    Hit hit;
    hit.time = record.time;
    hit.clock = trace.timeline.clock(record.source);
    hit.latency = condition_.latency();
    hit.payload.assign(record.payload.data, record.payload.data + record.payload.size);
    reading_.learn_names();
    hit.line_at = [&trace, this, copy = record](u64 time) mutable {
      copy.time = time;
      fmt::memory_buffer text;
      TextLines(trace.formats, trace.tasks, trace.raw_times()).print(copy, reading_.ring(copy), text);
      std::string line(text.data(), text.size());
      line.erase(0, std::min(line.find_first_not_of(' '), line.size()));
      while (!line.empty() && line.back() == '\n') line.pop_back();
      return line;
    };
    hit.line = hit.line_at(record.time);

    for (u64 now = now_of(hit.clock); now < hit.time + options_.after_ns && !asked_to_stop(); now = now_of(hit.clock))
      sleep_ns(std::min(hit.time + options_.after_ns - now, watch_every_ns));
    RS_TRY(recorder_.freeze());
    const u64 now = now_of(hit.clock);
    if (!options_.quiet) {
      say(fmt::format("triggered by: {}{}; frozen {} after it", hit.line,
                      hit.latency ? "; latency " + format_time(static_cast<double>(*hit.latency)) : "",
                      format_time(static_cast<double>(now > hit.time ? now - hit.time : 0))));
    }
    ++made_;
    RS_TRY(recorder_.save(hit, made_));
    const auto armed = arm_again(hit.clock);  // before --exec, which may take long
    recorder_.keep_names(made_);
    RS_TRY(execute(numbered(options_, made_), hit));
    return armed;
  }
  // For the next hit; another party's instance goes on in any case.
  result<void> arm_again(const ClockInfo& clock) {
    if (!all_made() || !options_.instance.empty()) RS_TRY(recorder_.arm());
    from_ns_ = now_of(clock);
    if (all_made()) return {};
    RS_TRY(check_place(numbered(options_, made_ + 1)));
    return condition_.forget();
  }

  // --exec. Its failure does not end the trigger.
  result<void> execute(const std::string& dir, const Hit& hit) {
    if (options_.exec.empty()) return {};
    auto started =
        Child::start({"/bin/sh", "-c", options_.exec},
                     {{"RINGSIDE_SNAPSHOT", std::filesystem::absolute(dir).string()}, {"RINGSIDE_TRIGGER", hit.line}});
    if (asked_to_stop() && !started) return {};
    Child child = RS_TRY(std::move(started));
    while (!child.ended()) {
      if (asked_to_stop()) child.pass_on(stop_signal());
      sleep_ns(watch_every_ns);
    }
    if (const int code = *child.ended(); code != 0) say(fmt::format("--exec ended with code {}", code));
    return {};
  }

  const TriggerOptions& options_;
  Reading& reading_;
  Condition& condition_;
  FlightRecorder& recorder_;
  KernelFeed* kernel_;
  u64 from_ns_, made_ = 0, lost_ = 0, looked_at_ = 0;
};

// The kernel's events that the condition needs: those that it names, or those recorded events that can meet the filter.
result<std::vector<std::string>> events_to_watch(const Wanted& wanted, const KernelFeed* kernel,
                                                 const std::vector<KernelEvent>& known, bool has_program) {
  std::vector<std::string> watched;
  for (const EventPattern& pattern : wanted.events) {
    if (means_kernel(pattern, known)) watched.push_back(pattern.text());
  }
  if (!wanted.events.empty() || kernel == nullptr) return watched;
  Formats formats;
  const Tasks tasks;
  for (const EventInfo& e : kernel->events()) formats.add(e.number(), e.system, e.name, e.format, World::own());
  auto filter = Filter::compile(wanted.filter, formats, tasks);
  // A field that none of them has may be the program's; then nothing can be ruled out.
  if (!filter && (!has_program || filter.error().code != std::errc::no_such_file_or_directory))
    return tl::unexpected<Error>(filter.error());
  for (const EventInfo& e : kernel->events()) {
    if (e.system != "ftrace" && (!filter || filter->may_match(e.number()))) watched.push_back(e.system + ":" + e.name);
  }
  return watched;
}

result<void> check(const TriggerOptions& options) {
  if (!options.libc.empty()) (void)libc_groups(options.libc);
  if (!options.libc.empty() && options.command.empty()) throw UsageError{"--libc needs a command to preload into: -- CMD..."};
  check_subbuf_size(options.subbuf_size);
  if (options.buffer_size < 2 * options.subbuf_size)
    throw UsageError{"--buffer-size must hold at least two sub-buffers of " + format_size(options.subbuf_size)};
  for (u64 number = 1; number <= std::clamp<u64>(options.count, 1, 10'000); ++number)
    RS_TRY(check_place(numbered(options, number)));
  return {};
}

// The program's instance, whose rings keep the newest events.
result<std::unique_ptr<Instance>> open_instance(const TriggerOptions& options) {
  InstanceOptions make;
  make.buffer_size = options.buffer_size;
  make.subbuf_size = static_cast<u32>(options.subbuf_size);
  if (!options.instance.empty()) await_instance(options.instance);
  auto made = options.instance.empty() ? make_private_instance("trigger", make) : Instance::open(options.instance);
  if (!made) {
    RS_TRY(not_the_kernels(options.instance));
    return tl::unexpected<Error>(made.error());
  }
  if ((*made)->control().mode != 0)
    return refuse(std::errc::invalid_argument, options.instance +
                                                   " refuses new events when a ring is full (discard), so it keeps the oldest "
                                                   "and not the last ones: make it with overwrite");
  if ((*made)->clock().kind == ClockKind::counter)
    return refuse(std::errc::invalid_argument, options.instance + ": its clock counts ticks and has no rate");
  return made;
}

// Null: no event of the kernel is wanted.
result<std::unique_ptr<KernelFeed>> kernel_part(const TriggerOptions& options, const Wanted& wanted,
                                                const std::vector<KernelEvent>& known, const ClockInfo& clock) {
  KernelFeed::Options make;
  make.events = parse_events(options.events);
  if (!make.events.empty()) RS_TRY(check_kernel_events(make.events));
  for (const EventPattern& pattern : wanted.events) {
    if (means_kernel(pattern, known)) make.events.add(pattern);
  }
  make.buffer_size = options.buffer_size;
  make.subbuf_size = static_cast<u32>(options.subbuf_size);
  make.source.forced = options.source;
  make.notice = say;
  if (make.events.empty()) return nullptr;
  return KernelFeed::create(make, clock);
}

// The command goes on with its work: it was only observed.
void see_out(Child& child, const TriggerOptions& options, u64 start) {
  const auto in_time = [&] { return options.duration_ns == 0 || sys::now_ns() - start < options.duration_ns; };
  while (!child.ended() && !asked_to_stop() && in_time()) sleep_ns(watch_every_ns);
  child.stop(asked_to_stop() ? stop_signal() : SIGTERM);
}

// Words of a condition that can be wrong are reported before the command runs, and before a night of waiting.
void check_events_of(const Wanted& wanted, const TriggerOptions& options, const Instance& instance,
                     const std::vector<KernelEvent>& known) {
  const std::vector<EventInfo> declared = instance.events();
  std::vector<std::string> all;
  std::set<std::string> systems;
  for (const KernelEvent& e : known) {
    all.push_back(e.shown());
    systems.insert(e.system);
  }
  for (const EventPattern& pattern : wanted.events) {
    const std::string& text = pattern.text();
    if (means_kernel(pattern, known)) continue;
    if (std::any_of(declared.begin(), declared.end(), [&](const EventInfo& e) { return pattern.matches(e.system, e.name); }))
      continue;
    const size_t colon = text.find(':');
    if (text.starts_with("libc:")) {
      const std::vector<std::string> calls = libc_calls();
      if (!options.libc.empty() &&
          std::none_of(calls.begin(), calls.end(), [&](const std::string& call) { return pattern.matches("libc", call); })) {
        const auto near = nearest(text.substr(colon + 1), calls);
        throw UsageError{in_quotes(text) + ": --libc traces no such call" +
                         (near.empty() ? "; it has " + short_list(calls) : did_you_mean(near))};
      }
      const std::string list = libc_list(text.substr(colon + 1));
      if (!options.command.empty() && options.instance.empty() &&
          (options.libc.empty() || (!list.empty() && !libc_traces(options.libc, text.substr(colon + 1)))))
        throw UsageError{in_quotes(text) + " is a call of the C library: add --libc " +
                         (options.libc.empty() ? "" : options.libc + ",") + (list.empty() ? "malloc,io,mutex" : list)};
      continue;
    }
    if (colon != std::string::npos && systems.count(text.substr(0, colon)) == 0) continue;
    if (const std::string near = near_events(pattern, all); !near.empty())
      say(in_quotes(text) + ": the kernel has no such event" + near + (near.ends_with('?') ? " A" : "; a") +
          " program may still declare it");
  }
}

result<int> run_trigger(TriggerOptions options) {
  Wanted wanted = wanted_by(options.condition, options.latency, options.keys);
  if (options.snapshot.empty()) options.snapshot = default_recording;
  RS_TRY(check(options));
  RS_TRY(find_writers(options.instance, options.remotes));
  const bool has_program = !options.instance.empty() || !options.command.empty();
  catch_signals();
  std::string preload;
  if (!options.libc.empty()) preload = RS_TRY(find_preload());
  const auto made = RS_TRY(open_instance(options));
  Instance& instance = *made;
  const PrivateInstance cleanup(options.instance.empty() ? &instance : nullptr, false);
  const auto borrowed = RS_TRY(Borrowed::take(instance, "ringside trigger"));
  if (!options.instance.empty()) RS_TRY(borrowed->tracing());

  // The kernel's part. Without the rights for it there may still be the program's.
  const auto asked = kernel_events();
  if (!asked && !has_program) return tl::unexpected<Error>(asked.error());
  const std::vector<KernelEvent> known = asked.value_or(std::vector<KernelEvent>{});
  if (has_program) check_events_of(wanted, options, instance, known);
  const std::unique_ptr<KernelFeed> kernel = RS_TRY(kernel_part(options, wanted, known, instance.clock()));
  if (kernel == nullptr && !has_program) {
    if (!wanted.events.empty())
      return refuse(
          std::errc::invalid_argument,
          "the kernel has no event that matches " + ringside::in_quotes(wanted.events.begin()->text()) +
              " (ringside list -e PATTERN shows its events); an instance (-i), or a command after --, may have it" +
              (wanted.events.begin()->text().starts_with("libc:") ? ", with --libc malloc,io,mutex" : "") +
              (options.remotes.empty() ? "" : "; the events of an external writer are saved, and no condition is about them"));
    if (options.condition.starts_with("latency")) throw UsageError{which_pair};
    throw UsageError{
        "nothing to watch: name events of the kernel (-e, or 'SYSTEM:EVENT if FILTER'), an instance (-i), or a command after "
        "--"};
  }
  auto watched = RS_TRY(events_to_watch(wanted, kernel.get(), known, has_program));
  if (watched.empty() && !has_program)
    return refuse(std::errc::invalid_argument, "none of the events of -e can meet " + ringside::in_quotes(options.condition) +
                                                   ": name the one that does, with -e or as 'SYSTEM:EVENT if FILTER'");

  auto remotes = RS_TRY(connect_writers(options.remotes, {options.buffer_size, options.subbuf_size, instance.clock()}));
  FlightRecorder recorder(options, instance, kernel.get(), std::move(remotes), has_program);
  RS_TRY(recorder.arm());
  const u64 armed_ns = now_of(instance.clock());
  std::optional<Child> child;
  Reading::Options open = reading_of(has_program ? std::vector<std::string>{instance.path()} : std::vector<std::string>{});
  open.kernel = watched;
  open.choice = {KernelWay::map, options.source};
  open.make.prefix = "ringside-trigger-";
  LeftBehind left(instance, options.wait && options.instance.empty());
  open.time.over = [&] { return child && child->ended() && !left.awaited(); };
  auto opened = RS_TRY(Reading::open(std::move(open)));
  Reading& reading = *opened;
  // In order where order matters, which costs some 10 ms; else at once.
  const u64 start = sys::now_ns();
  reading.follow(has_program || wanted.pair ? std::optional(options.look_ahead_ns) : std::nullopt, options.duration_ns);
  Condition condition(std::move(wanted), reading.trace(), has_program);
  RS_TRY(condition.compile());

  if (!options.command.empty()) {
    auto started = Child::start(options.command, environment_of(instance, preload, options.libc));
    if (!started) return failed_to_start(started.error());
    child = std::move(*started);
  }
  if (!options.quiet)
    say(fmt::format("armed: {} of the kernel in rings of {}{}", counted(kernel != nullptr ? kernel->enabled() : 0, "event"),
                    format_size(options.buffer_size), has_program ? ", and instance " + instance.name() : std::string()));
  Watch watch(options, reading, condition, recorder, kernel.get(), armed_ns);
  auto done = watch.go(child);
  if (watch.lost() != 0)
    say(counted(watch.lost(), "event") + " came too fast for a test of the condition: it may have held unseen");
  const bool problems = say_problems(reading);
  if (const u64 refused = reading.account().refused.sum(); refused != 0 && !options.quiet)
    say(counted(refused, "event was", "events were") +
        " never stored: their rings were full, not available, or were frozen while a recording was saved; the condition was "
        "not "
        "checked for them");
  const int code = done ? exit_ok : failed(done.error());
  if (child) see_out(*child, options, start);
  if (!done) return code;
  if (watch.made() != 0) return reading.trace().timeline.problems().empty() ? exit_ok : exit_failure;
  if (problems) return exit_failure;
  if (!condition.pending().empty()) {
    say(condition.pending());
    return exit_usage;
  }
  if (!options.quiet) say("not triggered: " + options.condition);
  return exit_not_triggered;
}

}  // namespace

Command add_trigger(CLI::App& app) {
  auto options = std::make_shared<TriggerOptions>();
  CLI::App* c = app.add_subcommand("trigger", "flight recorder: when a condition holds, save what led to it");
  c->add_option("CONDITION", options->condition,
                "FILTER ('EVENT/FIELD > 100' names its event), EVENTS, 'EVENTS if FILTER', or 'latency NAME > TIME [&& "
                "CONDITION]' (or START END for NAME): CONDITION is about the pair: start/FIELD, end/FIELD, latency, key")
      ->required();
  add_events(*c, options->events, "events of the kernel to keep, of all processes; those of the condition are added");
  c->add_option("-i,--instance", options->instance, "instance whose rings are saved, too");
  c->add_option("--remote", options->remotes,
                "an external writer whose rings are saved, too, by its socket or the name that it has announced; may be "
                "repeated. The condition is about other events than its own")
      ->allow_extra_args(false);
  c->add_option("--latency", options->latency, "the time between two events: START END, or a NAME of ringside latency")
      ->expected(1, 2)
      ->allow_extra_args(false)
      ->type_name("START END");
  add_key(*c, options->keys);
  c->add_option("-o,--snapshot,--output", options->snapshot,
                "directory of the recording, %n in it is its number; an older one there becomes DIR.old")
      ->expected(0, 1)
      ->type_name("DIR")
      ->capture_default_str();
  add_compress(*c, options->compress);
  add_count(*c, options->count,
            "the number of recordings, then end; 0: until Ctrl-C. Without %n, .1 and so on is put after DIR", 0)
      ->capture_default_str();
  add_time(*c, "--after", options->after_ns,
           "save the events of this time after the condition, too (default 0: of the ms until the rings are frozen)");
  c->add_option(
       "--exec", options->exec,
       "run this in a shell after each one, before going on; $RINGSIDE_SNAPSHOT is the directory, $RINGSIDE_TRIGGER the event")
      ->type_name("COMMAND");
  c->add_option(
       "--libc", options->libc,
       "trace calls of the C library in all processes of the command: malloc, io, mutex, lock; none in static and Go programs")
      ->type_name("LIST");
  add_size(*c, "-b,--buffer-size", options->buffer_size,
           "size of each ring, a CPU's or a thread's: how far back it reaches (default 4M)");
  add_size(*c, "--subbuf-size", options->subbuf_size, "size of a sub-buffer, 4k to 256k (default 16k)");
  add_source(*c, options->source);
  add_time(*c, "--look-ahead", options->look_ahead_ns,
           "how long events wait for a source that is stuck in the middle of one (default 100ms)");
  add_duration(*c, options->duration_ns, "end after this time (default: at Ctrl-C, or with the command)");
  add_wait(*c, options->wait);
  c->add_flag("-q,--quiet", options->quiet, "only errors");
  c->add_option("COMMAND", options->command, "what to run: all from the word after CONDITION on; -- may come before it")
      ->type_name("");
  c->footer(
      "Examples:\n"
      "  ringside trigger 'latency wakeup > 5ms' -e 'sched:*' -e 'irq:*'                who kept a thread waiting? (as root)\n"
      "  ringside trigger 'latency wakeup > 20ms && start/comm ~ \"audio*\"' --after 10ms   of a thread that was woken\n"
      "  ringside trigger 'signal:signal_generate if sig == 9' -e 'sched:*' -e 'oom:*'  what happened before somebody was "
      "killed?\n"
      "  ringside trigger 'event == sys_exit && ret == -28' -e 'raw_syscalls:*' --count 3 --snapshot full-%n\n"
      "  ringside trigger 'libc:read if duration_ns > 5ms' --libc io,malloc -e 'block:*' -- ./server\n"
      "  ringside trigger 'latency > 50ms' --latency app:begin app:end --key request -i web --exec 'logger "
      "\"$RINGSIDE_TRIGGER\"'\n"
      "  ringside report --time ..1234.567890 | tail -50   what led to an event of that time, in ringside.data\n"
      "Rings overwrite their oldest events and nobody reads them, until the condition holds: then they are frozen and "
      "saved, as\n"
      "record does it. The condition is checked beside them every 2 ms; it costs nothing but its own events. Pairs, and "
      "instances,\n"
      "are checked in order of time, some 10 ms late. What happens while a recording is saved is neither kept nor checked.\n"
      "A filter has the syntax of report -f. Times of latency need a unit. With -e and a command, all processes' events are "
      "kept.\n"
      "Exit codes: 0 triggered, 1 failure, 2 wrong usage, or no such event or field until the end, 4 the end (Ctrl-C, "
      "--duration, the command's) came before the condition held.");
  return {c, [options] { return run_trigger(*options); }};
}

}  // namespace ringside::cli
