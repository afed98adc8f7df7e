// Options that several commands share, and what they say of a trace.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "cli/command.hpp"
#include "consumer/trace.hpp"

namespace ringside::cli {

// --source auto|map|read
void add_source(CLI::App& app, std::optional<KernelWay>& forced);

// -e PATTERN. words: which events these are.
void add_events(CLI::App& app, std::vector<std::string>& lists, const std::string& words);
// Its patterns. A UsageError unless they are some.
EventPatterns parse_events(const std::vector<std::string>& lists);

// No patterns: everything.
class EventFilter {
 public:
  explicit EventFilter(const std::vector<std::string>& lists) : patterns_(parse_events(lists)) {}
  bool wants(u32 id, const Formats& formats);

 private:
  EventPatterns patterns_;
  std::vector<u8> known_{};  // 0: not asked yet, 1: no, 2: yes
};

// --filter TEXT
CLI::Option* add_filter(CLI::App& app, std::string& text);

// Says what there is to know.
void say_notices(Trace& trace);
// Says what the timeline could not read, from the problem of this number on. Answers how many there are in all.
size_t report_problems(const Timeline& timeline, size_t from = 0);

}  // namespace ringside::cli
