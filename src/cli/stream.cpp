// ringside stream: records sub-buffers that arrive over a line.
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>

#include "cli/formats_option.hpp"
#include "cli/options.hpp"
#include "cli/recording.hpp"
#include "text/units.hpp"
#include "record/stream_feed.hpp"
#include "sys/sys.hpp"
#include "sys/try.hpp"
#include "watch/signals.hpp"

namespace ringside::cli {
namespace {

struct StreamOptions : RecordingOptions {
  std::string from, like, formats;
};

// A terminal that passes all bytes on as they are, until the end. Its speed stays: set that with stty. On standard input Ctrl-C
// goes on to end the command.
class RawTerminal {
 public:
  RawTerminal(int fd, bool keeps_signals) {
    if (isatty(fd) == 0 || tcgetattr(fd, &before_) != 0) return;
    termios raw = before_;
    cfmakeraw(&raw);
    if (keeps_signals) raw.c_lflag |= before_.c_lflag & static_cast<tcflag_t>(ISIG);
    if (tcsetattr(fd, TCSANOW, &raw) != 0) return;
    raw_ = fd;
    before_leaving(restore);
  }
  ~RawTerminal() {
    before_leaving(nullptr);
    restore();
  }
  RawTerminal(const RawTerminal&) = delete;
  RawTerminal& operator=(const RawTerminal&) = delete;

