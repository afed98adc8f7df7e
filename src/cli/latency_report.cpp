#include "cli/latency_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "cli/presets.hpp"
#include "cli/table.hpp"
#include "export/json.hpp"
#include "export/text.hpp"
#include "export/units.hpp"
#include "sys/sys.hpp"
#include "watch/picture.hpp"

namespace ringside::cli {
namespace {

const char* const quantile_names[] = {"p50", "p90", "p99", "p99.9"};
const char* const json_names[] = {"p50", "p90", "p99", "p999"};
constexpr double printed_quantiles[] = {.5, .9, .99, .999};

}  // namespace

std::string LatencyReport::text(bool last) const {
  const Glyphs how = glyphs(options_.ascii);
  const size_t width = std::min<size_t>(terminal_width(), 120);
  const std::string keys = keys_of(job_.pairs.keys, ", ");
  std::string out = fmt::format("{}  ->  {}  ({}{})\n", job_.pairs.start, job_.pairs.end, keys.empty() ? "thread" : keys,
                                pairs_.nests() ? "; calls, the innermost first" : "");
  out += table();
  // On a live screen there is room for one of them only.
  if (counts_.pairs != 0 && (last || !options_.heat)) out += "\n" + time_bars(pairs_.all(), width, how, trace_.unit());
  if (options_.heat && heat_.count() != 0) out += "\n" + heat_map(heat_, width, how, trace_.unit());
  if (last) out += slowest();
  out += "\n" + closing();
  for (const std::string& note : notes(last)) out += note + "\n";
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

std::string LatencyReport::json() const {
  const Pairs::Counts& c = counts_;
  Json keys = Json::array(), buckets = Json::array();
  for (const Pairs::Key& key : job_.pairs.keys) keys.push_back({key.start, key.end});
  pairs_.all().each([&](i64 low, i64 high, u64 count) { buckets.push_back({low, high, count}); });
  Json all = numbers_of(pairs_.all());
  all["buckets"] = std::move(buckets);
  Json j{{"start", job_.pairs.start}, {"end", job_.pairs.end},  {"key", std::move(keys)},   {"exact", exact()},
         {"pairs", c.pairs},          {"left_out", c.left_out}, {"nested", pairs_.nests()}, {"doubtful", c.doubtful},
         {"starts", c.starts},        {"ends", c.ends},         {"repeated", c.repeated},   {"evicted", c.evicted},
         {"negative", c.negative},    {"open", c.waiting},      {"unmatched", c.unmatched}, {"without_key", c.without_key},
         {"all", std::move(all)}};
  add_unit(j, trace_.unit());
  add_account(j, account_);
  if (pairs_.grouped()) {
    Json groups = Json::array();
    for (size_t i = 0; i < std::min<size_t>(groups_.size(), options_.count); ++i) {
      Json group{{"key", pairs_.group_json(groups_[i].key, *groups_[i].group)}};
      group.update(numbers_of(groups_[i].group->times));
      groups.push_back(std::move(group));
    }
    j.update({{"by", pairs_.by()},
              {"groups", std::move(groups)},
              {"all_groups", groups_.size()},
              {"without_group", pairs_.without_group()},
              {"evicted_groups", pairs_.evicted_groups().keys},
              {"evicted_pairs", pairs_.evicted_groups().count}});
  }
  Json& slowest = j["slowest"] = Json::array();
  JsonLines lines(trace_.formats, trace_.tasks);
  for (const Pairs::Slow& slow : pairs_.slowest()) {
    Json one{{"latency", slow.latency}, {"doubtful", slow.doubtful}, {"key", slow.key}};
    if (pairs_.grouped()) one["group"] = slow.group;
    for (const auto& [name, copy] : {std::pair<const char*, const Pairs::Copy&>{"start", slow.start}, {"end", slow.end}}) {
      const RingName& ring = trace_.timeline.name(copy.source);
      const i32 tid = tid_of(copy);
      const i32 cpu = copy.record().cpu_in(ring);
      one[name] = {{"ts", copy.time},
                   {"cpu", cpu < 0 ? Json() : Json(cpu)},
                   {"ring", ring.ring},
                   {"tid", trace_.tasks.seen(tid, ring)},
                   {"task", trace_.tasks.name(tid, ring)},
                   {"event", event_of(copy)}};
      if (const auto next = switched_to(copy))
        one[name]["runs"] = {{"tid", trace_.tasks.seen(*next, ring)}, {"task", trace_.tasks.name(*next, ring)}};
      if (wall_) one[name]["wall"] = wall_text(wall_->of(copy.time));
      if (copy.stack != 0 && trace_.formats.stacks() != nullptr)
        one[name]["stack"] = trace_.formats.stacks()->functions(copy.stack);
    }
    Json& context = one["context"] = Json::array();
    for (const Pairs::Copy& copy : slow.context) {
      fmt::memory_buffer line;
      lines.print(copy.record(), trace_.timeline.name(copy.source), line);
      context.push_back(Json::parse(line.begin(), line.end()));
    }
    slowest.push_back(std::move(one));
  }
  if (options_.heat && heat_.count() != 0) {
    Json rows = Json::array(), columns = Json::array();
    for (u32 row = 0; row < heat_.rows(); ++row) rows.push_back(heat_.low(row));
    for (size_t column = 0; column < heat_.columns(); ++column) {
      Json& counts = columns.emplace_back(Json::array());
      for (u32 row = 0; row < heat_.rows(); ++row) counts.push_back(heat_.count(column, row));
    }
    j["heat"] = {{"begin", heat_.begin_ns(0)},
                 {"column_ns", heat_.column_ns()},
                 {"rows", std::move(rows)},
                 {"columns", std::move(columns)}};
  }
  return line_of(j);
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

std::string LatencyReport::table() const {
  std::vector<Table::Column> columns{
      {pairs_.grouped() ? pairs_.by() : "", Kind::text}, {"count", Kind::number}, {"sum", Kind::number}};
  for (const char* name : quantile_names) columns.push_back({name, Kind::number});
  columns.push_back({"max", Kind::number});
  Table table(std::move(columns));
  const auto row = [&](const std::string& name, const Histogram& h) {
    std::vector<std::string> cells{name, format_count(h.count()), shown(h.sum())};
    for (const double q : printed_quantiles) cells.push_back(shown(h.quantile(q)));
    cells.push_back(shown(static_cast<double>(h.max())));
    table.row(Cells(cells.begin(), cells.end()));
  };
  for (size_t i = 0; i < std::min<size_t>(groups_.size(), options_.count); ++i)
    row(pairs_.show_group(groups_[i].key, *groups_[i].group), groups_[i].group->times);
  if (groups_.size() > options_.count) table.row({fmt::format("({} more)", groups_.size() - options_.count)});
  row("all", pairs_.all());
  return table.render(colours());
}

std::string LatencyReport::slowest() const {
  const auto slowest = pairs_.slowest();
  if (slowest.empty()) return "";
  const bool switches = std::any_of(slowest.begin(), slowest.end(),
                                    [&](const Pairs::Slow& slow) { return event_of(slow.end) == "sched:sched_switch"; });
  std::vector<Table::Column> columns{{"slowest", Kind::number}, {"start", Kind::number}, {"task"},
                                     {"cpu", Kind::number},     {"end", Kind::number},   {"task"},
                                     {"cpu", Kind::number}};
  if (switches) columns.push_back({"runs"});
  columns.push_back({pairs_.grouped() ? pairs_.by() : ""});
  columns.push_back({"key"});
  Table table(std::move(columns));
  for (const Pairs::Slow& slow : slowest) {
    std::vector<std::string> cells{(slow.doubtful ? "? " : "") + shown(static_cast<double>(slow.latency))};
    for (const Pairs::Copy* copy : {&slow.start, &slow.end}) {
      const RingName& ring = trace_.timeline.name(copy->source);
      cells.push_back(time_of(*copy));
      const i32 tid = tid_of(*copy);
      cells.push_back(fmt::format("{}-{}", trace_.tasks.name(tid, ring), trace_.tasks.show(trace_.tasks.key(tid, ring))));
      const i32 cpu = copy->record().cpu_in(ring);
      cells.push_back(cpu < 0 ? "-" : std::to_string(cpu));
    }
    if (switches) {
      const std::optional<i32> next = switched_to(slow.end);
      const RingName& ring = trace_.timeline.name(slow.end.source);
      cells.push_back(
          next ? fmt::format("{}-{}", trace_.tasks.name(*next, ring), trace_.tasks.show(trace_.tasks.key(*next, ring))) : "");
    }
    cells.push_back(slow.group);
    cells.push_back(slow.key);
    table.row(Cells(cells.begin(), cells.end()));
  }
  std::string out = "\n" + table.render(colours());
  if (switches)
    out +=
        "task: the thread that the event comes from; a sched_switch comes from the one that leaves the CPU, and the next one "
        "runs\n";
  TextLines text(trace_.formats, trace_.tasks, trace_.raw_times());
  for (const Pairs::Slow& slow : slowest) {
    for (const auto& [name, copy] : {std::pair<const char*, const Pairs::Copy&>{"start", slow.start}, {"end", slow.end}}) {
      if (copy.stack == 0 || trace_.formats.stacks() == nullptr) continue;
      fmt::memory_buffer lines;
      trace_.formats.stacks()->append_lines(copy.stack, lines);
      out += fmt::format("\n{} with {}, the {}'s stack ({}):\n", shown(static_cast<double>(slow.latency)), slow.key, name,
                         event_of(copy));
      out.append(lines.data(), lines.size());
    }
    if (slow.context.empty()) continue;
    fmt::memory_buffer lines;
    for (const Pairs::Copy& copy : slow.context) text.print(copy.record(), trace_.timeline.name(copy.source), lines);
    text.print(slow.end.record(), trace_.timeline.name(slow.end.source), lines);
    out += fmt::format("\n{} with {}, and what led to it:\n", shown(static_cast<double>(slow.latency)), slow.key);
    out.append(lines.data(), lines.size());
  }
  return out;
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
    return out + "nothing was lost\n";  // only starts that repeat
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
  return out + "\n";
}

Json LatencyReport::numbers_of(const Histogram& h) {
  Json j{{"count", h.count()}, {"sum", whole(h.whole_sum())}, {"mean", rounded(h.mean(), 1)}, {"min", h.min()}};
  for (size_t i = 0; i < std::size(printed_quantiles); ++i) j[json_names[i]] = rounded(h.quantile(printed_quantiles[i]), 0);
  j["max"] = h.max();
  return j;
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
