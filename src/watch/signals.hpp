// Ctrl-C: the first asks to finish what exists, the second leaves at once.
#pragma once
#include <ringside/base/types.hpp>

namespace ringside {

void catch_signals();  // SIGINT, SIGTERM, SIGHUP
bool asked_to_stop();
int stop_signal();  // the first one, or 0
void sleep_ns(u64 ns);  // a signal ends it early
// What is to be done when the second one comes, or null; signal-safe.
void before_leaving(void (*what)());

}  // namespace ringside
