// ringside syscalls: system calls by name, with their times and errors: of recordings, of a command, live.
#include "decode/syscalls.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <map>

#include "analysis/column.hpp"
#include "analysis/key_table.hpp"
#include "analysis/names.hpp"
#include "analysis/pairs.hpp"
#include "cli/child.hpp"
#include "cli/command_file.hpp"
#include "cli/live.hpp"
#include "cli/presets.hpp"
#include "cli/recording.hpp"
#include "cli/result.hpp"
#include "consumer/where.hpp"
#include "kernel/perf_sampler.hpp"
#include "probe/file_calls.hpp"
#include "sys/try.hpp"
#include "text/units.hpp"

namespace ringside::cli {
namespace {

struct SyscallsOptions {
  std::vector<std::string> words;
  RunOptions run;
  std::vector<i32> pids;
  std::vector<std::string> calls;  // -e: lists of names
  std::string by, sort = "total", to;
  u64 count = 40, most_keys = 100'000;
  bool all = false, files = false;
};

struct Calls {
  u64 count = 0, failed = 0;
  u64 total = 0, min = ~u64{0}, max = 0;  // ns
  std::map<std::pair<i64, Architecture>, u64> errors;  // by what was returned
  double mean() const { return static_cast<double>(total) / static_cast<double>(count); }
};

constexpr const char* raw_events = "raw_syscalls:sys_enter,raw_syscalls:sys_exit";

// The events of calls: those of raw_syscalls, else those of syscalls.
result<Pairs::Options> pair_in(const Trace& trace) {
  bool enters[2] = {}, exits[2] = {};
  for (const auto& type : trace.formats.all()) {
    const auto fields = syscall_fields(*type);
    if (fields) (fields->returned != nullptr ? exits : enters)[fields->raw] = true;
  }
  Pairs::Options pair;
  pair.slowest = 0;
  if (enters[1] && exits[1]) {
    pair.start = "raw_syscalls:sys_enter";
    pair.end = "raw_syscalls:sys_exit";
    pair.by = "start/id";
  } else if (enters[0] && exits[0]) {
    pair.start = "syscalls:sys_enter_*";
    pair.end = "syscalls:sys_exit_*";
    pair.by = "start/__syscall_nr";
  } else {
    return refuse(std::errc::no_such_file_or_directory,
                  trace.first().where +
                      " has no events of system calls, or only their beginnings or ends; record both: ringside record -e " +
                      raw_events + " -- COMMAND");
  }
  return pair;
}

// A call: its number, and whose it is, as a word of a key.
struct Call {
  static constexpr u32 number_bits = 56;
  i64 number;
  Architecture of;
  u64 word() const {
    return static_cast<u64>(number) << (64 - number_bits) >> (64 - number_bits) | u64{static_cast<u8>(of)} << number_bits;
  }
  static Call from(u64 word) {
    return {static_cast<i64>(word << (64 - number_bits)) >> (64 - number_bits), static_cast<Architecture>(word >> number_bits)};
  }
  std::string name() const {
    const std::string_view name = syscall_name(number, of);
    return name.empty() ? "syscall_" + std::to_string(number) : std::string(name);
  }
};

constexpr Members syscall_name_of = {{"syscall", Kind::text, "its name", "syscall"}, {"nr", Kind::number, "its number"}};
constexpr Members syscall_numbers = {{"calls", Kind::count, "calls that returned", "calls"},
                                     {"errors", Kind::count, "those that returned an error", "errors"},
                                     {"total_ns", Kind::time, "from entry to exit: the sum", "total"},
                                     {"", Kind::share, "", "share"},
                                     {"mean_ns", Kind::mean, "the mean; null without a call", "mean"},
                                     {"min_ns", Kind::time, "the shortest; null without a call"},
                                     {"max_ns", Kind::time, "the longest", "max"},
                                     {"share", Kind::share, "of the time of all calls"}};
constexpr Members syscall_error = {
    {"error", Kind::text, "its name"}, {"errno", Kind::number, "its number"}, {"count", Kind::count, "calls that returned it"}};
constexpr Members syscall_errors = {
    {"by_error", Kind::array, "an object for each error, the most frequent first:", "errors by name", syscall_error}};
constexpr Members syscalls_facts = {{"open", Kind::count, "calls that have not returned"},
                                    {"unmatched", Kind::count, "returns without a call"},
                                    {"repeated", Kind::count, "calls whose return is missing"},
                                    {"left_out", Kind::count, "calls that do not meet `-f` or `-e`"},
                                    {"doubtful", Kind::count, "pairs that a loss fell into"},
                                    {"negative", Kind::count, "returns older than their call"},
                                    {"without", Kind::count, "calls that have no such column"},
                                    {"evicted_keys", Kind::count, "rows that a full table gave up"},
                                    {"evicted", Kind::count, "their calls"},
                                    exact_member};
constexpr Members syscalls_result = {{"rows", Kind::array, "an object for each call:", nullptr, syscall_name_of},
                                     {"rows[].key", Kind::text, "with `--by`: the value of that column; numbers are numbers"},
                                     {"rows[]", Kind::object, "", nullptr, syscall_numbers},
                                     {"rows[]", Kind::object, "", nullptr, syscall_errors},
                                     {"keys", Kind::count, "how many rows there are, also beyond those printed"},
                                     {"by", Kind::text, "the column of `--by`"},
                                     {"all", Kind::object, "the numbers of all rows, `calls` to `share`"},
                                     {"", Kind::object, "", nullptr, syscalls_facts},
                                     unit_member,
                                     {"", Kind::object, "", nullptr, account_members}};

class SyscallTable {
 public:
  static result<std::unique_ptr<SyscallTable>> make(const SyscallsOptions& options, const Trace& trace) {
    auto pair = RS_TRY(pair_in(trace));
    pair.filter = options.run.filter;
    auto pairs = RS_TRY(Pairs::make(pair, trace.formats, trace.tasks));
    std::unique_ptr<SyscallTable> table(new SyscallTable(options, trace, std::move(pairs)));
    if (!options.by.empty()) {
      table->by_ = RS_TRY(Column::compile(options.by, trace.formats, trace.tasks));
      table->by_->use_names();
    }
    return table;
  }

