// ringside export --format ctf: babeltrace2 writes it, with our source (src/babeltrace) and its own sink.ctf.fs.
#pragma once
#include <ringside/base/result.hpp>
#include <string>
#include <vector>

namespace ringside::cli {

// The exit code. `to`: a directory that is not there yet, or is empty.
result<int> export_ctf(const std::vector<std::string>& where, const std::vector<std::string>& events, const std::string& filter,
                       const std::string& to, bool quiet);

}  // namespace ringside::cli
