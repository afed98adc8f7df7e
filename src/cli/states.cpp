// ringside states: how long each thread ran, could run, waited and slept, and each CPU was busy: of recordings, live.
#include "analysis/states.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <span>

#include "analysis/column.hpp"
#include "analysis/process_tree.hpp"
#include "cli/live.hpp"
#include "cli/result.hpp"
#include "text/units.hpp"
#include "kernel/tracefs_instance.hpp"
#include "schema/glob.hpp"
#include "sys/try.hpp"

namespace ringside::cli {
namespace {

struct StatesOptions {
  RunOptions run;
  std::vector<i32> pids;
  std::string by = "thread", sort, task;
  u64 count = 10, most_keys = 100'000;
  bool all = false;
};

constexpr const char* switches = "sched:sched_switch,sched:sched_waking,sched:sched_wakeup,sched:sched_wakeup_new";

struct Name {
  u32 state;
  const char* name;
};
constexpr Name of_thread[] = {{RunStates::running, "running"},     {RunStates::runnable, "runnable"},
                              {RunStates::preempted, "preempted"}, {RunStates::blocked, "blocked"},
                              {RunStates::sleeping, "sleeping"},   {RunStates::stopped, "stopped"}};
constexpr Name of_cpu[] = {{States::busy, "busy"}, {States::idle, "idle"}, {States::interrupts, "interrupts"}};

constexpr Members state_numbers = {
    {"count", Kind::count, "how many had their beginning and their end in what was read", "count"},
    {"total_ns", Kind::time, "their time", "total"},
    {"share", Kind::share, "of the time in which the states of the row are known, with `cut_ns`", "share"},
    {"longest_ns", Kind::time, "the longest; null without one", "longest"},
    {"p99_ns", Kind::time, "the quantile 0.99; null without one", "p99"},
    {"cut", Kind::count, "states that began before or end after what was read, or that a loss cuts"},
    {"cut_ns", Kind::time, "their time in what was read", "cut"}};
constexpr Members tree_row = {{"", Kind::text, "", "tree"},
                              {"path", Kind::array, "the names from the uppermost process down"},
                              {"processes", Kind::count, "how many have the last name", "processes"},
                              {"threads", Kind::count, "their threads"},
                              {"running_ns", Kind::time, "their CPU time; times are with what the recording cuts", "running"},
                              {"all_running_ns", Kind::time, "with that of all below", "with those below"},
                              {"", Kind::share, "", "share"},
                              {"runnable_ns", Kind::time, "their own time in this state", "runnable"},
                              {"preempted_ns", Kind::time, "the same", "preempted"},
                              {"blocked_ns", Kind::time, "the same", "blocked"}};
constexpr Members states_row = {
    {"key", Kind::text, "its name"},
    {"threads", Kind::count, "how many threads the row has; not with `cpu`"},
    {"states", Kind::object,
     "`running`, `runnable`, `preempted`, `blocked`, `sleeping`, `stopped`; of a CPU `busy`, `idle`, `interrupts`"},
    {"states.STATE", Kind::object, "an object for each state:", nullptr, state_numbers}};
constexpr Members states_facts = {
    {"switches", Kind::count, "switches that change states"},
    {"wake_ups", Kind::count, "wake-ups that change states"},
    {"interrupts", Kind::count, "interrupts that change states"},
    {"in_part", Kind::count, "threads of whose switches a tenth or more is missing; they have no row"},
    {"unseen", Kind::count, "places where a switch is missing, and no loss"},
    {"backward", Kind::count, "events that are older than those before"},
    {"evicted_keys", Kind::count, "threads that a full table gave up"},
    {"evicted", Kind::count, "their events"},
    exact_member};
constexpr Members states_result = {{"by", Kind::text, "`thread`, `process`, `cgroup`, `cpu` or `tree`"},
                                   {"rows", Kind::array, "an object for each of them:", nullptr, states_row},
                                   {"rows[]", Kind::object, "with `tree` instead of these:", nullptr, tree_row},
                                   {"keys", Kind::count, "how many rows there are, also beyond those printed"},
                                   {"all", Kind::object, "the states of all rows, as in `rows[].states`; not with `tree`"},
                                   {"processes", Kind::count, "with `tree`: of all rows"},
                                   {"all_running_ns", Kind::time, "with `tree`: the CPU time of all rows"},
                                   {"", Kind::object, "", nullptr, states_facts},
                                   unit_member,
                                   {"", Kind::object, "", nullptr, account_members}};

std::span<const Name> states_of(const StatesOptions& options) {
  return options.by == "cpu" ? std::span<const Name>(of_cpu) : std::span<const Name>(of_thread);
}

class StatesTable {
 public:
  static result<std::unique_ptr<StatesTable>> make(const StatesOptions& options, const Trace& trace) {
    auto states =
        States::make(options.by == "cpu" ? States::of_cpus : States::of_threads, options.most_keys, trace.formats, trace.tasks);
    if (!states)
      return refuse(std::errc::no_such_file_or_directory, trace.first().where + ": " + states.error().sentence +
                                                              "; record it: ringside record -a -e sched -- COMMAND");
    std::unique_ptr<StatesTable> table(new StatesTable(options, trace, std::move(*states)));
    if (options.by == "thread" || options.by == "process")
      table->shown_ = RS_TRY(Column::compile(options.by, trace.formats, trace.tasks));
    return table;
  }

