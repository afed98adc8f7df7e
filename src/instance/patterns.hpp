// set_stack, as the reading side changes it.
#pragma once
#include <ringside/base/types.hpp>
#include <string>

#include "writer/patterns.hpp"

namespace ringside {

// The text of set_stack, with these patterns more, and this depth.
std::string with_stacks(const std::string& text, const EventPatterns& patterns, u32 depth);

}  // namespace ringside
