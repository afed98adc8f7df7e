// The command line as people type it, in the form that the parser takes.
#pragma once
#include <string>
#include <vector>

#include "cli/command.hpp"

namespace ringside::cli {

constexpr u64 usual_rate = 999;  // of samples, in Hz: where --sample or -g gives none

// help, help COMMAND, version and -V become options; -- is put before the command that `record` or `syscalls` runs.
std::vector<std::string> arguments_of(int argc, const char* const* argv, const CLI::App& app);

// The option that a word beginning with - names; null: there is none. `wants`: its value is the next word.
const CLI::Option* option_of(const CLI::App& command, const std::string& word, bool& wants);
const CLI::App* command_of(const CLI::App& app, const std::string& name);  // null: there is none

// About a word that is no command, or an option that its command does not have, with near names; empty: it is something else.
std::string unknown_word(const std::vector<std::string>& arguments, const CLI::App& app);

// Why the parser took none of it, as a sentence. There is at least one argument.
std::string refused(const CLI::ParseError& e, const std::vector<std::string>& arguments, const CLI::App& app);

// The sentence, and where the help of the command is; of ringside itself for an empty one.
std::string with_help(const std::string& sentence, const std::string& command);

}  // namespace ringside::cli
