// ringside remote: records an external writer, which listens at a socket and writes into rings that this command brings along.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "cli/child.hpp"
#include "cli/signals.hpp"
#include "cli/options.hpp"
#include "cli/units.hpp"
#include "remote/process.hpp"
#include "sys/sys.hpp"

namespace ringside::cli {
namespace {

using std::chrono::nanoseconds;

struct RemoteOptions {
  std::string socket, layout = "meta", out = default_recording;
  std::vector<std::string> command;
  u64 buffer_size = 4 << 20, subbuf_size = 16384, duration_ns = 0, poll_ns = 20000000, patience_ns = 2000000000;
  u32 rings = 1;
  bool again = false, fail_on_loss = false, quiet = false;
};

// One life of the writer.
struct Life {
  std::unique_ptr<remote::Process> process;
  std::vector<std::unique_ptr<Source>> sources;
  std::vector<u32> numbers;  // in the recording
  std::string silence;       // what it was last said to be silent with
};

class RemoteRecorder {
 public:
  RemoteRecorder(const RemoteOptions& options, const ClockInfo& clock, RecordingWriter writer)
      : options_(options), clock_(clock), writer_(std::move(writer)) {}

  result<void> attach() {
    remote::Process::Options make;
    make.patience = nanoseconds(options_.patience_ns);
    make.buffer.size = options_.buffer_size;
    make.buffer.rings = options_.rings;
    make.buffer.subbuf_size = static_cast<u32>(options_.subbuf_size);
    make.buffer.layout = options_.layout == "meta" ? remote::Layout::meta_page : remote::Layout::footers;
    make.buffer.clock = clock_;
    auto process = remote::Process::attach(options_.socket, make);
    if (!process) return tl::unexpected<Error>(process.error());
    life_ = {};
    for (u32 ring = 0; ring < options_.rings; ++ring) {
      auto source = (*process)->buffer().source(ring);
      if (!source) return tl::unexpected<Error>(source.error());
      RingName name = (*source)->name();
      name.ring = next_++;
      if (auto added = writer_.add_ring(name, static_cast<u32>(options_.subbuf_size)); !added) return added;
      writer_.meta().threads.push_back(name);
      life_.numbers.push_back(name.ring);
      life_.sources.push_back(std::move(*source));
    }
    for (const EventInfo& e : (*process)->events()) {
      const auto& known = writer_.meta().events;
      const auto same = std::find_if(known.begin(), known.end(), [&](const EventInfo& k) { return k.id == e.id; });
      if (same == known.end())
        writer_.meta().events.push_back(e);
      else if (same->format != e.format || same->name != e.name)
        problem("event " + std::to_string(e.id) + " was " + same->name + " before and is " + e.name + " now; it is shown as before");
    }
    if (auto saved = writer_.save(); !saved) return saved;
    if (auto on = (*process)->enable(true); !on) return on;
    if (auto polled = (*process)->buffer().poll_every(nanoseconds(options_.poll_ns)); !polled) return polled;
    life_.process = std::move(*process);
    return {};
  }

  // Takes what is there. False: the writer is gone, and nothing is left of it.
  result<bool> poll() {
    bool alive = false;
    for (size_t k = 0; k < life_.sources.size(); ++k) {
      Source& source = *life_.sources[k];
      for (u64 budget = 2 * u64{life_.process->buffer().plan().nr_pages} + 2; budget != 0; --budget) {
        auto view = source.next();
        if (!view) {
          if (view.error().code != std::errc::timed_out) {
            problem(view.error().sentence);
            return false;
          }
          if (life_.silence != view.error().sentence) say(view.error().sentence);
          life_.silence = view.error().sentence;
          break;
        }
        if (!*view) break;
        life_.silence.clear();
        if (auto done = writer_.append(life_.numbers[k], **view); !done) {
          if (done.error().code != std::errc::bad_message) {
            failure_ = done.error();
            return tl::unexpected<Error>(done.error());
          }
          problem(done.error().sentence);
        }
      }
      alive = alive || !source.ended();
    }
    return alive;
  }

