// ringside watch: the events as a full screen that is kept up to date, or as plain tables where there is no terminal.
//
// Two threads: this one reads the rings, always; the front (the screen, or the printer of tables) asks it for pictures between
// two records. So a terminal that takes nothing (Ctrl-S, a slow line) delays only the front: no event is lost by it.
#include <fmt/format.h>
#include <poll.h>
#include <sys/resource.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <csignal>
#include <mutex>
#include <thread>

#include "cli/json.hpp"
#include "cli/live.hpp"
#include "cli/presets.hpp"
#include "cli/table.hpp"
#include "watch/terminal.hpp"
#include "text/units.hpp"
#include "watch/model.hpp"
#include "watch/screen.hpp"
#include "export/json.hpp"
#include "sys/thread.hpp"
#include "sys/try.hpp"

namespace ringside::cli {
namespace {

struct WatchOptions {
  RunOptions run;
  WatchQuery query;
  std::vector<std::string> latency;
  std::string keys, task;
  u64 most_keys = 10'000, count = 40;
  bool batch = false, ascii = false;
};

// Work that one thread requests of another, and waits for.
class Requests {
 public:
  // False, with nothing done: the other thread has ended.
  bool ask(const std::function<void()>& what) {
    std::unique_lock lock(mutex_);
    if (closed_) return false;
    what_ = &what;
    wanted_.store(true, std::memory_order_relaxed);
    changed_.notify_all();
    changed_.wait(lock, [&] { return what_ == nullptr || closed_; });
    const bool done = what_ == nullptr;
    what_ = nullptr;
    return done;
  }
  bool wanted() const { return wanted_.load(std::memory_order_relaxed); }
  void serve() {
    const std::lock_guard lock(mutex_);
    if (what_ == nullptr) return;
    (*what_)();
    what_ = nullptr;
    wanted_.store(false, std::memory_order_relaxed);
    changed_.notify_all();
  }
  void sleep(u64 ns) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::nanoseconds(ns), [&] { return what_ != nullptr || closed_; });
  }
  void close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  const std::function<void()>* what_ = nullptr;
  std::atomic<bool> wanted_{false};  // loaded between records, without the lock
  bool closed_ = false;
};

// The reading thread's side: the trace, and the model of the present view.
class Watcher {
  auto use() {
    // The reading has no filter, so what it does not want is no event of -e. The filter is the model's: F4 changes it.
    return [this](const TraceRecord& record, const RingName& ring, Reading::Got got) {
      if (got != Reading::Got::other) model_->take(record, ring);
    };
  }

 public:
  static result<std::unique_ptr<Watcher>> open(const WatchOptions& options) {
    auto watcher = std::unique_ptr<Watcher>(new Watcher(options));
    RS_TRY(watcher->reopen(options.query));
    auto model =
        RS_TRY(WatchModel::make(options.query, watcher->model_options(), watcher->trace().formats, watcher->trace().tasks));
    watcher->model_.emplace(std::move(model));
    watcher->begin();
    return watcher;
  }

  bool live() const { return run_->live(); }
  Trace& trace() { return run_->trace(); }
  u64 ticks() const { return ticks_; }
  void interval(u64 ns) {
    interval_ns_ = ns;
    next_tick_ = std::min(next_tick_, sys::now_ns() + ns);
  }

  // Reads the present events, until there is other work. False: nothing was left.
  bool take(const Requests& requests) {
    if (ended_) return false;
    if (live()) {
      run_->reading().refresh();
      run_->say_new_problems();
    }
    if (!run_->reading().take(use(), [&] { return requests.wanted() || asked_to_stop() || sys::now_ns() >= next_ns(); }))
      return true;
    if (!live()) ended_ = true;
    return false;
  }
  bool tick_if_due() {
    const u64 now = sys::now_ns();
    if (now < next_tick_ || !live()) return false;
    tick();
    return true;
  }
  bool over() const { return live() && sys::now_ns() >= end_ns_; }
  u64 next_ns() const { return std::min(next_tick_, end_ns_); }
  bool ended() const { return ended_; }

  // Stops the events; all that were written before are counted. The rest of a recording is not read.
  void stop() {
    if (live()) {
      run_->reading().take_rest(use());
      return tick();
    }
    if (!ended_) run_->reading().leave_the_rest();
    refresh();
  }
  int finish() {
    run_->find_mixtures(model_->keys());
    return run_->finish();
  }

