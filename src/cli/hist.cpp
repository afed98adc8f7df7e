// ringside hist: how often each value of a field occurs, and the sums of other fields by it.
#include "analysis/hist.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "cli/live.hpp"
#include "cli/result.hpp"
#include "text/units.hpp"
#include "kernel/tracefs_instance.hpp"
#include "sys/try.hpp"
#include "watch/picture.hpp"

namespace ringside::cli {
namespace {

struct HistOptions {
  RunOptions run;
  std::string key, sort;
  std::vector<std::string> values;
  u64 count = 20, most_keys = 100'000;
  bool ascii = false;
};

std::string show(const Column& column, double value) {
  if (column.unit() == Column::Unit::ns) return format_time(value);
  if (column.unit() == Column::Unit::bytes)
    return !(value >= 0) ? fmt::format("{:.0f} B", value) : format_size(static_cast<u64>(std::min(value, 0x1.fffffffffffffp63)));
  // Quantiles are the middles of buckets: from a thousand on, their fractions mean nothing.
  if (value >= 1000 && value < 0x1p64) return format_count(static_cast<u64>(std::round(value)));
  return fmt::format("{:.6g}", value);
}

// Sums and maxima, which are exact.
std::string show_exact(const Column& column, const Histogram& h, Whole whole, double value) {
  if (column.unit() != Column::Unit::none) return show(column, value);
  return h.reals() != nullptr ? fmt::format("{:.12g}", value) : format_whole(whole);
}
Json exact(const Histogram& h, Whole value, double real) { return h.reals() != nullptr ? Json(real) : whole(value); }

// count, key or one of the values; "-" in front reverses the order.
std::optional<Hist::Sort> sort_of(const HistOptions& options) {
  std::string text = options.sort;
  if (text.empty()) return std::nullopt;
  const bool turned = text[0] == '-';
  if (turned) text.erase(0, 1);
  Hist::Sort sort;
  if (text == "key") {
    sort = {Hist::By::key, 0, false};
  } else if (text != "count") {
    const auto at = std::find(options.values.begin(), options.values.end(), text);
    if (at == options.values.end())
      throw UsageError{"--sort takes count, key or one of the values (--val), not \"" + text + "\""};
    sort = {Hist::By::value, static_cast<u32>(at - options.values.begin()), true};
  }
  if (turned) sort.descending = !sort.descending;
  return sort;
}

constexpr Members hist_count = {{"count", Kind::count, "events of the row", "count"}};
constexpr Members hist_value = {{"sum", Kind::number, "the sum", "sum"},
                                {"mean", Kind::number, "the mean", "mean"},
                                {"min", Kind::number, "the smallest value"},
                                {"p50", Kind::number, "the median; quantiles are right within 1.6 %", "p50"},
                                {"p90", Kind::number, "the quantile 0.9", "p90"},
                                {"p99", Kind::number, "the quantile 0.99", "p99"},
                                {"p999", Kind::number, "the quantile 0.999", "p99.9"},
                                {"max", Kind::number, "the largest value", "max"}};
constexpr Members hist_facts = {
    {"keys", Kind::count, "how many different keys there are, also beyond those in `rows`"},
    {"count", Kind::count, "all events that have the key and the values"},
    {"without", Kind::count, "events that have no such key, or lack one of the values"},
    misfits_member,
    {"without_values", Kind::object,
     "of each value, events that have the key but not the value; an event counts at the first value it lacks"},
    {"late", Kind::count, "events that came after later ones"},
    {"evicted_keys", Kind::count, "rows that a full table gave up"},
    {"evicted", Kind::count, "their events"}};
constexpr Members hist_result = {
    {"rows", Kind::array,
     "an object for each key: first the columns of KEY, under the names that the command line gave them; then:", nullptr,
     hist_count},
    {"rows[].VALUE", Kind::object, "an object for each value (`--val`), under its name:", nullptr, hist_value},
    {"", Kind::object, "", nullptr, hist_facts},
    {"", Kind::object, "", nullptr, account_members}};

Cells values_of(const Histogram& h, const Column& value) {
  const auto near = [&](double number) { return Cell(rounded(number), show(value, number)); };
  return {{exact(h, h.whole_sum(), h.sum()), show_exact(value, h, h.whole_sum(), h.sum())},
          near(h.mean()),
          exact(h, h.whole_min(), h.least()),
          near(h.quantile(.5)),
          near(h.quantile(.9)),
          near(h.quantile(.99)),
          near(h.quantile(.999)),
          {exact(h, h.whole_max(), h.most()), show_exact(value, h, h.whole_max(), h.most())}};
}

Result result_of(const Hist& hist, const std::vector<Hist::Row>& rows, const Hist::Sort& sort, const HistOptions& options,
                 const Totals& totals) {
  Table table;
  for (const Column& key : hist.keys())
    table.add({key.name(), key.kind() == Column::Kind::text || key.of_stacks() ? Kind::text : Kind::number, key.name()});
  table.add(hist_count);
  for (const Column& value : hist.values())
    for (const Member& m : hist_value) {
      const std::string title = m.title == nullptr ? "" : hist.values().size() > 1 ? value.name() + " " + m.title : m.title;
      table.add({title, m.kind, m.key, m.title != nullptr, value.name()});
    }
  table.add({""});
  // Bars show what the rows are sorted by.
  const auto weight = [&](const Hist::Row& row) {
    return sort.by == Hist::By::value && row.values != nullptr ? row.values[sort.value].sum() : static_cast<double>(row.count);
  };
  double largest = 0;
  for (const auto& row : rows) largest = std::max(largest, weight(row));
  const size_t shown = hist.keys()[0].buckets() ? rows.size() : std::min<size_t>(rows.size(), options.count);
  for (size_t i = 0; i < shown; ++i) {
    Cells cells{rows[i].count};
    for (size_t v = 0; v < hist.values().size(); ++v)
      for (Cell& cell : values_of(rows[i].values[v], hist.values()[v])) cells.push_back(std::move(cell));
    cells.emplace_back(bar(largest > 0 ? std::max(weight(rows[i]), 0.0) / largest : 0, 20, glyphs(options.ascii)));
    table.row(keys_of(hist, rows[i], hist.keys().size()), cells);
  }
  Result out;
  out.table("rows", std::move(table));
  if (shown < rows.size()) out.text(fmt::format("({}; -n)\n", counted(rows.size() - shown, "more key")));
  // With EVENT/ in front, other events are not meant.
  const auto tell = [&](u64 events, const std::string& column) {
    if (events != 0 && column.find('/') == std::string::npos)
      out.text(fmt::format("{} no {}\n", counted(events, "event has", "events have"), column));
  };
  tell(hist.without_key(), options.key);
  Json without = Json::object();
  for (size_t v = 0; v < hist.values().size(); ++v) {
    without[hist.values()[v].name()] = hist.without_value(v);
    tell(hist.without_value(v), hist.values()[v].name());
  }
  out.set(hist_facts, {rows.size(), hist.count(), hist.without(), hist.misfits(), std::move(without), totals.late,
                       hist.evicted().keys, hist.evicted().count});
  out.account(totals.account);
  out.text(misfits_line(hist.misfits()));
  Totals with_key = totals;
  with_key.account.read = hist.count();
  out.text(closing_line(with_key, hist.evicted().keys, hist.evicted().count, !hist.values().empty()) + "\n");
  return out;
}

// The events of a key, before its last slash; empty: it names none.
std::string events_of_key(const std::string& key) {
  const std::string first = key.substr(0, key.find(".buckets="));
  const size_t slash = first.rfind('/');
  return slash == std::string::npos ? "" : first.substr(0, slash);
}

// A key that names events of the kernel needs no -e, unless it may mean a recording.
void place_key(const HistOptions& options, RunOptions& run) {
  if (!run.where.empty() || !run.inputs.empty()) return;
  const Where named = Where::now(options.key);
  const bool like_a_field = named.is_file() && options.key.find_first_of("./") == std::string::npos;
  if (named.is_recorded() && !like_a_field)
    throw UsageError{
        in_quotes(options.key) +
        " is a recording or a file, and hist takes KEY before it, such as event or EVENT/FIELD: ringside hist event " +
        options.key};
  const std::string events = events_of_key(options.key);
  if (events.empty() || !run.events.empty() || (is_recording(default_recording) && run.duration_ns == 0)) return;
  const auto patterns = EventPatterns::parse(events);
  const auto known = kernel_events();
  if (!patterns || !known || patterns->empty()) return;
  if (std::all_of(patterns->begin(), patterns->end(), [&](const EventPattern& p) { return means_kernel(p, *known); }))
    run.events = {events};
}

// A word that names nothing was to be a second key, if it is like one.
Error without_comma(Error error, const HistOptions& options) {
  for (const std::string& word : options.run.where) {
    const bool like_a_key = !word.empty() && std::all_of(word.begin(), word.end(), [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
    });
    if (like_a_key && Where::now(word).is_nothing())
      error.sentence += "; two keys take a comma: " + options.key + "," + word;
  }
  return error;
}

// The key's field is in no event of the trace: which events of the kernel have it?
Error explained(Error error, const HistOptions& options, const Formats& formats) {
  const std::string& key = options.key;
  const bool recorded =
      !options.run.where.empty() && std::all_of(options.run.where.begin(), options.run.where.end(), is_recorded);
  const auto advice = [&](const std::string& events) {
    return recorded ? "record them: ringside record -e '" + events + "' COMMAND"
                    : "add -e " + (events.find_first_of("*?") == events.npos ? events : "'" + events + "'") +
                          " for the kernel, live";
  };
  std::string field = key.substr(0, key.find_first_of(".,"));
  field.erase(0, field.rfind('/') + 1);
  const auto has = [&](const auto& type) { return type->field(field) != nullptr; };
  const auto known = kernel_events();
  const std::string events = events_of_key(key);
  if (const EventPatterns patterns = patterns_or_none(events); known && !patterns.empty()) {
    const auto& all = formats.all();
    const bool here = std::any_of(all.begin(), all.end(), [&](const auto& type) { return matches(patterns, *type); });
    if (here || !std::all_of(patterns.begin(), patterns.end(), [&](const EventPattern& p) { return means_kernel(p, *known); }))
      return error;
    error.sentence = in_quotes(events) + " names events of the kernel, and none that is here: " + advice(events);
    return error;
  }
  if (!known || field.empty() || std::any_of(formats.all().begin(), formats.all().end(), has)) return error;
  for (const KernelEvent& event : *known) {
    const auto info = kernel_event(event);
    if (!info || info->format.find(" " + field) == std::string::npos) continue;
    Formats one;
    one.add(info->number(), info->system, info->name, info->format);
    if (!std::any_of(one.all().begin(), one.all().end(), has)) continue;
    error.sentence += (error.sentence.ends_with('?') ? " An" : "; an") + std::string(" event of the kernel's has it: ") +
                      advice(event.system + ":" + event.name);
    break;
  }
  return error;
}

result<int> run_hist(const HistOptions& options) {
  auto sort = sort_of(options);
  RunOptions open = options.run;
  place_key(options, open);
  const bool chosen = !open.events.empty();
  auto opened = AnalysisRun::open(std::move(open));
  if (!opened) return tl::unexpected<Error>(without_comma(opened.error(), options));
  const auto run = std::move(*opened);
  Hist::Options make;
  make.keys = split_columns(options.key);
  make.values = options.values;
  make.most_keys = options.most_keys;
  const auto make_hist = [&](const Trace& trace) { return Hist::make(make, trace.formats, trace.tasks); };
  auto made = make_hist(run->trace());
  if (!made) return tl::unexpected<Error>(chosen ? made.error() : explained(made.error(), options, run->trace().formats));
  Hist hist = std::move(*made);
  if (!sort) {
    if (hist.keys()[0].buckets()) sort = {Hist::By::key, 0, false};
    else sort = {hist.values().empty() ? Hist::By::count : Hist::By::value, 0, true};
  }
  const bool of_stacks = std::any_of(hist.keys().begin(), hist.keys().end(), [](const Column& c) { return c.of_stacks(); });
  std::vector<Column> columns = hist.keys();
  columns.insert(columns.end(), hist.values().begin(), hist.values().end());
  const auto add = [](Hist& to, const TraceRecord& record, const RingName& ring) { to.add(record, ring); };
  return run->add_up(
      hist, options.most_keys, columns, make_hist, add, [&](const Totals& totals, double, bool last) -> std::string {
        if (last && of_stacks) say_first(run->reading().stack_remarks());
        const auto rows = hist.rows(*sort);
        return result_of(hist, rows, *sort, options, totals).print(options.run.json);
      });
}

}  // namespace

Members hist_members() { return hist_result; }

Command add_hist(CLI::App& app) {
  auto options = std::make_shared<HistOptions>();
  CLI::App* c = app.add_subcommand("hist", "count events by the values of a field, or two; sums and quantiles of others");
  c->add_option("KEY", options->key, "[EVENT/]FIELD[.MODIFIER], or two with a comma between")->required();
  options->run.push_down = true;
  add_run(*c, options->run);
  c->add_option("-v,--val", options->values, "for each key: sum, mean, quantiles of this field; may be repeated")
      ->type_name("FIELD")
      ->allow_extra_args(false);
  c->add_option("--sort", options->sort, "count, key or one of the values; with - in front: the other way round")
      ->type_name("WHAT");
  add_count(*c, options->count, "lines at most (buckets are all shown)")->capture_default_str();
  c->add_option("--keys", options->most_keys, "keys kept at most; a full table gives up those that count least")
      ->capture_default_str()
      ->check(CLI::Range(2, 100'000'000));
  c->add_flag("--ascii", options->ascii, "bars of #");
  c->footer(
      "Examples:\n"
      "  ringside hist libc:malloc/size.log2                  how large what is allocated is\n"
      "  ringside hist libc:malloc/thread -v size -n 10       the ten largest allocators\n"
      "  ringside hist 'libc:*/event' -v duration_ns          how long each of the C library's calls takes\n"
      "  ringside hist prev_comm,prev_state -e sched:sched_switch   the kernel, live, until Ctrl-C\n"
      "  ringside hist libc:read/duration_ns.log2 -f 'bytes == 4096' --json | jq .rows\n"
      "Beside the fields of events there are event, system, task (comm, in events without a field of this name), thread, "
      "process, cgroup, cpu, ring, syscall (by name), file (of record --files), source and ts. Modifiers: .log2,\n"
      ".buckets=N, .hex, .sym (a kernel function), .execname (of a thread's number), .usecs and .msecs (of times).\n"
      "Sums, counts and maxima are exact, quantiles right within 1.6 %. Nothing is consumed; -e makes an instance of its own.");
  return {c, [options] { return run_hist(*options); }};
}

}  // namespace ringside::cli
