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
                                         "cgroup", "event", "system", "common_type", "common_flags", "common_preempt_count"};

// The number of letters to change, add, remove or exchange with the next one.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1), above, above_that;
  for (size_t j = 0; j < row.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    above_that = std::exchange(above, row);
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] != b[j - 1] ? 1 : 0);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], above_that[j - 2] + 1);
    }
  }
  return row[b.size()];
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

}  // namespace

std::vector<std::string> nearest(std::string_view wanted, const std::vector<std::string>& words, size_t most) {
  if (wanted.empty() || wanted.size() > 64) return {};
  const std::string like = lower(wanted);
  const size_t limit = std::min<size_t>(3, std::max<size_t>(1, wanted.size() / 3));
  std::set<std::pair<size_t, std::string>> found;
  for (const std::string& word : words) {
    const std::string name = lower(word);
    const size_t apart = std::max(name.size(), like.size()) - std::min(name.size(), like.size());
    const bool within =
        like.size() >= 3 && name.size() >= 3 && (name.find(like) != std::string::npos || like.find(name) != std::string::npos);
    const size_t d = apart <= limit ? distance(like, name) : ~size_t{0};
    if (d <= limit)
      found.emplace(d, word);
    else if (within)
      found.emplace(limit + apart, word);
  }
  std::vector<std::string> out;
  for (const auto& [d, word] : found) {
    if (out.size() < most) out.push_back(word);
  }
  return out;
}

std::string short_list(const std::vector<std::string>& names) {
  constexpr size_t most = 12;
  std::string out;
  for (size_t i = 0; i < std::min(names.size(), most); ++i) out += (i == 0 ? "" : ", ") + names[i];
  return out + (names.size() > most ? ", ... (" + std::to_string(names.size()) + ")" : "");
}

std::string did_you_mean(const std::vector<std::string>& words) {
  std::string out;
  for (size_t i = 0; i < words.size(); ++i)
    out += (i == 0 ? "; did you mean " : i + 1 == words.size() ? " or " : ", ") + words[i];
  return out.empty() ? out : out + "?";
}

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

std::string in_quotes(std::string_view text) {
  return "\"" + sys::printable(text.substr(0, 64)) + (text.size() > 64 ? "...\"" : "\"");
}

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
