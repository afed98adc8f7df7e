// ringside record: an instance of its own (or one that exists), a command traced into it, all rings consumed live into DIR.
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <thread>

#include "analysis/names.hpp"
#include "cli/child.hpp"
#include "cli/command_file.hpp"
#include "cli/export.hpp"
#include "cli/preload.hpp"
#include "cli/program.hpp"
#include "cli/progress.hpp"
#include "cli/record_feeds.hpp"
#include "cli/record_names.hpp"
#include "cli/record_options.hpp"
#include "cli/record_remarks.hpp"
#include "cli/tcp.hpp"
#include "export/exporter.hpp"
#include "export/recording_as_dat.hpp"
#include "instance/borrowed.hpp"
#include "record/instance_feed.hpp"
#include "record/loss_watch.hpp"
#include "source/recording_sender.hpp"
#include "sys/beneath.hpp"
#include "sys/sys.hpp"
#include "sys/try.hpp"
#include "text/units.hpp"
#include "watch/signals.hpp"

namespace ringside::cli {
namespace {

constexpr auto tick = std::chrono::milliseconds(20);  // a short command's end is noticed this late

// Is its file written while the recording goes on? With --max-size it lacks what had to go, so it is made at the end.
bool grows(const RecordOptions& options) {
  const ExportFormat* const format = export_format_of_file(options.to);
  return format != nullptr && format->grows() && options.max_size == 0;
}

// The program's events to record; none: all. Those of --libc are among them, unless a pattern chooses among these.
EventPatterns events_of_program(const RecordOptions& options) {
  EventPatterns wanted = options.user;
  const auto chooses = [](const EventPattern& pattern) { return pattern.chooses_among("libc"); };
  if (!wanted.empty() && !options.libc.empty() && std::none_of(wanted.begin(), wanted.end(), chooses))
    wanted.add(EventPattern("libc:*"));
  return wanted;
}

// The rings of an instance that is there stay as they are.
void refuse_other_rings(const RecordOptions& options, const Instance& instance) {
  const InstanceControl& is = instance.control();
  const Geometry now = geometry_of(is);
  std::string refused;
  const auto check = [&](const char* option, const auto& same) {
    const auto given = options.of_rings.find(option);
    if (given == options.of_rings.end() || same()) return;
    refused += (refused.empty() ? "" : " ") + given->first + " " + given->second;
  };
  if (!options.wants_kernel() && !options.kernel_samples()) {  // the rings of these are made as the options say
    const bool other_subbufs = options.of_rings.count("--subbuf-size") != 0;
    check("-b", [&] {
      const u32 subbuf_size = other_subbufs ? static_cast<u32>(options.subbuf_size) : now.subbuf_size();
      const auto sized = geometry_for(options.buffer_size, subbuf_size, is.spares);
      return sized && *sized == now;
    });
    check("--subbuf-size", [&] { return options.subbuf_size == now.subbuf_size(); });
    check("--mode", [&] { return (options.mode == "overwrite") == (is.mode == 0); });
  }
  check("--rings", [&] { return options.rings == "auto" || (options.rings == "cpu") == (instance.cpu_rings() != 0); });
  check("--clock", [&] {
    const auto kind = clock_from(options.clock);
    if (!kind) throw UsageError{kind.error().sentence};
    return *kind == instance.clock().kind;
  });
  if (!refused.empty())
    throw UsageError{"-i " + options.instance + ": this instance is there already, and its rings stay as they are, so not " +
                     in_quotes(refused) + ": " + how_rings_are_made(instance) +
                     ". Leave that out, or remove the instance first"};
}

result<std::unique_ptr<Instance>> make_instance(const RecordOptions& options, bool& ours) {
  if (!options.instance.empty()) {
    auto existing = Instance::open(options.instance);
    if (existing) refuse_other_rings(options, **existing);
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
  if (const EventPatterns wanted = events_of_program(options); !wanted.empty()) {
    make.events.clear();
    for (const EventPattern& pattern : wanted) make.events.push_back(pattern.text());
  }
  ours = options.instance.empty();
  if (ours) return make_private_instance("record", make);
  const auto others = Instance::of_others(options.instance);
  const bool of_another_user =
      std::any_of(others.begin(), others.end(), [](const auto& other) { return other.user != geteuid(); });
  if (options.command.empty() && of_another_user)
    return refuse(std::errc::no_such_file_or_directory,
                  "-i " + options.instance + ": this user has no such instance" + Instance::where_else(options.instance));
  auto made = Instance::create(make);
  if (made && !others.empty())
    say("-i " + options.instance + ": this is a new instance" + Instance::where_else(options.instance));
  // Its program was faster.
  return !made && made.error().code == std::errc::file_exists ? Instance::open(options.instance) : std::move(made);
}

// Without an error the recording goes on, and the file is made of it at its end.
void advance(std::unique_ptr<GrowingExport>& file, RecordingRun& run, const RecordOptions& options) {
  const auto done = file->advance(run.described(), run.taken_until());
  if (done) return;
  say(done.error().sentence + "; the recording goes on in " + options.out);
  file = nullptr;
}

// The processes of --pid. One whose end cannot be seen, a thread's for example, counts as living.
class Watched {
 public:
  explicit Watched(const std::vector<i32>& pids) : any_(!pids.empty()) {
    for (const i32 pid : pids) {
      sys::Fd fd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
      if (!fd && errno == ESRCH) continue;
      polled_.push_back({fd.get(), POLLIN, 0});  // -1 is never ready
      fds_.push_back(std::move(fd));
    }
  }
  bool have_ended() { return any_ && poll(polled_.data(), polled_.size(), 0) == static_cast<int>(polled_.size()); }

 private:
  const bool any_;
  std::vector<sys::Fd> fds_;
  std::vector<pollfd> polled_;
};

// What helps against losses, unless most of these events came into no ring.
std::string larger_rings(const RecordOptions& options, const Instance& instance, u64 lost) {
  if (!options.instance.empty() || instance.refused() > lost / 2) return "";  // an instance's rings stay as they are
  return ": rings of " + format_size(options.buffer_size) + " are too small for this rate; -b " +
         std::to_string(4 * options.buffer_size >> 10) + "k makes them larger";
}

// Follows the writers until the command and the processes that it left end, or without one the processes of --pid, the time is
// up or Ctrl-C. A full disk ends the recording, and the command goes on: it is only observed. True: the next part of the
// recording is due.
result<bool> follow(Instance& instance, RecordingRun& run, std::optional<Child>& child, LeftBehind& left,
                    const RecordOptions& options, u64 start, std::unique_ptr<GrowingExport>& file, Watched& watched,
                    LossWatch& losses, const Others& others) {
  const u64 limit_ns = options.duration_ns, begun = sys::now_ns();
  bool said = false;
  Progress progress(options.quiet);
  for (;;) {
    run.poll();
    for (const auto& remote : others.remotes) {
      if (!remote->attached() || remote->alive() || run.failed()) continue;
      if (!options.quiet) say(remote->buffer().why_gone());
      remote->end_life(run);
    }
    if (const u64 now = sys::now_ns(); losses.is_due(now) && !run.failed() && !options.quiet) {
      if (const auto news = losses.look(now, run.lost(), run.events(), larger_rings(options, instance, run.lost()))) {
        progress.clear();
        say(*news);
      }
    }
    if (file != nullptr && !run.failed()) advance(file, run, options);
    if (run.failed() && !said) {
      said = true;
      progress.clear();
      say(run.faults().failure()->sentence +
          (child && !child->ended() ? "; the recording ends here, the command goes on" : "; the recording ends here"));
    }
    progress.update([&](double seconds) {
      return fmt::format("{}, {}, {} s{}", counted(run.events(), "event"), format_size(run.bytes()), static_cast<u64>(seconds),
                         child && !child->ended() ? "" : "; Ctrl-C ends");
    });
    const bool runs = child && !child->ended();
    const bool writer_ended = others.has_remotes() && others.remotes_ended() && options.instance.empty();
    if (child ? !runs && (run.failed() || !left.awaited()) : run.failed() || watched.have_ended() || writer_ended) return false;
    if (limit_ns != 0 && sys::now_ns() - start >= limit_ns) return false;
    if (!run.failed() && options.rotation.due(run.bytes(), sys::now_ns() - begun)) return true;
    if (asked_to_stop()) {
      // The command may still finish its work: wait until it ends.
      if (!runs) return false;
      child->pass_on_stop();
    }
    if (run.failed()) {  // nothing reads its rings: they would wake this process all the time
      std::this_thread::sleep_for(tick);
      continue;
    }
    auto woken = instance.wait(wake_percent, tick);
    if (!woken && woken.error().code != std::errc::interrupted) return tl::unexpected<Error>(woken.error());
  }
}

// FILE.parts becomes FILE: the rings' files one after the other. On failure the parts stay.
result<void> assemble(const RecordOptions& options, GrowingExport* file, const RecordingMeta& recorded) {
  const auto write = [&]() -> result<void> {
    if (file != nullptr)
      RS_TRY(file->finish(recorded));
    else if (const ExportFormat* const format = export_format_of_file(options.to);
             format != nullptr && format->of != ExportFormat::Of::dat)
      RS_TRY(export_recorded(options.out, options.to, grows(options)));
    else
      RS_TRY(export_recording(options.out, options.to, ""));
    return {};
  };
  const auto written = write();
  if (!written) {
    Error error = written.error();
    error.sentence += "; what was recorded is in " + options.out + ": ringside export " + options.out + " --to FILE";
    return tl::unexpected<Error>(error);
  }
  const auto parts = sys::open_parent(options.out);
  if (!parts || !sys::remove_beneath(parts->dir.get(), parts->name.c_str()))
    say("cannot remove " + options.out + ": " + std::strerror(errno));
  return {};
}

// The recording has ended before its command.
void observe(std::optional<Child>& child) {
  if (child && !child->ended()) say("the recording ends here, the command goes on");
  for (; child && !child->ended(); std::this_thread::sleep_for(tick)) child->pass_on_stop();
}

// The line to the process that keeps the recording. Standard output, if that is the line, is standard error from here on: the
// command's output is no part of the recording.
result<std::shared_ptr<RecordingSender>> sender_to(const RecordOptions& options) {
  RecordingSender::Options how;
  how.to = options.to == "-" ? "standard output" : options.to;
  how.host = World::own().host;
  how.hurried = asked_to_stop;
  how.answers = options.to != "-";
  if (how.answers) {
    auto connection = RS_TRY(connect_tcp(*TcpAddress::parse(options.to.substr(tcp_prefix.size()))));
    return RecordingSender::begin(std::move(connection), std::move(how));
  }
  sys::survive_broken_pipes();
  sys::Fd line(fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3));
  if (!line || dup2(STDERR_FILENO, STDOUT_FILENO) < 0) return fail(errno, "cannot use standard output as a line");
  return RecordingSender::begin(std::move(line), std::move(how));
}

// The parts of a recording, one after the other; without --rotate there is one.
struct Parts {
  RecordOptions& options;
  Instance& instance;
  Others others;
  std::shared_ptr<RecordingSender> line{};  // null: into a directory
  std::unique_ptr<InstanceFeed> program = std::make_unique<InstanceFeed>(instance);
  std::unique_ptr<RecordingRun> run{};
  std::string earlier{};                 // the part before this one
  u64 earlier_events = 0;                // of all parts before this one
  int earlier_code = exit_ok;            // and how they ended
  u64 waited = 0;                        // events in the instance's rings when the first part began
  std::unique_ptr<HandedFiles> files{};  // of programs' code
  NamesOfParts names{};

