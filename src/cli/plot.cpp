// ringside plot: a recording, a trace.dat or an instance as one web page that needs no other file.
#include "plot/plot.hpp"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>

#include "cli/options.hpp"
#include "cli/presets.hpp"
#include "text/units.hpp"
#include "plot/page.hpp"
#include "sys/beneath.hpp"
#include "sys/try.hpp"

namespace ringside::cli {
namespace {

struct PlotOptions {
  std::string where = default_recording, to = "ringside.html", filter;
  std::vector<std::string> events, latency;
  std::string keys, task;
  Window window;
  std::vector<std::string> inputs;
  plot::Options plot;
};

void add_moment(CLI::App& app, const std::string& name, Moment& moment, const std::string& description) {
  app.add_option_function<std::string>(name, [&moment, name](const std::string& text) {
    auto parsed = Moment::parse(text);
    if (!parsed) throw CLI::ValidationError(name, parsed.error().sentence);
    moment = *parsed;
  }, description)->type_name("TIME");
}

std::string joined(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& w : words) out += (out.empty() ? "" : " ") + w;
  return out;
}

std::string wall_time(u64 ns) {
  const auto seconds = static_cast<time_t>(ns / 1'000'000'000);
  tm parts{};
  if (gmtime_r(&seconds, &parts) == nullptr) return "";
  return fmt::format("{:%Y-%m-%d %H:%M:%S} UTC", parts);
}

// What was shipped: each machine's clock, and how far apart two of them may be.
void about_clocks(const Trace& trace, plot::About& about) {
  constexpr u64 unknown = MachineTime::unknown;
  u64 worst = 0, second = 0;
  for (const auto& input : trace.inputs) {
    const MachineTime* const machine = input->time_of_day();
    if (machine == nullptr) return;
    const u64 error = machine->error_ns;
    about.facts.emplace_back("clock of " + machine->host, error < unknown
                                                               ? "time of day ±" + format_time(static_cast<double>(error))
                                                               : "time of day, not synchronised");
    second = std::max(second, std::min(worst, error));
    worst = std::max(worst, error);
  }
  if (trace.inputs.size() < 2) return;
  about.apart_ns = worst < unknown ? worst + second : plot::About::unknown;
}

plot::Facts facts_of(const PlotOptions& options, const Input& input) {
  plot::Facts facts;
  const auto fact = [&](const char* label, std::string text) {
    if (!text.empty()) facts.emplace_back(label, std::move(text));
  };
  if (input.recording() != nullptr) {
    const RecordingMeta& meta = *input.recording();
    fact("command", joined(meta.command));
    if (meta.start_ns != 0) fact("recorded", wall_time(meta.start_ns));
    fact("clock", to_string(meta.clock.kind));
    // A trace.dat has no closing counters.
    if (meta.complete && meta.totals.written != 0) fact("books", identity(meta.totals));
    if (!meta.complete)
      fact("books", std::string(is_being_recorded(input.where) ? "it is still being recorded" : "the recorder did not finish") +
                        ": the closing counters are missing");
  } else if (input.instance() != nullptr) {
    fact("clock", input.clock);
    fact("live", "what was in the instance's rings when the page was made");
  }
  fact("events", options.events.empty() ? "" : joined(options.events));
  fact("filter", options.filter);
  return facts;
}

// Of an empty page: what the trace has.
result<std::string> why_empty(const PlotOptions& options) {
  const auto whole = RS_TRY(Reading::open(reading_of({options.where})));
  whole->take_rest([](const auto&...) {});
  const u64 seen = whole->totals().seen(), begin = whole->totals().first_ns, end = whole->totals().last_ns;
  if (seen == 0) return "no event is in " + options.where;
  const auto after = [begin](u64 time) {
    const u64 ns = time - begin;
    return ns % 1'000'000 == 0 ? fmt::format("+{} ms", format_count(ns / 1'000'000))
           : ns % 1000 == 0    ? fmt::format("+{} us", format_count(ns / 1000))
                               : fmt::format("+{} ns", format_count(ns));
  };
  const auto shown = [&](const Moment& moment, u64 otherwise) {
    const u64 time = moment.given ? moment.at(begin) : otherwise;
    if (moment.relative || !moment.given) return after(time);
    return fmt::format("{}.{:09} s", time / 1'000'000'000, time % 1'000'000'000);
  };
  const Window& window = options.window;
  std::string out = "no event";
  if (!options.events.empty()) out += " of " + joined(options.events);
  if (!options.filter.empty()) out += " with " + options.filter;
  if (!window.cpus.empty()) out += " of these CPUs";
  if (window.from.given || window.until.given)
    out += window.until.given ? " between " + shown(window.from, begin) + " and " + shown(window.until, end)
                              : " from " + shown(window.from, begin) + " on";
  return out + fmt::format("; {} has {}, up to +{}", options.where, format_count(seen),
                           format_time(static_cast<double>(end - begin)));
}

result<int> run_plot(PlotOptions options) {
  if (options.inputs.size() > 1) throw UsageError{"plot takes one WHERE"};
  if (!options.inputs.empty()) options.where = options.inputs.front();
  if (const Window& w = options.window;
      !w.asks_day() && w.from.given && w.until.given && w.from.relative == w.until.relative && w.from.ns > w.until.ns)
    throw UsageError{"--from is later than --to"};
  std::optional<Pairs::Options> wanted;
  if (!options.latency.empty()) {
    wanted = pair_of(options.latency, options.keys);
    choose_pairs(*wanted, options.filter, options.task);
  } else if (!(options.keys + options.task).empty()) {
    throw UsageError{"--key and --task belong to --latency"};
  }
  Reading::Options open = reading_of({options.where}, wanted ? "" : options.filter);
  open.window = options.window;
  open.window.cpus.clear();  // pairs and states need all of them
  const EventPatterns only = open.only = parse_events(options.events);
  auto opened = RS_TRY(Reading::open(std::move(open)));
  Reading& reading = *opened;
  check_wanted(only, options.window, reading);
  reading.look_up_names();
  if (options.window.asks_day()) {
    options.window.from = reading.window().from;
    options.window.until = reading.window().until;
  }
  const Trace& trace = reading.trace();
  std::optional<Pairs> pairs;
  if (wanted) {
    wanted->slowest = 0;
    pairs.emplace(RS_TRY(Pairs::make(*wanted, trace.formats, trace.tasks)));
    reading.look_up_for(*pairs);
  }
  Stacks& stacks = reading.join_stacks();
  plot::Plot plot(trace.formats, trace.tasks, options.plot);
  const bool states = only.empty() || only.matches("sched", "sched_switch");
  Unfreed unfreed(trace.formats, trace.tasks);
  unfreed.tell(plot.heap());
  HeatMap* const latency = pairs ? &plot.heat_map("latency: " + joined(options.latency)) : nullptr;
  TraceRecord record;
  for (Reading::Got got = reading.next(record); got != Reading::Got::nothing; got = reading.next(record)) {
    // Pairs use all events, also those that the page does not show.
    const RingName& ring = reading.ring(record);
    if (pairs && pairs->take(record, ring)) latency->add(record.time, pairs->latency());
    const Stacks::Part part = stacks.part(record.number());
    if (record.lost == 0 && Stacks::tells(part)) continue;
    const bool shown = got != Reading::Got::other && reading.is_of(options.window, record);
    // As in flame --peak: the shown allocations count, and every free of them.
    if (record.lost == 0 && unfreed.knows(record.number())) unfreed.take(record, ring, 0, shown);
    if (shown)
      plot.add(record, ring, part == Stacks::Part::sample ? stacks.sample_count(record) : 1);
    else if (states) plot.see(record, ring);
  }
  if (plot.events() == 0) {
    (void)say_problems(reading);
    return refuse(std::errc::no_message,
                  RS_TRY(why_empty(options)) + "; " + (options.to == "-" ? "no page" : options.to) + " was not written");
  }
  plot::About about{options.where, facts_of(options, trace.first()), trace.raw_times()};
  if (const auto wall = trace.wall(); wall && reading.totals().first_ns != ~u64{0})
    about.facts.emplace_back("time of day at +0", wall_text(wall->of(reading.totals().first_ns)));
  about_clocks(trace, about);
  const auto page = RS_TRY(plot::page(plot.json(about)));
  if (options.to == "-") {
    if (!put(page)) return exit_failure;
  } else {
    RS_TRY(write_file(options.to, page, "-o FILE.html"));
  }
  const bool problems = say_problems(reading);
  for (const std::string& note : plot.notes()) say(note);
  if (unfreed.counts().allocations != 0) say(accounted(unfreed, reading.account().none_lost()));
  for (const std::string& sentence : pairs ? unpaired(*pairs) : std::vector<std::string>()) say(sentence);
  say_first(reading.stack_remarks());
  Account account = reading.account();
  account.overrun += plot.lost() - reading.totals().account.overrun;  // of the gaps, those of the page
  say(fmt::format("{}, lost {}; {} ({})", counted(plot.events(), "event"), lost_summary(account),
                  options.to == "-" ? "stdout" : options.to, format_size(page.size())));
  return problems ? exit_failure : exit_ok;
}

}  // namespace

Command add_plot(CLI::App& app) {
  auto options = std::make_shared<PlotOptions>();
  CLI::App* c = app.add_subcommand(
      "plot", "one web page: a timeline by processor and thread, states, counters, rates, heat maps, tables");
  c->add_option("WHERE", options->where, "recording (a directory), trace.dat file or instance; an instance is not consumed")
      ->capture_default_str();
  c->add_option("-o,--output", options->to, "the page; an older one is replaced; - is stdout")
      ->capture_default_str()
      ->type_name("FILE.html");
  add_events(*c, options->events, "only these events");
  add_filter(*c, options->filter);
  c->add_option(
       "--latency", options->latency,
       "a heat map of the time between two events: START END, or a NAME of ringside latency; -f is then a condition on "
       "these pairs, and chooses no events")
      ->expected(1, 2)
      ->allow_extra_args(false)
      ->type_name("START END");
  add_key(*c, options->keys);
  add_task(*c, options->task);
  add_input(*c, options->inputs);
  add_window(*c, options->window);
  add_moment(*c, "--from", options->window.from, "from this time of the trace on; +300ms: after the first event");
  add_moment(*c, "--to", options->window.until, "up to this time, alike");
  c->add_option("--items", options->plot.items,
                "slices and instants drawn one by one at most, and as many states and values of counters; with more, the "
                "shortest neighbours are merged")
      ->capture_default_str()
      ->check(CLI::Range(u64{100}, u64{10'000'000}));
  c->add_option("--columns", options->plot.columns, "how finely rates are counted over time; heat maps half as finely")
      ->capture_default_str()
      ->check(CLI::Range(64u, 65536u));
  c->footer(
      "Examples:\n"
      "  ringside plot                                   ./ringside.data as ./ringside.html, for any browser\n"
      "  ringside plot trace.dat -o build.html           what trace-cmd recorded\n"
      "  ringside plot --from +1.2s --to +1.3s           a tenth of a second, with every event apart\n"
      "  ringside plot -e sched:sched_switch -e 'libc:*' -f 'duration_ns > 1ms || event == sched_switch'\n"
      "  ringside plot --latency wakeup                  with how long threads waited, over time\n"
      "  ringside plot --latency wakeup -f 'latency > 1ms && start/comm ~ \"cc1*\"'   only these waits\n"
      "  ringside plot -o - | ssh host 'cat >public/trace.html'\n"
      "The page is one file that loads nothing: it can be mailed. Processors show who ran, threads whether they run, wait for "
      "a CPU,\n"
      "sleep or are blocked, with arrows from waker to woken: record -e sched (with -e task: new threads and their parents). "
      "An event\n"
      "with a field NAME_ns is a slice that ends at its time, system calls and spans reach from begin to end, counters are "
      "curves,\n"
      "and so are the bytes that a process and its call sites hold (record --stack --libc malloc; -f chooses allocations). "
      "Heat\n"
      "maps show how long slices took, over time. Losses are hatched where they happened. On the page: wheel zooms, dragging "
      "pans,\n"
      "dragging over the times chooses a range and adds it up by name, thread, process and CPU (copied as CSV), / searches, ? "
      "lists\n"
      "the keys. What was merged or left out is said on the page and on stderr.");
  return {c, [options] { return run_plot(*options); }};
}

}  // namespace ringside::cli