  void wait() {
    (void)life_.process->buffer().wait(wake_percent, nanoseconds(options_.poll_ns));
  }

  // The books of this life.
  void close_life() {
    if (life_.process == nullptr) return;
    for (size_t k = 0; k < life_.sources.size(); ++k) {
      RecordedRing& ring = writer_.ring(life_.numbers[k]);
      ring.counters = life_.sources[k]->counters();
      all_.push_back(ring.counters);
      writer_.release(life_.numbers[k]);
    }
    life_ = {};
    ++lives_;
  }

  result<void> finish(u64 duration_ns) {
    if (life_.process != nullptr) {
      if (auto off = life_.process->enable(false); !off && !life_.process->buffer().is_gone()) problem(off.error().sentence);
      for (int rounds = 0; rounds < 3 && !failure_; ++rounds) (void)poll();
      close_life();
    }
    const Counters all = writer_.meta().totals = sum(all_);
    Missing& missing = writer_.meta().missing;
    for (const RecordedRing& ring : meta().rings) missing.gaps += ring.lost;
    missing.refused = all.dropped + all.commit_overrun;
    missing.doubts = problems_;
    if (failure_) {
      missing.doubts.push_back(failure_->sentence + "; the recording ends there");
      missing.unrecorded = all.written - std::min(all.written, events() + missing.gaps);
    } else {
      missing.gaps = std::max(missing.gaps, all.overrun);
    }
    auto finished = writer_.finish(duration_ns);
    return failure_ ? tl::unexpected<Error>(*failure_) : finished;
  }

  void problem(const std::string& sentence) {
    say(sentence);
    problems_.push_back(sentence);
  }
  bool attached() const { return life_.process != nullptr; }
  bool is_broken() const { return life_.process->buffer().is_broken(); }
  std::string why_gone() { return life_.process->buffer().why_gone(); }
  Counters totals() const { return sum(all_); }
  u64 events() const {
    u64 n = 0;
    for (const RecordedRing& ring : meta().rings) n += ring.events;
    return n;
  }
  const Missing& missing() const { return meta().missing; }  // after finish()
  bool failed() const { return failure_.has_value(); }
  u64 problems() const { return problems_.size(); }
  u64 lives() const { return lives_; }
  const RecordingMeta& meta() const { return const_cast<RemoteRecorder*>(this)->writer_.meta(); }