  WatchHost::View view(const std::string& chosen, bool everything) {
    status_.where = where();
    status_.live = live();
    status_.ended = ended_;
    status_.interval_ns = interval_ns_;
    return {picture(chosen, everything), status_};
  }
  result<void> count(const WatchQuery& query, bool again) {
    auto model = WatchModel::make(query, model_options(), trace().formats, trace().tasks);
    if (!model) return tl::unexpected<Error>(model.error());
    if ((again || !live()) && is_there_again()) {
      auto before = std::move(run_);
      if (auto opened = reopen(query); !opened) {
        run_ = std::move(before);
        return opened;
      }
      model = WatchModel::make(query, model_options(), trace().formats, trace().tasks);
      if (!model) {
        run_ = std::move(before);
        return tl::unexpected<Error>(model.error());
      }
      model_.emplace(std::move(*model));  // while the formats of the old one still exist
      begin();
      return {};
    }
    if (query.asks_for_stacks()) run_->reading().join_stacks();
    model_.emplace(std::move(*model));
    last_tick_ = sys::now_ns();
    next_tick_ = last_tick_ + interval_ns_;
    return {};
  }
  const WatchModel& model() const { return *model_; }
  WatchPicture picture(const std::string& chosen, bool everything = false) const {
    WatchPicture p = model_->picture(chosen, everything);
    const u64 gaps = p.account.overrun;
    p.account = account_;
    p.account.overrun = std::max(gaps, account_.overrun);
    return p;
  }

  std::string text(bool last) {
    WatchPicture p = picture("");
    p.sort(last || !live() ? WatchSort::count : WatchSort::rate, true);
    std::string out;
    if (!last)
      out = fmt::format("{}: {:.1f} s, {}, {}, {} lost\n", where(), p.seconds, counted(p.all.count, "event"),
                        format_rate(p.all.rate, ""), lost_count(p.account));
    std::vector<Table::Column> columns;
    for (const std::string& name : p.columns) columns.push_back({name});
    for (const char* name : {"count", "rate", "share"}) columns.push_back({name, Kind::number});
    const bool values = !p.value.empty();
    for (const char* name : {"mean", "p50", "p99", "max"})
      if (values) columns.push_back({name, Kind::number});
    Table table(std::move(columns));
    const auto show = [](double value, Column::Unit unit) {
      return unit == Column::Unit::ns                    ? format_time(value)
             : unit == Column::Unit::bytes && value >= 0 ? format_size(static_cast<u64>(value))
                                                         : fmt::format("{:.6g}", value);
    };
    const auto row = [&](const WatchRow& r, std::vector<std::string> cells) {
      cells.push_back(format_count(r.count));
      cells.push_back(format_rate(last ? r.mean_rate : r.rate, ""));
      cells.push_back(fmt::format("{:.1f} %", r.share * 100));
      for (const double v : {r.mean, r.p50, r.p99, r.max})
        if (values) cells.push_back(r.values == 0 ? "" : show(v, r.unit));
      table.row(Cells(cells.begin(), cells.end()));
    };
    for (size_t i = 0; i < std::min<size_t>(options_.count, p.rows.size()); ++i) row(p.rows[i], p.rows[i].names);
    if (p.keys > options_.count) table.row({fmt::format("({} more)", format_count(p.keys - options_.count))});
    std::vector<std::string> all(p.columns.size());
    all[0] = "all";
    row(p.all, std::move(all));
    out += table.render(colours() && last);
    if (p.without != 0) out += fmt::format("{} no {}\n", counted(p.without, "event has", "events have"), p.query.by);
    if (!last) return out + "\n";
    Totals totals;
    totals.account = p.account;
    totals.account.read = p.all.count;
    totals.lost_earlier = run_->reading().totals().lost_earlier;
    return out + closing_line(totals, p.evicted_keys, p.evicted_events, values) + "\n";
  }

