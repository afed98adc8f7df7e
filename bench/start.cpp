// What tracing costs at the start: a program that makes its instance, and a thread that writes its first event.
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>

#include "bench.hpp"

namespace bench {
namespace {

double now_us() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_nsec) / 1e3;
}

struct Start {
  double open_us, first_us, second_us;
};

// One program, with rings of this kind.
std::optional<Start> start(const char* rings, int number) {
  const std::string command =
      std::string("RINGSIDE_RINGS=") + rings + " " RINGSIDE_BENCH " --start start-" + rings + "-" + std::to_string(number);
  FILE* const out = popen(command.c_str(), "re");
  Start s{};
  const bool got = out != nullptr && fscanf(out, "%lf %lf %lf", &s.open_us, &s.first_us, &s.second_us) == 3;
  if (out != nullptr) pclose(out);
  return got ? std::optional(s) : std::nullopt;
}

}  // namespace

int run_start(const char* name) {
  const double before = now_us();
  if (ringside_open(name) != 0) return 1;
  const double open = now_us() - before;
  ::bench::pair(0, 0);
  std::vector<double> first, second;
  for (int n = 0; n < 200; ++n)
    std::thread([&] {
      const double a = now_us();
      ::bench::pair(1, 2);
      const double b = now_us();
      ::bench::pair(3, 4);
      first.push_back(b - a);
      second.push_back(now_us() - b);
    }).join();
  std::printf("%f %f %f\n", open, median(first), median(second));
  return 0;
}

void start_rows() {
  struct Kind {
    const char *rings, *row, *what;
  };
  std::vector<double> opens;
  std::vector<std::pair<Kind, std::array<double, 2>>> firsts;
  for (const Kind kind :
       {Kind{"cpu", "start.first_event_us", "rings of CPUs"}, Kind{"thread", "start.first_event_own_us", "rings of threads"}}) {
    std::vector<double> first, second;
    for (int n = 0; n < (quick ? 5 : 21); ++n) {
      const auto s = start(kind.rings, n);
      if (!s) continue;
      if (kind.rings == std::string("cpu")) opens.push_back(s->open_us);
      first.push_back(s->first_us);
      second.push_back(s->second_us);
    }
    if (!first.empty()) firsts.push_back({kind, {median(first), median(second)}});
  }
  if (!opens.empty())
    row("start.instance_ms", median(opens) / 1e3, "ms",
        text("ringside_open makes an instance; slowest of %zu: %.1f ms", opens.size(), quantile(opens, 1) / 1e3));
  for (const auto& [kind, us] : firsts)
    row(kind.row, us[0], "us", text("a thread's first event, %s, p50; its second one: %.2f us", kind.what, us[1]));
}

}  // namespace bench
