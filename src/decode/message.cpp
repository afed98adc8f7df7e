#include "decode/message.hpp"

#include <algorithm>

#include "decode/format_file.hpp"

namespace ringside {

MessageParts parts_of_message(std::string_view text) {
  for (size_t colon = text.find(':'); colon != text.npos; colon = text.find(':', colon + 1)) {
    const size_t end = std::min(text.find_first_not_of("0123456789", colon + 1), text.size());
    constexpr size_t most_digits = 9;
    const bool is_number = end != colon + 1 && end - colon - 1 <= most_digits && text[colon + 1] != '0';
    if (!is_number || text.substr(end, 2) != ": ") continue;
    return {text.substr(0, end), text.substr(0, colon), text.substr(colon + 1, end - colon - 1), text.substr(end + 2)};
  }
  return {{}, {}, {}, text};
}

std::optional<i64> level_of(std::string_view word) {
  for (const auto& [value, name] : level_names())
    if (name == word) return value;
  return std::nullopt;
}

}  // namespace ringside
