#include "cli/trigger_condition.hpp"

#include <algorithm>
#include <iterator>
#include <sstream>

#include "analysis/mistyped.hpp"
#include "cli/options.hpp"
#include "cli/presets.hpp"
#include "text/units.hpp"
#include "sys/try.hpp"

namespace ringside::cli {
namespace {

constexpr std::string_view comparison = "<>=!";

// It begins with a comparison of the latency and a time: no filter of a field by this name, which takes a plain number.
bool is_latency(std::string_view text) {
  constexpr std::string_view word = "latency", spaces = " \t";
  if (!text.starts_with(word)) return false;
  const auto skip = [&](size_t bytes, std::string_view all) {
    text.remove_prefix(bytes);
    text.remove_prefix(std::min(text.find_first_not_of(all), text.size()));
  };
  skip(word.size(), spaces);
  if (text.empty() || comparison.find(text.front()) == comparison.npos) return false;
  skip(0, comparison);
  skip(0, spaces);
  const std::string_view time = text.substr(0, text.find_first_of(" \t&|)"));
  return parse_time(time) && time.back() == 's';
}

// 'latency wakeup > 1us' and 'latency START END > 1us' name their pair: they become 'latency > 1us' with --latency.
void find_pair(std::string& text, std::vector<std::string>& latency) {
  constexpr std::string_view word = "latency";
  const size_t compared = text.find_first_of(comparison);
  if (!latency.empty() || !text.starts_with(word) || compared == text.npos || compared < word.size()) return;
  if (text.find_first_of(" \t") != word.size()) return;
  std::istringstream between(text.substr(word.size(), compared - word.size()));
  const std::vector<std::string> names{std::istream_iterator<std::string>(between), {}};
  if (names.empty() || names.size() > 2) return;
  if (names.size() == 1 && find_preset(names[0]) == nullptr) {
    std::vector<std::string> pairs;
    for (const Preset& one : all_presets()) pairs.push_back(one.name);
    const auto near = nearest(names[0], pairs);
    throw UsageError{ringside::in_quotes(names[0]) + " is no pair of ringside latency" +
                     (near.empty() ? ", and START END are two events" : did_you_mean(near))};
  }
  latency = names;
  text.replace(word.size(), compared - word.size(), " ");
}

}  // namespace

Wanted wanted_by(std::string condition, std::vector<std::string> latency, const std::string& keys) {
  Wanted wanted;
  find_pair(condition, latency);
  if (!latency.empty()) {
    Pairs::Options pair = pair_of(latency, keys);
    choose_pairs(pair, condition, "");
    pair.slowest = 0;
    pair.sure = true;  // a loss must not look like a long time
    wanted.events = parse_events(events_of(pair));
    wanted.pair = std::move(pair);
    return wanted;
  }
  if (!keys.empty()) throw UsageError{"--key is about the pair of --latency"};
  if (is_latency(condition)) throw UsageError{which_pair};
  const std::string first = condition.substr(0, condition.find_first_of(" \t>"));
  if (find_preset(first) != nullptr && is_latency("latency" + condition.substr(first.size())))
    throw UsageError{"the latency of a pair begins with that word: 'latency " + condition + "'"};
  // A filter has a comparison; a text without one names events.
  auto [events, filter] = Pairs::split(condition);
  if (filter.empty() && condition.find_first_of("=<>&~") != std::string::npos) std::swap(events, filter);
  if (!events.empty()) wanted.events = parse_events({events});
  // 'libc:malloc/size > 100', without an "or", names its event.
  else if (filter.find("||") == std::string::npos)
    wanted.events = parse_events(Filter::events_in(filter));
  wanted.filter = filter;
  return wanted;
}

result<void> Condition::compile() {
  if (ready_ || (types_ == trace_.formats.all().size() && types_ != 0)) return {};
  types_ = trace_.formats.all().size();
  pending_.clear();
  auto done = make();
  ready_ = done.has_value();
  // Events that are here will have no other fields.
  const bool complete = !wanted_.pair && !wanted_.events.empty() && !has_wildcards() && missing_ == nullptr;
  if (done || !may_wait_ || complete || done.error().code != std::errc::no_such_file_or_directory) return done;
  pending_ = done.error().sentence;
  return {};
}

result<void> Condition::make() {
  if (wanted_.pair) {
    auto pairs = RS_TRY(Pairs::make(*wanted_.pair, trace_.formats, trace_.tasks));
    pairs_.emplace(std::move(pairs));
  } else if (!wanted_.events.empty()) {
    const auto& all = trace_.formats.all();
    missing_ = nullptr;
    for (const EventPattern& pattern : wanted_.events) {
      if (std::any_of(all.begin(), all.end(), [&](const auto& type) { return pattern.matches(type->system, type->name); }))
        continue;
      missing_ = &pattern;
      return mistyped(std::errc::no_such_file_or_directory, none_matches(pattern.text(), trace_.formats));
    }
  }
  if (wanted_.filter.empty()) return {};
  filter_.emplace(RS_TRY(Filter::compile(wanted_.filter, trace_.formats, trace_.tasks)));
  return {};
}

bool Condition::has_wildcards() const {
  return std::any_of(wanted_.events.begin(), wanted_.events.end(), [](const EventPattern& p) {
    return p.text().find_first_of("*?") != std::string::npos || p.text().ends_with(':');
  });
}

}  // namespace ringside::cli
