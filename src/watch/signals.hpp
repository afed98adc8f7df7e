// Ctrl-C: the first one asks to finish orderly, the second leaves at once. The same signal that one process sends twice within
// half a second is one.
#pragma once
#include <ringside/base/types.hpp>

namespace ringside {

// SIGINT, SIGTERM, SIGHUP. One that this process inherited as ignored stays so (nohup), but SIGINT: a script's background jobs
// inherit it so, and kill -INT must end them.
void catch_signals();
bool interrupt_was_ignored();  // SIGINT, when this process began
bool asked_to_stop();
int stop_signal();  // the first one, or 0
bool stop_was_typed();  // it came from the terminal, which sends it to all processes in front
void sleep_ns(u64 ns);  // a signal ends it early
// Sets the function to call on the second signal, or null; it must be signal-safe.
void before_leaving(void (*what)());
// Calls it, then `last`, and ends the process. Signal-safe.
[[noreturn]] void leave_at_once(int exit_code, void (*last)() = nullptr);

}  // namespace ringside
