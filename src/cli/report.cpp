// ringside report: every event of a recording, a trace.dat or an instance in one time order, as the kernel's text or as JSON.
#include <algorithm>
#include <atomic>
#include <mutex>

#include "analysis/names.hpp"
#include "cli/in_order.hpp"
#include "cli/json.hpp"
#include "cli/options.hpp"
#include "text/units.hpp"
#include "export/json.hpp"
#include "export/text.hpp"
#include "sys/thread.hpp"
#include "sys/try.hpp"

namespace ringside::cli {
namespace {

struct ReportOptions {
  std::vector<std::string> where, inputs;
  Window window;
  u64 most = 0;  // 0: all
  std::vector<std::string> events;
  std::vector<i32> tids;
  std::string filter;
  u32 jobs = 0;
  bool json = false, fail_on_loss = false, verbose = false, wall = false;
};

constexpr size_t flush_at = 256 * 1024;

Reading::Options opening(const ReportOptions& options) {
  std::vector<std::string> where = options.where;
  where.insert(where.end(), options.inputs.begin(), options.inputs.end());
  Reading::Options open = reading_of(std::move(where), options.filter);
  open.window = options.window;
  open.verbose = options.verbose;
  open.only = parse_events(options.events);
  return open;
}

// The lines of a reading.
class Printer {
 public:
  Printer(const ReportOptions& options, Reading& reading)
      : options_(options),
        reading_(reading),
        stacks_(reading.join_stacks()),
        text_(reading.trace().formats, reading.trace().tasks, reading.trace().raw_times()),
        json_(reading.trace().formats, reading.trace().tasks) {
    reading.look_up_names();
    const auto wall = wall_of(reading.trace(), options.wall);
    text_.show_wall(wall);
    json_.show_wall(wall);
  }

  // Appends lines up to this size, or somewhat more. False: there are no more.
  bool print(fmt::memory_buffer& out, size_t size) {
    TraceRecord record;
    while (out.size() < size) {
      const Reading::Got got = reading_.next(record);
      if (got == Reading::Got::nothing) return false;
      if (record.source >= printed_last_.size()) printed_last_.resize(record.source + 1);
      const RingName& ring = reading_.ring(record);
      if (!wanted(record, ring, got)) {
        printed_last_[record.source] = false;
        continue;
      }
      if (got == Reading::Got::event && options_.most != 0 && !is_a_stack(record) && ++printed_ > options_.most) return false;
      printed_last_[record.source] = true;
      if (options_.json) {
        json_.print(record, ring, out);
        continue;
      }
      if (ring.kernel && stacks_.part(record.number()) == Stacks::Part::user_stack)
        record.stack = stacks_.number(record, ring, {});
      text_.print(record, ring, out);
    }
    return true;
  }

 private:
  bool wanted(const TraceRecord& record, const RingName& ring, Reading::Got got) const {
    const Trace& trace = reading_.trace();
    if (got == Reading::Got::other)
      return record.lost == 0 && printed_last_[record.source] && is_a_stack(record);
    if (got != Reading::Got::event) return true;
    // They have other events' stacks, and no text of their own.
    const Stacks::Part part = stacks_.part(record.number());
    if (!options_.json && options_.events.empty() && record.lost == 0 &&
        (part == Stacks::Part::code_map || part == Stacks::Part::stack || part == Stacks::Part::files))
      return false;
    if (options_.tids.empty()) return true;
    const i32 seen = trace.tasks.seen(read_common(record.payload).tid, ring);
    return std::find(options_.tids.begin(), options_.tids.end(), seen) != options_.tids.end();
  }

  // In text it is the lines below its event.
  bool is_a_stack(const TraceRecord& record) const {
    return !options_.json && TextLines::is_stack(reading_.trace().formats.find(record.number()));
  }

  const ReportOptions& options_;
  Reading& reading_;
  Stacks& stacks_;
  std::vector<bool> printed_last_;  // by ring: whether its last event is here; then its stack is, too
  TextLines text_;
  JsonLines json_;
  u64 printed_ = 0;
};

// stdout, and whether anything came there.
class Printed {
 public:
  bool put(std::string_view text) {
    any_ = any_ || !text.empty();
    return cli::put(text);
  }
  bool any() const { return any_; }

