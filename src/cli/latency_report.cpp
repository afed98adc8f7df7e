#include "cli/latency_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "cli/presets.hpp"
#include "export/json.hpp"
#include "export/text.hpp"
#include "text/units.hpp"
#include "sys/sys.hpp"
#include "watch/picture.hpp"

namespace ringside::cli {
namespace {

const char* const quantile_names[] = {"p50", "p90", "p99", "p99.9"};
constexpr double printed_quantiles[] = {.5, .9, .99, .999};

constexpr Members latency_numbers = {{"count", Kind::count, "pairs", "count"},
                                     {"sum", Kind::time, "the sum of their latencies", "sum"},
                                     {"mean", Kind::mean, "the mean"},
                                     {"min", Kind::time, "the shortest"},
                                     {"p50", Kind::time, "the median; quantiles are right within 0.8 %", "p50"},
                                     {"p90", Kind::time, "the quantile 0.9", "p90"},
                                     {"p99", Kind::time, "the quantile 0.99", "p99"},
                                     {"p999", Kind::time, "the quantile 0.999", "p99.9"},
                                     {"max", Kind::time, "the longest", "max"}};
constexpr Members latency_event = {
    {"ts", Kind::number, "its time, by the trace's clock, in ns"},
    {"cpu", Kind::number, "its CPU; null if unknown"},
    {"ring", Kind::number, "N of per_cpu/cpuN"},
    {"tid", Kind::number, "its thread, as the reader of the trace sees it"},
    {"task", Kind::text, "the thread's name"},
    {"event", Kind::text, "`system:name`"},
    {"runs", Kind::object, "of a sched_switch: `tid` and `task` of the thread that runs from then on"},
    {"wall", Kind::text, "with `--wall`: its time of day"},
    {"stack", Kind::array, "its stack, if it has one: functions, innermost first"}};
constexpr Members latency_pair = {{"latency", Kind::time, "the time from start to end"},
                                  {"doubtful", Kind::flag, "a loss fell into it"},
                                  {"key", Kind::text, "what both have in common"},
                                  {"group", Kind::text, "with `--by`: its group"},
                                  {"start", Kind::object, "its start:", nullptr, latency_event},
                                  {"end", Kind::object, "its end, in the same way"},
                                  {"context", Kind::array, "lines as of report"}};
constexpr Members latency_heat = {{"begin", Kind::time, "the time of the first column"},
                                  {"column_ns", Kind::time, "the time that a column has"},
                                  {"rows", Kind::array, "the latency at which each row begins"},
                                  {"columns", Kind::array, "arrays: the counts by row"}};
constexpr Members latency_facts = {
    {"start", Kind::text, "the events and the condition of the start"},
    {"end", Kind::text, "those of the end"},
    {"key", Kind::array, "what they have in common: pairs of columns"},
    {"exact", Kind::flag, "nothing was lost, evicted, negative, repeated, passed or late"},
    {"pairs", Kind::count, "pairs that meet the condition"},
    {"left_out", Kind::count, "pairs that do not meet it (`-f`, `--task`)"},
    {"nested", Kind::flag, "they are calls, and an end takes the innermost start of its key"},
    {"doubtful", Kind::count, "pairs that a loss fell into"},
    {"starts", Kind::count, "`pairs` + `left_out` + `repeated` + `evicted` + `negative` + `open`"},
    {"ends", Kind::count, "`pairs` + `left_out` + `negative` + `unmatched`"},
    {"repeated", Kind::count, "starts with another start of their key before the end"},
    {"evicted", Kind::count, "starts that gave way to younger ones"},
    {"negative", Kind::count, "ends older than their start"},
    {"open", Kind::count, "starts without an end yet"},
    {"passed", Kind::count, "of `open`, calls below one that ended: they last on, or another call took their end"},
    {"unmatched", Kind::count, "ends without a start"},
    {"without_key", Kind::count, "starts and ends that have no key"},
    {"late", Kind::count, "starts and ends that came after later events: their pairs may be wrong, or missing"}};
constexpr Members latency_groups = {{"all_groups", Kind::count, "how many groups there are"},
                                    {"without_group", Kind::count, "pairs that have none"},
                                    {"evicted_groups", Kind::count, "groups that a full table gave up"},
                                    {"evicted_pairs", Kind::count, "their pairs"}};
constexpr Members latency_result = {
    {"", Kind::object, "", nullptr, latency_facts},
    {"all", Kind::object, "of all pairs:", nullptr, latency_numbers},
    {"all.buckets", Kind::array, "arrays of `low`, `high` and `count`"},
    unit_member,
    {"", Kind::object, "", nullptr, account_members},
    {"by", Kind::text, "the column of `--by`"},
    {"groups", Kind::array,
     "with `--by`: an object for each value of the column: `key`, the value, and the numbers of `all` but the buckets"},
    {"", Kind::object, "", nullptr, latency_groups},
    {"slowest", Kind::array, "an object for each of the slowest pairs:", nullptr, latency_pair},
    {"heat", Kind::object, "with `--heat`:", nullptr, latency_heat}};

}  // namespace

Members latency_members() { return latency_result; }

Result LatencyReport::result(bool last) const {
  const Pairs::Counts& c = counts_;
  const Glyphs how = glyphs(options_.ascii);
  const size_t width = std::min<size_t>(terminal_width(), 120);
  const std::string common = keys_of(job_.pairs.keys, ", ");
  Json keys = Json::array(), buckets = Json::array();
  for (const Pairs::Key& key : job_.pairs.keys) keys.push_back({key.start, key.end});
  pairs_.all().each([&](i64 low, i64 high, u64 count) { buckets.push_back({low, high, count}); });
  Json all = Table::object(latency_numbers, numbers_of(pairs_.all()));
  all["buckets"] = std::move(buckets);
  Result out;
  out.text(fmt::format("{}  ->  {}  ({}{})\n", job_.pairs.start, job_.pairs.end, common.empty() ? "thread" : common,
                       pairs_.nests() ? "; calls, the innermost first" : ""));
  out.set(latency_facts,
          {job_.pairs.start, job_.pairs.end, std::move(keys), exact(), c.pairs, c.left_out, pairs_.nests(), c.doubtful,
           c.starts, c.ends, c.repeated, c.evicted, c.negative, c.waiting, c.passed, c.unmatched, c.without_key, c.late});
  out.set({{"all", std::move(all)}});
  out.account(account_, trace_.unit());
  if (pairs_.grouped()) out.set({{"by", pairs_.by()}});
  out.table(pairs_.grouped() ? "groups" : "", table());
  if (pairs_.grouped())
    out.set(latency_groups,
            {groups_.size(), pairs_.without_group(), pairs_.evicted_groups().keys, pairs_.evicted_groups().count});
  // On a live screen there is room for one of them only.
  if (c.pairs != 0 && (last || !options_.heat)) out.text("\n" + time_bars(pairs_.all(), width, how, trace_.unit()));
  if (options_.heat && heat_.count() != 0) out.text("\n" + heat_map(heat_, width, how, trace_.unit()));
  if (last || options_.run.json) slowest(out);
  if (options_.heat && heat_.count() != 0) {
    Json rows = Json::array(), columns = Json::array();
    for (u32 row = 0; row < heat_.rows(); ++row) rows.push_back(heat_.low(row));
    for (size_t column = 0; column < heat_.columns(); ++column) {
      Json& counts = columns.emplace_back(Json::array());
      for (u32 row = 0; row < heat_.rows(); ++row) counts.push_back(heat_.count(column, row));
    }
    out.set(
        {{"heat", Table::object(latency_heat, {heat_.begin_ns(0), heat_.column_ns(), std::move(rows), std::move(columns)})}});
  }
  out.text("\n" + closing());
  for (const std::string& note : notes(last)) out.text(note + "\n");
  return out;
}

std::vector<std::string> LatencyReport::notes(bool last) const {
  std::vector<std::string> all = notes_;
  if (counts_.pairs != 0 || !last || !all.empty()) return all;
  if (counts_.left_out != 0)
    all.push_back("no pair meets the filter; " + counted(counts_.left_out, "pair does", "pairs do") + " not");
  else if (counts_.starts == 0 || counts_.ends == 0)
    all.push_back(std::string("no pair: there was ") + (counts_.starts + counts_.ends == 0 ? "no start and no end"
                                                        : counts_.starts == 0              ? "no start"
                                                                                           : "no end"));
  else
    all.push_back("no pair: no end has the key of a start before it; -k FIELD or START_FIELD=END_FIELD names another key");
  return all;
}

std::vector<LatencyReport::Row> LatencyReport::groups() const {
  std::vector<Row> rows;
  const auto* const quantile = std::find(std::begin(quantile_names), std::end(quantile_names), options_.sort);
  pairs_.each_group([&](u64 key, const Pairs::Group& group) {
    const Histogram& h = group.times;
    const double order = options_.sort == "count" ? static_cast<double>(h.count())
                         : options_.sort == "sum" ? h.sum()
                         : options_.sort == "max" ? static_cast<double>(h.max())
                                                  : h.quantile(printed_quantiles[quantile - std::begin(quantile_names)]);
    rows.push_back({key, &group, order});
  });
  std::sort(rows.begin(), rows.end(), [&](const Row& a, const Row& b) {
    if (a.order != b.order) return a.order > b.order;
    return a.group->count != b.group->count ? a.group->count > b.group->count
                                            : pairs_.show_group(a.key, *a.group) < pairs_.show_group(b.key, *b.group);
  });
  return rows;
}

Table LatencyReport::table() const {
  Table table({{pairs_.grouped() ? pairs_.by() : "", Kind::text, "key"}}, trace_.unit());
  table.add(latency_numbers);
  for (size_t i = 0; i < std::min<size_t>(groups_.size(), options_.count); ++i) {
    const auto& [key, group, order] = groups_[i];
    table.row({{pairs_.group_json(key, *group), pairs_.show_group(key, *group)}}, numbers_of(group->times));
  }
  table.line_of_more(groups_.size(), options_.count);
  table.line({"all"}, numbers_of(pairs_.all()));
  return table;
}

void LatencyReport::slowest(Result& out) const {
  const auto slowest = pairs_.slowest();
  if (slowest.empty()) return out.set({{"slowest", Json::array()}});
  const bool switches = std::any_of(slowest.begin(), slowest.end(),
                                    [&](const Pairs::Slow& slow) { return event_of(slow.end) == "sched:sched_switch"; });
  const bool grouped = pairs_.grouped();
  Table table({{"slowest", Kind::time, "latency"}, {"", Kind::flag, "doubtful", false}, {"", Kind::text, "key", false}},
              trace_.unit());
  table.add({"", Kind::text, "group", false});
  for (const char* const side : {"start", "end"}) {
    table.add({side, Kind::number, "ts", true, side});
    table.add({"task"});
    table.add({"cpu", Kind::number, "cpu", true, side});
    for (const Member& m : latency_event)
      if (m.key != std::string_view("ts") && m.key != std::string_view("cpu")) table.add({"", m.kind, m.key, false, side});
  }
  if (switches) table.add({"runs"});
  table.add({grouped ? pairs_.by() : ""});
  table.add({"key"});
  table.add({"", Kind::array, "context", false});
  JsonLines lines(trace_.formats, trace_.tasks);
  for (const Pairs::Slow& slow : slowest) {
    Cells cells{{slow.latency, (slow.doubtful ? "? " : "") + shown(static_cast<double>(slow.latency))},
                slow.doubtful,
                slow.key,
                grouped ? Cell(slow.group) : Cell::absent()};
    std::string runs;
    const auto side = [&](const Pairs::Copy* copy) {
      const RingName& ring = trace_.timeline.name(copy->source);
      const i32 tid = tid_of(*copy), cpu = copy->record().cpu_in(ring);
      const auto name = [&](i32 of) {
        return fmt::format("{}-{}", trace_.tasks.name(of, ring), trace_.tasks.show(trace_.tasks.key(of, ring)));
      };
      const auto next = switched_to(*copy);
      runs = next ? name(*next) : "";
      const bool stack = copy->stack != 0 && trace_.formats.stacks() != nullptr;
      const Cells more{
          {copy->time, time_of(*copy)},
          name(tid),
          cpu < 0 ? Cell(Json(), "-") : Cell(cpu),
          ring.ring,
          trace_.tasks.seen(tid, ring),
          trace_.tasks.name(tid, ring),
          event_of(*copy),
          next ? Cell(Json{{"tid", trace_.tasks.seen(*next, ring)}, {"task", trace_.tasks.name(*next, ring)}}) : Cell::absent(),
          wall_ ? Cell(wall_text(wall_->of(copy->time))) : Cell::absent(),
          stack ? Cell(trace_.formats.stacks()->functions(copy->stack)) : Cell::absent()};
      cells.insert(cells.end(), more.begin(), more.end());
    };
    for (const Pairs::Copy* copy : {&slow.start, &slow.end}) trace_.tasks.as_of(copy->time, [&] { side(copy); });
    if (switches) cells.push_back(Cell::absent(runs));
    cells.push_back(Cell::absent(slow.group));
    cells.push_back(Cell::absent(slow.key));
    Json context = Json::array();
    for (const Pairs::Copy& copy : slow.context) {
      fmt::memory_buffer line;
      trace_.tasks.as_of(copy.time, [&] { lines.print(copy.record(), trace_.timeline.name(copy.source), line); });
      context.push_back(Json::parse(line.begin(), line.end()));
    }
    cells.push_back(std::move(context));
    table.row(std::move(cells));
  }
  out.text("\n");
  out.table("slowest", std::move(table));
  if (options_.run.json) return;
  if (switches)
    out.text(
        "task: the thread that the event comes from; a sched_switch comes from the one that leaves the CPU, and the next one "
        "runs\n");
  TextLines text(trace_.formats, trace_.tasks, trace_.raw_times());
  for (const Pairs::Slow& slow : slowest) {
    const std::string pair = "\n" + shown(static_cast<double>(slow.latency)) + " with " + slow.key;
    for (const auto& [name, copy] : {std::pair<const char*, const Pairs::Copy&>{"start", slow.start}, {"end", slow.end}}) {
      if (copy.stack == 0 || trace_.formats.stacks() == nullptr) continue;
      fmt::memory_buffer stack;
      trace_.formats.stacks()->append_lines(copy.stack, stack);
      out.text(fmt::format("{}, the {}'s stack ({}):\n{}", pair, name, event_of(copy), fmt::to_string(stack)));
    }
    if (slow.context.empty()) continue;
    fmt::memory_buffer before;
    const auto print = [&](const Pairs::Copy& copy) {
      trace_.tasks.as_of(copy.time, [&] { text.print(copy.record(), trace_.timeline.name(copy.source), before); });
    };
    for (const Pairs::Copy& copy : slow.context) print(copy);
    print(slow.end);
    out.text(fmt::format("{}, and what led to it:\n{}", pair, fmt::to_string(before)));
  }
}

std::string LatencyReport::closing() const {
  const Pairs::Counts& c = counts_;
  const std::string pairs =
      "pairs " + format_count(c.pairs) +
      (job_.pairs.filter.empty() ? "" : " + pairs that do not meet the condition " + format_count(c.left_out));
  std::string out =
      fmt::format("starts {} = {} + repeated {} + evicted {} + negative {} + still open {}\n", format_count(c.starts), pairs,
                  format_count(c.repeated), format_count(c.evicted), format_count(c.negative), format_count(c.waiting));
  out += fmt::format("ends {} = {} + negative {} + without a start {}\n", format_count(c.ends), pairs, format_count(c.negative),
                     format_count(c.unmatched));
  for (const std::string& sentence : unpaired(pairs_)) out += sentence + "\n";
  if (c.without_key != 0) out += format_count(c.without_key) + " of these events have no such key\n";
  if (pairs_.without_group() != 0)
    out += counted(pairs_.without_group(), "pair has", "pairs have") + " no " + pairs_.by() + "\n";
  if (pairs_.evicted_groups().keys != 0)
    out += fmt::format("{} with {} given up for others (--groups)\n", counted(pairs_.evicted_groups().keys, "group"),
                       counted(pairs_.evicted_groups().count, "pair was", "pairs were"));
  if (exact())
    return out + (c.pairs == 0 ? "nothing was lost\n" : "nothing was lost: the numbers are exact, quantiles within 0.8 %\n");
  if (c.losses + c.evicted + c.negative + pairs_.evicted_groups().keys == 0 && account_.none_lost())
    return out + "nothing was lost\n";  // only starts that repeat or were passed, or what came late
  out += "NOT exact:";
  if (c.lost != 0)
    out += fmt::format(" {} lost, in {}; {} of the pairs have such a place between start and end and {}",
                       counted(c.lost, "event was", "events were"), counted(c.losses, "place"), format_count(c.doubtful),
                       options_.sure ? "are left out" : "may be none (marked ?; --sure leaves them out)");
  Account elsewhere = account_;
  elsewhere.overrun -= std::min(elsewhere.overrun, c.lost);
  elsewhere.overrun_at_least = elsewhere.overrun_at_least && c.lost == 0;
  if (!elsewhere.none_lost())
    out += fmt::format("{} {} events are missing that nobody can place", c.lost != 0 ? ";" : "", lost_count(elsewhere));
  if (c.evicted != 0)
    out += fmt::format("{} {} gave way to younger ones (--keys)", c.lost != 0 ? ";" : "", counted(c.evicted, "start"));
  if (c.negative != 0)
    out += fmt::format("{} {} older than the start", c.lost + c.evicted != 0 ? ";" : "",
                       counted(c.negative, "end is", "ends are"));
  if (out.ends_with(':')) out += " groups were given up";
  return out + "\n";
}

Cells LatencyReport::numbers_of(const Histogram& h) const {
  Cells cells{h.count(), {whole(h.whole_sum()), shown(h.sum())}, h.mean(), h.min()};
  for (const double quantile : printed_quantiles) cells.emplace_back(h.quantile(quantile));
  cells.emplace_back(h.max());
  return cells;
}

std::string LatencyReport::event_of(const Pairs::Copy& copy) const {
  const EventType* type = type_of(copy);
  return type != nullptr ? type->full : "unknown";
}

i32 LatencyReport::tid_of(const Pairs::Copy& copy) const {
  const i32 tid = thread_of(type_of(copy), read_common(copy.record().payload));
  // The kernel remembers only some names.
  if (trace_.tracefs() != nullptr && trace_.tasks.find(tid, trace_.timeline.name(copy.source)) == nullptr)
    (void)trace_.learn_name(tid);
  return tid;
}

std::optional<i32> LatencyReport::switched_to(const Pairs::Copy& copy) const {
  const EventType* const type = type_of(copy);
  const Field* const next = type != nullptr && type->full == "sched:sched_switch" ? type->field("next_pid") : nullptr;
  if (next == nullptr || next->kind != FieldKind::integer) return std::nullopt;
  return static_cast<i32>(read_integer(copy.record().payload, *next));
}

std::string LatencyReport::time_of(const Pairs::Copy& copy) const {
  if (wall_) return wall_text(wall_->of(copy.time)).substr(0, sizeof "2026-11-28T14:05:02.123456" - 1);
  return trace_.raw_times() ? std::to_string(copy.time)
                            : fmt::format("{}.{:06}", copy.time / 1'000'000'000, copy.time % 1'000'000'000 / 1000);
}

}  // namespace ringside::cli
