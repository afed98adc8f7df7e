// ringside top: the most frequent events, by event or by any other key. Live, or the whole of a recording at once.
#include <fmt/format.h>

#include <algorithm>

#include "analysis/groups.hpp"
#include "cli/live.hpp"
#include "cli/result.hpp"
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

constexpr Members top_row = {{"count", Kind::count, "events of the row", "count"},
                             {"rate", Kind::rate, "events; null if the clock of the trace has no rate", "rate"},
                             {"bytes_per_s", Kind::throughput, "bytes of events; null as above", "bytes/s"},
                             {"", Kind::number, "", "lost"}};
constexpr Members top_facts = {{"keys", Kind::count, "how many different keys there are, also beyond those in `rows`"},
                               {"count", Kind::count, "all events that have the key"},
                               {"without", Kind::count, "events that have no such key"},
                               misfits_member,
                               {"late", Kind::count, "events that came after later ones"},
                               {"evicted_keys", Kind::count, "rows that a full table gave up"},
                               {"evicted", Kind::count, "their events"}};
constexpr Members top_result = {
    {"rows", Kind::array,
     "an object for each key: first the columns of `--by`, under the names that the command line gave them; then:", nullptr,
     top_row},
    {"", Kind::object, "", nullptr, top_facts},
    {"", Kind::object, "", nullptr, account_members}};

// rates: whether the times have them. Losses belong to no key, because their values are unknown. They have a line of their own,
// as do the sums.
Result result_of(const std::vector<Row>& rows, const Groups<Rates>& groups, const TopOptions& options, const Totals& totals,
                 bool rates, bool last) {
  Table table;
  for (const Column& key : groups.columns()) table.add({key.name(), Kind::text, key.name()});
  table.add(top_row);
  double rate = 0, bytes_rate = 0;
  const auto known = [&](double value) { return rates ? Cell(value) : Cell(Json(), "-"); };
  for (size_t i = 0; i < rows.size(); ++i) {
    rate += rows[i].rate;
    bytes_rate += rows[i].bytes_rate;
    if (i < options.count)
      table.row(keys_of(groups, rows[i].key, groups.columns().size()),
                {rows[i].count, known(rows[i].rate), known(rows[i].bytes_rate)});
  }
  table.line_of_more(rows.size(), options.count);
  const u64 count = totals.account.read - groups.without();
  Cells all(groups.columns().size());
  all[0] = "all";
  table.line(std::move(all), {count, known(rate), known(bytes_rate), lost_count(totals.account)});
  Result out;
  out.table("rows", std::move(table));
  out.set(top_facts,
          {rows.size(), count, groups.without(), groups.misfits(), totals.late, groups.evicted().keys, groups.evicted().count});
  out.account(totals.account);
  if (groups.without() != 0)
    out.text(fmt::format("{} no {}\n", counted(groups.without(), "event has", "events have"), options.by));
  out.text(misfits_line(groups.misfits()));
  if (last) out.text(closing_line(totals, groups.evicted().keys, groups.evicted().count) + "\n");
  return out;
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
        // The last picture is that of the whole.
        if (last && run->live()) {
          seconds = run->elapsed();
          groups.each([](const KeyWords&, Rates& r) {
            r.count_before = r.count_earlier;
            r.bytes_before = r.bytes_earlier;
          });
        }
        const auto rows = rows_of(groups, seconds);
        const bool rates = run->live() || !run->trace().raw_times();
        return result_of(rows, groups, options, totals, rates, last).print(options.run.json);
      });
}

}  // namespace

Members top_members() { return top_result; }

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
