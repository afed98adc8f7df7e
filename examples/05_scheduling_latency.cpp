// How long threads wait for a processor once they are woken, by task: from the kernel's events, live (as root, for a second or
// as many as the argument says), or from a recording or trace.dat that has sched:sched_waking and sched:sched_switch.
#include <cstdio>
#include <cstdlib>
#include <ringside/consumer.hpp>

int main(int argc, char** argv) try {
  using namespace ringside;
  Consumer::Options options;
  const bool live = argc < 2 || std::atoi(argv[1]) > 0;
  if (live)
    options = {.kernel = {"sched:sched_waking", "sched:sched_switch"},
               .duration = std::chrono::seconds(argc < 2 ? 1 : std::atoi(argv[1]))};
  else
    options.where = {argv[1]};
  auto consumer = must(Consumer::open(options));
  auto latency = must(consumer.latency(
      {.start = "sched:sched_waking", .end = "sched:sched_switch", .keys = {{"pid", "next_pid"}}, .by = "next_comm"}));
  consumer.run([&](const Event& e) { latency.add(e); });

  std::printf("%-16s %8s %10s %10s %10s\n", "task", "count", "p50 us", "p99 us", "max us");
  for (const auto& [task, times] : latency.groups())
    std::printf("%-16s %8llu %10.1f %10.1f %10.1f\n", task.c_str(), static_cast<unsigned long long>(times.count()),
                times.quantile(.5) / 1e3, times.quantile(.99) / 1e3, static_cast<double>(times.max()) / 1e3);
  std::printf("%llu events, %llu lost\n", static_cast<unsigned long long>(consumer.events()),
              static_cast<unsigned long long>(consumer.lost()));
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
