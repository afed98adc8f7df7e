// ringside flame: the stacks of events, added up: a flame graph as one web page, folded text, pprof's format.
#include "cli/flame.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "analysis/function_calls.hpp"
#include "analysis/heap_peak.hpp"
#include "analysis/lock_holders.hpp"
#include "analysis/mistyped.hpp"
#include "analysis/names.hpp"
#include "analysis/pairs.hpp"
#include "analysis/unfreed.hpp"
#include "cli/json.hpp"
#include "cli/live.hpp"
#include "cli/presets.hpp"
#include "stacks/flame_page.hpp"
#include "stacks/pprof.hpp"
#include "sys/try.hpp"
#include "text/units.hpp"

namespace ringside::cli {
namespace {

struct FlameOptions {
  RunOptions run;
  std::string by = "count", root = "task", keys, task, against, to;
  std::vector<std::string> latency;
  bool calls = false, leaks = false, peak = false, absolute = false, contention = false, folded = false, pprof = false;
};

// The stacks of one trace.
class Gathered {
 public:
  static result<std::unique_ptr<Gathered>> make(const FlameOptions& options, Trace& trace, Stacks& stacks) {
    auto g = std::unique_ptr<Gathered>(new Gathered(trace, stacks));
    g->all_ = !options.run.events.empty() || !options.run.filter.empty();
    for (const auto& type : trace.formats.all())
      g->samples_only_ = g->samples_only_ || (type->full == "ringside:sample" && !g->all_);
    if (options.root != "none") g->root_.emplace(RS_TRY(Column::compile(options.root, trace.formats, trace.tasks)));
    if (g->root_ && g->root_->differs()) g->root_->use_names();
    if (!options.latency.empty()) {
      Pairs::Options pair = pair_of(options.latency, options.keys);
      pair.slowest = 0;
      choose_pairs(pair, options.run.filter, options.task);
      g->pairs_.emplace(RS_TRY(Pairs::make(pair, trace.formats, trace.tasks)));
      g->unit_ = trace.raw_times() ? "ticks" : "ns";
    } else if (options.calls) {
      g->calls_.emplace(trace.formats, trace.tasks);
    } else if (options.contention) {
      g->holders_.emplace(trace.formats, trace.tasks);
      g->unit_ = "ns";
    } else if (options.leaks || options.peak) {
      if (options.peak) g->peak_ = std::make_unique<HeapPeak>();
      g->unfreed_.emplace(trace.formats, trace.tasks);
      if (g->peak_) g->unfreed_->tell(*g->peak_);
      g->unit_ = "bytes";
    } else if (options.by != "count") {
      g->by_.emplace(RS_TRY(Column::compile(options.by, trace.formats, trace.tasks)));
      if (g->by_->kind() == Column::Kind::text)
        return mistyped(std::errc::invalid_argument, in_quotes(options.by) + " is a text, and texts do not add up");
      g->unit_ = g->by_->unit() == Column::Unit::ns ? "ns" : g->by_->unit() == Column::Unit::bytes ? "bytes" : options.by;
    }
    return g;
  }

