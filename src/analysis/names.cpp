#include "analysis/names.hpp"

#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <utility>

#include "analysis/mistyped.hpp"
#include "sys/text.hpp"

namespace ringside {
namespace {

constexpr std::string_view builtins[] = {"stack",  "ts",    "cpu",    "CPU",         "ring",         "source",
                                         "comm",   "COMM",  "task",   "pid",         "tid",          "common_pid",
                                         "cgroup", "file",  "event", "system", "common_type", "common_flags", "common_preempt_count"};

}  // namespace

std::string near_events(const EventPattern& pattern, const std::vector<std::string>& all) {
  std::string text = pattern.text();
  std::erase_if(text, [](char c) { return c == '*' || c == '?'; });
  const size_t colon = text.find(':');
  const std::string name = colon == std::string::npos ? text : text.substr(colon + 1);
  const std::string pattern_system = pattern.text().substr(0, pattern.text().find(':'));
  std::set<std::string> systems;
  std::map<std::string, std::vector<std::string>> by_name;
  std::vector<std::string> names, of_system;
  for (const std::string& full : all) {
    const std::string system = full.substr(0, full.find(':')), event = full.substr(full.find(':') + 1);
    systems.insert(system);
    if (colon != std::string::npos && EventPattern(pattern_system + ":").matches(system, event)) of_system.push_back(event);
    by_name[event].push_back(full);
    names.push_back(event);
  }
  if (!of_system.empty()) {
    std::sort(of_system.begin(), of_system.end());
    std::vector<std::string> near = nearest(name, of_system);
    if (near.empty()) return "; there are " + short_list(of_system);
    for (std::string& one : near) one = by_name[one].front();
    return did_you_mean(near);
  }
  std::vector<std::string> near;
  if (colon != std::string::npos) {  // the event may be right, and its system not
    if (const auto at = by_name.find(name); at != by_name.end()) near = at->second;
    for (const std::string& system : nearest(text.substr(0, colon), {systems.begin(), systems.end()}))
      near.push_back(system + ":*");
  } else {
    for (const std::string& system : nearest(text, {systems.begin(), systems.end()})) near.push_back(system + ":*");
    for (const std::string& event : nearest(text, names)) near.push_back(by_name[event].front());
  }
  if (near.size() > 4) near.resize(4);
  return did_you_mean(near);
}

namespace {

// The end of a sentence about a pattern that matches no event of these formats.
std::string instead_of(const EventPattern& pattern, const Formats& formats) {
  std::vector<std::string> all;
  for (const auto& type : formats.all()) {
    if (type->system != "ftrace") all.push_back(type->full);
  }
  std::sort(all.begin(), all.end());
  std::string out = near_events(pattern, all);
  if (out.empty()) out = all.empty() ? "; there are none at all" : "; there are " + short_list(all);
  const bool has_libc = std::any_of(all.begin(), all.end(), [](const std::string& e) { return e.starts_with("libc:"); });
  if (has_libc || !pattern.text().starts_with("libc")) return out;
  const std::string list = libc_list(pattern.text().substr(std::min(pattern.text().size(), sizeof "libc:" - 1)));
  return out + "; ringside record --libc " + (list.empty() ? "malloc,io,mutex" : list) + " COMMAND records these";
}

}  // namespace

namespace {
constexpr std::pair<std::string_view, const char*> libc_lists[] = {
    {"malloc calloc realloc free", "malloc"},
    {"read write open close", "io"},
    {"mutex_lock", "mutex"},
    {"rwlock_lock spin_lock cond_wait cond_signal sem_wait sem_post", "lock"}};
}

std::string libc_list(std::string_view call) {
  const auto* const found = std::find_if(std::begin(libc_lists), std::end(libc_lists), [&](const auto& list) {
    return !call.empty() && list.first.find(call) != std::string_view::npos;
  });
  return found != std::end(libc_lists) ? found->second : "";
}

bool libc_traces(const std::string& lists, std::string_view call) {
  const auto has = [&lists](const std::string& list) {
    return ("," + lists + ",").find("," + list + ",") != std::string::npos;
  };
  const std::string list = libc_list(call);
  return has(list) || (list == "mutex" && has("lock"));
}

std::vector<std::string> libc_calls() {
  std::vector<std::string> all;
  for (const auto& list : libc_lists) {
    std::string_view calls = list.first;
    for (size_t end; !calls.empty(); calls.remove_prefix(std::min(end + 1, calls.size()))) {
      end = std::min(calls.find(' '), calls.size());
      all.emplace_back(calls.substr(0, end));
    }
  }
  return all;
}

std::string unmatched(const EventPatterns& patterns, const Formats& formats, const std::string& where) {
  for (const EventPattern& pattern : patterns) {
    if (std::none_of(formats.all().begin(), formats.all().end(),
                     [&](const auto& type) { return pattern.matches(type->system, type->name); }))
      return "no event in " + where + " matches " + in_quotes(pattern.text()) + instead_of(pattern, formats);
  }
  return "";
}

std::string none_matches(std::string_view events, const Formats& formats) {
  const EventPatterns patterns = patterns_or_none(events);
  return "no event here matches " + in_quotes(events) +
         (patterns.empty() ? "; there are " + event_list(formats) : instead_of(*patterns.begin(), formats));
}

bool is_builtin(std::string_view name) {
  return std::find(std::begin(builtins), std::end(builtins), name) != std::end(builtins);
}

std::string near_names(std::string_view wanted, const Formats& formats) {
  std::vector<std::string> names(std::begin(builtins), std::end(builtins));
  for (const auto& type : formats.all()) {
    for (const Field& f : type->fields()) names.push_back(f.name);
  }
  return did_you_mean(nearest(wanted, names));
}

namespace {
struct Mistyped final : std::error_category {
  const char* name() const noexcept override { return "mistyped"; }
  std::string message(int code) const override { return std::generic_category().message(code); }
  std::error_condition default_error_condition(int code) const noexcept override { return {code, std::generic_category()}; }
};
constinit const Mistyped mistyped_category;
}  // namespace

tl::unexpected<Error> mistyped(std::errc code, std::string sentence) {
  return tl::unexpected<Error>(Error{{static_cast<int>(code), mistyped_category}, std::move(sentence)});
}
bool is_mistyped(const Error& error) { return error.code.category() == mistyped_category; }

std::string event_list(const Formats& formats) {
  std::string out;
  size_t n = 0;
  for (const auto& type : formats.all()) {
    if (++n <= 20) out += (out.empty() ? "" : ", ") + type->full;
  }
  return out.empty() ? "none" : out + (n > 20 ? ", ..." : "");
}

EventPatterns patterns_or_none(std::string_view text) {
  auto parsed = EventPatterns::parse(text);
  return parsed ? std::move(*parsed) : EventPatterns();
}

}  // namespace ringside