  std::string json(bool last) {
    WatchPicture p = picture("");
    p.sort(last || !live() ? WatchSort::count : WatchSort::rate, true);
    fmt::memory_buffer out;
    const auto to = std::back_inserter(out);
    const auto numbers = [&](const WatchRow& r) {
      fmt::format_to(to, "\"count\":{},\"rate\":{:.1f},\"share\":{:.4f}", r.count,
                     last ? r.mean_rate : r.rate, r.share);
      if (r.values == 0) return;
      const auto near = [&](double value, int digits) { return r.whole_max ? rounded(value, digits) : rounded(value); };
      append(out, ",\"value\":" + text_of(Json{{"count", r.values},
                                               {"mean", near(r.mean, 1)},
                                               {"p50", near(r.p50, 0)},
                                               {"p99", near(r.p99, 0)},
                                               {"max", r.whole_max ? whole(*r.whole_max) : rounded(r.max)}}));
    };
    fmt::format_to(to, "{{\"schema\":{},\"final\":{},\"seconds\":{:.3f},\"rows\":[", json_schema, last, p.seconds);
    for (size_t i = 0; i < std::min<size_t>(options_.count, p.rows.size()); ++i) {
      std::string keys = text_of(model_->json(p.rows[i]));
      append(out, (i == 0 ? "" : ",") + keys.substr(0, keys.size() - 1) + ",");  // its end stays open
      numbers(p.rows[i]);
      append(out, "}");
    }
    append(out, "],\"all\":{");
    numbers(p.all);
    fmt::format_to(to,
                   "}},\"keys\":{},\"without\":{},\"lost\":{},\"proved\":{},\"account\":{},\"evicted_keys\":{},\"evicted\":{},"
                   "\"own_cpu\":{:."
                   "3f},\"rings\":[",
                   p.keys, p.without, p.account.lost(), p.account.exact(), json_of(p.account).dump(), p.evicted_keys,
                   p.evicted_events, status_.own_cpu);
    for (const WatchStatus::Ring& ring : status_.rings) {
      append(out, &ring == status_.rings.data() ? "{\"name\":" : ",{\"name\":");
      append_json_text(ring.name, out);
      fmt::format_to(to, ",\"fill\":{:.3f}}}", ring.fill);
    }
    append(out, "]}\n");
    return {out.data(), out.size()};
  }

 private:
  explicit Watcher(const WatchOptions& options) : options_(options), interval_ns_(options.run.interval_ns) {
    options_.run.filter.clear();
  }
  std::string where() const {
    std::string out = options_.run.samples.hz != 0 ? "samples" : "";
    for (const auto* list : {&options_.run.where, &options_.run.inputs})
      for (const std::string& one : *list) out += (out.empty() ? "" : " ") + one;
    if (!options_.run.events.empty()) out += out.empty() ? "kernel" : " kernel";
    for (const std::string& glob : options_.run.events) out += " " + glob;
    return out.empty() ? default_recording : out;
  }
  // Can the events that it showed be read once more?
  bool is_there_again() { return !trace().consumes(); }
  WatchModel::Options model_options() const { return {options_.most_keys, run_->live()}; }
  result<void> reopen(const WatchQuery& query) {
    run_ = RS_TRY(AnalysisRun::open(options_.run));
    if (!live() && run_->trace().raw_times())
      return refuse(std::errc::invalid_argument, "watch shows rates, and the times of " + shown_where(run_->trace()) +
                                                     " are ticks, which count no seconds; ringside hist counts its events");
    if (query.asks_for_stacks()) run_->reading().join_stacks();
    run_->reading().look_up_names();
    status_.clock = trace().first().clock;
    return {};
  }
  void begin() {
    ended_ = false;
    if (model_->pairs()) run_->reading().look_up_for(*model_->pairs());
    if (live()) run_->begin();
    model_->began(run_->reading().books_begin_ns());
    last_tick_ = last_usage_ = sys::now_ns();
    next_tick_ = last_tick_ + interval_ns_;
    if (end_ns_ == 0) end_ns_ = run_->options().duration_ns != 0 ? last_tick_ + run_->options().duration_ns : ~u64{0};
    refresh();
  }
  void tick() {
    const u64 now = sys::now_ns();
    model_->tick(static_cast<double>(now - last_tick_) / 1e9);
    last_tick_ = now;
    next_tick_ = now + interval_ns_;
    ++ticks_;
    refresh();
  }
  // Measures how full the rings are, and the cost of watching.
  void refresh() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    const u64 cpu = static_cast<u64>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1'000'000 +
                    static_cast<u64>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
    const u64 now = sys::now_ns();
    if (now > last_usage_ + 1'000'000)
      status_.own_cpu = static_cast<double>(cpu - last_cpu_us_) * 1e3 / static_cast<double>(now - last_usage_);
    last_usage_ = now;
    last_cpu_us_ = cpu;
    status_.rings.clear();
    account_ = run_->reading().account();
    if (!live()) return;
    const Timeline& timeline = trace().timeline;
    for (u32 i = 0; i < timeline.size() && status_.rings.size() < 64; ++i) {
      const Source& source = timeline.source(i);
      const Counters c = source.counters();
      const RingName& name = timeline.name(i);
      if (c.capacity_bytes == 0) continue;
      status_.rings.push_back({name.kernel || name.cpu >= 0 ? "cpu" + std::to_string(name.place()) : name.task,
                               std::min(1., static_cast<double>(c.bytes) / static_cast<double>(c.capacity_bytes))});
    }
  }

  WatchOptions options_;
  std::unique_ptr<AnalysisRun> run_;
  std::optional<WatchModel> model_;  // declared after the run, whose formats it uses
  WatchStatus status_;
  Account account_;  // of the reading, as of the last picture
  u64 interval_ns_, last_tick_ = 0, next_tick_ = 0, end_ns_ = 0, ticks_ = 0;
  u64 last_usage_ = 0, last_cpu_us_ = 0;
  bool ended_ = false;
};

