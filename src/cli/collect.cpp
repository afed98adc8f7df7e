// ringside collect: the other end of ringside record --to tcp:HOST:PORT. It keeps what recorders on other machines send.
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "cli/command.hpp"
#include "cli/keep_names.hpp"
#include "cli/options.hpp"
#include "cli/tcp.hpp"
#include "consumer/where.hpp"
#include "source/recording.hpp"
#include "source/recording_receiver.hpp"
#include "sys/beneath.hpp"
#include "sys/try.hpp"
#include "text/units.hpp"
#include "watch/signals.hpp"

namespace ringside::cli {
namespace {

struct CollectOptions {
  std::string at, out;
  bool keep_going = false, fail_on_loss = false, quiet = false;
};

constexpr size_t most_recorders = 64;
constexpr u64 greeting_ns = 10'000'000'000;  // a connection that says nothing for so long is closed
constexpr u64 names_ns = 30'000'000'000;     // and one that sends no names

// A line to one recorder.
struct Recorder {
  sys::Fd line;
  std::string peer;  // for messages
  std::unique_ptr<RecordingReceiver> receiver;
  u64 since_ns;          // the connection is there, or names are asked for
  bool answers;          // it is a connection
  std::string unsent{};  // of the answers
  bool over = false;
};

class Collector {
 public:
  explicit Collector(const CollectOptions& options) : options_(options) {}

  // From a connection, or a pipe (no answers).
  void add(sys::Fd line, const std::string& peer, bool answers, u64 now) {
    auto place = [this, peer](const std::string& host) { return this->place(host.empty() ? peer : host); };
    recorders_.push_back({std::move(line), peer, std::make_unique<RecordingReceiver>(std::move(place)), now, answers});
  }
  bool has_room() const { return recorders_.size() < most_recorders; }
  size_t recorders() const { return recorders_.size(); }
  // A recorder has ended, or was cut off.
  bool has_collected() const { return collected_; }
  int code() const { return code_; }
  std::vector<pollfd> waits() const {
    std::vector<pollfd> all;
    for (const Recorder& recorder : recorders_)
      all.push_back({recorder.line.get(), static_cast<short>(recorder.unsent.empty() ? POLLIN : POLLIN | POLLOUT), 0});
    return all;
  }

  // waited: what poll said about waits().
  void turn(const pollfd* waited, u64 now) {
    for (size_t n = 0; n < recorders_.size(); ++n) {
      Recorder& recorder = recorders_[n];
      flush(recorder);
      if ((waited[n].revents & ~POLLOUT) != 0) take(recorder, now);
      if (recorder.over) continue;
      const u64 waits_ns = now - recorder.since_ns;
      if (recorder.answers && !recorder.receiver->greeted() && waits_ns > greeting_ns) recorder.over = true;
      if (recorder.receiver->awaits_names() && waits_ns > names_ns) finish(recorder, "");
    }
    std::erase_if(recorders_, [](const Recorder& recorder) { return recorder.over; });
  }
  // All that are at work.
  void cut(const std::string& why) {
    for (Recorder& recorder : recorders_) finish(recorder, why);
    recorders_.clear();
  }

 private:
  result<std::string> place(const std::string& host) {
    if (!options_.keep_going) {
      if (taken_)
        return refuse(std::errc::device_or_resource_busy, "this collector takes one recorder, and has one (--keep-going)");
      const std::string dir = options_.out.empty() ? default_recording : options_.out;
      RS_TRY(set_aside(dir));
      return dir;
    }
    // A new one each time: what a recorder sends replaces nothing.
    const std::string folder = options_.out.empty() ? "." : options_.out;
    const std::string name = host.empty() ? "unknown" : RecordingReceiver::safe_host(host);
    std::error_code none;
    std::filesystem::create_directories(folder, none);
    for (u64 n = 1; n < 1'000'000; ++n) {
      const std::string dir = folder + "/" + name + (n == 1 ? "" : "-" + std::to_string(n));
      if (std::filesystem::symlink_status(dir, none).type() == std::filesystem::file_type::not_found) return dir;
    }
    return refuse(std::errc::file_exists, "there are a million recordings of " + name + " in " + folder);
  }

  static void answer(Recorder& recorder, std::string line) {
    std::replace(line.begin(), line.end(), '\n', ' ');
    recorder.unsent += line.substr(0, messages::longest_answer - 1) + "\n";
    flush(recorder);
  }
  static void flush(Recorder& recorder) {
    if (!recorder.answers || recorder.unsent.empty()) return recorder.unsent.clear();
    const ssize_t n = send(recorder.line.get(), recorder.unsent.data(), recorder.unsent.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n > 0) recorder.unsent.erase(0, static_cast<size_t>(n));
  }