  void take(const TraceRecord& record, const RingName& ring) {
    if (!pairs_.take(record, ring) || !pairs_.last_group()) return;
    const auto number = static_cast<i64>(*pairs_.last_group());
    u64 by = 0;
    if (by_ && !by_->key(record, ring, texts_, by)) {
      ++without_;
      return;
    }
    const Architecture of = trace_.formats.find(record.number())->world.architecture;
    Calls& calls = calls_.at({by, Call{number, of}.word()});
    const u64 ns = pairs_.latency();
    ++calls.count;
    calls.total += ns;
    calls.min = std::min(calls.min, ns);
    calls.max = std::max(calls.max, ns);
    const auto [ended, returned] = end_of(record);
    if (ended != number || returned >= 0 || returned < -4095) return;  // a return from a signal handler ends as no call
    ++calls.failed;
    ++calls.errors[{returned, of}];
  }

  const Pairs& pairs() const { return pairs_; }
  std::string picture(const Totals& totals, bool last) const {
    const auto rows = sorted();
    const Calls all = sum(rows);
    const Pairs::Counts c = pairs_.counts();
    Table table({}, trace_.unit());
    if (by_) table.add({options_.by});
    table.add(syscall_name_of);
    table.add({"", Kind::text, "key", false});
    table.add(syscall_numbers);
    table.add(syscall_errors);
    for (size_t i = 0; i < std::min<size_t>(rows.size(), options_.count); ++i) {
      const auto& [by, of] = rows[i].key;
      Cells cells = numbers(*rows[i].calls, all);
      cells.push_back(errors_of(*rows[i].calls));
      const Call call = Call::from(of);
      if (by_)
        table.row({by_->show(by, texts_), call.name(), call.number, by_->json(by, texts_)}, cells);
      else
        table.row({call.name(), call.number, Cell::absent()}, cells);
    }
    table.line_of_more(rows.size(), options_.count);
    Cells sums(by_ ? 4 : 3);
    sums[0] = "all";
    table.line(std::move(sums), numbers(all, all));
    Result out;
    out.table("rows", std::move(table));
    out.set({{"keys", rows.size()}});
    if (by_) out.set({{"by", options_.by}});
    out.set({{"all", Table::object(syscall_numbers, numbers(all, all))}});
    out.set(syscalls_facts, {c.waiting, c.unmatched, c.repeated, c.left_out, c.doubtful, c.negative, without_,
                             calls_.evicted().keys, calls_.evicted().count, exact(totals)});
    out.account(totals.account, trace_.unit());
    if (last) out.text(closing(totals));
    return out.print(options_.run.json);
  }

