// The files of an instance that choose events: set_event, set_stack. A pattern a line; "!" in front: not these.
#pragma once
#include <ringside/base/result.hpp>
#include <ringside/base/types.hpp>
#include <string>
#include <vector>

#include "schema/event_pattern.hpp"

namespace ringside {

std::vector<std::string> lines_of(const std::string& text);
// With the pattern as the last line, and without those that it makes void: switching an event on and off all day leaves one
// line.
std::string with_pattern(const std::string& text, const std::string& pattern, bool on);
// The same for all of them; in_full: as SYSTEM:EVENT.
std::string with_patterns(std::string text, const EventPatterns& patterns, bool on, bool in_full);
result<void> can_be_lines(const EventPatterns& patterns);
result<void> replace_file(int dir, const std::string& file, const std::string& text);

}  // namespace ringside
