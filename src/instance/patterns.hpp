// The files of an instance that choose events: set_event, set_stack. A pattern a line; "!" in front: not these.
#pragma once
#include <ringside/base/types.hpp>
#include <string>
#include <vector>

#include "schema/event_pattern.hpp"

namespace ringside {

std::vector<std::string> lines_of(const std::string& text);
// With the pattern as the last line, and without those that it makes void: switching an event on and off all day leaves one
// line.
std::string with_pattern(const std::string& text, const std::string& pattern, bool on);
// The text of set_stack, with these patterns more, and this depth.
std::string with_stacks(const std::string& text, const EventPatterns& patterns, u32 depth);
result<void> can_be_lines(const EventPatterns& patterns);
result<void> replace_file(int dir, const std::string& file, const std::string& text);

}  // namespace ringside
