// ringside latency: the time between two events with a common key, as a table, bars, a heat map and the slowest ones. Live (the
// kernel, an instance), or the whole of a recording.
#include "analysis/heat_map.hpp"
#include "analysis/pairs.hpp"
#include "cli/flame.hpp"
#include "cli/latency_job.hpp"
#include "cli/latency_report.hpp"
#include "cli/presets.hpp"
#include "sys/try.hpp"

namespace ringside::cli {
namespace {

result<int> run_latency(const LatencyOptions& options) {
  LatencyJob job = job_of(options);
  auto options_there = RS_TRY(where_of(job, options.run));
  if (!options.flame.empty()) {
    if (!options.hook.empty()) throw UsageError{"--flame takes the pair as START END or as a name, not by -H"};
    options_there.filter = options.run.filter;
    return flame_of_latency(options_there, job.pair, options.keys, options.task, options.flame == "true" ? "" : options.flame);
  }
  EventFilter context(parse_events(options_there.events));
  const auto run = RS_TRY(AnalysisRun::open(std::move(options_there)));
  Trace& trace = run->trace();
  const Preset* const like = job.pair.size() == 2 ? preset_of(job.pair[0], job.pair[1]) : nullptr;
  const std::string of_preset =
      like == nullptr ? "" : "hese are the events of the pair \"" + std::string(like->name) + "\", whose key is " + like->keys;
  auto made = Pairs::make(job.pairs, trace.formats, trace.tasks);
  if (!made) {
    std::string& sentence = made.error().sentence;
    if (like != nullptr) sentence += (sentence.ends_with('?') ? " T" : "; t") + of_preset;
    return failed(made.error());
  }
  Pairs pairs = std::move(*made);
  std::vector<std::string> notes;
  if (like != nullptr && options.keys.empty())
    notes.push_back("t" + of_preset + ", and here it is the thread that ran; write -k " + like->keys +
                    ", or -k common_pid if this is meant");
  if (!job.pairs.keys.empty()) job.pairs.keys = pairs.options().keys;
  job.pairs.start = pairs.options().start;  // the sides that this trace has
  job.pairs.end = pairs.options().end;
  run->reading().look_up_for(pairs);
  if (options.slowest != 0) run->reading().join_stacks(), trace.tasks.keep_past();
  HeatMap heat;
  const auto use = [&](const TraceRecord& record, const RingName& ring) {
    if (pairs.take(record, ring) && options.heat) heat.add(record.time, pairs.latency());
  };
  const auto other = [&](const TraceRecord& record, const RingName& ring) {
    if (record.lost != 0)
      pairs.take(record, ring);
    else if (context.wants(record.number(), trace.formats))
      pairs.remember(record);
  };
  const auto picture = [&](const Totals& totals, double, bool last) {
    const LatencyReport report(options, job, trace, pairs, heat, totals.account, notes);
    std::string text = report.result(last).print(options.run.json);
    if (last && options.run.json)
      for (const std::string& note : report.notes(last)) say(note);
    if (last && options.slowest != 0) say_first(run->reading().stack_remarks());
    return text;
  };
  struct Part {
    explicit Part(Pairs empty) : pairs(std::move(empty)) {}
    Pairs pairs;
    HeatMap heat;
  };
  const auto make = [&](Reading& reading) {
    auto empty = pairs.part(reading.trace().formats, reading.trace().tasks);
    std::optional<Part> part;
    if (!empty) return part;
    if (options.slowest != 0) reading.trace().tasks.keep_past();
    part.emplace(std::move(*empty));
    reading.take_rest([&](const TraceRecord& record, const RingName& ring, Reading::Got got) {
      if ((got == Reading::Got::event || record.lost != 0) && part->pairs.take(record, ring) && options.heat)
        part->heat.add(record.time, part->pairs.latency());
    });
    return part;
  };
  const auto join = [&](const Part& part) {
    heat.merge(part.heat);
    return pairs.append(part.pairs, [&](u32 source) -> const RingName& { return trace.timeline.name(source); },
                        [&](const TraceRecord& record) { if (options.heat) heat.add(record.time, pairs.latency()); });
  };
  if (pairs.has_parts() && (options.slowest == 0 || !run->reading().in_order("cpu"))) {
    if (run->stitch(pairs.columns(), pairs.conditions(), make, join)) return run->end(picture);
    pairs = RS_TRY(Pairs::make(job.pairs, trace.formats, trace.tasks));
    heat = HeatMap();
  }
  return run->go(use, picture, other);
}

}  // namespace

Command add_latency(CLI::App& app) {
  auto options = std::make_shared<LatencyOptions>();
  CLI::App* c =
      app.add_subcommand("latency", "time between two events: quantiles, a picture, the slowest ones; live or recorded");
  c->add_option("WHAT", options->words,
                "START END [WHERE...], or NAME [WHERE...] of a pair below. Events are SYSTEM:EVENT, globs with commas, and a "
                "condition if need be: 'sched:sched_switch if prev_state == 0'. WHERE: recordings, "
                "trace.dats, instances; without any the kernel, live (./ringside.data if the events are not the kernel's)");
  c->add_option("-k,--key", options->keys,
                "what a start and its end have in common: FIELD of both, or FIELD=FIELD; up to three with commas (default: the "
                "thread that ran)")
      ->type_name("FIELD");
  c->add_option("-H,--hook", options->hook, "the pair as trace-cmd profile takes it: EVENT,FIELD[,PID]/EVENT,FIELD[,FLAGS]")
      ->type_name("HOOK");
  c->add_option("--by", options->by,
                "one line for each value of a column of the end or the start (start/FIELD, end/FIELD say which), none: of all")
      ->type_name("COLUMN");
  c->add_option("--sort", options->sort, "lines by")
      ->check(CLI::IsMember({"max", "p99.9", "p99", "p90", "p50", "sum", "count"}))
      ->capture_default_str()
      ->type_name("NUMBER");
  add_count(*c, options->count, "lines at most")->capture_default_str();
  c->add_flag("--wall", options->wall, "the slowest pairs with their times of day");
  c->add_option("--slowest", options->slowest, "this number of pairs with their times, tasks and CPUs")
      ->check(CLI::Range(0, 10000))
      ->capture_default_str();
  c->add_option("--context", options->context, "with each of them this number of earlier events of the end's ring")
      ->check(CLI::Range(0, 1000))
      ->capture_default_str();
  c->add_flag("--flame", options->flame,
              "a flame graph instead, as flame.html; --flame=FILE: there: the latency by the start's stack, and on top of it "
              "that of the end (the waker's)");
  c->add_flag("--heat", options->heat, "a heat map: how many of what latency, over time");
  c->add_flag("--ascii", options->ascii, "pictures without Unicode");
  c->add_flag("--first", options->first,
              "of several starts before an end the first counts (default: the last, as in the kernel); calls nest in any case");
  c->add_flag("--sure", options->sure, "leave out pairs with a loss between their events");
  add_events(*c, options->run.events,
             "only these events and the pair's, for --context; the kernel's are live, alone or beside a live WHERE");
  add_run_options(*c, options->run);
  add_task(*c, options->task);
  c->add_option("--keys", options->most_waiting,
                "starts that may wait for their end; then the oldest give way, and are counted")
      ->check(CLI::Range(1, 100'000'000))
      ->capture_default_str();
  c->add_option("--groups", options->most_groups,
                "lines that are kept count of; a full table gives up those with the fewest pairs")
      ->check(CLI::Range(2, 10'000'000))
      ->capture_default_str();
  c->footer(
      "Names:\n" + preset_list() +
      "Examples:\n"
      "  ringside latency wakeup                  the kernel, live, as root; Ctrl-C ends with the final table\n"
      "  ringside latency syscalls --sort sum --duration 10s\n"
      "  ringside latency sched:sched_wakeup sched:sched_switch --key pid=next_pid trace.dat --heat\n"
      "  ringside latency libc:malloc libc:free --key ptr ringside.data --by start/task\n"
      "  ringside latency app:begin app:end --key request web --context 20\n"
      "  ringside latency 'syscalls:sys_enter_*' 'syscalls:sys_exit_*' --by event --slowest 5 --json\n"
      "  ringside latency sleep --flame ringside.data   where threads waited, and which stack woke them (record --kstack)\n"
      "  ringside latency -H irq:irq_handler_entry,irq/irq:irq_handler_exit,irq,pg\n"
      "  ringside latency wakeup --task make -f 'latency > 1ms && end/prev_comm != make'\n"
      "-f is a condition on pairs: start/FIELD and end/FIELD are of their events, latency (with a unit) is the time between "
      "them,\n"
      "stack the start's, key what both have in common; a bare FIELD means the side that has it. An end takes the start with "
      "its "
      "key\n"
      "away. Calls (spans, NAME and NAME__return, NAME_entry and NAME_exit) nest in their thread, and an end takes the "
      "innermost "
      "one;\n"
      "of other pairs a second start before the end takes the place of the first. Starts that nothing ended, ends without a "
      "start\n"
      "and pairs that a loss fell into are counted, and the books under the table add up.");
  return {c, [options] { return run_latency(*options); }};
}

}  // namespace ringside::cli