 private:
  struct Row {
    KeyWords key{};
    const Calls* calls = nullptr;
  };
  struct Fields {
    bool known = false, is = false;
    IntegerAt number, returned;
  };

  SyscallTable(const SyscallsOptions& options, const Trace& trace, Pairs pairs)
      : options_(options), trace_(trace), pairs_(std::move(pairs)), calls_(options.most_keys) {}

  std::pair<i64, i64> end_of(const TraceRecord& record) {
    Fields& fields = fields_.at(record.number(), trace_.formats.version());
    if (!fields.known) {
      fields.known = true;
      const auto found = syscall_fields(*trace_.formats.find(record.number()));
      fields.is = found && found->returned != nullptr;
      if (fields.is) {
        fields.number = IntegerAt(found->number->offset, found->number->size, found->number->is_signed);
        fields.returned = IntegerAt(found->returned->offset, found->returned->size, true);
      }
    }
    return fields.is ? std::pair(fields.number(record.payload), fields.returned(record.payload)) : std::pair(i64{-1}, i64{0});
  }

  std::vector<Row> sorted() const {
    std::vector<Row> rows;
    calls_.each([&](const KeyWords& key, const Calls& calls) { rows.push_back({key, &calls}); });
    const auto order = [&](const Calls& c) {
      return options_.sort == "calls" ? static_cast<double>(c.count)
             : options_.sort == "errors" ? static_cast<double>(c.failed)
             : options_.sort == "mean" ? c.mean()
             : options_.sort == "max" ? static_cast<double>(c.max)
                                      : static_cast<double>(c.total);
    };
    std::sort(rows.begin(), rows.end(), [&](const Row& a, const Row& b) {
      if (order(*a.calls) != order(*b.calls)) return order(*a.calls) > order(*b.calls);
      return a.calls->count != b.calls->count ? a.calls->count > b.calls->count : a.key < b.key;
    });
    return rows;
  }

  static std::string error_text(std::pair<i64, Architecture> error) {
    const std::string_view name = error_name(error.first, error.second);
    return name.empty() ? std::to_string(error.first) : std::string(name);
  }
  // The most frequent ones first.
  static Cell errors_of(const Calls& calls) {
    std::vector<std::pair<std::pair<i64, Architecture>, u64>> all(calls.errors.begin(), calls.errors.end());
    std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
    Cell cell(Json::array(), "");
    for (const auto& [error, count] : all) {
      cell.value.push_back(Table::object(syscall_error, {error_text(error), -error.first, count}));
      *cell.text += fmt::format("{}{} {}", cell.text->empty() ? "" : ", ", error_text(error), format_count(count));
    }
    return cell;
  }
  static Cells numbers(const Calls& c, const Calls& all) {
    const bool any = c.count != 0;
    const double share = all.total == 0 ? 0 : 100 * static_cast<double>(c.total) / static_cast<double>(all.total);
    return {c.count,
            {c.failed, c.failed == 0 ? "" : format_count(c.failed)},
            c.total,
            share,
            any ? Cell(c.mean()) : Cell(),
            any ? Cell(c.min) : Cell(),
            c.max,
            share};
  }
  static Calls sum(const std::vector<Row>& rows) {
    Calls all;
    for (const Row& row : rows) {
      all.count += row.calls->count;
      all.failed += row.calls->failed;
      all.total += row.calls->total;
      all.min = std::min(all.min, row.calls->min);
      all.max = std::max(all.max, row.calls->max);
    }
    return all;
  }
  bool exact(const Totals& totals) const {
    return pairs_.counts().exact() && calls_.evicted().keys == 0 && totals.account.none_lost();
  }

