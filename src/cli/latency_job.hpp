// What ringside latency is to measure, and where, as the command line says it.
#pragma once
#include "analysis/pairs.hpp"
#include "cli/live.hpp"

namespace ringside::cli {

struct LatencyOptions {
  std::vector<std::string> words;
  RunOptions run;
  std::string hook, keys, by, task, sort = "max", flame;
  u64 most_waiting = 100'000, most_groups = 10'000, count = 20;
  u32 slowest = 10, context = 0;
  bool wall = false, heat = false, ascii = false, first = false, sure = false;
};

// What to measure, and where; empty if not given.
struct LatencyJob {
  Pairs::Options pairs;
  std::vector<std::string> pair;  // START END, or a name
  std::vector<std::string> where;
  std::vector<std::string> events;  // lists of patterns
};

LatencyJob job_of(const LatencyOptions& options);

// Without WHERE: the kernel, live, if these are its events; else ./ringside.data. -e adds events, which are for the context.
result<RunOptions> where_of(const LatencyJob& job, RunOptions run);

// "pid=next_pid,common_pid"
std::string keys_of(const std::vector<Pairs::Key>& keys, const char* between);

}  // namespace ringside::cli
