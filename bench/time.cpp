// What an event costs its thread, in Google Benchmark's loops: floor, subjects and LTTng-UST, repetitions in random order.
#include <benchmark/benchmark.h>
#include <map>

#include "bench.hpp"
#include "rival.hpp"

namespace bench {
namespace {

using benchmark::State;

// Keeps ns per call of each repetition.
struct Keep final : benchmark::BenchmarkReporter {
  std::map<std::string, std::vector<double>> ns;
  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs)
      if (run.run_type == Run::RT_Iteration && !run.error_occurred)
        ns[run.run_name.function_name].push_back(run.GetAdjustedRealTime());
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
  const auto rival = Rival::start();

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
  row("writer.call_over_rdtsc", over(kept, "event", "rdtsc"), "x",
      text("%.2f ns: a typed event's call, in an instance with rings of threads", ns("event")));
  row("writer.lttng_over_event", over(kept, "lttng", "event"), "x",
      rival ? text("LTTng-UST %.1f ns against %.1f ns, the same payload, both overwriting; ringside with rings of threads",
                   ns("lttng"), ns("event"))
            : no_rival);
  row("writer.ring_only_ns", ns("ring_only"), "ns", "the ring alone: a counter for a clock");
  row("writer.disabled_ns", ns("disabled"), "ns", "the loop around it included");
}

}  // namespace bench
