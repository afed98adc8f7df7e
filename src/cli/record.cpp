// ringside record: an instance of its own (or one that exists), a command traced into it, all rings consumed live into DIR.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <thread>

#include "cli/child.hpp"
#include "cli/preload.hpp"
#include "cli/program.hpp"
#include "cli/progress.hpp"
#include "cli/recording.hpp"
#include "watch/signals.hpp"
#include "cli/options.hpp"
#include "export/recording_as_dat.hpp"
#include "export/units.hpp"
#include "record/instance_feed.hpp"
#include "record/kernel_feed.hpp"
#include "sys/beneath.hpp"
#include "sys/try.hpp"

namespace ringside::cli {
namespace {

struct RecordOptions {
  std::string instance, libc, mode = "overwrite", clock, out = default_recording, to, filter;
  std::vector<std::string> events, command;
  EventPatterns patterns{};  // for events
  std::vector<i32> pids;
  std::optional<KernelWay> source;
  bool all_processes = false;
  u64 buffer_size = 4 << 20, subbuf_size = 16384, duration_ns = 0;
  std::string rings = "auto";
  bool fail_on_loss = false, quiet = false;
};

constexpr auto tick = std::chrono::milliseconds(20);  // a short command's end is noticed this late

void check(const RecordOptions& options) {
  if (!options.libc.empty()) check_libc(options.libc);
  if (!options.libc.empty() && options.command.empty()) throw UsageError{"--libc needs a command to preload into: -- CMD..."};
  if (options.command.empty() && options.instance.empty() && options.events.empty())
    throw UsageError{"nothing to record: give a command behind --, an instance with -i, or events of the kernel with -e"};
  if (options.all_processes && !options.pids.empty()) throw UsageError{"--all and --pid contradict each other"};
  check_subbuf_size(options.subbuf_size);
  if (options.buffer_size < 2 * options.subbuf_size)
    throw UsageError{"--buffer-size must hold at least two sub-buffers of " + format_size(options.subbuf_size)};
}

bool means_kernel(const EventPattern& pattern) {
  static const std::vector<KernelEvent> all = kernel_events().value_or(std::vector<KernelEvent>{});
  return ringside::means_kernel(pattern, all);
}

// The program's events that -e leaves: all, unless a pattern means them and not the kernel's; those of --libc stay, unless a
// pattern chooses among them.
std::vector<std::string> events_of_program(const RecordOptions& options) {
  const EventPatterns& patterns = options.patterns;
  if (std::all_of(patterns.begin(), patterns.end(), means_kernel)) return {"*:*"};
  std::vector<std::string> wanted = options.events;
  const auto chooses = [](const EventPattern& pattern) { return pattern.chooses_among("libc"); };
  if (!options.libc.empty() && std::none_of(patterns.begin(), patterns.end(), chooses)) wanted.push_back("libc:*");
  return wanted;
}

result<std::unique_ptr<Instance>> make_instance(const RecordOptions& options, bool& ours) {
  if (!options.instance.empty()) {
    auto existing = Instance::open(options.instance);
    if (existing || existing.error().code != std::errc::no_such_file_or_directory) return existing;
    RS_TRY(not_the_kernels(options.instance));
  }
  InstanceOptions make;
  make.name = options.instance;
  make.buffer_size = options.buffer_size;
  make.subbuf_size = static_cast<u32>(options.subbuf_size);
  make.overwrite = options.mode == "overwrite";
  make.rings = options.rings == "cpu" ? Rings::cpu : options.rings == "thread" ? Rings::thread : Rings::automatic;
  if (!options.clock.empty()) {
    auto kind = clock_from(options.clock);
    if (!kind) throw UsageError{kind.error().sentence};
    make.clock = *kind;
  }
  make.events = events_of_program(options);
  ours = options.instance.empty();
  return ours ? make_private_instance("record", make) : Instance::create(make);
}

bool follows_command(const RecordOptions& options) {
  return !options.command.empty() && !options.all_processes && options.pids.empty();
}

// Null: no pattern means the kernel. Without the rights for it, patterns may still name events of the program: `why_not`.
result<std::unique_ptr<KernelFeed>> make_kernel(const RecordOptions& options, const ClockInfo& clock, std::string& why_not) {
  KernelFeed::Options make;
  make.events = options.patterns;
  if (std::none_of(make.events.begin(), make.events.end(), [](const EventPattern& p) { return p.may_name_kernel(); })) return nullptr;
  make.filter = options.filter;
  make.buffer_size = options.buffer_size;
  make.subbuf_size = static_cast<u32>(options.subbuf_size);
  make.overwrite = options.mode == "overwrite";
  make.pids = options.pids;
  make.source.forced = options.source;
  make.will_follow = follows_command(options);
  make.notice = say;
  if (auto dir = tracefs_dir(); !dir) {
    const bool needed = !options.filter.empty() || !options.pids.empty() || options.all_processes ||
                        (options.command.empty() && options.instance.empty());
    if (needed) return tl::unexpected<Error>(dir.error());
    why_not = dir.error().sentence;
    return nullptr;
  }
  return KernelFeed::create(make, clock);
}

// Patterns that match no event are most often misspelt.
void warn_of_unmatched(const RecordOptions& options, const Instance& instance, const KernelFeed* kernel,
                       const std::string& why_not) {
  const auto events = instance.events();
  for (const EventPattern& pattern : options.patterns) {
    if (kernel != nullptr && kernel->matched(pattern)) continue;
    if (std::any_of(events.begin(), events.end(), [&](const EventInfo& e) { return pattern.matches(e.system, e.name); })) continue;
    say("-e " + pattern.text() + ": no program declared such an event" +
        (!pattern.may_name_kernel() ? "; for events of the kernel name their system"
         : !why_not.empty()         ? ", and the kernel could not be asked: " + why_not
                                    : ", and the kernel has none (ringside list -e PATTERN shows its events)"));
  }
}

// Follows the writers until the command ends, the time is up or Ctrl-C. A full disk ends the recording, and the command goes
// on: it is only observed.
result<void> follow(Instance& instance, RecordingRun& run, std::optional<Child>& child, u64 limit_ns, bool quiet) {
  const u64 start = sys::now_ns();
  bool passed_on = false, said = false;
  Progress progress(quiet);
  for (;;) {
    run.poll();
    if (run.failed() && !said) {
      said = true;
      progress.clear();
      say(run.faults().failure()->sentence + (child ? "; the recording ends here, the command goes on" : "; the recording ends here"));
    }
    progress.look([&](double seconds) {
      return fmt::format("{} events, {}, {} s", format_count(run.events()), format_size(run.bytes()), static_cast<u64>(seconds));
    });
    if (child ? child->ended().has_value() : run.failed()) return {};
    if (limit_ns != 0 && sys::now_ns() - start >= limit_ns) return {};
    if (asked_to_stop()) {
      // Ctrl-C on a terminal reached the command as well; kill(1) only this process. The command may still finish its work:
      // wait until it ends.
      if (!child) return {};
      if (!passed_on && stop_signal() != SIGINT) child->pass_on(stop_signal());
      passed_on = true;
    }
    if (run.failed()) {  // nothing reads its rings: they would wake this process all the time
      std::this_thread::sleep_for(tick);
      continue;
    }
    auto woken = instance.wait(wake_percent, tick);
    if (!woken && woken.error().code != std::errc::interrupted) return tl::unexpected<Error>(woken.error());
  }
}

// The parts of `record --to FILE`, beside it: a complete recording, in case this process is killed.
std::string parts_of(const std::string& file) { return file + ".parts"; }

// FILE.parts becomes FILE: the rings' files one behind the other. On failure the parts stay.
result<void> assemble(const RecordOptions& options) {
  auto written = export_recording(options.out, options.to, "");
  if (!written) {
    Error error = written.error();
    error.sentence += "; what was recorded is in " + options.out + ": ringside export " + options.out + " --to FILE";
    return tl::unexpected<Error>(error);
  }
  const auto parts = sys::open_parent(options.out);
  if (!parts || !sys::remove_beneath(parts->dir.get(), parts->name.c_str())) say("cannot remove " + options.out + ": " + std::strerror(errno));
  return {};
}

result<int> run_record(RecordOptions options) {
  check(options);
  options.patterns = parse_events(options.events);
  if (!options.to.empty()) {
    std::error_code none;
    if (std::filesystem::is_directory(options.to, none)) throw UsageError{"--to takes a file, and " + options.to + " is a directory"};
    options.out = parts_of(options.to);
  }
  catch_signals();  // from here on there are things to clean up
  std::string preload;
  if (!options.libc.empty()) preload = RS_TRY(find_preload());
  bool ours = false;
  const auto opened = RS_TRY(make_instance(options, ours));
  Instance& instance = *opened;
  InstanceCleanup cleanup{ours ? instance.path() : ""};
  if (!ours && !options.patterns.empty()) RS_TRY(instance.enable(options.patterns, true));
  std::string why_no_kernel;
  const auto kernel_made = RS_TRY(make_kernel(options, instance.clock(), why_no_kernel));
  KernelFeed* const kernel = kernel_made.get();
  if (asked_to_stop()) return exit_signal + stop_signal();  // enabling a thousand events takes a second
  if (kernel == nullptr && why_no_kernel.empty() && options.command.empty() && options.instance.empty())
    throw UsageError{"no event of the kernel matches -e (ringside list -e PATTERN shows them)"};
  if (kernel == nullptr && (!options.filter.empty() || !options.pids.empty() || options.all_processes))
    throw UsageError{"--filter, --pid and --all are about events of the kernel, and no -e names one"};
  InstanceFeed program(instance);
  const auto made = RS_TRY(RecordingRun::create(options.out, instance.clock()));
  RecordingRun& run = *made;
  run.meta().command = options.command;
  RS_TRY(run.add(program));
  if (kernel != nullptr) {
    RS_TRY(run.add(*kernel));
    RS_TRY(kernel->on());
  }
  std::optional<Child> child;
  if (!options.command.empty()) {
    std::function<result<void>(pid_t)> prepare;
    if (kernel != nullptr && follows_command(options)) prepare = [kernel](pid_t pid) { return kernel->follow(pid); };
    auto started = Child::start(options.command, environment_of(instance, preload, options.libc), prepare);
    if (!started) return failed_to_start(started.error());
    child = std::move(*started);
  }
  result<void> done = follow(instance, run, child, options.duration_ns, options.quiet);
  if (ours && instance.has_writers()) {
    say("some of the command's processes are still running; what they write from here on is not recorded");
    if (auto off = instance.tracing(false); !off) say(off.error().sentence);
  }
  auto finished = run.finish();
  auto assembled = options.to.empty() ? result<void>() : assemble(options);
  if (!assembled) options.to.clear();  // only the parts exist
  Told().doubts(run);
  warn_of_unmatched(options, instance, kernel, why_no_kernel);
  if (!options.quiet) {
    say_summary(run, options.to.empty() ? options.out : options.to);
    if (const u64 homeless = instance.refused(); homeless != 0)
      say(format_count(homeless) + " of the lost events found no ring: the memory for rings is used up (-b makes them smaller), the instance was out of reach, or a ring was given up (ringside stat)");
  }
  if (child && !child->ended()) child->pass_on(SIGTERM);
  if (!done) failed(done.error());
  if (!finished && !run.failed()) failed(finished.error());  // else it is among the doubts
  if (!assembled) failed(assembled.error());
  const int code = child ? child->ended().value_or(exit_ok) : exit_ok;
  if (code != exit_ok) return code;
  if (!done || !finished || !assembled) return exit_failure;
  return exit_code(run, options.fail_on_loss);
}

}  // namespace

Command add_record(CLI::App& app) {
  auto options = std::make_shared<RecordOptions>();
  CLI::App* c = app.add_subcommand("record", "record a command, or an instance, live into a directory");
  c->add_option("-i,--instance", options->instance, "instance to record; made if it is not there (default: a private one)");
  add_events(*c, options->events, "these events: the kernel's as well, of the program's only these");
  c->add_option("-f,--filter", options->filter, "kernel events only if FILTER, in the kernel's language: \"prio < 100\"");
  c->add_option("-p,--pid", options->pids, "kernel events of this process and what it starts; may be repeated")
      ->allow_extra_args(false);
  c->add_flag("-a,--all", options->all_processes, "kernel events of all processes (default with a command: only its)");
  add_source(*c, options->source);
  c->add_option("--libc", options->libc, "trace calls of the C library in all processes: malloc, io, mutex")->type_name("LIST");
  add_size(*c, "-b,--buffer-size", options->buffer_size, "size of each ring, of a CPU or a thread (default 4M)");
  c->add_option("--rings", options->rings, "whose: cpu, shared by all processes; thread, one for each; auto: of CPUs where they can be had")
      ->check(CLI::IsMember({"auto", "cpu", "thread"}))
      ->capture_default_str();
  add_size(*c, "--subbuf-size", options->subbuf_size, "size of a sub-buffer, 4k to 256k (default 16k)");
  c->add_option("--mode", options->mode, "when a ring is full: overwrite the oldest, or discard the new")
      ->check(CLI::IsMember({"overwrite", "discard"}))
      ->capture_default_str();
  c->add_option("--clock", options->clock, "tsc, mono or counter (default: tsc where it is invariant)");
  c->add_option("-o,--output", options->out, "directory of the recording; an older recording is replaced")
      ->capture_default_str();
  c->add_option("--to", options->to, "record into a trace.dat instead, for trace-cmd, KernelShark and ringside report")
      ->type_name("FILE")
      ->excludes("--output");
  add_duration(*c, options->duration_ns, "stop after this time");
  c->add_flag("--fail-on-loss", options->fail_on_loss, "exit with 3 when events were lost");
  c->add_flag("-q,--quiet", options->quiet, "no summary");
  c->add_option("COMMAND", options->command, "what to run, behind --")->type_name("");
  c->footer(
      "Examples:\n"
      "  ringside record -- ./server                    a program that uses ringside/trace.hpp or ringside.h\n"
      "  ringside record --libc malloc,io -- g++ -c a.cpp   any program, and all that it starts\n"
      "  ringside record -i web -e 'net:*' --duration 10s   a program that is running\n"
      "  ringside record -e sched:sched_switch -e 'syscalls:sys_enter_*' -- ls   with events of the kernel (as root)\n"
      "  ringside record -e 'irq:*' --duration 1s           the kernel alone, all processes\n"
      "  ringside record -e 'sched:*' --to trace.dat -- make   as a trace.dat\n"
      "-e adds events of the kernel to the program's; a pattern that names none of the kernel's chooses among the program's.\n"
      "Instances of the kernel's that others made are never read, as that would take their events away: -i names ringside's.\n"
      "\"*:...\" never means the kernel's. --libc's stay on, unless a pattern names libc.\n"
      "--libc sees calls into the C library, not those inside it: fread shows no read, fopen no open. Static programs run unseen.\n"
      "The exit code is the command's, 128 + N after signal N. The first Ctrl-C finishes what exists, the second leaves at\n"
      "once; the recording is readable either way. A disk that is full, or a file at ulimit -f, ends the recording and not the\n"
      "command. The exit code is then 1, if the command's is 0; so it is where a ring could not be read. With --to the rings go to FILE.parts, a recording, and at the end into FILE.");
  return {c, [options] { return run_record(*options); }};
}

}  // namespace ringside::cli
