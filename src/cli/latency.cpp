// ringside latency: the time between two events with a common key, as a table, bars, a heat map and the slowest ones. Live (the
// kernel, an instance), or the whole of a recording.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <set>

#include "analysis/heat_map.hpp"
#include "analysis/names.hpp"
#include "analysis/pairs.hpp"
#include "cli/flame.hpp"
#include "cli/json.hpp"
#include "cli/live.hpp"
#include "watch/picture.hpp"
#include "cli/presets.hpp"
#include "cli/table.hpp"
#include "export/units.hpp"
#include "export/json.hpp"
#include "export/text.hpp"
#include "sys/sys.hpp"
#include "sys/try.hpp"

namespace ringside::cli {
namespace {

struct LatencyOptions {
  std::vector<std::string> words;
  RunOptions run;
  std::string hook, keys, by, sort = "max", flame;
  u64 most_waiting = 100'000, most_groups = 10'000, count = 20;
  u32 slowest = 10, context = 0;
  bool heat = false, ascii = false, first = false, sure = false;
};

// What to measure, and where; empty if not given.
struct Job {
  Pairs::Options pairs;
  std::vector<std::string> pair;  // START END, or a name
  std::vector<std::string> where;
  std::vector<std::string> events;  // lists of patterns
};

// START_EVENT,START_MATCH[,START_PID]/END_EVENT,END_MATCH[,FLAGS], the syntax of trace-cmd profile.
void parse_hook(const std::string& text, Pairs::Options& pairs) {
  const auto wrong = [&](const std::string& why) {
    return UsageError{"-H " + ringside::in_quotes(text) + ": " + why +
                      "; it takes [SYSTEM:]EVENT,FIELD[,PID]/[SYSTEM:]EVENT,FIELD[,FLAGS]"};
  };
  const auto sides = split_at(text, '/');
  if (sides.size() != 2) throw wrong("there must be one / between start and end");
  const auto start = split_at(sides[0], ','), end = split_at(sides[1], ',');
  if (start.size() < 2 || start.size() > 3 || end.size() < 2 || end.size() > 3)
    throw wrong("an event and its field on both sides");
  for (const auto* side : {&start, &end}) {
    for (const std::string& part : *side) {
      if (part.empty()) throw wrong("nothing between two commas");
    }
  }
  bool cpu = false, global = false;
  for (const char c : end.size() == 3 ? end[2] : std::string()) {
    switch (c) {
      case 'p': case 'P': cpu = true; break;
      case 'g': case 'G': global = true; break;
      case 's': case 'S': say("-H: no stacks are recorded; the flag s does nothing"); break;
      default: throw wrong("flags are p (on one CPU), g (of no task) and s");
    }
  }
  pairs.start = start[0];
  pairs.end = end[0];
  pairs.keys = {{start[1], end[1]}};
  // Without a PID both events belong to one task.
  if (!global && start.size() == 2) pairs.keys.push_back({"common_pid", "common_pid"});
  if (cpu) pairs.keys.push_back({"cpu", "cpu"});
  if (start.size() == 3) pairs.by = "start/" + start[2];
}

Job job_of(const LatencyOptions& options) {
  Job job;
  Pairs::Options& pairs = job.pairs;
  size_t used = 0;
  const auto& words = options.words;
  const Preset* preset = words.empty() || !options.hook.empty() ? nullptr : find_preset(words[0]);
  // One word, or a word and a file: it was to be a name.
  const bool one_and_where = words.size() > 1 && (is_recorded(words[1]) || access(words[1].c_str(), F_OK) == 0);
  if (preset == nullptr && options.hook.empty() && (words.size() == 1 || one_and_where)) {
    std::vector<std::string> names;
    for (const Preset& p : all_presets()) names.emplace_back(p.name);
    if (const auto near = nearest(words[0], names); !near.empty())
      throw UsageError{"no pair of events has the name " + in_quotes(words[0]) + did_you_mean(near)};
    if (one_and_where)
      throw UsageError{in_quotes(words[1]) +
                       " is a recording or a file; latency takes START END, or the NAME of a pair, before it, and " +
                       in_quotes(words[0]) + " is no name: there are " + short_list(names)};
  }
  if (!options.hook.empty()) {
    parse_hook(options.hook, pairs);
  } else {
    used = preset != nullptr ? 1 : 2;
    if (words.size() < used)
      throw UsageError{"what from and what to: START END, as SYSTEM:EVENT, or one of the names that --help lists"};
    job.pair.assign(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(used));
    pairs = pair_of(job.pair, "");
    if (preset != nullptr) pairs.by = preset->by;
  }
  job.where.assign(words.begin() + static_cast<std::ptrdiff_t>(used), words.end());
  if (!options.keys.empty()) pairs.keys = parse_keys(options.keys);
  if (!options.by.empty()) pairs.by = options.by == "none" ? "" : options.by;
  pairs.most_waiting = options.most_waiting;
  pairs.most_groups = options.most_groups;
  pairs.slowest = options.slowest;
  pairs.context = options.context;
  pairs.first = options.first;
  pairs.sure = options.sure;
  job.events = events_of(pairs);
  return job;
}

// Without WHERE: the kernel, live, if these are its events; else ./ringside.data. -e adds events, which are for the context.
result<RunOptions> where(const Job& job, RunOptions run) {
  run.where = job.where;
  run.where.insert(run.where.end(), run.inputs.begin(), run.inputs.end());
  run.inputs.clear();
  if (run.events.empty() && !run.where.empty()) return run;
  std::vector<std::string> lists = job.events;
  lists.insert(lists.end(), run.events.begin(), run.events.end());
  if (run.where.empty()) {
    const EventPatterns patterns = parse_events(lists);
    const auto all = kernel_events();
    const bool of_libc =
        std::any_of(patterns.begin(), patterns.end(), [](const EventPattern& p) { return p.text().rfind("libc:", 0) == 0; });
    if (!all && !of_libc && !is_recording(default_recording)) return tl::unexpected<Error>(all.error());
    const bool of_kernel = all && !of_libc && std::any_of(patterns.begin(), patterns.end(), [&](const EventPattern& p) {
                             return names_some(p, *all);
                           });
    if (of_kernel && is_recording(default_recording))
      say("the kernel, live, until Ctrl-C or --duration; the recording in this directory takes its name: " +
          std::string(default_recording));
    if (!of_kernel) {
      run.where = {default_recording};
      say_of_default();
    }
    if (!of_kernel && run.events.empty()) return run;
  }
  run.events = lists;
  return run;
}

const char* const quantile_names[] = {"p50", "p90", "p99", "p99.9"};
const char* const json_names[] = {"p50", "p90", "p99", "p999"};
constexpr double quantiles[] = {.5, .9, .99, .999};

std::string key_text(const std::vector<Pairs::Key>& keys) {
  std::string text;
  for (const Pairs::Key& key : keys)
    text += (text.empty() ? "" : ",") + key.start + (key.end == key.start ? "" : "=" + key.end);
  return text;
}

// The other side's field that tells the same: next_comm for comm, as next_pid is the key for pid. Empty: there is none.
std::string counterpart(const std::string& field, const std::vector<Pairs::Key>& keys, bool of_start,
                        const std::set<std::string>& there) {
  for (const Pairs::Key& key : keys) {
    std::string from(Pairs::field_of(key.start)), to(Pairs::field_of(key.end));
    if (!of_start) std::swap(from, to);
    std::string other;
    if (to.size() > from.size() && to.ends_with(from)) {
      other = to.substr(0, to.size() - from.size()) + field;
    } else if (from.size() > to.size() && from.ends_with(to) && field.starts_with(from.substr(0, from.size() - to.size()))) {
      other = field.substr(from.size() - to.size());
    }
    if (there.count(other) != 0) return other;
  }
  return "";
}

std::string with_word(const std::string& text, const std::string& word, const std::string& other) {
  const auto is_letter = [&](size_t at) {
    return at < text.size() && (std::isalnum(static_cast<unsigned char>(text[at])) != 0 || text[at] == '_');
  };
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const bool here =
        text.compare(at, word.size(), word) == 0 && !is_letter(at + word.size()) && (at == 0 || !is_letter(at - 1));
    out += here ? other : text.substr(at, 1);
    at += here ? word.size() : 1;
  }
  return out;
}

// A filter is asked of starts and ends, each by itself. One about fields that only one side has drops the other side, or means
// the thread that ran there. Empty: it is about both sides.
std::string of_one_side(const std::string& text, const Pairs& pairs, const Trace& trace) {
  const auto filter = Filter::compile(text, trace.formats, trace.tasks);
  if (!filter) return "";
  std::set<std::string> fields[2], named[2], alone[2];
  for (const auto& type : trace.formats.all()) {
    for (const int side : {0, 1}) {
      if (side == 0 ? !pairs.is_start(*type) : !pairs.is_end(*type)) continue;
      for (const Field& f : type->fields()) {
        fields[side].insert(f.name);
        if (filter->names(f.name)) named[side].insert(f.name);
      }
    }
  }
  for (const int side : {0, 1})
    std::set_difference(named[side].begin(), named[side].end(), fields[1 - side].begin(), fields[1 - side].end(),
                        std::inserter(alone[side], alone[side].end()));
  if (alone[0].empty() == alone[1].empty()) return "";
  const int side = alone[0].empty() ? 1 : 0;
  const auto& options = pairs.options();
  std::string other = text;
  for (const std::string& field : alone[side]) {
    const std::string partner = counterpart(field, options.keys, side == 0, fields[1 - side]);
    other = partner.empty() ? "" : with_word(other, field, partner);
    if (other.empty()) break;
  }
  std::string whole;
  if (!other.empty()) {
    whole = "-f '" + text + " || " + other + "'";
  } else {  // as a condition of its side
    std::string sides[] = {options.start, options.end};
    const auto [events, condition] = Pairs::split(sides[side]);
    sides[side] = events + " if " + (condition.empty() ? text : "(" + condition + ") && (" + text + ")");
    whole = "'" + sides[0] + "' '" + sides[1] + "' -k " + key_text(options.keys);
  }
  return "the filter is asked of starts and ends, each by itself, and " + in_quotes(*alone[side].begin()) +
         " is a field of the " + (side == 0 ? "starts" : "ends") +
         " alone: the other side is dropped, or means another thread; write " + whole;
}

class Report {
 public:
  Report(const LatencyOptions& options, const Job& job, Trace& trace, const Pairs& pairs, const HeatMap& heat,
         const Missing& missing, const std::vector<std::string>& notes)
      : options_(options),
        job_(job),
        notes_(notes),
        trace_(trace),
        pairs_(pairs),
        heat_(heat),
        counts_(pairs.counts()),
        missing_(missing),
        groups_(groups()) {}

