// What `record --to FILE` needs of export.
#pragma once
#include <ringside/base/result.hpp>
#include <string>

namespace ringside::cli {

// Whether the name tells a format that `record --to` makes other than a trace.dat: .pftrace, .json, .csv.
bool tells_another_format(const std::string& file);
// Writes the recording `dir` into such a file. It does not end at Ctrl-C, which has ended the recording.
result<int> export_recorded(const std::string& dir, const std::string& file);

}  // namespace ringside::cli
