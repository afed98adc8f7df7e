// ringside log: the messages of a program's logger (ringside/log.hpp), a line each, as one reads a log file.
#include <fmt/format.h>

#include <algorithm>
#include <deque>

#include "analysis/names.hpp"
#include "cli/json.hpp"
#include "cli/options.hpp"
#include "decode/message.hpp"
#include "decode/print_steps.hpp"
#include "export/json.hpp"
#include "text/units.hpp"
#include "sys/try.hpp"
#include "watch/signals.hpp"

namespace ringside::cli {
namespace {

struct LogOptions {
  std::vector<std::string> where, inputs;
  Window window;
  std::vector<std::string> events;
  std::string filter, level;
  u64 last = 0, duration_ns = 0;  // 0: all; without end
  bool follow = false, json = false, fail_on_loss = false;
};

constexpr size_t level_width = 5;
constexpr const char* colours_of_levels[highest_level + 1] = {"\033[2m",  "\033[36m", "\033[32m",
                                                              "\033[33m", "\033[31m", "\033[1;31m"};

class LogLines {
 public:
  explicit LogLines(const Trace& trace)
      : trace_(trace), wall_(trace.raw_times() ? std::nullopt : trace.wall()), json_(trace.formats, trace.tasks) {
    json_.show_wall(wall_);
  }

  void print_json(const TraceRecord& record, const RingName& ring, fmt::memory_buffer& out) { json_.print(record, ring, out); }

  // 2026-11-28 14:05:02.123456 WARN  worker-4711 net.cpp:42: took 3 of 4
  void print(const EventType& type, i64 level, const TraceRecord& record, const RingName& ring, fmt::memory_buffer& out) {
    const i32 tid = thread_of(&type, read_common(record.payload));
    const bool known = level >= 0 && level <= highest_level;
    const bool colour = colours() && known;
    const std::string* const name = known ? symbol_of(type.level()->symbols, level) : nullptr;
    std::string word = name != nullptr ? *name : std::to_string(level);
    for (char& c : word) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    print_time(record.time, out);
    fmt::format_to(std::back_inserter(out), "{}{:<{}}{} {}-{} ", colour ? colours_of_levels[level] : "", word, level_width,
                   colour ? "\033[0m" : "", sys::printable(trace_.tasks.name(tid, ring)),
                   trace_.tasks.show(trace_.tasks.key(tid, ring)));
    trace_.formats.print(type, record.payload, out);
    out.push_back('\n');
    if (record.stack != 0 && !ring.kernel && trace_.formats.stacks() != nullptr)
      trace_.formats.stacks()->append_lines(record.stack, out);
  }
  void print_loss(const TraceRecord& record, fmt::memory_buffer& out) const {
    print_time(record.time, out);
    fmt::format_to(std::back_inserter(out), "-- {} lost here --\n", counted(record.lost, "event was", "events were"));
  }

 private:
  void print_time(u64 ns, fmt::memory_buffer& out) const {
    constexpr u64 second = 1'000'000'000, micro = 1000;
    if (trace_.raw_times()) {
      fmt::format_to(std::back_inserter(out), "{:>12} ", ns);
    } else if (wall_) {
      const auto at = static_cast<u64>(wall_->of(ns));
      std::string text = wall_second(static_cast<i64>(at / second));
      std::replace(text.begin(), text.end(), 'T', ' ');
      fmt::format_to(std::back_inserter(out), "{}.{:06} ", text, at % second / micro);
    } else {
      fmt::format_to(std::back_inserter(out), "{:>5}.{:06} ", ns / second, ns % second / micro);
    }
  }

  const Trace& trace_;
  const std::optional<WallClock> wall_;
  JsonLines json_;
};

class LogRun {
 public:
  LogRun(const LogOptions& options, Reading& reading)
      : options_(options),
        reading_(reading),
        lines_(reading.trace()),
        least_(options.level.empty() ? INT64_MIN : *level_of(options.level)) {}

  // False: stdout takes no more.
  bool run() {
    if (options_.follow) reading_.follow(look_ahead_ns, options_.duration_ns);
    do {
      const bool went_on =
          reading_.take([&](const TraceRecord& record, const RingName& ring, Reading::Got got) { see(record, ring, got); },
                        [&] { return !flush(false); });
      if (!went_on || !flush(true)) return false;
    } while (reading_.wait());
    return flush(true);
  }
  u64 messages() const { return messages_; }

 private:
  static constexpr u64 look_ahead_ns = 100'000'000;

