// What was shipped to a server, as inputs: one for each boot of each machine.
#pragma once

namespace ringside {

// From here on, inputs_of() opens places on a server. At the start of a program that links the library of the fleet.
void open_servers();

}  // namespace ringside
