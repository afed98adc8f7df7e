// ringside remote: records an external writer, which listens at a socket and writes into rings that this command provides.
#include <unistd.h>

#include <csignal>

#include "cli/child.hpp"
#include "cli/options.hpp"
#include "cli/recording.hpp"
#include "consumer/where.hpp"
#include "text/units.hpp"
#include "record/remote_feed.hpp"
#include "sys/sys.hpp"
#include "sys/try.hpp"
#include "watch/signals.hpp"

namespace ringside::cli {
namespace {

using std::chrono::nanoseconds;

struct RemoteOptions : RecordingOptions {
  std::string socket, clock, layout = "meta";
  std::vector<std::string> command;
  u64 buffer_size = 4 << 20, subbuf_size = 16384, poll_ns = 20000000, patience_ns = 2000000000;
  u32 rings = 0;
  bool again = false;
};

bool nobody_yet(const Error& e) {
  return e.code == std::errc::no_such_file_or_directory || e.code == std::errc::connection_refused ||
         e.code == std::errc::broken_pipe || e.code == std::errc::connection_reset;  // a dying writer still listens
}

RemoteFeed::Options feed_options(const RemoteOptions& options) {
  check_subbuf_size(options.subbuf_size);
  if (options.rings > 4096) throw UsageError{"--rings must be 1 to 4096, or 0 for as many as the writer has"};
  if (options.poll_ns < 100000) throw UsageError{"--poll must be at least 100us"};
  RemoteFeed::Options make;
  make.socket = options.socket;
  make.attach.patience = nanoseconds(options.patience_ns);
  make.attach.buffer.size = options.buffer_size;
  make.attach.buffer.rings = options.rings;
  make.attach.buffer.subbuf_size = static_cast<u32>(options.subbuf_size);
  make.attach.buffer.layout = options.layout == "meta" ? remote::Layout::meta_page : remote::Layout::footers;
  ClockKind clock = best_clock();
  if (!options.clock.empty()) {
    auto kind = clock_from(options.clock);
    if (!kind) throw UsageError{kind.error().sentence};
    clock = *kind;
  }
  make.attach.buffer.clock = calibrate(clock);
  make.poll_every = nanoseconds(options.poll_ns);
  make.notice = say;
  return make;
}

// The error of a writer that is not there may be only for now: then waits a moment.
bool may_come(const RemoteOptions& options, const RemoteFeed& writer, std::optional<Child>& child, const Error& error) {
  const bool expected = (child && !child->ended()) || options.again || writer.lives() != 0;
  if (!expected || !nobody_yet(error)) return false;
  usleep(5000);
  return true;
}

// The first writer. Until it is there, an older recording stays in its place.
result<void> first_writer(const RemoteOptions& options, RemoteFeed& writer, std::optional<Child>& child,
                          const std::function<bool()>& over) {
  while (!over()) {
    auto found = writer.connect();
    if (found || !may_come(options, writer, child, found.error())) return found;
  }
  return refuse(std::errc::timed_out, "no external writer came to " + options.socket + ": nothing is recorded");
}

// Records one writer after another, until the last has gone. Returns an exit code.
int follow_writers(const RemoteOptions& options, RemoteFeed& writer, RecordingRun& run, std::optional<Child>& child, Told& told,
                   const std::function<bool()>& over) {
  while (!over() && !run.failed()) {
    if (!writer.attached()) {
      if (auto done = writer.attach(run); !done) {
        if (!may_come(options, writer, child, done.error())) return failed(done.error());
        run.poll();  // it may have written all the same
        writer.end_life(run);
        continue;
      }
    }
    run.poll();
    if (!writer.alive() && !run.failed()) {
      if (writer.buffer().is_broken())
        run.faults().problem(writer.buffer().why_gone());
      else if (writer.buffer().is_gone() && !options.quiet && !child)
        say(writer.buffer().why_gone());
      writer.end_life(run);
    }
    told.problems(run);
    if (writer.attached())
      (void)writer.buffer().wait(wake_percent, nanoseconds(options.poll_ns));
    else if (!options.again)
      break;
  }
  return exit_ok;
}

// Records into `run`. Returns an exit code.
int record(const RemoteOptions& options, RemoteFeed& writer, RecordingRun& run, std::optional<Child>& child,
           const std::function<bool()>& over) {
  Told told;
  int code = follow_writers(options, writer, run, child, told, over);
  auto finished = run.finish();
  told.doubts(run);
  if (!finished && !run.failed()) code = failed(finished.error());
  if (!options.quiet && code == exit_ok) say_summary(run, options.out);
  if (code == exit_ok && !finished) code = exit_failure;
  // The command has closed its rings, or the disk is full, which does not concern the command: it goes on by itself.
  while ((code == exit_ok || run.failed()) && child && !child->ended() && !over()) usleep(5000);
  if (child) child->stop(SIGTERM);
  if (code != exit_ok) return code;
  if (child && !asked_to_stop() && options.duration_ns == 0)
    if (const int its = child->ended().value_or(exit_ok); its != exit_ok) return its;
  return exit_code(run, options.fail_on_loss);
}

// A recording, once there is a writer to record.
result<std::unique_ptr<RecordingRun>> begin(const RemoteOptions& options, const ClockInfo& clock, RemoteFeed& writer,
                                            std::optional<Child>& child, const std::function<bool()>& over) {
  RS_TRY(first_writer(options, writer, child, over));
  auto run = RS_TRY(new_recording(options.out, clock, options.compress));
  run->meta().command = options.command;
  RS_TRY(run->add(writer));
  return run;
}

result<int> run_remote(RemoteOptions options) {
  if (access(options.socket.c_str(), F_OK) != 0)
    if (std::string announced = announced_socket(options.socket); !announced.empty()) options.socket = std::move(announced);
  const RemoteFeed::Options make = feed_options(options);
  RemoteFeed writer(make);
  RS_TRY(can_set_aside(options.out));
  catch_signals();
  std::optional<Child> child;
  if (!options.command.empty()) {
    auto started = Child::start(options.command, {{"RINGSIDE_REMOTE", options.socket}});
    if (!started) return failed_to_start(started.error());
    child = std::move(*started);
  }
  const u64 start = sys::now_ns();
  const auto over = [&] {
    return asked_to_stop() || (options.duration_ns != 0 && sys::now_ns() - start >= options.duration_ns);
  };
  const auto run = begin(options, make.attach.buffer.clock, writer, child, over);
  if (!run && child) child->stop(SIGTERM);
  if (!run) return tl::unexpected<Error>(run.error());
  return record(options, writer, **run, child, over);
}

}  // namespace

Command add_remote(CLI::App& app) {
  auto options = std::make_shared<RemoteOptions>();
  CLI::App* c = app.add_subcommand("remote", "record an external writer: a process that listens for readers");
  c->add_option("SOCKET", options->socket, "where the writer listens, or the name that it has announced")->required();
  add_size(*c, "-b,--buffer-size", options->buffer_size, "size of each ring (default 4M)");
  add_size(*c, "--subbuf-size", options->subbuf_size, "size of a sub-buffer, 4k to 256k (default 16k)");
  c->add_option("--rings", options->rings,
                "how many rings to bring along (default: as many as the writer says that it has, or one)");
  c->add_option(
      "--clock", options->clock,
      "the writer's: mono, tsc (x86-64), cntvct (arm64), or counter for one that counts no time (default: tsc where it is "
      "invariant, else mono)");
  c->add_option("--layout", options->layout,
                "how the writer describes its rings: a meta-page, or footers in each sub-buffer (which "
                "ringside recover reads out of a memory dump)")
      ->check(CLI::IsMember({"meta", "footers"}))
      ->capture_default_str();
  add_time(*c, "--poll", options->poll_ns, "look for events this often (default 20ms)");
  add_time(*c, "--patience", options->patience_ns, "how long a writer may take to answer (default 2s)");
  c->add_flag("--again", options->again, "when the writer ends, wait for the next one, until Ctrl-C or --duration");
  options->add_options(*c, "stop after this time");
  c->add_option("COMMAND", options->command, "start this writer, after --; it finds SOCKET in RINGSIDE_REMOTE")->type_name("");
  c->footer(
      "Examples:\n"
      "  ringside remote /run/hv.rings --duration 5s -o hv.data    a writer that runs; nothing of it but its pages is shared\n"
      "  ringside remote /run/hv.rings --again                     across its restarts\n"
      "  ringside remote /tmp/w.rings -- ./my_writer               start it, and stop with it\n"
      "  ringside top /run/hv.rings                                which events are frequent, live\n"
      "The writer may die, hang or be stopped: what it committed is recorded, and counted. A writer is a program with\n"
      "ringside/remote/process_writer.hpp (docs/remote-writers.md).");
  return {c, [options] { return run_remote(*options); }};
}

}  // namespace ringside::cli
