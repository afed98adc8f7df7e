// What an event costs its thread, in Google Benchmark's loops: floor, subjects and LTTng-UST, repetitions in random order.
#include <benchmark/benchmark.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>

#include "bench.hpp"

namespace bench {
namespace {

using benchmark::State;

// LTTng-UST's side: a process under a session daemon of its own (lttng/session), which answers ns per event for a number of events.
class Rival {
 public:
  Rival() {
    int to[2], from[2];
    if (pipe(to) != 0 || pipe(from) != 0) return;
    child_ = fork();
    if (child_ == 0) {
      dup2(to[0], 0);
      dup2(from[1], 1);
      for (int fd : {to[0], to[1], from[0], from[1]}) close(fd);
      execl(RINGSIDE_LTTNG_SESSION, RINGSIDE_LTTNG_SESSION, RINGSIDE_LTTNG_RIVAL, nullptr);
      _exit(127);
    }
    close(to[0]);
    close(from[1]);
    ask_ = fdopen(to[1], "w");
    answer_ = fdopen(from[0], "r");
    runs_ = run(1000).has_value();
  }
  ~Rival() {
    if (ask_) fclose(ask_);
    if (answer_) fclose(answer_);
    if (child_ > 0) waitpid(child_, nullptr, 0);
  }
  bool runs() const { return runs_; }
  std::optional<double> run(long events) {
    double ns = 0;
    if (fprintf(ask_, "%ld\n", events) < 0 || fflush(ask_) != 0 || fscanf(answer_, "%lf", &ns) != 1) return std::nullopt;
    return ns;
  }

 private:
  pid_t child_ = -1;
  FILE *ask_ = nullptr, *answer_ = nullptr;
  bool runs_ = false;
};

// Keeps ns per call of each repetition.
struct Keep final : benchmark::BenchmarkReporter {
  std::map<std::string, std::vector<double>> ns;
  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs)
      if (run.run_type == Run::RT_Iteration && !run.error_occurred) ns[run.run_name.function_name].push_back(run.GetAdjustedRealTime());
  }
};

std::optional<double> over(const Keep& kept, const char* subject, const char* floor) {
  const auto a = kept.ns.find(subject), b = kept.ns.find(floor);
  if (a == kept.ns.end() || b == kept.ns.end()) return std::nullopt;
  return median(a->second) / median(b->second);
}

}  // namespace

void time_rows() {
  LocalRing with_tsc(16384, 65), with_count(16384, 65);
  Writer<Tsc> tsc(with_tsc.ring, Tsc{});
  Writer<Count> count(with_count.ring, Count{});
  signal(SIGPIPE, SIG_IGN);
  std::optional<Rival> rival;
  if (access(RINGSIDE_LTTNG_RIVAL, X_OK) == 0) rival.emplace();
  if (rival && !rival->runs()) rival.reset();

  const auto add = [](const char* name, auto body) {
    return benchmark::RegisterBenchmark(name, body)->Repetitions(quick ? 9 : 31)->MinTime(0.02)->Unit(benchmark::kNanosecond);
  };
  add("rdtsc", [](State& s) {
    for (auto _ : s) benchmark::DoNotOptimize(Tsc{}.now());
  });
  add("ring", [&](State& s) {
    u64 k = 0;
    for (auto _ : s) write_pair(tsc, k++, 1);
  });
  add("ring_only", [&](State& s) {
    u64 k = 0;
    for (auto _ : s) write_pair(count, k++, 1);
  });
  add("disabled", [](State& s) {
    u64 k = 0;
    for (auto _ : s) ::bench::never(k++);
  });
  add("event", [](State& s) {
    u64 k = 0;
    for (auto _ : s) ::bench::pair(k++, 1);
  });
  if (rival)
    add("lttng", [&](State& s) {
      constexpr long batch = 100000;
      while (s.KeepRunningBatch(batch)) s.SetIterationTime(rival->run(batch).value_or(0) * batch * 1e-9);
    })->UseManualTime();

  char program[] = "ringside_bench", interleaved[] = "--benchmark_enable_random_interleaving=true";
  char* arguments[] = {program, interleaved, nullptr};
  int n = 2;
  benchmark::Initialize(&n, arguments);
  Keep kept;
  benchmark::RunSpecifiedBenchmarks(&kept);
  const auto ns = [&](const char* name) { return median(kept.ns.at(name)); };
  row("writer.event16_over_rdtsc", over(kept, "ring", "rdtsc"), "x", text("%.2f ns against %.2f ns", ns("ring"), ns("rdtsc")));
  row("writer.call_over_rdtsc", over(kept, "event", "rdtsc"), "x", text("%.2f ns: a typed event's call, in an instance with rings of threads", ns("event")));
  row("writer.lttng_over_event", over(kept, "lttng", "event"), "x",
      rival ? text("LTTng-UST %.1f ns against %.1f ns, the same payload, both overwriting", ns("lttng"), ns("event"))
            : "LTTng-UST is not installed, or its session daemon does not start");
  row("writer.ring_only_ns", ns("ring_only"), "ns", "the ring alone: a counter for a clock");
  row("writer.disabled_ns", ns("disabled"), "ns", "the loop around it included");
}

}  // namespace bench
