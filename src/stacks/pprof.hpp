// pprof's format: a gzipped message Profile (github.com/google/pprof/proto/profile.proto), for `go tool pprof`, Pyroscope,
// Grafana.
//
// A sample for each different stack, innermost first, with two values: how many events, and their weight. Its label "root" is
// the fold's root. A location is an address, with a line for each inlined function; a mapping is a file.
#pragma once
#include <ringside/base/result.hpp>
#include <string>
#include <vector>

#include "stacks/fold.hpp"

namespace ringside {

struct PprofFacts {
  std::string type, unit;        // of the weight: "size", "bytes"
  std::string label;             // what the roots are: "task"
  u64 first_ns = 0, last_ns = 0; // of the trace
  std::string comment;
};

result<std::string> pprof(const Fold& fold, Stacks& stacks, const std::vector<std::string>& roots, const PprofFacts& facts);

}  // namespace ringside
