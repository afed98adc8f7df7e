#include "text/words.hpp"

#include <algorithm>
#include <cctype>
#include <set>
#include <utility>

#include "sys/text.hpp"

namespace ringside {
namespace {

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

std::string in_quotes(std::string_view text) {
  return "\"" + sys::printable(text.substr(0, 64)) + (text.size() > 64 ? "...\"" : "\"");
}

}  // namespace ringside