// Calls the reading thread's Watcher from the front.
class AskingHost final : public WatchHost {
  // Its answer; `otherwise` once it has ended.
  template <class Ask, class Out = std::invoke_result_t<Ask>>
  Out ask(const Ask& what, Out otherwise = {}) {
    requests_.ask([&] { otherwise = what(); });
    return otherwise;
  }

 public:
  AskingHost(Requests& requests, Watcher& watcher) : requests_(requests), watcher_(watcher) {}
  View view(const std::string& chosen, bool everything) override {
    return last_ = ask([&] { return watcher_.view(chosen, everything); }, last_);
  }
  result<void> count(const WatchQuery& query, bool again) override {
    return ask([&] { return watcher_.count(query, again); });
  }
  std::optional<WatchQuery> deeper(const std::string& id) override {
    return ask([&] { return watcher_.model().deeper(id); });
  }
  std::vector<std::string> fields(const std::string& id, bool numbers) override {
    return ask([&] { return watcher_.model().fields(id, numbers); });
  }
  void interval(u64 ns) override {
    requests_.ask([&] { watcher_.interval(ns); });
  }

 private:
  Requests& requests_;
  Watcher& watcher_;
  View last_;
};

// The other thread: shows the pictures until it ends, or the other one ends it.
class Front {
 public:
  Front(const WatchOptions& options, Watcher& watcher, bool screen)
      : options_(options), watcher_(watcher), host_(requests, watcher), screen_(screen) {}
  ~Front() {
    if (!thread_.joinable()) return;
    if (!end()) leave_at_once(exit_failure, say_memory_is_short);  // an exception is on its way, and hardly another one
    thread_.join();
  }
  // Error: the terminal does not exist.
  result<void> start() {
    thread_ = RS_TRY(sys::start_thread("that draws", [this] { body(); }));
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return started_.load(); });
    if (failure_) return tl::unexpected<Error>(*failure_);
    return {};
  }
  i32 tid() const { return tid_; }
  bool done() const { return done_; }
  bool lost() const { return lost_; }  // has the terminal gone, or the reader of the tables?
  bool failed() const { return failed_; }
  void tick(u64 ticks) {
    const std::lock_guard lock(mutex_);
    ticks_ = ticks;
    changed_.notify_all();
    if (terminal_) terminal_->wake();
  }
  void close() {
    requests.close();
    const std::lock_guard lock(mutex_);
    closing_ = true;
    changed_.notify_all();
    if (terminal_) terminal_->wake();
  }
  // False: it hangs in its terminal, forever.
  bool end() {
    close();
    if (!screen_) {
      // Leaves time to read the tables; after a signal there is no reader.
      while (!wait(100'000'000)) {
        for (int i = 0; asked_to_stop(); ++i) {
          if (wait(100'000'000)) return true;
          if (i == 20) return false;
        }
      }
      return true;
    }
    if (wait(1'000'000'000)) return true;
    tcflow(STDOUT_FILENO, TCOON);
    tcflush(STDOUT_FILENO, TCOFLUSH);  // drops what the terminal does not take
    for (int i = 0; i < 10; ++i) {
      pthread_kill(thread_.native_handle(), SIGWINCH);
      if (wait(100'000'000)) return true;
    }
    return false;
  }

  Requests requests;

 private:
  void body() {
    tid_ = sys::gettid();
    try {
      if (screen_)
        show();
      else
        print();
    } catch (const std::bad_alloc&) {
      failed_ = true;
      say_memory_is_short();
    } catch (const std::exception& e) {
      lost_ = true;
      say(e.what());
    }
    const std::lock_guard lock(mutex_);
    started_ = done_ = true;
    changed_.notify_all();
  }
  bool wait(u64 ns) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::nanoseconds(ns), [&] { return done_.load(); });
  }
  void started() {
    const std::lock_guard lock(mutex_);
    started_ = true;
    changed_.notify_all();
  }

  void show() {
    const Glyphs glyphs = terminal_glyphs(options_.ascii);
    auto terminal = Terminal::open(colours());
    if (!terminal) {
      failure_ = terminal.error();
      return;
    }
    {
      const std::lock_guard lock(mutex_);
      terminal_ = std::move(*terminal);
    }
    started();
    WatchScreen screen(host_, glyphs);
    screen.update();
    for (u64 seen = 0; !screen.quit() && !closing_ && !terminal_->lost();) {
      terminal_->paint(screen.frame(terminal_->width(), terminal_->height()));
      for (KeyCode key = terminal_->key(250); key != Key::none && !screen.quit(); key = terminal_->key(0)) {
        if (key == Key::control('l'))
          terminal_->redraw();
        else if (key == Key::control('z'))
          terminal_->suspend();
        else
          screen.key(key);
      }
      const u64 ticks = ticks_;
      if (ticks != seen || ticks == 0) screen.update();
      seen = ticks;
    }
    lost_ = terminal_->lost();
    std::unique_ptr<Terminal> last;
    {
      const std::lock_guard lock(mutex_);
      last = std::move(terminal_);
    }
  }

  void print() {
    started();
    for (u64 seen = 0;;) {
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return closing_ || ticks_ != seen; });
        if (closing_) return;
        seen = ticks_;
      }
      std::string text;
      if (!requests.ask([&] { text = options_.run.json ? watcher_.json(false) : watcher_.text(false); })) return;
      if (put(text)) continue;
      lost_ = true;
      return;
    }
  }

  const WatchOptions& options_;
  Watcher& watcher_;
  AskingHost host_;
  bool screen_;
  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::unique_ptr<Terminal> terminal_;
  std::optional<Error> failure_;
  std::atomic<i32> tid_{0};
  std::atomic<u64> ticks_{0};
  std::atomic<bool> started_{false}, done_{false}, closing_{false}, lost_{false}, failed_{false};
};