  void take(const TraceRecord& record, const RingName& ring) { states_.take(record, ring); }

  std::string picture(const Totals& totals, bool last) const {
    Result out;
    const std::vector<Row> rows = options_.by == "tree" ? std::vector<Row>() : gathered(totals);
    options_.by == "tree" ? tree(out, totals) : table(out, rows);
    out.set(states_facts,
            {states_.switches(), states_.wake_ups(), states_.interrupts_seen(), states_.threads_in_part(), states_.unseen(),
             states_.backward(), states_.evicted().keys, states_.evicted().count, exact(totals)});
    out.account(totals.account, trace_.unit());
    if (last) out.text(closing(rows, totals));
    return out.print(options_.run.json);
  }

 private:
  struct Row {
    u64 key = 0;
    std::string name;
    u64 threads = 0;
    States::All times{};
    u64 known() const {
      u64 ns = 0;
      for (const auto& t : times) ns += t.known();
      return ns;
    }
    void merge(const States::All& more) {
      for (u32 n = 0; n < States::kinds; ++n) times[n].merge(more[n]);
    }
  };

  StatesTable(const StatesOptions& options, const Trace& trace, States states)
      : options_(options), trace_(trace), states_(std::move(states)) {}

  bool of_cpus() const { return options_.by == "cpu"; }
  std::span<const Name> names() const { return states_of(options_); }

  std::string name_of(u64 key, const Task* was) const {
    if (was != nullptr && options_.by == "thread")
      return fmt::format("{}-{}", was->name, trace_.tasks.show(static_cast<Tasks::Key>(key)));
    if (was != nullptr && options_.by == "process" && !trace_.tasks.any_elsewhere())
      return fmt::format("{}-{}", was->process, was->pid);
    if (shown_) return shown_->show(key, none_);
    if (!of_cpus()) {
      const std::string_view cgroup = trace_.tasks.cgroup(static_cast<Tasks::Key>(key));
      return cgroup.empty() ? "(unknown)" : std::string(cgroup);
    }
    const RingName& ring = trace_.timeline.name(static_cast<u32>(key));
    return (ring.buffer.empty() ? "" : ring.buffer + " ") + fmt::format("cpu{}", ring.its_cpu());
  }

  // A thread of --pid, or of a process that came from there; the kernel's switches name those that ran before or after it, too.
  bool is_of_chosen(Tasks::Key thread) const {
    Tasks::Key process = trace_.tasks.process(thread);
    constexpr u32 most_generations = 64;
    for (u32 n = 0; n < most_generations && process != 0; ++n) {
      if (options_.pids.empty() || std::find(options_.pids.begin(), options_.pids.end(), process) != options_.pids.end())
        return true;
      process = trace_.tasks.parent(process);
    }
    return options_.pids.empty();
  }

