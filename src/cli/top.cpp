// ringside top: which events are how frequent. Live for an instance, the whole of a recording at once.
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <map>

#include "cli/signals.hpp"
#include "cli/table.hpp"
#include "cli/trace.hpp"
#include "cli/units.hpp"
#include "export/json.hpp"
#include "sys/sys.hpp"

namespace ringside::cli {
namespace {

struct Options {
  std::string filter;
  std::vector<std::string> where, events;
  std::optional<KernelWay> source;
  u64 interval_ns = 1000000000, look_ahead_ns = 100000000, count = 40;
  bool once = false, json = false;
};

struct Row {
  std::string event;
  u64 count = 0, bytes = 0;                // since the start
  u64 count_before = 0, bytes_before = 0;  // at the last picture
  double rate = 0, bytes_rate = 0;
};

struct Tally {
  explicit Tally(size_t ids) : rows(ids) {}
  std::vector<Row> rows;  // by the event's number
  u64 events = 0, lost = 0, lost_before = 0;
  u64 first_ns = ~u64{0}, last_ns = 0;
};

// Until nothing is left, or `deadline`: a picture is due, whatever the writers do.
void take(Trace& trace, RecordFilter& filter, Tally& tally, u64 deadline_ns) {
  TraceRecord record;
  for (u64 n = 1; trace.next(record); ++n) {
    if (n % 65536 == 0 && sys::now_ns() > deadline_ns) return;
    tally.first_ns = std::min(tally.first_ns, record.time);
    tally.last_ns = std::max(tally.last_ns, record.time);
    tally.lost += record.lost;
    if (record.lost != 0 || !filter.wants(record)) continue;
    Row& row = tally.rows[record.ids + read_common(record.payload).id];
    ++row.count;
    row.bytes += record.payload.size + 4;
    ++tally.events;
  }
}

std::vector<Row> rows(const Trace& trace, Tally& tally, double seconds) {
  std::map<std::string, Row> events;  // sources may number the same event differently
  for (size_t id = 0; id < tally.rows.size(); ++id) {
    Row& row = tally.rows[id];
    if (row.count == 0) continue;
    const EventType* type = trace.formats.find(static_cast<u32>(id));
    Row& sum = events[type != nullptr ? type->full : fmt::format("unknown:{}", id & 0xFFFF)];
    sum.count += row.count;
    sum.bytes += row.bytes;
    sum.rate += seconds > 0 ? static_cast<double>(row.count - row.count_before) / seconds : 0;
    sum.bytes_rate += seconds > 0 ? static_cast<double>(row.bytes - row.bytes_before) / seconds : 0;
    row.count_before = row.count;
    row.bytes_before = row.bytes;
  }
  std::vector<Row> out;
  for (auto& [event, sum] : events) {
    out.push_back(std::move(sum));
    out.back().event = event;
  }
  std::sort(out.begin(), out.end(), [](const Row& a, const Row& b) {
    if (a.rate != b.rate) return a.rate > b.rate;
    return a.count != b.count ? a.count > b.count : a.event < b.event;
  });
  return out;
}

std::string as_json(const std::vector<Row>& rows, const Tally& tally) {
  fmt::memory_buffer out;
  append(out, "{\"events\":[");
  for (const Row& row : rows) {
    if (&row != rows.data()) out.push_back(',');
    append(out, "{\"event\":");
    append_json_text(row.event, out);
    fmt::format_to(std::back_inserter(out), ",\"count\":{},\"rate\":{:.1f},\"bytes_per_s\":{:.1f}}}", row.count, row.rate,
                   row.bytes_rate);
  }
  fmt::format_to(std::back_inserter(out), "],\"count\":{},\"lost\":{}}}\n", tally.events, tally.lost);
  return {out.data(), out.size()};
}

// Losses belong to no event: nobody knows what they would have been. They have a line of their own, as do the sums.
std::string as_table(const std::vector<Row>& rows, const Tally& tally, const Options& options) {
  Table table({{"event"}, {"count", Table::right}, {"rate", Table::right}, {"bytes/s", Table::right}, {"lost", Table::right}});
  double rate = 0, bytes_rate = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    rate += rows[i].rate;
    bytes_rate += rows[i].bytes_rate;
    if (i < options.count)
      table.row({rows[i].event, format_count(rows[i].count), format_rate(rows[i].rate, ""),
                 format_size(static_cast<u64>(rows[i].bytes_rate)) + "/s", ""});
  }
  if (rows.size() > options.count) table.row({fmt::format("({} more)", rows.size() - options.count)});
  table.row({"all", format_count(tally.events), format_rate(rate, ""), format_size(static_cast<u64>(bytes_rate)) + "/s",
             format_count(tally.lost)});
  return table.render(colours());
}

// A signal ends it early: that is wanted.
void sleep_ns(u64 ns) {
  timespec time{static_cast<time_t>(ns / 1000000000), static_cast<long>(ns % 1000000000)};
  nanosleep(&time, nullptr);
}

int run(Options options) {
  catch_signals();
  auto opened = open_traces(options.where, options.events, {KernelWay::map, options.source});
  if (!opened) return failed(opened.error());
  Trace& trace = *opened;
  auto filter = RecordFilter::make(options.filter, trace);
  if (!filter) return failed(filter.error());
  if (!trace.live()) options.once = true;
  if (trace.has_only_just_begun() && options.once) {
    sleep_ns(options.interval_ns);
    trace.refresh();
  }
  if (options.interval_ns < 10000000) throw UsageError{"--interval must be at least 10ms"};
  Tally tally(trace.formats.numbers());
  const bool screen = colours() && !options.json && !options.once;
  u64 last = sys::now_ns();
  if (options.once) {
    take(trace, *filter, tally, ~u64{0});
    const double seconds = tally.last_ns > tally.first_ns ? static_cast<double>(tally.last_ns - tally.first_ns) / 1e9 : 0;
    const auto sorted = rows(trace, tally, seconds);
    put(options.json ? as_json(sorted, tally) : as_table(sorted, tally, options));
    if (tally.lost != 0) say(format_count(tally.lost) + " events were lost");
    return report_problems(trace.timeline) ? exit_failure : exit_ok;
  }
  trace.follow(options.look_ahead_ns);
  for (bool last_one = false; !last_one;) {
    sleep_ns(options.interval_ns);
    last_one = asked_to_stop();
    if (last_one)
      trace.finish();
    else
      trace.refresh();
    take(trace, *filter, tally, sys::now_ns() + options.interval_ns);
    const u64 now = sys::now_ns();
    const double seconds = static_cast<double>(now - last) / 1e9;
    last = now;
    const auto sorted = rows(trace, tally, seconds);
    std::string picture = options.json ? as_json(sorted, tally) : as_table(sorted, tally, options);
    if (screen) picture = "\033[H\033[J" + picture;
    if (!put(picture)) break;
  }
  const u64 late = trace.timeline.late();
  say(format_count(tally.events) + " events seen, " + format_count(tally.lost) + " lost" +
      (late != 0 ? ", " + format_count(late) + " out of order, behind a look-ahead of " + format_time(static_cast<double>(options.look_ahead_ns)) : ""));
  return report_problems(trace.timeline) ? exit_failure : exit_ok;
}

}  // namespace

