#include "schema/filter_clauses.hpp"

#include <algorithm>

namespace ringside {
namespace {

constexpr std::string_view spaces = " \t\r\n";

// The end of a clause: a ; outside quotes, or the text's end.
size_t end_of_clause(std::string_view text) {
  char quote = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (quote != 0)
      quote = c == quote ? 0 : quote;
    else if (c == '"' || c == '\'')
      quote = c;
    else if (c == ';')
      return at;
  }
  return text.size();
}

}  // namespace

result<std::vector<FilterClause>> filter_clauses(std::string_view text) {
  std::vector<FilterClause> clauses;
  do {
    const size_t end = end_of_clause(text);
    FilterClause clause{{}, text.substr(0, end)};
    text.remove_prefix(end == text.size() ? end : end + 1);
    const size_t begin = std::min(clause.text.find_first_not_of(spaces), clause.text.size());
    const size_t word = std::min(clause.text.find_first_of(" \t\r\n()&|!=<>~\"'", begin), clause.text.size());
    if (word > begin + 1 && word != clause.text.size() && clause.text[word - 1] == ':' &&
        spaces.find(clause.text[word]) != spaces.npos) {
      auto events = EventPatterns::parse(clause.text.substr(begin, word - 1 - begin));
      if (!events) return tl::unexpected<Error>(events.error());
      clause.events = std::move(*events);
      clause.text.remove_prefix(word);
    }
    clauses.push_back(std::move(clause));
  } while (!text.empty());
  return clauses;
}

std::string filter_of(const std::vector<FilterClause>& clauses, std::string_view system, std::string_view name) {
  std::string_view first;
  std::string all;
  for (const FilterClause& clause : clauses) {
    if (!clause.events.empty() && !clause.events.matches(system, name)) continue;
    std::string_view text = clause.text;
    text.remove_prefix(std::min(text.find_first_not_of(spaces), text.size()));
    if (text.empty()) continue;
    if (first.empty()) first = text;
    all += (all.empty() ? "(" : " && (") + std::string(text) + ")";
  }
  return all.size() == first.size() + 2 ? std::string(first) : all;
}

}  // namespace ringside
