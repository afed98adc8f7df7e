// What was shipped to a server, as inputs: one for each boot of each machine.
#pragma once
#include "consumer/input.hpp"

namespace ringside {

result<std::vector<std::unique_ptr<Input>>> shipped_inputs(const std::string& place);

}  // namespace ringside
