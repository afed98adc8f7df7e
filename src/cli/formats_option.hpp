// --formats PATH: events' formats from files, for traces that come without.
#pragma once
#include <string>
#include <vector>

#include "source/source.hpp"

namespace ringside::cli {

inline constexpr const char* formats_help =
    "the events' formats: a directory like tracefs's events/ (SYSTEM/EVENT/format), or a file SYSTEM.* of such texts, one "
    "after "
    "the other";

// Events of an external writer. Errors name the file and what is wrong with it.
result<std::vector<EventInfo>> read_formats(const std::string& path);

}  // namespace ringside::cli