  std::vector<Row> gathered(const Totals& totals) const {
    std::map<std::tuple<std::string, u64, u64>, Row> by;
    states_.each(totals.last_ns, [&](u64 thread, const States::All& times, const States::Life& life) {
      const auto task = static_cast<Tasks::Key>(thread);
      if (!is_of_chosen(task)) return;
      if (!options_.task.empty()) {
        const Task* const known = life.was != nullptr ? life.was : trace_.tasks.find(task);
        if (known == nullptr || !glob_matches(options_.task, known->name)) return;
      }
      const bool of_then = life.was != nullptr && !trace_.tasks.any_elsewhere();
      const u64 key = options_.by == "process"  ? static_cast<u64>(of_then ? life.was->pid : trace_.tasks.process(task))
                      : options_.by == "cgroup" ? 0
                                                : thread;
      std::string name = name_of(options_.by == "cgroup" ? thread : key, life.was);
      Row& row = by[{name, key, options_.by == "thread" ? life.n : 0}];
      row.key = key;
      row.name = std::move(name);
      ++row.threads;
      row.merge(times);
    });
    std::vector<Row> rows;
    for (auto& [name, row] : by)
      if (row.known() != 0) rows.push_back(std::move(row));
    const Name* const sort =
        std::find_if(names().data(), names().data() + names().size(), [&](const Name& n) { return options_.sort == n.name; });
    if (options_.sort.empty() && of_cpus()) {
      std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.key < b.key; });
    } else {
      const u32 state = options_.sort.empty() ? u32{RunStates::running} : sort->state;
      std::stable_sort(rows.begin(), rows.end(),
                       [&](const Row& a, const Row& b) { return a.times[state].known() > b.times[state].known(); });
    }
    return rows;
  }
  static Row sum(const std::vector<Row>& rows) {
    Row all;
    for (const Row& row : rows) {
      all.merge(row.times);
      all.threads += row.threads;
    }
    return all;
  }
  Cells numbers(const States::Times& t, const Row& row) const {
    const u64 all = row.known();
    const bool whole = t.count() != 0;
    return {t.count(),
            t.total(),
            all == 0 ? 0. : 100 * static_cast<double>(t.known()) / static_cast<double>(all),
            whole ? Cell(t.longest()) : Cell(),
            whole ? Cell(t.p99()) : Cell(),
            t.cuts(),
            {t.cut_ns(), t.cuts() != 0 ? format_time(static_cast<double>(t.cut_ns()), trace_.unit()) : ""}};
  }
  bool exact(const Totals& totals) const {
    return states_.losses() + states_.backward() + states_.evicted().keys == 0 && states_.unseen() == 0 && totals.late == 0 &&
           totals.account.none_lost();
  }

  void table(Result& out, const std::vector<Row>& rows) const {
    Table lines({{options_.by}, {"state"}}, trace_.unit());
    lines.add(state_numbers);
    const auto states = [&](std::string name, const Row& row) {
      Json all = Json::object();
      for (const auto& [state, word] : names()) {
        const States::Times& t = row.times[state];
        const Cells cells = numbers(t, row);
        all[word] = Table::object(state_numbers, cells);
        if (t.count() + t.cuts() != 0) lines.row({std::exchange(name, ""), word}, cells);
      }
      return all;
    };
    Json list = Json::array();
    for (size_t i = 0; i < std::min<size_t>(rows.size(), options_.count); ++i) {
      const Row& row = rows[i];
      Json& one = list.emplace_back(Json{{"key", row.name}});
      if (!of_cpus()) one["threads"] = row.threads;
      one["states"] = states(row.name + (row.threads > 1 ? " (" + counted(row.threads, "thread") + ")" : ""), row);
    }
    lines.line_of_more(rows.size(), options_.count);
    Json all = states("all " + format_count(rows.size()), sum(rows));
    out.set({{"by", options_.by}, {"rows", std::move(list)}, {"keys", rows.size()}, {"all", std::move(all)}});
    out.table("", std::move(lines));
  }

  void tree(Result& out, const Totals& totals) const {
    ProcessTree tree(trace_.tasks);
    states_.each(totals.last_ns, [&](u64 thread, const States::All& times, const States::Life&) {
      if (const auto task = static_cast<Tasks::Key>(thread); is_of_chosen(task)) tree.add(task, times);
    });
    const auto rows = tree.in_order();
    Table table({}, trace_.unit());
    table.add(tree_row);
    for (size_t i = 0; i < std::min<size_t>(rows.size(), options_.count); ++i) {
      const ProcessTree::Node& node = *rows[i];
      const auto own = [&](u32 state) { return node.own[state].known(); };
      table.row({std::string(2 * (node.depth - 1), ' ') + node.name, tree.path(node), node.processes, node.threads,
                 node.running, node.all_running,
                 100 * static_cast<double>(node.all_running) / static_cast<double>(tree.all_running()),
                 own(RunStates::runnable), own(RunStates::preempted), own(RunStates::blocked)});
    }
    table.line_of_more(rows.size(), options_.count);
    table.line({"all", {}, tree.processes(), {}, tree.all_running()});
    out.set({{"by", options_.by}});
    out.table("rows", std::move(table));
    out.set({{"keys", rows.size()}, {"processes", tree.processes()}, {"all_running_ns", tree.all_running()}});
  }

