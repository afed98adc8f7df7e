// The file that a command executes, and what it says about its events.
#pragma once
#include <optional>
#include <ringside/base/result.hpp>
#include <string>
#include <vector>

namespace ringside::cli {

// As execvp() finds it. ENOENT: there is none.
result<std::string> find_command(const std::string& name);

// Why a preloaded library sees nothing of this program ("gob is a static program"); empty: no reason is known.
std::string why_preload_fails(const std::string& path);

// Those of these calls that the program defines itself, for all its libraries: no preloaded library sees them.
std::vector<std::string> calls_of_its_own(const std::string& path, const std::vector<std::string>& calls);

// Why AddressSanitizer ends this program when a library is preloaded, and what to set; empty: it does not.
std::string why_sanitizer_ends(const std::string& path);

}  // namespace ringside::cli
