// Adds up counters, and checks the equation that must hold for them.
#pragma once
#include <string>
#include <vector>

#include "source/source.hpp"

namespace ringside {

// The sum over rings.
Counters sum(const std::vector<Counters>& all);
// written = read + unread + overrun
bool adds_up(const Counters& c);

}  // namespace ringside