  void take(const TraceRecord& record, const RingName& ring, bool wanted) {
    if (pairs_) {
      if (!pairs_->take(record, ring)) return;
      const TraceRecord start = pairs_->last_start();
      fold_.add(root_of(start, trace_.timeline.name(start.source)), start.stack, pairs_->latency(), record.stack);
      return;
    }
    if (calls_) return calls_->take(record, ring, record.lost == 0 ? root_of(record, ring) : 0, wanted);
    if (holders_) {
      const auto wait = holders_->take(record, ring);
      if (wait && wanted)
        fold_.add(root_of(record, ring), record.stack, wait->ns, wait->other, wait->woken ? Fold::woken_by : Fold::held_by);
      return;
    }
    if (record.lost != 0) return;
    if (unfreed_) {  // a filter chooses allocations; every free counts
      if (unfreed_->knows(record.number())) unfreed_->take(record, ring, root_of(record, ring), wanted);
      return;
    }
    if (!wanted) return;
    using Kind = Stacks::Part;
    const Kind part = stacks_.part(record.number());
    if (Stacks::tells(part)) return;
    if (samples_only_ ? part != Kind::sample : !all_ && record.stack == 0) return;
    u64 weight = 1;
    if (part == Kind::sample && !by_) weight = stacks_.sample_count(record);
    if (by_ && !value(record, ring, weight)) return;
    fold_.add(root_of(record, ring), record.stack, weight);
    without_stack_ += record.stack == 0;
  }
  // What is left of allocations becomes the weight.
  void end() {
    if (calls_) unit_ = calls_->own_ns() == 0 ? "calls" : trace_.raw_times() ? "ticks" : "ns";
    if (!unfreed_) return;
    const auto process = peak_ ? std::optional(peak_->highest().process) : std::nullopt;
    unfreed_->each([&](i64 of, const Unfreed::Block& block) {
      if (!process || of == *process) fold_.add(block.root, block.stack, block.bytes);
    });
    if (process) peak_->undo(*process, fold_);
  }

  const Fold& fold() const { return fold_; }
  void add_to(FlameTree& tree, u32 which) const {
    if (!calls_) return tree.add(fold_, stacks_, roots_, which);
    const bool timed = calls_->own_ns() != 0;
    std::vector<u32> nodes;
    for (const FunctionCalls::Path& p : calls_->paths()) {
      u32 above = p.above != FunctionCalls::none ? nodes[p.above] : 0;
      if (p.above == FunctionCalls::none && p.root < roots_.size())
        above = tree.below(above, roots_[p.root], CodeFunction::Kind::remark);
      nodes.push_back(tree.below(above, calls_->function(p), CodeFunction::Kind::kernel));
      tree.add(nodes.back(), timed ? p.own_ns : p.calls, which);
    }
  }
  u64 count() const { return calls_ ? calls_->counts().calls : fold_.count(); }
  // "12 events with 3 different stacks"
  std::string size() const {
    if (!calls_) return counted(count(), "event") + " with " + counted(fold_.size(), "different stack");
    const auto& paths = calls_->paths();
    const auto called = std::count_if(paths.begin(), paths.end(), [](const auto& p) { return p.calls != 0; });
    return counted(count(), "call") + " by " + counted(static_cast<u64>(called), "different path");
  }
  const Pairs* pairs() const { return pairs_ ? &*pairs_ : nullptr; }
  const std::vector<std::string>& roots() const { return roots_; }
  const std::string& unit() const { return unit_; }
  std::vector<std::string> remarks(const Account& account) const {
    std::vector<std::string> out;
    if (without_stack_ != 0)
      out.push_back(counted(without_stack_, "event has", "events have") + " no stack; they show as [no stack]");
    if (without_value_ != 0) out.push_back(counted(without_value_, "event has", "events have") + " no such field");
    if (rounded_ != 0) out.push_back("the values of " + counted(rounded_, "event") + " are rounded to whole numbers");
    if (negative_ != 0) out.push_back(counted(negative_, "event has", "events have") + " a negative value, and are left out");
    if (peak_) {
      const HeapPeak::Highest h = peak_->highest();
      const Task* const task = trace_.tasks.find(h.process);
      if (h.bytes != 0)
        out.push_back(fmt::format(
            "the highest point of {}-{}: {} bytes in {}, at {}.{:09} s{}", task != nullptr ? task->process : "<...>",
            trace_.tasks.show(h.process), format_count(h.bytes), counted(h.blocks, "block"), h.time / 1'000'000'000,
            h.time % 1'000'000'000,
            h.others == 0
                ? ""
                : "; " + counted(h.others, "other process", "other processes") + " held no more (-f 'pid == N' chooses one)"));
    }
    if (unfreed_) out.push_back(accounted(*unfreed_, account.none_lost()));
    if (calls_) {
      const FunctionCalls::Counts c = calls_->counts();
      if (c.cut != 0) out.push_back(counted(c.cut, "call has", "calls have") + " no exit here, and no time");
      if (c.unmatched != 0) out.push_back(counted(c.unmatched, "exit has", "exits have") + " no entry here");
    }
    if (pairs_) {
      const Pairs::Counts c = pairs_->counts();
      out.push_back(counted(c.pairs, "pair") +
                    (c.left_out == 0 ? "" : ", and " + format_count(c.left_out) + " that do not meet -f") + "; " +
                    counted(c.lost, "event was", "events were") + " lost between");
      for (std::string& sentence : unpaired(*pairs_)) out.push_back(std::move(sentence));
    }
    return out;
  }

