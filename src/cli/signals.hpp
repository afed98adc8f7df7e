// Ctrl-C: the first asks to finish what exists, the second leaves at once.
#pragma once

namespace ringside::cli {

void catch_signals();  // SIGINT, SIGTERM, SIGHUP
bool asked_to_stop();
int stop_signal();  // the first one, or 0
// What is to be done when the second one comes, or null; signal-safe.
void before_leaving(void (*what)());

}  // namespace ringside::cli