  std::string closing(const std::vector<Row>& rows, const Totals& totals) const {
    std::string out;
    u64 cuts = 0;
    for (const auto& t : sum(rows).times) cuts += t.cuts();
    if (options_.by == "tree")
      out += "times are with what the recording cuts of them; a line has the processes of one name below one line\n";
    if (cuts != 0)
      out += "cut: " + counted(cuts, "state has its beginning or its end", "states have their beginning or their end") +
             (states_.losses() == 0 ? " outside of what was read" : " outside of what was read, or in a loss") +
             "; they are in the shares, and in no other number\n";
    if (of_cpus()) {
      if (states_.interrupts_seen() == 0)
        out += "no interrupt was recorded: their time is in busy and idle (record -e irq,irq_vectors, too)\n";
    } else if (states_.wake_ups() == 0 && states_.switches() != 0) {
      out += "no wake-up was recorded: the time from there to the CPU is in sleeping and blocked (record -e sched)\n";
    }
    const auto evicted = states_.evicted();
    if (evicted.keys != 0)
      out += fmt::format("{} with {} given up for others (--keys)\n", counted(evicted.keys, "thread"),
                         counted(evicted.count, "event was", "events were"));
    if (const u64 in_part = states_.threads_in_part(); in_part != 0)
      out += counted(in_part, "thread was", "threads were") +
             " seen in part, with a tenth of the switches missing or more, and " + (in_part == 1 ? "is" : "are") +
             " not in the table (record -a records all threads)\n";
    if (exact(totals)) return out + "nothing was lost: the numbers are exact, p99 within 1.6 %\n";
    out += "NOT exact:";
    if (!totals.account.none_lost() || states_.losses() != 0)
      out += " " + lost_count(totals.account) + " events were lost, and what threads did there is unknown;";
    if (states_.unseen() != 0)
      out += fmt::format(" at {} a switch is missing though nothing was lost: {} there is unknown;",
                         counted(states_.unseen(), "place"),
                         of_cpus() ? "what the CPU did" : "what the threads before and after it did");
    if (states_.backward() != 0)
      out += " " + counted(states_.backward(), "event is", "events are") + " older than those before;";
    if (totals.late != 0) out += " " + format_count(totals.late) + " came later than --look-ahead waits;";
    if (out.ends_with(';'))
      out.pop_back();
    else
      out += " threads were given up";
    return out + "\n";
  }

  const StatesOptions& options_;
  const Trace& trace_;
  States states_;
  std::optional<Column> shown_;
  Texts none_;
};

