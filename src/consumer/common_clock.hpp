// One time for inputs whose clocks differ.
#pragma once
#include <ringside/base/result.hpp>

namespace ringside {

struct Trace;

// Decides how each input's times are converted to the common time (Timeline::Origin::clock). An error: they have none.
// verbose: notices say how each is converted.
result<void> agree_on_time(Trace& trace, bool verbose);

}  // namespace ringside