  // kernel_on: the kernel's events are recorded from here on.
  result<void> begin(bool kernel_on) {
    auto writer = line != nullptr ? RecordingWriter::create(line, instance.clock())
                                  : RecordingWriter::create(options.out, instance.clock(), options.max_size, options.compress);
    run = RecordingRun::of(RS_TRY(std::move(writer)));
    if (grows(options)) run->writer().will_be_followed();
    run->goes_on_after(earlier);
    run->meta().command = options.command;
    run->keep_wall();
    run->watch_clock();
    RS_TRY(run->add(*program));
    for (Feed* const feed : others.all()) RS_TRY(run->add(*feed));
    if (others.kernel != nullptr && kernel_on) RS_TRY(others.kernel->on());
    for (const auto& remote : others.remotes) RS_TRY(remote->attach(*run));
    for (const auto& remote : others.kernel_remotes) RS_TRY(remote->on());
    if (others.libc != nullptr) RS_TRY(others.libc->on());
    return {};
  }

  // Finishes a part, gives it its name, and begins the next one. What is written meanwhile waits in the rings.
  result<void> next() {
    if (others.libc != nullptr) others.of_libc->know(others.libc->threads());
    program->hand_over();
    for (Feed* const feed : others.all()) feed->hand_over();
    const auto finished = run->finish();
    Told().doubts(*run);
    const int code = finished ? exit_code(*run, options.fail_on_loss) : exit_failure;
    if (earlier_code != exit_failure && code != exit_ok) earlier_code = code;
    earlier_events += run->events();
    RS_TRY(finished);
    const bool stacks = has_stacks(*run);
    const std::string name = RS_TRY(options.rotation.put_aside(options.out));
    if (stacks) names.add(name, files.get());
    earlier = name;
    if (!options.quiet) {
      const std::string compressed = compressed_to(*run);
      say(fmt::format("{}, {}; lost {}; {}{}{}", counted(run->events(), "event"), format_size(run->bytes()),
                      lost_summary(run->account()), name, compressed.empty() ? "" : "; ", compressed));
    }
    const Account accounted = program->accounted();
    run = nullptr;
    program = std::make_unique<InstanceFeed>(instance);
    program->go_on_from(accounted);
    return begin(true);
  }
};

// Events of the kernel begin when the child executes the command: what it does before is none of its events.
bool begins_with_command(const RecordOptions& options) { return !options.command.empty() && options.pids.empty(); }

result<Child> start_command(Parts& parts, const Child::Environment& environment) {
  const RecordOptions& options = parts.options;
  KernelFeed* const kernel = parts.others.kernel.get();
  if (kernel == nullptr || !begins_with_command(options)) return Child::start(options.command, environment);
  auto child = Child::start(options.command, environment, [&](pid_t pid) -> result<void> {
    if (follows_command(options)) {
      RS_TRY(kernel->follow(pid));
      if (parts.others.files != nullptr) RS_TRY(parts.others.files->follow(pid));
      if (!options.kernel_stacks.empty()) {
        parts.others.samples = RS_TRY(make_samples(options, parts.instance.clock(), {pid}));
        if (parts.others.samples != nullptr) {
          parts.others.samples->hold_files(parts.files.get());
          RS_TRY(parts.run->add(*parts.others.samples));
        }
      }
    }
    return kernel->on_at_exec(pid);
  });
  if (child) RS_TRY(kernel->has_executed());
  return child;
}

// A program's events are known only when it runs: patterns that match none are named at the end, or now, if there is no program
// to come.
void refuse_unmatched(const RecordOptions& options, Instance& instance) {
  auto sentences = unmatched_user(options, instance);
  // One that has only just been started may be about to declare them.
  for (int ms = 0; ms < 300 && !sentences.empty() && !instance.events().empty() && !asked_to_stop(); ms += 5) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    sentences = unmatched_user(options, instance);
  }
  if (!sentences.empty() && !instance.events().empty()) throw UsageError{sentences.front()};
}

// --duration is over: the command is to end, and what it still writes is recorded. One that does not end goes on.
void end_command(Child& child, Instance& instance, RecordingRun& run) {
  constexpr u64 patience_ns = 1'000'000'000;
  child.pass_on(SIGTERM);
  for (const u64 start = sys::now_ns(); !child.ended() && sys::now_ns() - start < patience_ns;) {
    (void)instance.wait(wake_percent, tick);
    run.poll();
  }
}

// The command's own code comes first, then the parts' before the last.
int exit_code_of(int code, bool succeeded, int earlier, int last) {
  if (code != exit_ok) return code;
  if (!succeeded) return exit_failure;
  return earlier == exit_failure || last == exit_ok ? earlier : last;
}

// Finishes the last part and says how the recording ended. code: the command's. ours: the instance is this command's. command:
// its path, or "". followed: how following the writers ended.
int finish(Parts& parts, GrowingExport* file, std::optional<Child>& child, int code, bool ours, const std::string& command,
           const result<bool>& followed) {
  RecordOptions& options = parts.options;
  const Instance& instance = parts.instance;
  RecordingRun& run = *parts.run;
  for (const auto& remote : parts.others.kernel_remotes) remote->off();
  if (parts.others.libc != nullptr) parts.others.libc->off();
  if (parts.others.files != nullptr) parts.others.files->off();
  run.poll();
  if (parts.others.libc != nullptr) parts.others.of_libc->know(parts.others.libc->threads());
  if (parts.others.libc != nullptr)
    for (const std::string& problem : parts.others.libc->problems()) run.faults().problem(problem);
  for (const auto& remote : parts.others.kernel_remotes)
    for (const std::string& doubt : remote->doubts()) run.faults().problem(doubt);
  const auto finished = run.finish();
  if (finished && parts.line)
    send_stack_names(*parts.line, parts.files.get(), options.quiet);
  else if (finished && has_stacks(run))
    keep_stack_names(options.out, parts.files.get(), options.quiet);
  say_names_of_parts(parts.names, options.quiet);
  const auto assembled = options.to.empty() || parts.line ? result<void>() : assemble(options, file, run.meta());
  if (!assembled) options.to.clear();  // only the parts exist
  Told().doubts(run);
  std::vector<EventInfo> of_writers;
  for (const auto& remote : parts.others.remotes)
    of_writers.insert(of_writers.end(), remote->events().begin(), remote->events().end());
  for (const std::string& sentence : unmatched_user(options, instance, of_writers)) say(sentence);
  if (!options.quiet) {
    say_summary(run, options.to.empty() ? options.out : options.to, ours ? "" : instance.name() + " since it was made: ");
    const bool all_read = run.account().doubts.empty();
    if (parts.waited != 0 && all_read)
      say(counted(parts.waited, "event was", "events were") + " in the rings of " + instance.name() +
          " when this began, written and not yet read; they came first");
    say_incomplete(instance);
    if (parts.program->events_so_far() == 0 && parts.earlier_events == 0 && all_read)
      say_why_empty(options, instance, command, run.events() == 0, code, child ? child->cpu_ns() : 0);
    say_unseen_calls(options, command);
  }
  if (!followed) failed(followed.error());
  if (!finished && !run.failed()) failed(finished.error());  // else it is among the doubts
  if (!assembled) failed(assembled.error());
  return exit_code_of(code, followed && finished && assembled, parts.earlier_code, exit_code(run, options.fail_on_loss));
}

result<int> run_record(RecordOptions options) {
  RS_TRY(check(options));
  std::string command;
  if (!options.command.empty()) {
    auto found = find_command(options.command.front());
    if (!found) return failed_to_start(found.error());
    command = std::move(*found);
  }
  catch_signals();  // from here on there are things to clean up
  Watched watched(options.pids);
  std::string preload;
  const u64 own_samples = options.kernel_samples() ? 0 : options.sample_hz;  // by the command's own timers
  if ((!options.libc.empty() && !options.probes_libc()) || own_samples != 0) preload = RS_TRY(find_preload());
  bool ours = false;
  const auto opened = RS_TRY(make_instance(options, ours));
  Instance& instance = *opened;
  PrivateInstance cleanup(ours ? &instance : nullptr, true);
  if (!ours && options.command.empty()) refuse_unmatched(options, instance);
  const auto borrowed = RS_TRY(Borrowed::take(instance, "ringside record"));
  if (!ours && !options.user.empty()) {
    say_of_the_rest(options, instance);
    RS_TRY(borrowed->enable(events_of_program(options)));
  }
  if (!options.stacks.empty() || options.depth != 64 || own_samples != 0)
    RS_TRY(borrowed->stacks(options.stacks, options.depth));
  if (!ours) say_without_stack(options, instance);
  if (!ours) say_of_both(options, instance);
  Others others = RS_TRY(make_others(options, instance));
  if (asked_to_stop()) {  // enabling a thousand events takes a second
    say("stopped before the recording began: nothing was recorded or replaced");
    return exit_signal + stop_signal();
  }
  Parts parts{options, instance, std::move(others)};
  if (!options.stacks.empty() || own_samples != 0) parts.files = HandedFiles::listen(instance);
  if (parts.files == nullptr) parts.files = std::make_unique<HandedFiles>();
  if (parts.others.samples) parts.others.samples->hold_files(parts.files.get());
  if (goes_elsewhere(options))
    parts.line = RS_TRY(sender_to(options));
  else
    RS_TRY(set_aside(options.out));
  RS_TRY(parts.begin(!begins_with_command(options)));
  if (!ours) parts.waited = parts.program->unread_at_begin();
  std::unique_ptr<GrowingExport> file;
  if (grows(options)) file = GrowingExport::of(options.out, options.to, parts.run->described());
  std::optional<Child> child;
  if (!options.command.empty()) {
    auto started = start_command(parts, environment_of(instance, preload, options.libc, own_samples));
    if (!started) return failed_to_start(started.error());
    child = std::move(*started);
  }
  const u64 start = sys::now_ns();
  LeftBehind left(instance, options.wait && ours);
  LossWatch losses;
  auto due = follow(instance, *parts.run, child, left, options, start, file, watched, losses, parts.others);
  while (due && *due) {
    if (const auto next = parts.next(); !next) {
      failed(next.error());
      observe(child);
      cleanup.leave_unread();
      return exit_code_of(child ? child->ended().value_or(exit_ok) : exit_ok, false, parts.earlier_code, exit_failure);
    }
    losses.begin_part();
    due = follow(instance, *parts.run, child, left, options, start, file, watched, losses, parts.others);
  }
  const int code = child ? child->ended().value_or(exit_ok) : exit_ok;
  if (child && !child->ended()) end_command(*child, instance, *parts.run);
  if (parts.run->failed()) cleanup.leave_unread();
  return finish(parts, file.get(), child, code, ours, command, due);
}

}  // namespace

Command add_record(CLI::App& app) {
  auto options = std::make_shared<RecordOptions>();
  CLI::App* c = app.add_subcommand("record", "record a command, or an instance, live into a directory");
  add_options(*c, *options);
  return {c, [options] { return run_record(*options); }};
}

}  // namespace ringside::cli
