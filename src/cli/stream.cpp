// ringside stream: records sub-buffers that come over a line.
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <termios.h>
#include <unistd.h>

#include "cli/signals.hpp"
#include "cli/options.hpp"
#include "cli/units.hpp"
#include "remote/stream.hpp"
#include "source/recording.hpp"
#include "sys/sys.hpp"

namespace ringside::cli {
namespace {

struct StreamOptions {
  std::string from, out = default_recording;
  u64 duration_ns = 0;
  bool fail_on_loss = false, quiet = false;
};

class StreamRecorder {
 public:
  explicit StreamRecorder(std::string out) : out_(std::move(out)) {}

  result<void> take(const remote::Frame& frame) {
    const size_t known = content_.events().size();
    auto view = content_.take(frame);
    if (!view) {
      if (view.error().code != std::errc::bad_message) return tl::unexpected<Error>(view.error());
      if (++problems_ <= 10) say(view.error().sentence);
      return {};
    }
    if (content_.known() && !writer_) {
      auto made = RecordingWriter::create(out_, content_.clock());
      if (!made) return tl::unexpected<Error>(made.error());
      writer_.emplace(std::move(*made));
      writer_->meta().boot.clear();  // another machine's clock
    }
    bool fresh = content_.events().size() != known;
    if (*view && !writer_->has_ring(frame.head.ring)) {
      if (auto added = writer_->add_ring(RingName{frame.head.ring, 0, 0, "", ""}, content_.subbuf_size()); !added) return added;
      fresh = true;
    }
    if (fresh) {
      writer_->meta().events = content_.events();
      if (auto saved = writer_->save(); !saved) return saved;
    }
    return *view ? writer_->append(frame.head.ring, **view) : result<void>{};
  }

  result<void> finish(u64 duration_ns) {
    if (!writer_) return refuse(std::errc::no_message, "nothing came that says hello: no writer, another speed, or no stream of ringside");
    std::vector<Counters> all;
    for (const auto& [number, ring] : content_.rings()) {
      all.push_back(ring.counters);
      writer_->ring(number).counters = ring.counters;
    }
    writer_->meta().events = content_.events();
    writer_->meta().totals = totals_ = sum(all);
    return writer_->finish(duration_ns);
  }

  const remote::StreamContent& content() const { return content_; }
  const Counters& totals() const { return totals_; }
  u64 problems() const { return problems_; }

 private:
  std::string out_;
  remote::StreamContent content_;
  std::optional<RecordingWriter> writer_;
  Counters totals_;
  u64 problems_ = 0;
};

int run_stream(const StreamOptions& options) {
  const sys::Fd fd(options.from == "-" ? dup(STDIN_FILENO) : ::open(options.from.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
  if (!fd) return failed(fail(errno, "cannot open " + options.from).value());
  if (isatty(fd.get()) != 0) {
    termios raw{};
    if (tcgetattr(fd.get(), &raw) == 0) {
      cfmakeraw(&raw);  // its speed stays: set it with stty
      (void)tcsetattr(fd.get(), TCSANOW, &raw);
    }
  }
  StreamRecorder recorder(options.out);
  remote::FrameReader frames;
  catch_signals();
  const u64 start = sys::now_ns();
  std::vector<u8> bytes(65536);
  result<void> done;
  const auto take_all = [&](bool last) {
    for (remote::Frame frame; done && frames.next(frame, last);) done = recorder.take(frame);
  };
  while (done && !recorder.content().ended() && !asked_to_stop() && (options.duration_ns == 0 || sys::now_ns() - start < options.duration_ns)) {
    pollfd p{fd.get(), POLLIN, 0};
    if (poll(&p, 1, 50) <= 0) continue;
    const ssize_t n = read(fd.get(), bytes.data(), bytes.size());
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n < 0) done = fail(errno, "cannot read " + options.from);
    if (n <= 0) break;
    frames.feed(bytes.data(), static_cast<size_t>(n));
    take_all(false);
  }
  take_all(true);
  const u64 duration = sys::now_ns() - start;
  auto finished = recorder.finish(duration);
  if (!done) return failed(done.error());
  if (!finished) return failed(finished.error());
  if (frames.skipped() != 0 || frames.missing() != 0)
    say(fmt::format("{} bytes belong to no good frame, {} frames did not arrive whole", format_count(frames.skipped()), format_count(frames.missing())));
  if (recorder.content().restarts() != 0) say(fmt::format("the writer began anew {} times", recorder.content().restarts()));
  if (!options.quiet) {
    say(fmt::format("{} events in {} from {} rings; {}", format_count(recorder.totals().read), format_time(static_cast<double>(duration)),
                    recorder.content().rings().size(), options.out));
    say(identity(recorder.totals()));
  }
  if (recorder.problems() != 0) return exit_failure;
  return recorder.totals().overrun != 0 && options.fail_on_loss ? exit_loss : exit_ok;
}

}  // namespace

Command add_stream(CLI::App& app) {
  auto options = std::make_shared<StreamOptions>();
  CLI::App* c = app.add_subcommand("stream", "record sub-buffers that come over a line: a UART, a pipe, a file");
  c->add_option("FROM", options->from, "a device, a pipe or a file; - for standard input")->required();
  c->add_option("-o,--output", options->out, "directory of the recording; an older recording is replaced")->capture_default_str();
  add_duration(*c, options->duration_ns, "stop after this time (default: at the writer's end, the end of the file, or Ctrl-C)");
  c->add_flag("--fail-on-loss", options->fail_on_loss, "exit with 3 when events were lost");
  c->add_flag("-q,--quiet", options->quiet, "no summary");
  c->footer(
      "Examples:\n"
      "  stty -F /dev/ttyUSB0 921600 && ringside stream /dev/ttyUSB0   firmware that uses ringside/remote/stream.hpp\n"
      "  ./firmware_in_an_emulator | ringside stream - -o fw.data      what it prints\n"
      "Bytes may be lost or wrong: what arrived whole is recorded, and what did not is counted, to the event.");
  return {c, [options] { return run_stream(*options); }};
}

}  // namespace ringside::cli