  std::string text(bool last) const {
    const Glyphs how = glyphs(options_.ascii);
    const size_t width = std::min<size_t>(terminal_width(), 120);
    std::string keys;
    for (const Pairs::Key& key : job_.pairs.keys)
      keys += (keys.empty() ? "" : ", ") + key.start + (key.end == key.start ? "" : "=" + key.end);
    std::string out = fmt::format("{}  ->  {}  ({})\n", job_.pairs.start, job_.pairs.end, keys.empty() ? "thread" : keys);
    out += table();
    // On a live screen there is room for one of them only.
    if (counts_.pairs != 0 && (last || !options_.heat)) out += "\n" + time_bars(pairs_.all(), width, how);
    if (options_.heat && heat_.count() != 0) out += "\n" + heat_map(heat_, width, how);
    if (last) out += slowest();
    out += "\n" + closing();
    for (const std::string& note : notes(last)) out += note + "\n";
    return out;
  }

  // What is to be known about these numbers, beside their losses.
  std::vector<std::string> notes(bool last) const {
    std::vector<std::string> all = notes_;
    if (counts_.pairs != 0 || !last || !all.empty()) return all;
    if (!options_.run.filter.empty())
      all.push_back("no pair: the filter is asked of starts and ends, each by itself, and left none that belong together");
    else if (counts_.starts == 0 || counts_.ends == 0)
      all.push_back(std::string("no pair: there was ") + (counts_.starts + counts_.ends == 0 ? "no start and no end"
                                                          : counts_.starts == 0              ? "no start"
                                                                                             : "no end"));
    else
      all.push_back("no pair: no end has the key of a start before it; -k FIELD or START_FIELD=END_FIELD names another key");
    return all;
  }

