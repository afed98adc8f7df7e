// Pairs of events that have a name, and the syntax of pairs: shared by all commands that measure them.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "analysis/pairs.hpp"
#include "analysis/unfreed.hpp"

namespace ringside::cli {

struct Preset {
  const char *name, *what, *start, *end, *keys, *by;
  const char *other_start = nullptr, *other_end = nullptr;  // of a trace that lacks these events
  const char* akin = "";                                    // events that can replace the start
};
const std::vector<Preset>& all_presets();
const Preset* find_preset(const std::string& name);  // null: there is none of this name
// The pair whose events these are (of START, with or without a condition), if its key is not the thread that ran; null: of
// none.
const Preset* preset_of(const std::string& start, const std::string& end);
std::string preset_list();                           // for --help

std::vector<std::string> split_at(std::string_view text, char c);

// FIELD[=FIELD][,...]; a UsageError if it is invalid.
std::vector<Pairs::Key> parse_keys(const std::string& text);

// --latency START END, or --latency NAME; and --key, if that is not empty. A UsageError if they are invalid.
Pairs::Options pair_of(const std::vector<std::string>& latency, const std::string& keys);

// -f and --task: of these pairs only those that meet them. One place for all commands that measure pairs.
void choose_pairs(Pairs::Options& pair, const std::string& filter, const std::string& task);

// Sentences about starts and ends that are in no pair, and about those whose pair is not certain.
std::vector<std::string> unpaired(const Pairs& pairs);
// What became of each allocation, as a sentence.
std::string accounted(const Unfreed& unfreed, bool none_lost);

// The events of both sides: lists of patterns.
std::vector<std::string> events_of(const Pairs::Options& pair);

}  // namespace ringside::cli
