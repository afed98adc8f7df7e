// ringside without a command.
#pragma once
#include "cli/command.hpp"

namespace ringside::cli {

bool can_glance();  // is there a recording here?
result<int> glance();

}  // namespace ringside::cli