  std::string closing(const Totals& totals) const {
    const Pairs::Counts c = pairs_.counts();
    std::string out;
    if (c.waiting != 0)
      out += "calls that have not returned: " + format_count(c.waiting) + " (exit_group never does)" +
             (totals.account.none_lost() ? "" : ", or whose return was lost") + "\n";
    if (c.unmatched != 0)
      out += counted(c.unmatched, "return") +
             " not in the table: the call began before the first event, or it is the first return of a new thread" +
             (totals.account.none_lost() ? "" : ", or the call was lost") + "\n";
    if (c.left_out != 0) out += counted(c.left_out, "call does", "calls do") + " not meet -f or -e\n";
    if (without_ != 0) out += "calls without " + options_.by + ", and not in the table: " + format_count(without_) + "\n";
    if (calls_.evicted().keys != 0)
      out += fmt::format("{} with {} given up for others (--keys)\n", counted(calls_.evicted().keys, "line"),
                         counted(calls_.evicted().count, "call was", "calls were"));
    if (exact(totals)) return out + "nothing was lost: the numbers are exact\n";
    out += "NOT exact:";
    if (!totals.account.none_lost()) out += " " + lost_count(totals.account) + " events were lost;";
    if (c.doubtful != 0) out += " of " + format_count(c.doubtful) + " calls the beginning or the end may be another call's;";
    if (c.negative != 0) out += " " + format_count(c.negative) + " ends are older than their beginning;";
    if (c.evicted != 0) out += " " + format_count(c.evicted) + " calls waited for too many others;";
    if (c.repeated != 0)
      out +=
          " " + counted(c.repeated, "call has", "calls have") + " no return before the next call, and no place in the table;";
    if (c.late != 0)
      out += " " + counted(c.late, "call or return", "calls or returns") +
             " came after later events, and may be wrong or missing;";
    out.pop_back();
    return out + "\n";
  }