 private:
  const RemoteOptions& options_;
  ClockInfo clock_;
  RecordingWriter writer_;
  Life life_;
  u32 next_ = 0;
  u64 lives_ = 0;
  std::vector<std::string> problems_;
  std::optional<Error> failure_;
  std::vector<Counters> all_;
};

bool nobody_yet(const Error& e) {
  return e.code == std::errc::no_such_file_or_directory || e.code == std::errc::connection_refused ||
         e.code == std::errc::broken_pipe || e.code == std::errc::connection_reset;  // one that is about to die still listens
}

int run_remote(const RemoteOptions& options) {
  check_subbuf_size(options.subbuf_size);
  if (options.rings == 0 || options.rings > 4096) throw UsageError{"--rings must be 1 to 4096"};
  if (options.poll_ns < 100000) throw UsageError{"--poll must be at least 100us"};
  const ClockInfo clock = calibrate(best_clock());
  auto writer = RecordingWriter::create(options.out, clock);
  if (!writer) return failed(writer.error());
  writer->meta().command = options.command;
  RemoteRecorder recorder(options, clock, std::move(*writer));
  catch_signals();
  std::optional<Child> child;
  if (!options.command.empty()) {
    auto started = Child::start(options.command, {{"RINGSIDE_REMOTE", options.socket}});
    if (!started) {
      failed(started.error());
      return started.error().code == std::errc::no_such_file_or_directory ? exit_not_found : exit_not_executable;
    }
    child = std::move(*started);
  }
  const u64 start = sys::now_ns();
  const auto over = [&] { return asked_to_stop() || (options.duration_ns != 0 && sys::now_ns() - start >= options.duration_ns); };
  int code = exit_ok;
  while (!over()) {
    if (!recorder.attached()) {
      auto done = recorder.attach();
      if (!done) {
        const bool may_come = (child && !child->ended()) || options.again || recorder.lives() != 0;
        if (!may_come || !nobody_yet(done.error())) {
          code = failed(done.error());
          break;
        }
        usleep(5000);
        continue;
      }
    }
    auto alive = recorder.poll();
    if (!alive) {
      code = failed(alive.error());
      break;
    }
    if (!*alive) {
      if (recorder.is_broken())
        recorder.problem(recorder.why_gone());
      else if (!options.quiet && !child)
        say(recorder.why_gone());
      recorder.close_life();
      if (!options.again) break;
      continue;
    }
    recorder.wait();
  }
  const u64 duration = sys::now_ns() - start;
  if (auto done = recorder.finish(duration); !done) code = failed(done.error());
  if (!options.quiet && (code == exit_ok || recorder.failed())) {
    say(fmt::format("{} events in {} from {} rings; lost {}; {}", format_count(recorder.events()), format_time(static_cast<double>(duration)),
                    recorder.meta().rings.size(), lost_count(recorder.missing()), options.out));
    say(identity(recorder.totals()));
  }
  // The command has closed its rings, or the disk takes no more, which is not its affair: it goes on for itself.
  while ((code == exit_ok || recorder.failed()) && child && !child->ended() && !over()) usleep(5000);
  if (child && !child->ended()) {
    child->pass_on(SIGTERM);
    for (int k = 0; k < 200 && !child->ended(); ++k) usleep(5000);
  }
  if (code != exit_ok) return code;
  if (child && !asked_to_stop() && options.duration_ns == 0)
    if (const int its = child->ended().value_or(exit_ok); its != exit_ok) return its;
  if (recorder.problems() != 0) return exit_failure;
  return recorder.missing().count() != 0 && options.fail_on_loss ? exit_loss : exit_ok;
}

}  // namespace

Command add_remote(CLI::App& app) {
  auto options = std::make_shared<RemoteOptions>();
  CLI::App* c = app.add_subcommand("remote", "record an external writer: a process that listens for readers");
  c->add_option("SOCKET", options->socket, "where the writer listens")->required();
  add_size(*c, "-b,--buffer-size", options->buffer_size, "size of each ring (default 4M)");
  add_size(*c, "--subbuf-size", options->subbuf_size, "size of a sub-buffer, 4k to 256k (default 16k)");
  c->add_option("--rings", options->rings, "how many rings to bring along")->capture_default_str();
  c->add_option("--layout", options->layout, "how the writer tells of its rings: a meta-page, or footers in each sub-buffer (which "
                                             "ringside recover reads out of a memory dump)")
      ->check(CLI::IsMember({"meta", "footers"}))
      ->capture_default_str();
  add_time(*c, "--poll", options->poll_ns, "look for events this often (default 20ms)");
  add_time(*c, "--patience", options->patience_ns, "how long a writer may take to answer (default 2s)");
  c->add_flag("--again", options->again, "when the writer ends, wait for the next one, until Ctrl-C or --duration");
  c->add_option("-o,--output", options->out, "directory of the recording; an older recording is replaced")->capture_default_str();
  add_duration(*c, options->duration_ns, "stop after this time");
  c->add_flag("--fail-on-loss", options->fail_on_loss, "exit with 3 when events were lost");
  c->add_flag("-q,--quiet", options->quiet, "no summary");
  c->add_option("COMMAND", options->command, "start this writer, behind --; it finds SOCKET in RINGSIDE_REMOTE")->type_name("");
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