Command add_top(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* c = app.add_subcommand("top", "live table of events: count, rate, bytes, lost");
  c->add_option("WHERE", options->where, "instance, recording or trace.dat (shown once, as a whole), or an external writer's socket; several are merged");
  c->add_option("-e,--event", options->events, "events of the kernel, beside WHERE or alone: SYSTEM:EVENT, a glob; may be repeated")
      ->type_name("GLOB")
      ->allow_extra_args(false);
  add_filter(*c, options->filter);
  add_source(*c, options->source);
  add_time(*c, "--interval", options->interval_ns, "between two pictures (default 1s)");
  add_time(*c, "--look-ahead", options->look_ahead_ns, "how long events wait for a source that is stuck in the middle of one (default 100ms)");
  c->add_option("-n,--count", options->count, "lines at most")->capture_default_str();
  c->add_flag("--once", options->once, "one picture of what is there, then end");
  c->add_flag("--json", options->json, "one JSON object a picture");
  c->footer(
      "Examples:\n"
      "  ringside top web                    a live instance; Ctrl-C ends\n"
      "  ringside top --once                 ./ringside.data as a whole\n"
      "  ringside top -e 'sched:*' -F 'prev_comm ~ \"cc1*\" || pid == 4711'\n"
      "  ringside top -e 'sched:*' -e 'irq:*'   the kernel, as root\n"
      "  ringside top web db -e 'sched:*'    two programs and the kernel, in one order\n"
      "  ringside top web --json --interval 5s >> rates.jsonl\n"
      "Nothing is consumed: a recorder beside it gets every event. -e makes an instance of its own; those that others made in\n"
      "the kernel are refused, as to read them is to take their events away.");
  return {c, [options] { return run(*options); }};
}

}  // namespace ringside::cli