 private:
  bool any_ = false;
};

// To stdout, unless `silent`.
bool print_all(Printer& printer, Printed& lines, bool silent = false) {
  fmt::memory_buffer out;
  for (bool more = true; more; out.clear()) {
    more = printer.print(out, flush_at);
    if (!silent && !lines.put({out.data(), out.size()})) return false;
  }
  return true;
}

// Where it is cut into parts that several threads print; none: one thread does. Lines of a part must not depend on those
// before.
std::vector<u64> seams_of(const ReportOptions& options, Reading& reading, u32 jobs) {
  const bool chosen = !options.events.empty() || !options.filter.empty() || !options.tids.empty();
  const auto& types = reading.trace().formats.all();
  const bool of_stacks =
      std::any_of(types.begin(), types.end(), [](const auto& type) { return type->full == "ringside:stack"; });
  if (jobs < 2 || options.most != 0 || of_stacks || (chosen && reading.tells_names())) return {};
  return seams_for(reading, jobs, 1 << 20);
}

// Every thread has a reading of its own. A part with a fault ends it, as the rest depends on that: returns
// that part; none: stdout takes no more.
std::optional<size_t> print_parts(const ReportOptions& options, Reading& whole, Printed& to, const std::vector<u64>& seams,
                                  u32 jobs) {
  // Buffers are used again: the kernel clears the memory of new ones page by page.
  std::vector<fmt::memory_buffer> spare;
  std::mutex of_spare;
  InOrder<fmt::memory_buffer> lines(2 * jobs, [&](fmt::memory_buffer& text) {
    const bool more = to.put({text.data(), text.size()});
    text.clear();
    const std::lock_guard held(of_spare);
    spare.push_back(std::move(text));
    return more;
  });
  const auto buffer = [&] {
    const std::lock_guard held(of_spare);
    if (spare.empty()) return fmt::memory_buffer();
    fmt::memory_buffer last = std::move(spare.back());
    spare.pop_back();
    return last;
  };
  std::vector<std::unique_ptr<Reading>> readings(jobs);
  const bool ordered = whole.tells_names();
  const size_t faults = whole.trace().timeline.problems().size();
  // The next part goes to the thread that is free: one that could not be started is not waited for.
  std::atomic<size_t> next{0};
  sys::parallel(jobs, [&](u32 job) {
    auto open = opening(options);
    open.notices = [](const auto&) {};
    open.same = &whole.trace();
    auto opened = Reading::open(std::move(open));
    if (!opened) return lines.end_before(next);
    Reading& reading = *(readings[job] = std::move(*opened));
    Printer printer(options, reading);
    for (size_t part; (part = next++) <= seams.size();) {
      try {
        reading.go_to(part == 0 ? 0 : seams[part - 1], part == seams.size() ? Timeline::forever : seams[part], ordered);
        fmt::memory_buffer out = buffer();
        while (printer.print(out, ~size_t{0})) continue;
        if (reading.trace().timeline.problems().size() != faults || reading.totals().late != 0) return lines.end_before(part);
        if (!lines.add(part, std::move(out))) return;
      } catch (...) {
        lines.end_before(part);
        throw;
      }
    }
  });
  if (lines.end() > seams.size()) {
    for (const auto& reading : readings)
      if (reading != nullptr) whole.add(*reading);
  }
  return lines.gone() ? std::nullopt : std::optional(lines.end());
}

// False: stdout takes no more.
bool print(const ReportOptions& options, Reading& reading, Printed& lines) {
  const u32 jobs = jobs_of(reading, options.jobs);
  const auto seams = seams_of(options, reading, jobs);
  Printer printer(options, reading);
  if (seams.empty()) return print_all(printer, lines);
  const auto end = print_parts(options, reading, lines, seams, jobs);
  if (!end || *end > seams.size()) return end.has_value();
  const u64 from = *end == 0 ? 0 : seams[*end - 1];
  reading.go_to(0, from, true);
  if (!print_all(printer, lines, true)) return false;
  reading.go_to(from, Timeline::forever, true);
  return print_all(printer, lines);
}

// Nothing was printed: of how many, and by which options.
std::string why_none(const ReportOptions& options, Reading& reading) {
  std::string chosen;
  const auto by = [&](const char* option, bool given) {
    chosen += given ? (chosen.empty() ? "" : ", ") + std::string(option) : "";
  };
  by("-e", !options.events.empty());
  by("-f", !options.filter.empty());
  by("--tid", !options.tids.empty());
  by("--time", options.window.of_time());
  by("--cpu", !options.window.cpus.empty());
  const std::string where = shown_where(reading.trace());
  const u64 seen = reading.totals().seen();
  if (chosen.empty() || (seen == 0 && options.window.whole())) return where + " has no events";
  return "0 of " + counted(seen, "event") + (options.window.whole() ? " in " : " of this range in ") + where + " pass " +
         chosen;
}

result<int> run_report(const ReportOptions& options) {
  const EventPatterns only = parse_events(options.events);
  auto opened = RS_TRY(Reading::open(opening(options)));
  Reading& reading = *opened;
  check_wanted(only, options.window, reading);
  if (options.wall) say_wall(reading.trace());
  Printed lines;
  if (!print(options, reading, lines)) return exit_failure;
  const bool problems = say_problems(reading);
  say_first(reading.stack_remarks());
  const Account& account = reading.complete().account;
  const std::string none = none_within(options.window, reading);
  if (!lines.any()) say(none.empty() ? why_none(options, reading) : none);
  if (!account.none_lost())
    say(lost_count(account) + " events were lost" + lost_places(account) +
        (options.most != 0 ? "" : ", " + format_count(reading.totals().seen()) + " are here"));  // with -n not all were read
  if (problems) return exit_failure;
  if (!none.empty()) return exit_usage;
  return options.fail_on_loss && !account.none_lost() ? exit_loss : exit_ok;
}

}  // namespace

Command add_report(CLI::App& app) {
  auto options = std::make_shared<ReportOptions>();
  CLI::App* c = app.add_subcommand("report", "print the events of a recording, a trace.dat or an instance in time order");
  c->add_option("WHERE", options->where,
                "recording (a directory, or a tar), trace.dat file, clickhouse:// or instance, which is not consumed; -: "
                "stdin; several are merged "
                "(default: ringside.data)");
  add_events(*c, options->events, "only these events");
  c->add_option("--tid", options->tids, "only this thread; may be repeated")->allow_extra_args(false);
  add_input(*c, options->inputs);
  add_filter(*c, options->filter);
  add_window(*c, options->window);
  add_jobs(*c, options->jobs);
  add_count(*c, options->most, "events at most");
  c->add_flag("--wall", options->wall, "times of day, as the recorder's clock had them, instead of the trace's own");
  add_json(*c, options->json, "one JSON object a line");
  c->add_flag("-v,--verbose", options->verbose, "report how the clock of each WHERE was converted");
  c->add_flag_callback("--stdio", [] {}, "no effect; accepted because perf report has it")->group("");
  c->add_flag("--fail-on-loss", options->fail_on_loss, "exit with 3 when events were lost");
  c->footer(
      "Examples:\n"
      "  ringside report                              ./ringside.data as text\n"
      "  ringside report -e 'libc:m*' --tid 4711      some events of one thread\n"
      "  ringside report --time 12.5s..13s --cpu 0,2 -f 'size > 4096 && task ~ \"cc1*\"'\n"
      "  ringside report --wall --time 14:05:02.5..+10s    by times of day\n"
      "  ringside report --time +0.5s..+0.6s -n 100   a part of it, from the first event on\n"
      "  ringside report trace.dat                    what trace-cmd recorded, compressed or not\n"
      "  ringside report web --json | jq .fields      a live instance, for programs\n"
      "  ringside report web db trace.dat -v          several in one order: programs, recordings, the kernel's\n"
      "A filter compares fields (== != < <= > >=, & has one of the bits, ~ a glob) and joins comparisons by && || ! and ( ). "
      "Beside\n"
      "the event's own: ts (ns, or 5ms, 1.5s), cpu (-1: unknown), ring, source (kernel, program, a buffer), comm = task, pid = "
      "tid, cgroup, event, system; of system calls file, in a recording with --files.\n"
      "Instances of the kernel's are refused, because reading them takes their events away; ringside stat shows their "
      "counters.\n"
      "Of several WHEREs each line begins with its own. They must be of one machine and boot; clocks are converted as far as "
      "they can be.\n"
      "A thread of another PID namespace is shown as 81234(7): its TID here, and in its container; as 7@4026532278, where it "
      "cannot be seen\n"
      "from here: 7 in that namespace. --tid and pid == TID mean what this reader sees; common_pid is what the event says.\n"
      "ringside:stack, ringside:code_map and ringside:file_call, which are about other events, appear as text only by -e.\n"
      "A gap appears where it happened, as CPU:3 [LOST 1234 EVENTS]; in the ring of a thread as RING:3 [LOST 1234 EVENTS].\n"
      "[001] is the CPU on which the event was written. Of a thread's ring it is known while sched_switch or "
      "sched_migrate_task\n"
      "of the same trace say it; else it is [---], and null in JSON.");
  return {c, [options] { return run_report(*options); }};
}

}  // namespace ringside::cli