 private:
  static void restore() {
    if (raw_ >= 0) (void)tcsetattr(raw_, TCSANOW, &before_);
    raw_ = -1;
  }
  inline static volatile int raw_ = -1;
  inline static termios before_{};
};

constexpr u64 silence_ns = 500'000'000, longest_wait_ns = 5'000'000'000;  // for the frame during which a recording is stopped

result<int> run_stream(const StreamOptions& options) {
  const sys::Fd fd(options.from == "-" ? dup(STDIN_FILENO) : ::open(options.from.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
  if (!fd) return fail(errno, "cannot open " + options.from);
  catch_signals();
  const RawTerminal terminal(fd.get(), options.from == "-");
  StreamFeed line;
  if (!options.formats.empty()) line.know(RS_TRY(read_formats(options.formats)));  // before those of --like
  if (!options.like.empty()) {
    const RecordingMeta like = RS_TRY(RecordingMeta::read(options.like));
    const auto ring = std::find_if(like.rings.begin(), like.rings.end(), [](const RecordedRing& r) { return r.name.apart; });
    if (ring == like.rings.end())
      return refuse(std::errc::invalid_argument, "--like " + options.like + ": it has no ring of a line or an external writer");
    line.begin_like(like.clock, ring->subbuf_size, like.events);
  }
  std::unique_ptr<RecordingRun> run;  // set as soon as hello has come
  remote::FrameReader frames;
  const u64 start = sys::now_ns();
  std::vector<u8> bytes(65536);
  bool over = false;  // the end of the file
  result<void> done;
  Told told;
  const auto begin = [&]() -> result<void> {
    run = RS_TRY(new_recording(options.out, line.content().clock(), options.compress));
    return run->add(line);
  };
  const auto take_all = [&](bool last) {
    for (remote::Frame frame; done && !line.content().ended() && frames.next(frame, last);) {
      done = line.hear(frame);
      if (run == nullptr && done && line.content().known()) done = begin();
      if (run == nullptr || !done) continue;
      run->poll();
      told.problems(*run);
    }
  };
  u64 heard_ns = start;
  // The next bytes, if any come soon. False: the end of the recording.
  const auto take_more = [&] {
    pollfd p{fd.get(), POLLIN, 0};
    if (poll(&p, 1, 50) <= 0) return true;
    const ssize_t n = read(fd.get(), bytes.data(), bytes.size());
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return true;
    if (n < 0) done = fail(errno, "cannot read " + options.from);
    over = n == 0;
    if (n <= 0) return false;
    heard_ns = sys::now_ns();
    frames.feed(bytes.data(), static_cast<size_t>(n));
    take_all(false);
    return done && !(run != nullptr && run->failed()) && !line.content().ended();
  };
  const auto stopped = [&] {
    return asked_to_stop() || (options.duration_ns != 0 && sys::now_ns() - start >= options.duration_ns);
  };
  bool more = true;
  while (more && !stopped()) more = take_more();
  // A good frame shows by its number that all frames before it have come.
  const u64 stopped_ns = heard_ns = sys::now_ns(), so_far = frames.frames();
  const auto open_end = [&] { return frames.open_end() && frames.frames() == so_far; };
  while (more && open_end() && sys::now_ns() - heard_ns < silence_ns && sys::now_ns() - stopped_ns < longest_wait_ns)
    more = take_more();
  const bool torn = open_end();
  take_all(true);
  if (run == nullptr) say_first(line.unheard().problems());
  if (run == nullptr)
    return done ? refuse(std::errc::no_message,
                         "no hello came: there is no writer, it has another speed, it sends no stream of ringside, or it said "
                         "hello before (--like takes an earlier recording's)")
                : tl::unexpected<Error>(done.error());
  if (over && !line.content().ended())
    line.doubt("the line ended before its writer did: how much that wrote afterwards is not known");
  if (line.content().uncertain())
    line.doubt("frames did not arrive, and nothing after them says how many events they held");
  else if (torn && !over && !line.content().ended())
    line.doubt("the last bytes belong to no good frame: how many events they held is not known");
  if (line.content().restarts() != 0)
    line.doubt("the writer began anew: how much it had not sent before is not known");
  // By a clock of this machine a second life cannot be the same.
  if (frames.repeated() != 0 && line.content().has_own_clock() && line.content().restarts() == 0)
    line.doubt(
        counted(frames.repeated(), "frame") +
        " came twice, byte for byte, and are recorded once: a writer that began anew and wrote the same again would look so, "
        "too");
  auto finished = run->finish();
  told.doubts(*run);
  if (!finished && !run->failed()) return tl::unexpected<Error>(finished.error());
  if (frames.skipped() != 0 || frames.missing() != 0)
    say(fmt::format("{} bytes belong to no good frame, {} frames did not arrive whole", format_count(frames.skipped()),
                    format_count(frames.missing())));
  if (frames.repeated() != 0 && !line.content().has_own_clock())
    say(fmt::format("{} came twice, and are recorded once", counted(frames.repeated(), "frame")));
  if (line.content().restarts() != 0) say(fmt::format("the writer began anew {}", counted(line.content().restarts(), "time")));
  if (!options.quiet) say_summary(*run, options.out);
  return done ? exit_code(*run, options.fail_on_loss) : failed(done.error());
}

}  // namespace

Command add_stream(CLI::App& app) {
  auto options = std::make_shared<StreamOptions>();
  CLI::App* c = app.add_subcommand("stream", "record sub-buffers that come over a line: a UART, a pipe, a file");
  c->add_option("FROM", options->from, "a device, a pipe or a file; - for standard input")->required();
  c->add_option("--like", options->like,
                "the clock, the size and the events' formats from this recording, for a line whose writer "
                "has said hello before")
      ->type_name("DIR");
  c->add_option("--formats", options->formats, formats_help)->type_name("PATH");
  options->add_options(*c, "stop after this time (default: at the writer's end, the end of the file, or Ctrl-C)");
  c->footer(
      "Examples:\n"
      "  stty -F /dev/ttyUSB0 921600 && ringside stream /dev/ttyUSB0   firmware that uses ringside/remote/stream.hpp\n"
      "  ./firmware_in_an_emulator | ringside stream - -o fw.data      what it prints\n"
      "Bytes may be lost or wrong: what arrived whole is recorded, and what did not is counted, to the event.");
  return {c, [options] { return run_stream(*options); }};
}

}  // namespace ringside::cli
