// Ctrl-C: the first one asks to finish orderly, the second leaves at once.
#pragma once
#include <ringside/base/types.hpp>

namespace ringside {

void catch_signals();  // SIGINT, SIGTERM, SIGHUP
bool asked_to_stop();
int stop_signal();  // the first one, or 0
void sleep_ns(u64 ns);  // a signal ends it early
// Sets the function to call on the second signal, or null; it must be signal-safe.
void before_leaving(void (*what)());

}  // namespace ringside