// Writes to a terminal in pieces that it has room for, and stops if it takes nothing for two seconds.
void put_patiently(std::string_view text) {
  while (!text.empty()) {
    pollfd out{STDOUT_FILENO, POLLOUT, 0};
    if (poll(&out, 1, 2000) != 1 || (out.revents & POLLOUT) == 0) return;
    const std::string_view piece = text.substr(0, 256);
    if (!put(piece)) return;
    text.remove_prefix(piece.size());
  }
}

// START END, and their common key.
void set_latency(WatchOptions& options) {
  if (options.latency.empty()) {
    if (!(options.keys + options.task).empty()) throw UsageError{"--key and --task belong to --latency START END"};
    return;
  }
  Pairs::Options pairs = pair_of(options.latency, options.keys);
  choose_pairs(pairs, "", options.task);  // -f is the query's, which F4 changes
  if (options.run.where.empty() && options.run.inputs.empty() && options.run.events.empty()) {
    // The kernel, if these are its events.
    const auto all = kernel_events();
    for (const EventPattern& pattern : parse_events(events_of(pairs))) {
      if (all && means_kernel(pattern, *all)) options.run.events.push_back(pattern.text());
    }
  }
  options.query.latency = std::move(pairs);
}

result<int> run_watch(WatchOptions options) {
  signal(SIGPIPE, SIG_IGN);
  set_latency(options);
  if (options.run.samples.hz != 0 && options.query.by == "event") options.query.by = "stack[0]";
  options.query.filter = options.run.filter;
  bool screen =
      !options.batch && !options.run.json && !options.run.once && on_terminal(STDIN_FILENO) && on_terminal(STDOUT_FILENO);
  auto watcher = RS_TRY(Watcher::open(options));
  auto front = std::make_unique<Front>(options, *watcher, screen);
  if (auto started = front->start(); !started) {
    say(started.error().sentence + "; plain tables instead");
    screen = false;
    front = std::make_unique<Front>(options, *watcher, false);
    (void)front->start();
  }
  sigset_t theirs;
  sigemptyset(&theirs);
  sigaddset(&theirs, SIGWINCH);
  if (screen) {
    sigaddset(&theirs, SIGTSTP);
    pthread_sigmask(SIG_BLOCK, &theirs, nullptr);
  }
  watcher->trace().inputs.back()->leave_out(front->tid());
  while (!asked_to_stop() && !front->done() && !watcher->over()) {
    if (front->requests.wanted()) front->requests.serve();
    const bool more = watcher->take(front->requests);
    if (watcher->tick_if_due()) front->tick(watcher->ticks());
    if (more) continue;
    if (!screen && watcher->ended()) break;
    const u64 now = sys::now_ns();
    front->requests.sleep(std::min<u64>(10'000'000, std::max(watcher->next_ns(), now + 1) - now));
  }
  front->close();
  watcher->stop();
  const std::string last = options.run.json ? watcher->json(true) : watcher->text(true);
  front->requests.close();
  const bool ended = front->end(), lost = front->lost() || stop_signal() == SIGHUP, failed = front->failed();
  if (!ended) Terminal::restore_now();
  else front.reset();
  int code = watcher->finish();
  if (failed) code = exit_failure;
  if (lost) code = exit_signal + SIGHUP;
  watcher.reset();  // and with it the kernel's instance
  if (!ended) _exit(code);
  if (screen)
    put_patiently(last);
  else
    put(last);
  return code;
}

}  // namespace

