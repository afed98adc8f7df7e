// Messages of a logger: events with a level, whose text is "net.cpp:42: took 3 of 4".
#pragma once
#include <optional>
#include <string_view>

#include "decode/formats.hpp"

namespace ringside {

struct MessageParts {
  std::string_view place, file, line, message;  // place: file:line; all but the message empty: the text names none
};
MessageParts parts_of_message(std::string_view text);

constexpr i64 highest_level = 5;
// "warn" is 3; none: it is no level.
std::optional<i64> level_of(std::string_view word);
// The event's level; none: it is no message.
inline std::optional<i64> level_of(const EventType* type, Bytes payload) {
  const Field* const level = type != nullptr ? type->level() : nullptr;
  return level != nullptr ? std::optional(read_integer(payload, *level)) : std::nullopt;
}

}  // namespace ringside
