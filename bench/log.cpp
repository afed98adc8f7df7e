// What a message costs the thread that logs it, beside spdlog's.
#include <algorithm>
#include <functional>
#include <ringside/log.hpp>
#include <string>
#include <vector>

#include "bench.hpp"
#ifdef RINGSIDE_SPDLOG
#include <spdlog/async.h>
#include <spdlog/sinks/basic_file_sink.h>
#endif

namespace bench {
namespace {

// ns a message of each body, their rounds in turn: the fastest eighth, as other work only ever slows them.
std::vector<double> in_turn(const std::vector<std::function<void(u64)>>& bodies) {
  std::vector<std::vector<double>> ns(bodies.size());
  constexpr u64 messages = 4096;  // fewer than the queue holds
  for (int round = 0; round < (quick ? 9 : 41); ++round)
    for (size_t b = 0; b < bodies.size(); ++b) {
      const u64 start = sys::now_ns();
      bodies[b](messages);
      ns[b].push_back(static_cast<double>(sys::now_ns() - start) / static_cast<double>(messages));
    }
  std::vector<double> out;
  for (auto& one : ns) out.push_back(quantile(one, 0.125));
  return out;
}

}  // namespace

// Two numbers and a text, as messages have them.
void log_rows() {
  const std::string name = "a name";
  std::vector<std::function<void(u64)>> bodies{[&](u64 n) {
                                                 for (u64 k = 0; k < n; ++k)
                                                   RINGSIDE_LOG(info, "took {} of {} for {}", k, n, name);
                                               },
                                               [](u64 n) {
                                                 for (u64 k = 0; k < n; ++k) RINGSIDE_LOG(info, "took {} of {}", k, n);
                                               }};
#ifdef RINGSIDE_SPDLOG
  spdlog::init_thread_pool(8192, 1);
  const auto to = std::make_shared<spdlog::sinks::basic_file_sink_mt>("/dev/null");
  const auto queued =
      std::make_shared<spdlog::async_logger>("bench", to, spdlog::thread_pool(), spdlog::async_overflow_policy::overrun_oldest);
  const auto direct = std::make_shared<spdlog::logger>("direct", to);
  for (const auto& logger : {std::static_pointer_cast<spdlog::logger>(queued), direct})
    bodies.emplace_back([&name, logger](u64 n) {
      for (u64 k = 0; k < n; ++k) logger->info("took {} of {} for {}", k, n, name);
    });
#endif
  const auto ns = in_turn(bodies);
  const bool both = ns.size() > 2;
  row("log.spdlog_over_message", both ? std::optional(std::min(ns[2], ns[3]) / ns[0]) : std::nullopt, "x",
      both ? text("spdlog's queue %.0f ns, written at once %.0f ns, to /dev/null, against %.1f ns: two numbers and a text; "
                  "numbers "
                  "alone: %.1f ns",
                  ns[2], ns[3], ns[0], ns[1])
           : "spdlog is not installed");
}

}  // namespace bench
