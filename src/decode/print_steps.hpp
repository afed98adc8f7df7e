// Prints events by the steps of their print fmt (compile_steps.hpp).
#pragma once
#include "decode/formats.hpp"

namespace ringside {

void run_steps(const EventFormat& type, Bytes payload, const FormatContext& context, fmt::memory_buffer& out);

// The name for an enum's value; null when there is none.
const std::string* symbol_of(const std::vector<std::pair<i64, std::string>>& symbols, i64 value);

}  // namespace ringside