 private:
  Gathered(Trace& trace, Stacks& stacks) : trace_(trace), stacks_(stacks) {}

  bool value(const TraceRecord& record, const RingName& ring, u64& weight) {
    double real = 0;
    i64 whole = 0;
    const bool is = by_->kind() == Column::Kind::real ? by_->real(record, ring, real) : by_->number(record, ring, whole);
    if (by_->kind() == Column::Kind::real) {
      whole = real < 0x1p62 && real > -0x1p62 ? static_cast<i64>(std::llround(real)) : 0;
      rounded_ += is && static_cast<double>(whole) != real;
    }
    without_value_ += !is;
    negative_ += is && whole < 0;
    weight = static_cast<u64>(whole);
    return is && whole >= 0;
  }
  u32 root_of(const TraceRecord& record, const RingName& ring) {
    u64 key = 0;
    if (!root_) return ~u32{0};
    if (!root_->key(record, ring, texts_, key)) return root_number("[unknown]");
    const auto [at, fresh] = root_numbers_.try_emplace(key);
    if (fresh) at->second = root_number(root_->show(key, texts_));
    return at->second;
  }
  u32 root_number(const std::string& text) {
    const auto [at, fresh] = root_texts_.try_emplace(text, static_cast<u32>(roots_.size()));
    if (fresh) roots_.push_back(text);
    return at->second;
  }

