// The file that a command executes, and what it says about its events.
#pragma once
#include <optional>
#include <ringside/base/result.hpp>
#include <string>

namespace ringside::cli {

// As execvp() finds it. ENOENT: there is none.
result<std::string> find_command(const std::string& name);

// Why a preloaded library sees nothing of this program ("gob is a static program"); empty: no reason is known.
std::string why_preload_fails(const std::string& path);

}  // namespace ringside::cli
