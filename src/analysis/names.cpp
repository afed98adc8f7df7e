#include "analysis/names.hpp"

#include <algorithm>
#include <set>

namespace ringside {
namespace {

constexpr std::string_view builtins[] = {"ts",  "cpu", "CPU",        "ring",  "source", "comm",        "COMM",         "task",
                                         "pid", "tid", "common_pid", "cgroup", "event", "system", "common_type", "common_flags", "common_preempt_count"};

// The number of letters to change, add or remove.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j < row.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] != b[j - 1] ? 1 : 0);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row[b.size()];
}

}  // namespace

bool is_builtin(std::string_view name) { return std::find(std::begin(builtins), std::end(builtins), name) != std::end(builtins); }

std::string near_names(std::string_view wanted, const Formats& formats) {
  const size_t limit = std::min<size_t>(3, std::max<size_t>(1, wanted.size() / 3));
  if (wanted.size() > 64) return "";
  std::set<std::pair<size_t, std::string>> found;
  const auto consider = [&](std::string_view name) {
    if (std::max(name.size(), wanted.size()) - std::min(name.size(), wanted.size()) > limit) return;
    if (const size_t d = distance(wanted, name); d <= limit) found.emplace(d, name);
  };
  for (const std::string_view name : builtins) consider(name);
  for (const auto& type : formats.all()) {
    for (const Field& f : type->fields) consider(f.name);
  }
  std::string out;
  size_t n = 0;
  for (const auto& [d, name] : found) {
    if (n++ < 3) out += (out.empty() ? "; did you mean " : " or ") + name;
  }
  return out.empty() ? out : out + "?";
}

std::string in_quotes(std::string_view text) {
  std::string out = "\"";
  for (const char c : text.substr(0, 64)) out += static_cast<u8>(c) < 0x20 || c == 0x7F ? '?' : c;
  return out + (text.size() > 64 ? "...\"" : "\"");
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
