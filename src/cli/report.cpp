// ringside report: every event of a recording, a trace.dat or an instance in one time order, as the kernel's text or as JSON.
#include <algorithm>

#include "cli/json.hpp"
#include "cli/options.hpp"
#include "export/units.hpp"
#include "export/json.hpp"
#include "export/text.hpp"
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
  bool json = false, fail_on_loss = false, verbose = false;
};

constexpr size_t flush_at = 256 * 1024;

result<int> run_report(const ReportOptions& options) {
  std::vector<std::string> where = options.where;
  where.insert(where.end(), options.inputs.begin(), options.inputs.end());
  Reading::Options open = reading_of(where, options.filter);
  open.window = options.window;
  open.verbose = options.verbose;
  const EventPatterns only = open.only = parse_events(options.events);
  auto opened = RS_TRY(Reading::open(std::move(open)));
  Reading& reading = *opened;
  check_events(only, reading.trace());
  const Trace& trace = reading.trace();
  Stacks& stacks = reading.join_stacks();
  std::vector<bool> printed_last;  // by ring: whether its last event is here; then its stack is, too
  TextLines text(trace.formats, trace.tasks, trace.raw_times());
  JsonLines json_lines(trace.formats, trace.tasks);
  fmt::memory_buffer out;
  TraceRecord record;
  u64 printed = 0;
  for (Reading::Got got = reading.next(record); got != Reading::Got::nothing; got = reading.next(record)) {
    if (record.source >= printed_last.size()) printed_last.resize(record.source + 1);
    const bool of_the_last = got == Reading::Got::other && record.lost == 0 && !options.json && printed_last[record.source] && TextLines::is_stack(trace.formats.find(record.number()));
    if (got == Reading::Got::other && !of_the_last) {
      printed_last[record.source] = false;
      continue;
    }
    const RingName& ring = reading.ring(record);
    if (got == Reading::Got::event && !options.tids.empty()) {
      const i32 seen = trace.tasks.seen(read_common(record.payload).tid, ring);
      if (std::find(options.tids.begin(), options.tids.end(), seen) == options.tids.end()) {
        printed_last[record.source] = false;
        continue;
      }
    }
    if (got == Reading::Got::event && options.most != 0 && ++printed > options.most) break;
    printed_last[record.source] = true;
    if (options.json) {
      json_lines.print(record, ring, out);
    } else {
      if (ring.kernel && stacks.part(record.number()) == Stacks::Part::user_stack) record.stack = stacks.number(record, ring, {});
      text.print(record, ring, out);
    }
    if (out.size() >= flush_at) {
      if (!put({out.data(), out.size()})) return exit_failure;
      out.clear();
    }
  }
  if (!put({out.data(), out.size()})) return exit_failure;
  const bool problems = say_problems(reading);
  say_first(reading.stack_remarks());
  const Missing missing = reading.complete().missing;
  if (!missing.nothing()) say(lost_count(missing) + " events were lost, " + format_count(reading.totals().seen) + " are here");
  if (problems) return exit_failure;
  return !missing.nothing() && options.fail_on_loss ? exit_loss : exit_ok;
}

}  // namespace

Command add_report(CLI::App& app) {
  auto options = std::make_shared<ReportOptions>();
  CLI::App* c = app.add_subcommand("report", "print the events of a recording, a trace.dat or an instance in time order");
  c->add_option("WHERE", options->where, "recording (a directory), trace.dat file or instance, which is not consumed; several are merged (default: ringside.data)");
  add_events(*c, options->events, "only these events");
  c->add_option("--tid", options->tids, "only this thread; may be repeated")->allow_extra_args(false);
  add_input(*c, options->inputs);
  add_filter(*c, options->filter);
  add_window(*c, options->window);
  add_count(*c, options->most, "events at most")->check(CLI::PositiveNumber);
  add_json(*c, options->json, "one JSON object a line");
  c->add_flag("-v,--verbose", options->verbose, "say of each WHERE how its clock became that of all");
  c->add_flag("--fail-on-loss", options->fail_on_loss, "exit with 3 when events were lost");
  c->footer(
      "Examples:\n"
      "  ringside report                              ./ringside.data as text\n"
      "  ringside report -e 'libc:m*' --tid 4711      some events of one thread\n"
      "  ringside report --time 12.5s..13s --cpu 0,2 -f 'size > 4096 && task ~ \"cc1*\"'\n"
      "  ringside report --time +0.5s..+0.6s -n 100   a part of it, from the first event on\n"
      "  ringside report trace.dat                    what trace-cmd recorded, compressed or not\n"
      "  ringside report web --json | jq .fields      a live instance, for programs\n"
      "  ringside report web db trace.dat -v          several in one order: programs, recordings, the kernel's\n"
      "A filter compares fields (== != < <= > >=, & has one of the bits, ~ a glob) and joins comparisons by && || ! and ( ). Beside\n"
      "the event's own: ts (ns, or 5ms, 1.5s), cpu (-1: unknown), ring, source (kernel, program, a buffer), comm = task, pid = tid, cgroup, event, system.\n"
      "Instances of the kernel's are refused, as to read them is to take their events away; ringside stat shows their counters.\n"
      "Of several WHEREs each line begins with its own. They must be of one machine and boot; clocks are converted as far as they can be.\n"
      "A thread of another PID namespace is shown as 81234(7): its TID here, and in its container; as 7@4026532278, where it cannot be seen\n"
      "from here: 7 in that namespace. --tid and pid == TID mean what this reader sees; common_pid is what the event says.\n"
      "A gap appears where it happened, as CPU:3 [LOST 1234 EVENTS]; in the ring of a thread as RING:3 [LOST 1234 EVENTS].\n"
      "[001] is the CPU on which the event was written. Of a thread's ring it is known while sched_switch or sched_migrate_task\n"
      "of the same trace tell it; else it is [---], and null in JSON.");
  return {c, [options] { return run_report(*options); }};
}

}  // namespace ringside::cli
