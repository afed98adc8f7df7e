// Finds the library that `record --libc` preloads.
#pragma once
#include <ringside/base/result.hpp>
#include <string>

namespace ringside::cli {

// Beside the binary (a build tree), or in the library directory (an installation).
result<std::string> find_preload();

}  // namespace ringside::cli