Command add_watch(CLI::App& app) {
  auto options = std::make_shared<WatchOptions>();
  CLI::App* c =
      app.add_subcommand("watch", "full screen: rates, losses, fill of the rings, histograms and heat maps; keys as in htop");
  add_run(*c, options->run);
  add_samples(*c, options->run);
  c->add_option("--by", options->query.by,
                "a row for each value of this column: event, task, thread, process, cgroup, cpu, stack, stack[0], or "
                "[EVENT/]FIELD; or two with a comma")
      ->type_name("KEY")
      ->capture_default_str();
  c->add_option("-v,--val", options->query.value, "quantiles, histogram and heat map of this field")->type_name("FIELD");
  c->add_option("--latency", options->latency,
                "the time from one event to another one, for each row: START END, or a NAME of ringside latency")
      ->expected(1, 2)
      ->allow_extra_args(false)
      ->type_name("START END");
  c->add_option("-k,--key", options->keys,
                "of --latency: the fields that both events have in common, FIELD or FIELD=FIELD; up to three with commas "
                "(default: the thread)")
      ->type_name("FIELD");
  add_task(*c, options->task);
  add_count(*c, options->count, "lines at most of plain tables")->capture_default_str();
  c->add_option("--keys", options->most_keys, "keys kept at most; a full table gives up those that count least")
      ->capture_default_str()
      ->check(CLI::Range(2, 10'000'000));
  c->add_flag("-b,--batch", options->batch, "a plain table each interval, as without a terminal");
  c->add_flag("--ascii", options->ascii, "curves and bars without Unicode");
  c->footer(
      "Examples:\n"
      "  ringside watch web                         a live instance; h shows the keys, q ends with a table of the whole\n"
      "  ringside watch                             ./ringside.data: look around in a recording\n"
      "  ringside watch --sample                    where CPU time goes, by function; s shows the stacks of a row\n"
      "  ringside watch -e 'sched:*' --by task      the kernel, as root\n"
      "  ringside watch -e 'syscalls:sys_exit_*' -f 'ret < 0' --by event,ret\n"
      "  ringside watch web --by thread -v duration_ns --interval 200ms\n"
      "  ringside watch --latency wakeup --by next_comm\n"
      "  ringside watch web --by stack              which calls lead to its events, most first\n"
      "  ringside watch web --batch --interval 5s --duration 1m > rates.txt\n"
      "  ringside watch web --json | jq -c '[.seconds, .all.rate, .lost]'\n"
      "Keys: Enter looks into a row (event, its tasks, its fields, their values), Esc goes back, F4 filters, F3 searches, F2 "
      "and F5\n"
      "choose key and field, F6 sorts, Space pauses, s shows the top stacks, Tab changes the lower panel, + and - the "
      "interval, z counts from zero.\n"
      "The screen has a thread of its own: events are read however slow the terminal is. Nothing is consumed; -e makes an\n"
      "instance of its own. Exit code 129: the terminal was closed.");
  return {c, [options] { return run_watch(*options); }};
}

}  // namespace ringside::cli