  // The files of its stacks' code are on its machine alone.
  static void ask_for_names(Recorder& recorder, u64 now) {
    NamesToKeep how;
    how.most_bytes = messages::most_asked;
    const auto asked = ask_names(recorder.receiver->dir(), how);
    if (!asked) say("the names of its stacks are not kept: " + asked.error().sentence);
    const std::string text = asked.value_or("");
    answer(recorder, "names " + std::to_string(text.size()));
    if (text.empty()) return;
    recorder.unsent += text;
    recorder.receiver->ask();
    recorder.since_ns = now;
    flush(recorder);
  }

  void take(Recorder& recorder, u64 now) {
    RecordingReceiver& receiver = *recorder.receiver;
    const bool greeted = receiver.greeted(), ended = receiver.ended();
    const ssize_t n = read(recorder.line.get(), buffer_.data(), buffer_.size());
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (n <= 0) return finish(recorder, n < 0 ? std::string("the connection broke: ") + std::strerror(errno) : "");
    const auto taken = receiver.take(buffer_.data(), static_cast<size_t>(n));
    if (!taken) {
      answer(recorder, taken.error().sentence);
      return finish(recorder, taken.error().sentence);
    }
    if (!greeted && receiver.greeted()) {
      taken_ = true;
      answer(recorder, "ok");
      if (!options_.quiet)
        say("recording " + (receiver.host().empty() ? recorder.peer : receiver.host()) + " into " + receiver.dir());
    }
    if (receiver.ended() && !ended) {
      answer(recorder, "ok");
      if (receiver.offers_names() && recorder.answers) ask_for_names(recorder, now);
    }
    if (receiver.ended() && !receiver.awaits_names()) finish(recorder, "");
  }

  // why: it did not end by itself; "": it ended, or its line did.
  void finish(Recorder& recorder, const std::string& why) {
    recorder.over = true;
    const RecordingReceiver& receiver = *recorder.receiver;
    if (!receiver.greeted()) {  // a port scanner's
      if (!why.empty()) say(recorder.peer + ": " + why);
      return;
    }
    collected_ = true;
    const std::string dir = receiver.dir();
    if (receiver.awaits_names()) say("the names of its stacks did not come, and are not kept");
    recorder.receiver->close();
    if (!receiver.has_recording()) {
      (void)rmdir(dir.c_str());
      return cut_off(recorder, why, "; it had sent nothing yet");
    }
    if (!receiver.ended()) return cut_off(recorder, why, "; what came before is in " + dir);
    const auto meta = RecordingMeta::read(dir);
    if (!meta) {
      say(meta.error().sentence);
      code_ = exit_failure;
      return;
    }
    if (!meta->account.proved()) code_ = exit_failure;
    if (options_.fail_on_loss && !meta->account.none_lost() && code_ == exit_ok) code_ = exit_loss;
    if (options_.quiet) return;
    u64 events = 0, bytes = 0;
    for (const RecordedRing& ring : meta->rings) events += ring.events, bytes += ring.bytes;
    say(fmt::format("{}, {}; lost {}; {}", counted(events, "event"), format_size(bytes), lost_summary(meta->account), dir));
    say_first(meta->account.doubts);
  }

  void cut_off(const Recorder& recorder, const std::string& why, const std::string& rest) {
    say("the recorder" + (recorder.answers ? " at " + recorder.peer : "") +
        " did not end it: " + (why.empty() ? "the line was cut" : why) + rest);
    code_ = exit_failure;
  }