  Trace& trace_;
  Stacks& stacks_;
  Fold fold_;
  std::optional<Column> by_, root_;
  std::optional<Pairs> pairs_;
  std::optional<FunctionCalls> calls_;
  std::unique_ptr<HeapPeak> peak_;
  std::optional<Unfreed> unfreed_;
  std::optional<LockHolders> holders_;
  Texts texts_;
  std::unordered_map<u64, u32> root_numbers_;
  std::unordered_map<std::string, u32> root_texts_;
  std::vector<std::string> roots_;
  std::string unit_ = "events";
  bool all_ = false, samples_only_ = false;
  u64 without_stack_ = 0, without_value_ = 0, negative_ = 0, rounded_ = 0;
};

// A trace, and what was gathered from it.
struct Side {
  std::unique_ptr<AnalysisRun> run;
  std::unique_ptr<Gathered> gathered;
  int code = exit_ok;
};

result<Side> gather(const FlameOptions& options, RunOptions from) {
  Side part;
  if (!options.latency.empty()) from.filter.clear();  // it chooses pairs, not events
  if (!options.latency.empty() && from.events.empty()) {
    // Of a live kernel only the pair's events are needed; recordings are read as they are.
    const bool alone = from.where.empty() && from.inputs.empty() && !is_recording(default_recording);
    if (alone) from.events = events_of(pair_of(options.latency, options.keys));
  }
  part.run = RS_TRY(AnalysisRun::open(std::move(from)));
  Stacks& stacks = part.run->reading().join_stacks();
  part.gathered = RS_TRY(Gathered::make(options, part.run->trace(), stacks));
  Gathered& g = *part.gathered;
  if (g.pairs() != nullptr) part.run->reading().look_up_for(*g.pairs());
  part.code = part.run->go(
      [&](const TraceRecord& record, const RingName& ring) { g.take(record, ring, true); },
      [&](const Totals& totals, double, bool last) {
        return last ? "" : fmt::format("{} read, {}; Ctrl-C ends\n", counted(totals.account.read, "event"), g.size());
      },
      [&](const TraceRecord& record, const RingName& ring) { g.take(record, ring, false); });
  g.end();
  return part;
}

std::string lines_of_json(const FlameTree& tree) {
  std::string out;
  for (const u32 n : tree.in_order()) {
    const FlameTree::Node& node = tree.nodes()[n];
    if (node.own[0] == 0 && node.own[1] == 0) continue;
    Json stack = Json::array();
    for (u32 up = n; up != 0; up = tree.nodes()[up].parent) stack.push_back(tree.names()[tree.nodes()[up].name].text);
    out += text_of(Json{{"weight", node.own[0]}, {"against", node.own[1]}, {"stack", std::move(stack)}}) + "\n";
  }
  return out;
}

std::string title_of(const FlameOptions& options) {
  std::string out;
  for (const std::string& where : options.run.where) out += (out.empty() ? "" : " ") + where;
  if (out.empty()) out = options.run.events.empty() ? default_recording : "live";
  for (const std::string& list : options.run.events) out += " -e " + list;
  if (!options.run.filter.empty()) out += " -f '" + options.run.filter + "'";
  if (!options.latency.empty())
    out += " time from " + options.latency[0] + (options.latency.size() > 1 ? " to " + options.latency[1] : "");
  if (options.calls) out += ", calls of functions";
  if (options.leaks) out += ", not freed";
  if (options.peak) out += ", held at the highest point";
  if (options.contention) out += ", waits for locks";
  return out;
}

bool memory_or_locks(const FlameOptions& options) { return options.leaks || options.peak || options.contention; }

result<int> run_flame(FlameOptions options) {
  if (options.folded + options.pprof + options.run.json > 1)
    throw UsageError{"--folded, --pprof and --json exclude each other"};
  if (!(options.keys + options.task).empty() && options.latency.empty())
    throw UsageError{"--key and --task belong to --latency"};
  if (options.peak && (options.leaks || options.contention || !options.latency.empty()))
    throw UsageError{"--peak excludes --leaks, --contention and --latency"};
  if (options.calls && (memory_or_locks(options) || !options.latency.empty() || options.by != "count" || options.pprof))
    throw UsageError{"--calls excludes --leaks, --peak, --contention, --latency, --by and --pprof"};
  if (options.absolute && options.against.empty()) throw UsageError{"--absolute belongs to --against"};
  if (options.leaks && !options.latency.empty()) throw UsageError{"--leaks and --latency exclude each other"};
  if (options.contention && (options.leaks || !options.latency.empty()))
    throw UsageError{"--contention excludes --leaks and --latency"};
  const bool memory = options.leaks || options.peak;
  if (!options.run.window.cpus.empty() && (options.contention || memory))
    throw UsageError{std::string("--cpu has no meaning beside ") +
                     (options.leaks  ? "--leaks"
                      : options.peak ? "--peak"
                                     : "--contention") +
                     (memory ? ": memory may be freed on another CPU" : ": a lock may be held on another CPU") +
                     "; -f 'cpu == N' chooses " + (memory ? "the allocations" : "the waits")};
  if (options.by != "count" && (options.contention || memory || !options.latency.empty()))
    throw UsageError{"--by has no meaning beside --leaks, --peak, --contention and --latency, which have weights of their own"};
  if (!options.against.empty() && (options.folded || options.pprof)) throw UsageError{"--against is for the page and --json"};
  options.run.where.insert(options.run.where.end(), options.run.inputs.begin(), options.run.inputs.end());
  options.run.inputs.clear();
  const bool text = options.folded || options.run.json;
  const std::string to = !options.to.empty() ? options.to : text ? "-" : options.pprof ? "profile.pb.gz" : "flame.html";
  // A free of what a leak looks for must not be left out.
  RunOptions from = options.run;
  if (memory || options.contention) from.events = {"libc:*"};  // nor a lock, or what ends a wait
  const bool json = std::exchange(from.json, false);
  from.every = false;
  Side part = RS_TRY(gather(options, from));
  Gathered& g = *part.gathered;
  Reading& reading = part.run->reading();
  Stacks& stacks = reading.join_stacks();
  FlameTree tree;
  g.add_to(tree, 0);
  std::vector<std::string> remarks = g.remarks(reading.complete().account);
  if (!options.against.empty()) {
    RunOptions other = options.run;
    other.json = false;
    other.where = {options.against};
    other.events = from.events;
    auto second = RS_TRY(gather(options, other));
    second.gathered->add_to(tree, 1);
    for (const std::string& r : second.run->reading().stack_remarks()) remarks.push_back(options.against + ": " + r);
  }
  std::string bytes;
  const Totals& totals = reading.complete();
  if (json) {
    bytes = lines_of_json(tree);
  } else if (options.folded) {
    bytes = tree.folded();
  } else if (options.pprof) {
    const bool counts = g.unit() == "events";
    bytes = RS_TRY(pprof(g.fold(), stacks, g.roots(),
                         {counts                    ? "samples"
                          : memory                  ? "inuse_space"
                          : options.contention      ? "contention"
                          : options.latency.empty() ? options.by
                                                    : "delay",
                          counts             ? "count"
                          : g.unit() == "ns" ? "nanoseconds"
                                             : g.unit(),
                          options.root, totals.first_ns, totals.last_ns, "ringside flame " + title_of(options)}));
  } else {
    bytes = RS_TRY(flame_page(tree, {title_of(options), g.unit(), options.against, options.absolute}));
  }
  const bool nothing = g.count() == 0 && options.against.empty();
  if (to == "-") {
    if (!put(bytes)) return exit_failure;
  } else if (!nothing) {  // an older file is worth more than an empty graph
    RS_TRY(write_file(to, bytes, "-o FILE"));
  }
  for (const std::string& r : reading.stack_remarks()) remarks.push_back(r);
  say_first(remarks);
  if (g.count() == 0)
    say(options.calls ? "no call of a function was recorded here: ringside record --graph 'vfs_*' COMMAND, or trace-cmd record "
                        "-p function_graph"
        : options.peak       ? "nothing was allocated, or nothing was recorded: ringside record --stack --libc malloc COMMAND"
        : options.leaks      ? "nothing is left unfreed, or nothing was recorded: ringside record --stack --libc malloc COMMAND"
        : options.contention ? "no lock was taken here, or nothing was recorded: ringside record --stack --libc lock COMMAND"
                             : "no event here has a stack: ringside record -g records those of events, --sample 999 those of "
                               "CPU time");
  say(fmt::format("{}, lost {}{}", g.size(), lost_summary(totals.account),
                  to == "-" ? ""
                  : nothing ? "; " + to + " was not written"
                            : "; " + to + " (" + format_size(bytes.size()) + ")"));
  return nothing && part.code == exit_ok ? exit_failure : part.code;
}

}  // namespace

result<int> flame_of_latency(const RunOptions& run, const std::vector<std::string>& latency, const std::string& keys,
                             const std::string& task, const std::string& to) {
  FlameOptions options;
  options.run = run;
  options.latency = latency;
  options.keys = keys;
  options.task = task;
  options.to = to;
  return run_flame(std::move(options));
}

Command add_flame(CLI::App& app) {
  auto options = std::make_shared<FlameOptions>();
  CLI::App* c = app.add_subcommand("flame", "stacks added up: a flame graph as one web page, folded text, or for pprof");
  add_run(*c, options->run);
  c->add_option("--by", options->by, "what an event weighs: count, or the value of a field")
      ->capture_default_str()
      ->type_name("count|FIELD");
  c->add_option("--root", options->root,
                "the bottom of each stack: a column (task, process, thread, event, cgroup, cpu, ...), or none")
      ->capture_default_str()
      ->type_name("COLUMN");
  c->add_option("--latency", options->latency,
                "the time between two events, by the start's stack, and on top of it that of the end, from its caller up: "
                "START END, or a NAME of ringside latency")
      ->expected(1, 2)
      ->allow_extra_args(false)
      ->type_name("START END");
  add_key(*c, options->keys);
  add_task(*c, options->task);
  c->add_flag(
      "--calls", options->calls,
      "the time in the kernel's functions by the calls that led there, also while the thread slept: a function's width is "
      "its total time, and what is not below another one its own (record --graph; of --tracer function the number of "
      "calls)");
  c->add_flag("--leaks", options->leaks, "what was allocated and not freed, by bytes (record --stack --libc malloc)");
  c->add_flag("--peak", options->peak,
              "what a process held when it held the most, by bytes; of several the one that held the most (record --stack "
              "--libc malloc)");
  c->add_flag("--contention", options->contention,
              "waits for locks, conditions and semaphores by the stack that waited, and on top of it that of the thread that "
              "locked it last before, or of the signal or post that ended the wait (record --stack --libc lock)");
  c->add_option("--against", options->against,
                "compare with this recording: red has a larger share of all than there, blue a smaller one; the numbers "
                "of both are below the graph")
      ->type_name("WHERE");
  c->add_flag("--absolute", options->absolute,
              "with --against, colours by the numbers themselves instead of their shares: red is more than there, blue less; "
              "on the page: a");
  c->add_flag("--folded", options->folded,
              "text: outermost;...;innermost WEIGHT a line, for flamegraph.pl, speedscope, inferno");
  c->add_flag("--pprof", options->pprof, "a gzipped profile for go tool pprof, Pyroscope, Grafana");
  c->add_option("-o,--output", options->to,
                "the file; an older one is replaced; - is stdout (default: flame.html; profile.pb.gz; text: stdout)")
      ->type_name("FILE");
  c->footer(
      "Examples:\n"
      "  ringside flame                               ./ringside.data as ./flame.html, for any browser\n"
      "  ringside flame -e libc:malloc --by size      which functions allocate the most bytes\n"
      "  ringside flame --leaks                       what was not freed, by bytes\n"
      "  ringside flame --leaks -f 'size > 4096'      only allocations of more than 4 KiB; each free counts, whatever -f says\n"
      "  ringside flame --peak                        what was held at the highest point of the heap\n"
      "  ringside flame --calls                       time in functions, by record --graph or trace-cmd record -p "
      "function_graph\n"
      "  ringside flame --contention                  where threads wait for locks, and which stack held them\n"
      "  ringside flame --contention -f 'wait_ns > 10000'   only waits of more than 10 us\n"
      "  ringside flame --contention -f 'event != cond_wait'   without threads that wait for work\n"
      "  ringside flame --latency sleep               where threads wait: the time until they are woken, and by which stack\n"
      "  ringside flame --task make -f 'latency > 1ms' --latency sleep   only these waits: -f is a condition on pairs then\n"
      "  ringside flame -e sched_switch trace.dat     what trace-cmd record -T recorded\n"
      "  ringside flame new --against old             what takes a larger share (red), what a smaller one (blue)\n"
      "  ringside flame --folded | flamegraph.pl >x.svg\n"
      "  ringside flame --pprof && go tool pprof -http : profile.pb.gz\n"
      "Without -e: the samples, if there are any (record --sample), else all events that have a stack. Stacks come with events "
      "by\n"
      "record -g, or --stack (programs) and --kstack (the kernel), options of the kernel's own recorders too. A name is looked "
      "up in the file\n"
      "that ran, if its build id is still the same, in its debug file, or in the saved kallsyms; what has no name shows as\n"
      "FILE+OFFSET, and is counted. DEBUGINFOD_URLS: where debug files are fetched from. On the page: click zooms, / "
      "searches,\n"
      "v inverts, t is a table, a compares numbers instead of shares.");
  return {c, [options] { return run_flame(*options); }};
}

}  // namespace ringside::cli