  std::string json() const {
    const Pairs::Counts& c = counts_;
    Json keys = Json::array(), buckets = Json::array();
    for (const Pairs::Key& key : job_.pairs.keys) keys.push_back({key.start, key.end});
    pairs_.all().each([&](i64 low, i64 high, u64 count) { buckets.push_back({low, high, count}); });
    Json all = numbers_of(pairs_.all());
    all["buckets"] = std::move(buckets);
    Json j{
        {"start", job_.pairs.start}, {"end", job_.pairs.end},        {"key", std::move(keys)},   {"exact", exact()},
        {"pairs", c.pairs},          {"doubtful", c.doubtful},       {"starts", c.starts},       {"ends", c.ends},
        {"repeated", c.repeated},    {"evicted", c.evicted},         {"negative", c.negative},   {"open", c.waiting},
        {"unmatched", c.unmatched},  {"without_key", c.without_key}, {"lost", missing_.count()}, {"proved", missing_.proved()},
        {"all", std::move(all)}};
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

 private:
  struct Row {
    u64 key = 0;
    const Pairs::Group* group = nullptr;
    double order = 0;
  };

  std::vector<Row> groups() const {
    std::vector<Row> rows;
    const auto* const quantile = std::find(std::begin(quantile_names), std::end(quantile_names), options_.sort);
    pairs_.each_group([&](u64 key, const Pairs::Group& group) {
      const Histogram& h = group.times;
      const double order = options_.sort == "count" ? static_cast<double>(h.count())
                           : options_.sort == "sum" ? h.sum()
                           : options_.sort == "max" ? static_cast<double>(h.max())
                                                    : h.quantile(quantiles[quantile - std::begin(quantile_names)]);
      rows.push_back({key, &group, order});
    });
    std::sort(rows.begin(), rows.end(), [&](const Row& a, const Row& b) {
      if (a.order != b.order) return a.order > b.order;
      return a.group->count != b.group->count ? a.group->count > b.group->count
                                              : pairs_.show_group(a.key, *a.group) < pairs_.show_group(b.key, *b.group);
    });
    return rows;
  }

  std::string table() const {
    std::vector<Table::Column> columns{
        {pairs_.grouped() ? pairs_.by() : "", Table::left}, {"count", Table::right}, {"sum", Table::right}};
    for (const char* name : quantile_names) columns.push_back({name, Table::right});
    columns.push_back({"max", Table::right});
    Table table(std::move(columns));
    const auto row = [&](const std::string& name, const Histogram& h) {
      std::vector<std::string> cells{name, format_count(h.count()), format_time(h.sum())};
      for (const double q : quantiles) cells.push_back(format_time(h.quantile(q)));
      cells.push_back(format_time(static_cast<double>(h.max())));
      table.row(std::move(cells));
    };
    for (size_t i = 0; i < std::min<size_t>(groups_.size(), options_.count); ++i)
      row(pairs_.show_group(groups_[i].key, *groups_[i].group), groups_[i].group->times);
    if (groups_.size() > options_.count) table.row({fmt::format("({} more)", groups_.size() - options_.count)});
    row("all", pairs_.all());
    return table.render(colours());
  }

  std::string slowest() const {
    const auto slowest = pairs_.slowest();
    if (slowest.empty()) return "";
    Table table({{"slowest", Table::right},
                 {"start", Table::right},
                 {"task", Table::left},
                 {"cpu", Table::right},
                 {"end", Table::right},
                 {"task", Table::left},
                 {"cpu", Table::right},
                 {pairs_.grouped() ? pairs_.by() : "", Table::left},
                 {"key", Table::left}});
    for (const Pairs::Slow& slow : slowest) {
      std::vector<std::string> cells{(slow.doubtful ? "? " : "") + format_time(static_cast<double>(slow.latency))};
      for (const Pairs::Copy* copy : {&slow.start, &slow.end}) {
        const RingName& ring = trace_.timeline.name(copy->source);
        cells.push_back(time_of(*copy));
        cells.push_back(fmt::format("{}-{}", trace_.tasks.name(tid_of(*copy), ring), tid_of(*copy)));
        const i32 cpu = copy->record().cpu_in(ring);
        cells.push_back(cpu < 0 ? "-" : std::to_string(cpu));
      }
      cells.push_back(slow.group);
      cells.push_back(slow.key);
      table.row(std::move(cells));
    }
    std::string out = "\n" + table.render(colours());
    TextLines text(trace_.formats, trace_.tasks, trace_.raw_times());
    for (const Pairs::Slow& slow : slowest) {
      for (const auto& [name, copy] : {std::pair<const char*, const Pairs::Copy&>{"start", slow.start}, {"end", slow.end}}) {
        if (copy.stack == 0 || trace_.formats.stacks() == nullptr) continue;
        fmt::memory_buffer lines;
        trace_.formats.stacks()->append_lines(copy.stack, lines);
        out += fmt::format("\n{} with {}, the {}'s stack ({}):\n", format_time(static_cast<double>(slow.latency)), slow.key,
                           name, event_of(copy));
        out.append(lines.data(), lines.size());
      }
      if (slow.context.empty()) continue;
      fmt::memory_buffer lines;
      for (const Pairs::Copy& copy : slow.context) text.print(copy.record(), trace_.timeline.name(copy.source), lines);
      text.print(slow.end.record(), trace_.timeline.name(slow.end.source), lines);
      out += fmt::format("\n{} with {}, and what led to it:\n", format_time(static_cast<double>(slow.latency)), slow.key);
      out.append(lines.data(), lines.size());
    }
    return out;
  }

  // The fate of every start and every end, and what the numbers are worth.
  std::string closing() const {
    const Pairs::Counts& c = counts_;
    std::string out = fmt::format("starts {} = pairs {} + repeated {} + evicted {} + negative {} + still open {}\n",
                                  format_count(c.starts), format_count(c.pairs), format_count(c.repeated),
                                  format_count(c.evicted), format_count(c.negative), format_count(c.waiting));
    out += fmt::format("ends {} = pairs {} + negative {} + without a start {}\n", format_count(c.ends), format_count(c.pairs),
                       format_count(c.negative), format_count(c.unmatched));
    if (c.without_key != 0) out += format_count(c.without_key) + " of these events have no such key\n";
    if (pairs_.without_group() != 0)
      out += counted(pairs_.without_group(), "pair has", "pairs have") + " no " + pairs_.by() + "\n";
    if (pairs_.evicted_groups().keys != 0)
      out += fmt::format("{} with {} given up for others (--groups)\n", counted(pairs_.evicted_groups().keys, "group"),
                         counted(pairs_.evicted_groups().count, "pair was", "pairs were"));
    if (exact())
      return out + (c.pairs == 0 ? "nothing was lost\n" : "nothing was lost: the numbers are exact, quantiles within 0.8 %\n");
    out += "NOT exact:";
    if (c.lost != 0)
      out += fmt::format(" {} lost, in {}; {} of the pairs have such a place between start and end and {}",
                         counted(c.lost, "event was", "events were"), counted(c.losses, "place"), format_count(c.doubtful),
                         options_.sure ? "are left out" : "may be none (marked ?; --sure leaves them out)");
    if (const u64 elsewhere = missing_.count() - missing_.gaps; elsewhere != 0 || !missing_.proved())
      out += fmt::format("{} {} events are missing that nobody can place", c.lost != 0 ? ";" : "",
                         elsewhere == 0 ? "perhaps some" : format_count(elsewhere));
    if (c.evicted != 0)
      out += fmt::format("{} {} gave way to younger ones (--keys)", c.lost != 0 ? ";" : "", counted(c.evicted, "start"));
    if (c.negative != 0)
      out += fmt::format("{} {} older than the start", c.lost + c.evicted != 0 ? ";" : "",
                         counted(c.negative, "end is", "ends are"));
    return out + "\n";
  }
  bool exact() const { return counts_.exact() && pairs_.evicted_groups().keys == 0 && missing_.nothing(); }

  static Json numbers_of(const Histogram& h) {
    Json j{{"count", h.count()}, {"sum", rounded(h.sum(), 0)}, {"mean", rounded(h.mean(), 1)}, {"min", h.min()}};
    for (size_t i = 0; i < std::size(quantiles); ++i) j[json_names[i]] = rounded(h.quantile(quantiles[i]), 0);
    j["max"] = h.max();
    return j;
  }
  const EventType* type_of(const Pairs::Copy& copy) const { return trace_.formats.find(copy.record().number()); }
  std::string event_of(const Pairs::Copy& copy) const {
    const EventType* type = type_of(copy);
    return type != nullptr ? type->full : "unknown";
  }
  i32 tid_of(const Pairs::Copy& copy) const {
    const i32 tid = thread_of(type_of(copy), read_common(copy.record().payload));
    if (trace_.tracefs() != nullptr && trace_.tasks.find(Tasks::Key{tid}) == nullptr) {  // the kernel remembers only some names
      if (auto name = sys::read_file(fmt::format("/proc/{}/comm", tid)); name && !name->empty()) {
        name->pop_back();
        trace_.tasks.add(Task{tid, tid, *name, *name});
      }
    }
    return tid;
  }
  std::string time_of(const Pairs::Copy& copy) const {
    return trace_.raw_times() ? std::to_string(copy.time)
                              : fmt::format("{}.{:06}", copy.time / 1'000'000'000, copy.time % 1'000'000'000 / 1000);
  }

  const LatencyOptions& options_;
  const Job& job_;
  const std::vector<std::string>& notes_;
  Trace& trace_;
  const Pairs& pairs_;
  const HeatMap& heat_;
  const Pairs::Counts counts_;
  const Missing& missing_;
  const std::vector<Row> groups_;
};

result<int> run_latency(const LatencyOptions& options) {
  Job job = job_of(options);
  auto options_there = RS_TRY(where(job, options.run));
  if (!options.flame.empty()) {
    if (!options.hook.empty()) throw UsageError{"--flame takes the pair as START END or as a name, not by -H"};
    return flame_of_latency(options_there, job.pair, options.keys, options.flame == "true" ? "" : options.flame);
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
  if (!options.run.filter.empty()) {
    if (std::string note = of_one_side(options.run.filter, pairs, trace); !note.empty()) notes.push_back(std::move(note));
  }
  job.pairs.start = pairs.options().start;  // the sides that this trace has
  job.pairs.end = pairs.options().end;
  if (options.slowest != 0) run->reading().join_stacks();
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
    const Report report(options, job, trace, pairs, heat, totals.missing, notes);
    if (!options.run.json) return report.text(last);
    if (last) {
      for (const std::string& note : report.notes(last)) say(note);
    }
    return report.json();
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
              "of several starts before an end the first counts (default: the last, as in the kernel)");
  c->add_flag("--sure", options->sure, "leave out pairs with a loss between their events");
  add_events(*c, options->run.events,
             "only these events and the pair's, for --context; the kernel's are live, alone or beside a live WHERE");
  add_run_options(*c, options->run);
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
      "An end takes the start with its key away; a second start before it takes the place of the first. Starts that nothing "
      "ended,\n"
      "ends without a start and pairs that a loss fell into are counted, and the books under the table add up.");
  return {c, [options] { return run_latency(*options); }};
}

}  // namespace ringside::cli
