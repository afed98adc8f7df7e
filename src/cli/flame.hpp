// The flame graph of a pair's latencies, for `ringside latency --flame`.
#pragma once
#include <string>
#include <vector>

#include "cli/live.hpp"

namespace ringside::cli {

// What `ringside flame --latency` makes. to: the file; empty: flame.html, or standard output for JSON.
result<int> flame_of_latency(const RunOptions& run, const std::vector<std::string>& latency, const std::string& keys,
                             const std::string& task, const std::string& to);

}  // namespace ringside::cli
