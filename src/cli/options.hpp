// Options that several commands share, and what they say of what they read.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "cli/command.hpp"
#include "consumer/reading.hpp"

namespace ringside::cli {

// --source auto|map|read
void add_source(CLI::App& app, std::optional<KernelWay>& forced);

// -e PATTERN. words: which events these are.
void add_events(CLI::App& app, std::vector<std::string>& lists, const std::string& words);
// Its patterns. A UsageError unless they are some.
EventPatterns parse_events(const std::vector<std::string>& lists);

// --filter TEXT
CLI::Option* add_filter(CLI::App& app, std::string& text);

// What the commands' readings have in common: notices are said, and a signal ends them, or what they wait for.
Reading::Options reading_of(std::vector<std::string> where, std::string filter = "");
// Says what could not be read. Answers whether there is anything.
bool say_problems(Reading& reading);

}  // namespace ringside::cli