  const SyscallsOptions& options_;
  const Trace& trace_;
  Pairs pairs_;
  std::optional<Column> by_;
  Texts texts_;
  IdTable<Fields> fields_;
  KeyTable<Calls> calls_;
  u64 without_ = 0;
};

// -e names calls: a filter of these.
void choose_calls(SyscallsOptions& options) {
  std::string& filter = options.run.filter;
  if (!filter.empty() && filter.find_first_of("=<>&~") == std::string::npos)
    throw UsageError{"-f takes a FILTER, such as 'syscall == openat', and " + in_quotes(filter) +
                     " is none; what a command starts is always followed: ringside syscalls " + filter};
  std::string any;
  for (std::string list : options.calls) {
    for (const char* const word : {"trace=", "t="}) {  // as strace takes it
      if (list.starts_with(word)) list.erase(0, std::string_view(word).size());
    }
    for (const std::string& name : split_at(list, ',')) {
      if (name.empty() || name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") != std::string::npos)
        throw UsageError{"-e takes names of system calls, with commas between: -e openat,close; " + in_quotes(name) +
                         " is none"};
      any += (any.empty() ? "syscall == " : " || syscall == ") + name;
    }
  }
  if (any.empty()) return;
  filter = filter.empty() ? any : "(" + filter + ") && (" + any + ")";
}

result<int> run_syscalls(SyscallsOptions options, bool command) {
  choose_calls(options);
  const bool live = command || options.all || !options.pids.empty();
  if (options.files && !live)
    throw UsageError{
        "--files belongs to a command, --pid or --all; a recording has files if it was made with them: ringside "
        "record --files -e raw_syscalls COMMAND"};
  options.files = options.files || (live && options.by == "file");
  if (live && !command && !options.words.empty())
    throw UsageError{"--all and --pid are about the kernel, live; WHERE is about what was recorded: take one of them"};
  if (command && (options.all || !options.pids.empty()))
    throw UsageError{"a command's own calls are counted; --all and --pid mean others"};
  if (options.all && !options.pids.empty()) throw UsageError{"--all and --pid contradict each other"};
  sys::Fd file;
  if (!options.to.empty() && options.to != "-") {
    file = sys::Fd(open(options.to.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    if (!file) return fail(errno, "cannot write " + options.to + "; name another file with -o");
    put_into(file.get());
  } else if (options.to.empty() && command && !options.run.json) {
    put_into(STDERR_FILENO);  // where strace -c has its table: stdout is the command's
  }
  std::optional<Child> child;
  RunOptions& run_options = options.run;
  if (live) {
    run_options.events = {raw_events};
    run_options.only_kernel = true;
    run_options.only_followed = !options.all;
    run_options.files = options.files;
  } else {
    run_options.where = options.words;
  }
  if (command) {
    run_options.over = [&] {
      if (!child) return asked_to_stop();
      child->pass_on_stop();
      return child->ended().has_value();
    };
  }
  RunOptions unfiltered = run_options;
  unfiltered.filter.clear();  // it chooses calls, not events
  const auto run = RS_TRY(AnalysisRun::open(unfiltered));
  const auto table = RS_TRY(SyscallTable::make(options, run->trace()));
  if (!options.by.empty()) run->reading().look_up_names();
  run->reading().look_up_for(table->pairs());
  FileCalls* const files = run->trace().files();
  for (const i32 pid : options.pids) {
    if (files != nullptr) RS_TRY(files->follow(pid));
    RS_TRY(run->trace().tracefs()->follow_process(pid));
  }
  if (command) {
    bool prepared = false;
    auto started = Child::start(options.words, {}, [&](pid_t pid) {
      auto done = files != nullptr ? files->follow(pid) : result<void>();
      if (done) done = run->trace().tracefs()->follow(pid);
      prepared = done.has_value();
      return done;
    });
    if (!started && !prepared && !asked_to_stop()) return tl::unexpected<Error>(started.error());
    if (!started) return failed_to_start(started.error());
    child = std::move(*started);
  }
  const auto use = [&](const TraceRecord& record, const RingName& ring) { table->take(record, ring); };
  const auto lost = [&](const TraceRecord& record, const RingName& ring) {
    if (record.lost != 0) table->take(record, ring);
  };
  const int code = run->go(use, [&](const Totals& totals, double, bool last) { return table->picture(totals, last); }, lost);
  if (!child) return code;
  if (!child->ended()) {
    say("the command is still running; it goes on uncounted");
    return code;
  }
  return *child->ended() != exit_ok ? *child->ended() : code;
}

}  // namespace

Members syscalls_members() { return syscalls_result; }

Command add_syscalls(CLI::App& app) {
  auto options = std::make_shared<SyscallsOptions>();
  options->run.kernel_buffer_size = 16 << 20;
  CLI::App* c = app.add_subcommand("syscalls",
                                   "system calls by name: how many, how long, which errors; of a command, of recordings, live");
  c->add_option(
      "WHERE", options->words,
      "recordings, trace.dats (default: ringside.data); or a command to run, whose calls are counted; -- may come before it");
  c->add_option("-p,--pid", options->pids,
                "live: the calls of this process and what it starts; may be repeated, or have commas")
      ->allow_extra_args(false)
      ->delimiter(',');
  c->add_option("-e,--calls", options->calls, "only these calls, with commas between several")
      ->allow_extra_args(false)
      ->type_name("NAMES");
  c->add_flag("-a,--all", options->all, "live: the calls of all processes");
  c->add_flag_callback("-c", [] {}, "no effect; accepted because strace has it")->group("");
  c->add_option("--by", options->by,
                "a line for each call and each value of this column: process, task, thread, cgroup, cpu, ...")
      ->type_name("KEY");
  c->add_flag("--files", options->files,
              "live: note which file each descriptor is, and the paths, by a BPF program: for --by file, and file in -f");
  c->add_option("--sort", options->sort, "lines by")
      ->check(CLI::IsMember({"total", "calls", "errors", "mean", "max"}))
      ->capture_default_str()
      ->type_name("NUMBER");
  add_count(*c, options->count, "lines at most")->capture_default_str();
  c->add_option("--keys", options->most_keys, "lines that are kept count of; a full table gives up those that count least")
      ->capture_default_str()
      ->check(CLI::Range(2, 100'000'000));
  c->add_option("-o,--output", options->to,
                "the file for the table; - is stdout (default: stdout; for the table of a command stderr)")
      ->type_name("FILE");
  add_run_options(*c, options->run);
  c->footer(
      "Examples:\n"
      "  ringside syscalls make                             a command and all that it starts, as root\n"
      "  ringside syscalls --by file make                   calls and time by file; -f 'file ~ \"*.h\"' chooses some\n"
      "  ringside syscalls -o calls.txt make                its table in a file\n"
      "  ringside syscalls -e openat,close make             two kinds of calls; in a filter: -f 'syscall == openat && pid != "
      "1'\n"
      "  ringside syscalls -p 4711 --duration 5s            a process that is running\n"
      "  ringside syscalls -a --by process --sort errors    all processes, until Ctrl-C\n"
      "  ringside record -e raw_syscalls make && ringside syscalls\n"
      "A recording needs raw_syscalls:sys_enter and sys_exit, or syscalls:sys_enter_* and sys_exit_*. A call is counted when "
      "it\n"
      "returns. Its time is that between the two events: waiting included. Names are those of this machine's architecture; "
      "the\n"
      "calls of 32-bit programs have other numbers, and appear under wrong names. Results -1 to -4095 are errors; ERESTARTSYS "
      "and\n"
      "its like are calls that a signal interrupted. The table of a command goes to stderr, as strace -c does; with --json to "
      "stdout. The exit code is the command's.");
  return {c, [options, c] {
            const auto rest = c->remaining();
            return run_syscalls(*options, std::find(rest.begin(), rest.end(), "--") != rest.end());
          }};
}

}  // namespace ringside::cli