result<int> run_states(StatesOptions options) {
  RunOptions& run_options = options.run;
  const bool live = options.all || !options.pids.empty();
  const bool by_cpu = options.by == "cpu";
  if (options.all && !options.pids.empty()) throw UsageError{"--all and --pid contradict each other"};
  if (live && !run_options.where.empty())
    throw UsageError{"--all and --pid are about the kernel, live; WHERE is about what was recorded: take one of them"};
  if (!run_options.filter.empty())
    throw UsageError{"states needs every switch and takes no -f; --task NAME and -n choose lines"};
  if (!run_options.window.cpus.empty() && !by_cpu) throw UsageError{"threads go from CPU to CPU: --cpu needs --by cpu"};
  if (options.by == "tree" && !(options.task + options.sort).empty())
    throw UsageError{"--tree has all processes, the most time first: it takes no --task and no --sort"};
  if (by_cpu && !options.task.empty()) throw UsageError{"--task chooses threads; with --by cpu there are none"};
  if (by_cpu && !options.pids.empty()) throw UsageError{"--by cpu needs the switches of all threads: --all instead of --pid"};
  const auto known = states_of(options);
  if (!options.sort.empty() &&
      std::none_of(known.begin(), known.end(), [&](const Name& n) { return options.sort == n.name; })) {
    std::string all;
    for (const Name& n : known) all += (all.empty() ? "" : ", ") + std::string(n.name);
    throw UsageError{"--sort takes " + all + " with --by " + options.by};
  }
  if (live) {
    run_options.events = {switches};
    const auto there = kernel_events();
    if (!options.pids.empty() && there &&
        std::any_of(there->begin(), there->end(), [](const auto& e) { return e.system == "task"; }))
      run_options.events.push_back("task:task_newtask");  // says which threads and processes came from there
    if (by_cpu) {
      for (const char* const system : {"irq", "irq_vectors"})
        if (there && std::any_of(there->begin(), there->end(), [&](const auto& e) { return e.system == system; }))
          run_options.events.push_back(std::string(system) + ":*_entry," + system + ":*_exit");
    }
    run_options.only_kernel = true;
    run_options.only_followed = !options.all;
  }
  const auto run = RS_TRY(AnalysisRun::open(run_options));
  const auto table = RS_TRY(StatesTable::make(options, run->trace()));
  run->reading().look_up_names();
  for (const i32 pid : options.pids) RS_TRY(run->trace().tracefs()->follow_process(pid));
  const auto use = [&](const TraceRecord& record, const RingName& ring) { table->take(record, ring); };
  return run->go(
      use, [&](const Totals& totals, double, bool last) { return table->picture(totals, last); }, use);
}

}  // namespace

Members states_members() { return states_result; }

Command add_states(CLI::App& app) {
  auto options = std::make_shared<StatesOptions>();
  options->run.kernel_buffer_size = 16 << 20;
  CLI::App* c = app.add_subcommand(
      "states", "how long each thread ran, waited for a CPU, was blocked and slept, and each CPU was busy; recorded or live");
  c->add_option("WHERE", options->run.where, "recordings, trace.dats (default: ringside.data), with sched:sched_switch");
  c->add_option("-p,--pid", options->pids,
                "live: the threads of this process and what it starts; may be repeated, or have commas")
      ->allow_extra_args(false)
      ->delimiter(',');
  c->add_flag("-a,--all", options->all, "live: all threads");
  c->add_option("--by", options->by, "lines for each of these")
      ->check(CLI::IsMember({"thread", "process", "cgroup", "cpu", "tree"}))
      ->capture_default_str()
      ->type_name("KEY");
  c->add_flag_callback(
      "--tree", [options] { options->by = "tree"; },
      "processes below those that started them, added up by name: their number, CPU time, and that of all below");
  c->add_option("--sort", options->sort, "the most time in this state first (default: running; CPUs by number)")
      ->type_name("STATE");
  c->add_option("--task", options->task, "only threads with this name; * and ? are wildcards")->type_name("NAME");
  add_count(*c, options->count, "threads, processes, ... at most")->capture_default_str();
  c->add_option("--keys", options->most_keys,
                "threads that are kept count of; a full table gives up those with the fewest events")
      ->capture_default_str()
      ->check(CLI::Range(2, 100'000'000));
  add_run_options(*c, options->run);
  c->footer(
      "Examples:\n"
      "  ringside record -a -e sched make && ringside states\n"
      "  ringside states --sort runnable -n 5               who waited longest for a CPU\n"
      "  ringside states --by process --task 'cc1*'\n"
      "  ringside states --tree -n 40                       a build: the CPU time of what each command started\n"
      "  ringside states -a --duration 5s                   live, all threads, as root\n"
      "  ringside states -p 4711 --interval 1s              live, one process\n"
      "  ringside states -a --by cpu --json                 busy, idle, in interrupts\n"
      "running: on a CPU, with the interrupts that hit it. runnable: from the wake-up to the CPU. preempted: taken off the "
      "CPU\n"
      "although it could run; also by sched_yield. blocked: waits and takes no signal (D), for a disk mostly. sleeping: the "
      "rest.\n"
      "A state counts when its beginning and its end were seen. cut is the time of those that began before, or had not ended.\n"
      "The share is of all the time in which the line's states are known. Of CPUs an interrupt, soft ones included, is "
      "neither\n"
      "busy nor idle, and divides what it interrupts.");
  return {c, [options] { return run_states(*options); }};
}

}  // namespace ringside::cli