  void see(const TraceRecord& record, const RingName& ring, Reading::Got got) {
    if (got == Reading::Got::other) return;
    if (record.lost != 0) {
      if (options_.json)
        lines_.print_json(record, ring, out_);
      else
        lines_.print_loss(record, out_);
      return keep();
    }
    const EventType* const type = reading_.trace().formats.find(record.number());
    const auto level = level_of(type, record.payload);
    if (!level || *level < least_) return;
    ++messages_;
    if (options_.json)
      lines_.print_json(record, ring, out_);
    else
      lines_.print(*type, *level, record, ring, out_);
    keep();
  }
  // With -n the last lines are kept until all that is there was read.
  void keep() {
    if (options_.last == 0 || caught_up_) return;
    last_.emplace_back(out_.data(), out_.size());
    out_.clear();
    if (last_.size() > options_.last) last_.pop_front();
  }
  // at_end: all that is there was read.
  bool flush(bool at_end) {
    if (at_end && !caught_up_) {
      caught_up_ = true;
      for (const std::string& line : last_) out_.append(line.data(), line.data() + line.size());
      last_.clear();
    }
    const bool done = put({out_.data(), out_.size()});
    out_.clear();
    return done;
  }

  const LogOptions& options_;
  Reading& reading_;
  LogLines lines_;
  const i64 least_;
  fmt::memory_buffer out_;
  std::deque<std::string> last_;
  bool caught_up_ = false;
  u64 messages_ = 0;
};

void begin_following(const Trace& trace) {
  if (!trace.live())
    throw UsageError{"--follow: " + shown_where(trace) + " does not grow; name an instance that a program writes to"};
  const auto left = [](const auto& input) { return input->has_no_writer(); };
  if (std::all_of(trace.inputs.begin(), trace.inputs.end(), left))
    say("no process writes to " + trace.first().where + " now; waiting for one until Ctrl-C");
}

result<int> run_log(LogOptions options) {
  if (!options.level.empty() && !level_of(options.level))
    throw UsageError{"--level " + options.level + ": there are trace, debug, info, warn, error and fatal"};
  if (options.duration_ns != 0 && !options.follow) throw UsageError{"--duration belongs to --follow"};
  std::vector<std::string> where = options.where;
  where.insert(where.end(), options.inputs.begin(), options.inputs.end());
  Reading::Options open = reading_of(std::move(where), options.filter);
  open.window = options.window;
  const EventPatterns only = parse_events(options.events);
  open.only = only;
  auto opened = RS_TRY(Reading::open(std::move(open)));
  Reading& reading = *opened;
  if (options.follow) {
    catch_signals();
    begin_following(reading.trace());
  } else {
    check_wanted(only, options.window, reading);
  }
  reading.join_stacks();
  LogRun run(options, reading);
  if (!run.run()) return exit_failure;
  const bool problems = say_problems(reading);
  const Account& account = reading.complete().account;
  if (run.messages() == 0) {
    const std::string chosen =
        options.level.empty() && options.filter.empty() && options.events.empty() && options.window.whole()
            ? ", of " + counted(reading.totals().seen(), "event") +
                  "; messages are written by RINGSIDE_LOG, see ringside report for the others"
            : " that is wanted";
    say("no message in " + shown_where(reading.trace()) + chosen);
  }
  if (!account.none_lost())
    say(lost_count(account) + " events were lost" + lost_places(account) + "; messages may be among them");
  if (problems) return exit_failure;
  return options.fail_on_loss && !account.none_lost() ? exit_loss : exit_ok;
}

}  // namespace

Command add_log(CLI::App& app) {
  auto options = std::make_shared<LogOptions>();
  CLI::App* c = app.add_subcommand("log", "print the messages of a program's logger (RINGSIDE_LOG), or follow them");
  c->add_option("WHERE", options->where,
                "recording, trace.dat file, or instance, which is not consumed; several are merged (default: ringside.data)");
  c->add_flag("--follow", options->follow, "go on with new messages, until Ctrl-C");
  c->add_option("-l,--level", options->level, "messages of this level and above: trace, debug, info, warn, error, fatal")
      ->type_name("LEVEL");
  add_count(*c, options->last, "the last messages only; with --follow, of those that are there");
  add_events(*c, options->events, "only these events");
  add_input(*c, options->inputs);
  add_filter(*c, options->filter);
  add_window(*c, options->window);
  add_duration(*c, options->duration_ns, "with --follow: end after this time");
  add_json(*c, options->json, "one JSON object a line, as report prints it");
  c->add_flag("--fail-on-loss", options->fail_on_loss, "exit with 3 when events were lost");
  c->footer(
      "Examples:\n"
      "  ringside log                           the messages of ./ringside.data\n"
      "  ringside log web --follow              those of a running program, as they come\n"
      "  ringside log web -l warn -n 20         the last 20 warnings and errors\n"
      "  ringside log -f 'level >= warn && size > 4096 && task ~ \"worker*\"'\n"
      "  ringside log --json | jq -r 'select(.fields.level == \"error\") | .message'\n"
      "  ringside disable -i web log:debug      writes no such messages from now on; ringside enable brings them back\n"
      "A line: time of day, level, thread, file:line: message. The values of a message are fields of its event, with the names "
      "of\n"
      "its variables: --json shows them, and every command knows them: ringside hist log:warn/size.log2.\n"
      "Where events were lost, a line says how many; messages may be among them.");
  return {c, [options] { return run_log(*options); }};
}

}  // namespace ringside::cli
