// ringside top: the most frequent events, by event or by any other key. Live, or the whole of a recording at once.
#include <fmt/format.h>

#include <algorithm>

#include "analysis/groups.hpp"
#include "cli/json.hpp"
#include "cli/live.hpp"
#include "cli/table.hpp"
#include "text/units.hpp"
#include "sys/try.hpp"

namespace ringside::cli {
namespace {

struct TopOptions {
  RunOptions run;
  std::string by = "event";
  u64 count = 40, most_keys = 100'000;
};

struct Rates {
  u64 count = 0, bytes = 0;                // since the start
  u64 count_before = 0, bytes_before = 0;  // at the last picture
  u64 count_earlier = 0, bytes_earlier = 0;  // live: before it began, in no rate
  void add(const Rates& other) {  // of another part of a recording
    count += other.count;
    bytes += other.bytes;
  }
};

struct Row {
  KeyWords key{};
  u64 count = 0;
  double rate = 0, bytes_rate = 0;
};

std::vector<Row> rows_of(Groups<Rates>& groups, double seconds) {
  std::vector<Row> out;
  groups.each([&](const KeyWords& key, Rates& r) {
    const auto rate = [&](u64 now, u64 before) { return seconds > 0 ? static_cast<double>(now - before) / seconds : 0; };
    out.push_back({key, r.count, rate(r.count, r.count_before), rate(r.bytes, r.bytes_before)});
    r.count_before = r.count;
    r.bytes_before = r.bytes;
  });
  std::sort(out.begin(), out.end(), [&](const Row& a, const Row& b) {
    if (a.rate != b.rate) return a.rate > b.rate;
    return a.count != b.count ? a.count > b.count : groups.before(a.key, b.key);
  });
  return out;
}

// rates: whether the times tell them.
std::string as_json(const std::vector<Row>& rows, const Groups<Rates>& groups, const TopOptions& options, const Totals& totals,
                    bool rates) {
  const auto rate = [&](double value) { return rates ? rounded(value, 1) : Json(); };
  Json list = Json::array();
  for (size_t i = 0; i < std::min<size_t>(rows.size(), options.count); ++i) {
    Json row = groups.json(rows[i].key);
    row.update({{"count", rows[i].count}, {"rate", rate(rows[i].rate)}, {"bytes_per_s", rate(rows[i].bytes_rate)}});
    list.push_back(std::move(row));
  }
  Json out{{"rows", std::move(list)},          {"keys", rows.size()}, {"count", totals.account.read - groups.without()},
           {"without", groups.without()},      {"late", totals.late}, {"evicted_keys", groups.evicted().keys},
           {"evicted", groups.evicted().count}};
  add_account(out, totals.account);
  return line_of(std::move(out));
}

// Losses belong to no key, because their values are unknown. They have a line of their own, as do the sums.
std::string as_table(const std::vector<Row>& rows, const Groups<Rates>& groups, const TopOptions& options, const Totals& totals,
                     bool rates, bool last) {
  std::vector<Table::Column> columns;
  for (const Column& key : groups.columns()) columns.push_back({key.name()});
  for (const char* what : {"count", "rate", "bytes/s", "lost"}) columns.push_back({what, Table::right});
  Table table(std::move(columns));
  const std::vector<std::string> none(groups.columns().size() - 1);
  double rate = 0, bytes_rate = 0;
  const auto shown = [&](double value) { return rates ? format_rate(value, "") : "-"; };
  const auto bytes = [&](double value) { return rates ? format_size(static_cast<u64>(value)) + "/s" : "-"; };
  for (size_t i = 0; i < rows.size(); ++i) {
    rate += rows[i].rate;
    bytes_rate += rows[i].bytes_rate;
    if (i >= options.count) continue;
    std::vector<std::string> cells;
    for (size_t k = 0; k < groups.columns().size(); ++k) cells.push_back(groups.show(rows[i].key, k));
    for (std::string cell : {format_count(rows[i].count), shown(rows[i].rate), bytes(rows[i].bytes_rate), std::string()})
      cells.push_back(std::move(cell));
    table.row(std::move(cells));
  }
  if (rows.size() > options.count) table.row({fmt::format("({} more)", rows.size() - options.count)});
  std::vector<std::string> sums = {"all"};
  sums.insert(sums.end(), none.begin(), none.end());
  for (std::string cell :
       {format_count(totals.account.read - groups.without()), shown(rate), bytes(bytes_rate), lost_count(totals.account)})
    sums.push_back(std::move(cell));
  table.row(std::move(sums));
  std::string out = table.render(colours());
  if (groups.without() != 0)
    out += fmt::format("{} no {}\n", counted(groups.without(), "event has", "events have"), options.by);
  return last ? out + closing_line(totals, groups.evicted().keys, groups.evicted().count) + "\n" : out;
}

result<int> run_top(TopOptions options) {
  if (options.run.samples.hz != 0 && options.by == "event") options.by = "stack[0]";
  auto run = RS_TRY(AnalysisRun::open(options.run));
  const auto make = [&](const Trace& trace) {
    return Groups<Rates>::make(split_columns(options.by), options.most_keys, trace.formats, trace.tasks);
  };
  auto groups = RS_TRY(make(run->trace()));
  const auto add = [live = run->live(), reading = &run->reading()](Groups<Rates>& to, const TraceRecord& record,
                                                                   const RingName& ring) {
    Rates* rates = to.at(record, ring);
    if (rates == nullptr) return;
    const u64 bytes = record.payload.size + 4;
    ++rates->count;
    rates->bytes += bytes;
    if (!live || record.time >= reading->books_begin_ns()) return;  // a rate does not count what was there before
    ++rates->count_before;
    ++rates->count_earlier;
    rates->bytes_before += bytes;
    rates->bytes_earlier += bytes;
  };
  return run->add_up(
      groups, options.most_keys, groups.columns(), make, add, [&](const Totals& totals, double seconds, bool last) {
        // The last picture stands for the whole.
        if (last && run->live()) {
          seconds = run->elapsed();
          groups.each([](const KeyWords&, Rates& r) {
            r.count_before = r.count_earlier;
            r.bytes_before = r.bytes_earlier;
          });
        }
        const auto rows = rows_of(groups, seconds);
        const bool rates = run->live() || !run->trace().raw_times();
        return options.run.json ? as_json(rows, groups, options, totals, rates)
                                : as_table(rows, groups, options, totals, rates, last);
      });
}

}  // namespace

Command add_top(CLI::App& app) {
  auto options = std::make_shared<TopOptions>();
  CLI::App* c = app.add_subcommand("top", "live table of events, or of any field's values: count, rate, bytes, lost");
  options->run.push_down = true;
  add_run(*c, options->run);
  add_samples(*c, options->run);
  c->add_option(
       "--by", options->by,
       "a line for each value of this column: event, task, thread, process, cgroup, cpu, stack, stack[0], or [EVENT/]FIELD; or "
       "two with a comma")
      ->type_name("KEY")
      ->capture_default_str();
  add_count(*c, options->count, "lines at most")->capture_default_str();
  c->add_option("--keys", options->most_keys, "keys kept at most; a full table gives up those that count least")
      ->capture_default_str()
      ->check(CLI::Range(2, 100'000'000));
  c->footer(
      "Examples:\n"
      "  ringside top web                    a live instance; Ctrl-C ends, with a table of the whole\n"
      "  ringside top                        ./ringside.data as a whole\n"
      "  ringside top -e 'sched:*' -f 'prev_comm ~ \"cc1*\" || pid == 4711'\n"
      "  ringside top --sample               which functions take the CPU time of all processes, now, as root; -p PID of one\n"
      "  ringside top --sample 99 --by 'task,stack[0]'\n"
      "  ringside top -e 'syscalls:sys_enter_*' --by task,event     the kernel, as root\n"
      "  ringside top -e 'sched:sched_switch' --by cgroup           which container, slice or service\n"
      "  ringside top web --json --interval 5s >> rates.jsonl\n"
      "Nothing is consumed: a recorder beside it gets every event. -e makes an instance of its own; those that others made in\n"
      "the kernel are refused, because reading them takes their events away.");
  return {c, [options] { return run_top(*options); }};
}

}  // namespace ringside::cli
