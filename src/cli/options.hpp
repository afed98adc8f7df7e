// Options that several commands share, and messages about what they read.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "cli/command.hpp"
#include "consumer/reading.hpp"

namespace ringside::cli {

// --source auto|map|read
void add_source(CLI::App& app, std::optional<KernelWay>& forced);

// -e PATTERN. words: describes these events.
void add_events(CLI::App& app, std::vector<std::string>& lists, const std::string& words);
// Their patterns. A UsageError if they are invalid.
EventPatterns parse_events(const std::vector<std::string>& lists);

// --filter TEXT
CLI::Option* add_filter(CLI::App& app, std::string& text);

// The options common to all commands that read: notices are printed, and a signal ends the reading, or its wait.
Reading::Options reading_of(std::vector<std::string> where, std::string filter = "");
// Prints what could not be read. Returns whether there is any data.
bool say_problems(Reading& reading);

}  // namespace ringside::cli
