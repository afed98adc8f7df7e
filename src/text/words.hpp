// Words in sentences for people: quotes, lists, and suggestions for mistyped names.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace ringside {

// The words most like `wanted`, best first: few letters differ, or one contains the other.
std::vector<std::string> nearest(std::string_view wanted, const std::vector<std::string>& words, size_t most = 3);
// "; did you mean record or recover?"; empty for no words.
std::string did_you_mean(const std::vector<std::string>& words);
// "a, b, c": the first twelve, and how many there are.
std::string short_list(const std::vector<std::string>& names);
// In quotes, without control characters, cut after 64 bytes.
std::string in_quotes(std::string_view text);

}  // namespace ringside
