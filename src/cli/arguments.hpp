// The command line as people type it, in the form that the parser takes.
#pragma once
#include <string>
#include <vector>

#include "cli/command.hpp"

namespace ringside::cli {

// help, help COMMAND, version and -V become options; in front of the command that `record` runs, -- is put.
std::vector<std::string> arguments_of(int argc, const char* const* argv, const CLI::App& app);

// About a word that is no command, or an option that its command does not have, with near names; empty: it is something else.
std::string unknown_word(const std::vector<std::string>& arguments, const CLI::App& app);

}  // namespace ringside::cli
