#include "schema/event_pattern.hpp"

#include <algorithm>

#include "schema/glob.hpp"

namespace ringside {

EventPattern::EventPattern(std::string_view text)
    : text_(text), is_word_(text.find(':') == std::string_view::npos), of_remotes_(text.starts_with(remotes)) {
  if (of_remotes_) text.remove_prefix(remotes.size());
  if (is_word_) {
    system_ = name_ = text;
    return;
  }
  const size_t colon = text.find(':');
  system_ = colon == 0 ? "*" : text.substr(0, colon);
  name_ = colon + 1 == text.size() ? "*" : text.substr(colon + 1);
}

bool EventPattern::matches_system(std::string_view system) const { return glob_matches(system_, system); }

bool EventPattern::matches(std::string_view system, std::string_view name) const {
  const bool of_system = matches_system(system), of_name = glob_matches(name_, name);
  return is_word_ ? of_system || of_name : of_system && of_name;
}

std::vector<std::string> EventPattern::in_full() const {
  if (!is_word_ || all()) return {system_ + ":" + name_};
  return {system_ + ":*", "*:" + name_};
}

bool EventPattern::may_name_kernel() const { return of_remotes_ || system_.find_first_not_of("*?") != std::string::npos; }

result<EventPatterns> EventPatterns::parse(std::string_view list) {
  EventPatterns all;
  for (size_t at = 0; at <= list.size();) {
    const size_t end = std::min(list.find(',', at), list.size());
    const std::string_view one = list.substr(at, end - at);
    const auto in_no_name = [](char c) { return static_cast<unsigned char>(c) <= ' ' || c == '/' || c == 0x7F; };
    const std::string_view name = one.substr(one.starts_with(EventPattern::remotes) ? EventPattern::remotes.size() : 0);
    if (name.empty() || name.front() == '!' || std::any_of(name.begin(), name.end(), in_no_name))
      return refuse(std::errc::invalid_argument, "\"" + std::string(one.substr(0, 64)) +
                                                     "\" is no event pattern: write SYSTEM:EVENT, SYSTEM or EVENT, with * and "
                                                     "? as wildcards, and commas between several");
    all.all_.emplace_back(one);
    at = end + 1;
  }
  return all;
}

result<EventPatterns> EventPatterns::parse(const std::vector<std::string>& lists) {
  EventPatterns all;
  for (const std::string& list : lists) {
    auto some = parse(list);
    if (!some) return some;
    all.add(*some);
  }
  return all;
}

EventPatterns EventPatterns::of_remotes(bool they) const {
  EventPatterns some;
  for (const EventPattern& one : all_)
    if (one.of_remotes() == they) some.add(one);
  return some;
}

bool EventPatterns::matches(std::string_view system, std::string_view name) const {
  return std::any_of(all_.begin(), all_.end(), [&](const EventPattern& one) { return one.matches(system, name); });
}

}  // namespace ringside
