// A recording's directory as a trace.dat file.
#pragma once
#include "export/trace_dat.hpp"

namespace ringside {

// only: "kernel" or "program"; empty: everything that is there. problems: what a reading has found, which the file keeps among
// its doubts; opening the rings adds to it. stop: ends it without a file.
result<TraceDatSize> export_recording(const std::string& dir, const std::string& to, const std::string& only,
                                      std::vector<std::string>* problems = nullptr, std::function<bool()> stop = nullptr);

}  // namespace ringside
