// Finds what belongs to the binary: beside it (a build tree), or in the library directory (an installation).
#pragma once
#include <ringside/base/result.hpp>
#include <string>

namespace ringside::cli {

result<std::string> find_preload();            // the library that `record --libc` preloads
result<std::string> find_babeltrace_plugin();  // the directory of the plugin that `export --format ctf` gives to babeltrace2

}  // namespace ringside::cli