  const CollectOptions& options_;
  std::vector<Recorder> recorders_;
  std::vector<u8> buffer_ = std::vector<u8>(1 << 18);
  bool taken_ = false, collected_ = false;
  int code_ = exit_ok;
};

bool is_of_this_machine(const std::string& host) { return host == "localhost" || host == "::1" || host.starts_with("127."); }

result<int> run_collect(const CollectOptions& options) {
  constexpr int look_ms = 200;
  Collector collector(options);
  TcpListener listener;
  if (options.at == "-") {
    if (options.keep_going) throw UsageError{"--keep-going is about connections; standard input is one recorder's"};
    if (isatty(STDIN_FILENO) != 0)
      throw UsageError{"standard input is a terminal: pipe ringside record --to - into this command"};
    collector.add(sys::Fd(fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3)), "standard input", false, sys::now_ns());
  } else {
    const auto at = TcpAddress::parse(options.at, "localhost");
    if (!at) throw UsageError{options.at + " is no [ADDRESS:]PORT: 5555, 0.0.0.0:5555, [::]:5555, or - for standard input"};
    listener = RS_TRY(listen_tcp(*at));
    say("listening at " + TcpAddress{at->host, listener.port}.text() +
        (is_of_this_machine(at->host) ? ", for this machine alone (0.0.0.0:" + listener.port + ": for all)" : "") +
        "; nobody is asked for a password; Ctrl-C ends");
  }
  catch_signals();
  // A Ctrl-C of the terminal also ends a recorder that pipes into this command: its end comes.
  u64 patience_ns = 3'000'000'000;
  const auto stopped = [&] {
    if (!asked_to_stop()) return false;
    if (options.at != "-" || !stop_was_typed() || patience_ns == 0) return true;
    patience_ns -= std::min<u64>(patience_ns, u64{look_ms} * 1'000'000);
    return false;
  };
  while (!stopped()) {
    const bool open = !listener.sockets.empty();
    if (!options.keep_going && collector.has_collected()) break;
    if (!open && collector.recorders() == 0) break;
    std::vector<pollfd> waits = collector.waits();
    const size_t known = waits.size();
    for (const sys::Fd& socket : listener.sockets) waits.push_back({collector.has_room() ? socket.get() : -1, POLLIN, 0});
    if (poll(waits.data(), waits.size(), look_ms) < 0) {
      if (errno == EINTR) continue;
      return fail(errno, "cannot wait for recorders");
    }
    const u64 now = sys::now_ns();
    collector.turn(waits.data(), now);
    for (size_t n = known; n < waits.size(); ++n) {
      if (waits[n].revents == 0) continue;
      sys::Fd line(accept4(waits[n].fd, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!line && (errno == EMFILE || errno == ENFILE || errno == ENOMEM)) sleep_ns(100'000'000);
      if (line) {
        const std::string peer = peer_of(line.get());
        collector.add(std::move(line), peer, true, now);
      }
    }
  }
  collector.cut("this collector was stopped");
  if (!options.keep_going && !collector.has_collected()) {
    say(options.at == "-" ? "nothing came" : "no recorder came");
    return exit_failure;
  }
  return collector.code();
}

}  // namespace

Command add_collect(CLI::App& app) {
  auto options = std::make_shared<CollectOptions>();
  CLI::App* c = app.add_subcommand("collect", "keep what record --to tcp:HOST:PORT sends from another machine");
  c->add_option(
       "AT", options->at,
       "[ADDRESS:]PORT to listen at; without an address recorders of this machine alone are taken, as those of ssh -R; "
       "port 0 is any free one; - for standard input, from record --to -")
      ->required();
  c->add_option("-o,--output", options->out,
                "directory of the recording; an older one there becomes DIR.old (default: ringside.data). With --keep-going: "
                "where the recordings' directories are made (default: here)");
  c->add_flag(
      "-k,--keep-going", options->keep_going,
      "take recorders until Ctrl-C, up to 64 at once: each in a directory with the name of its host, HOST, HOST-2, ...");
  c->add_flag("--fail-on-loss", options->fail_on_loss, "exit with 3 when events were lost");
  c->add_flag("-q,--quiet", options->quiet, "no summary");
  c->footer(
      "Examples:\n"
      "  ringside collect 0.0.0.0:5555 -o board.data          here; and on the board:\n"
      "  ringside record --to tcp:here:5555 -e sched --duration 10s\n"
      "  ringside collect 5555 & ssh -R 5555:localhost:5555 board ringside record --to tcp:localhost:5555 ./server\n"
      "  ssh board ringside record --to - -e sched --duration 10s | ringside collect -    the same, without a port\n"
      "  ringside collect 0.0.0.0:5555 --keep-going -o boards     all boards, each in boards/HOST\n"
      "The recording is an ordinary one, and can be read while it is made. If the line is slower than the events, the rings on "
      "the\n"
      "board fill, and the account has the loss. If the line breaks, what came before is kept, as of a recorder that was "
      "killed, "
      "and\n"
      "the exit code is 1 on both machines.\n"
      "Nothing is encrypted, and nobody is asked for a password: over a network that others use, take ssh.");
  return {c, [options] { return run_collect(*options); }};
}

}  // namespace ringside::cli
