// A command that the traced program starts, and waits for.
#pragma once

namespace ringside::sys {

// arguments[0]: found in PATH. Its input and output are /dev/null, its signals as a shell gives them. Its environment is this
// process's, without what would trace it. Returns its exit status (128: a signal ended it), or a negative errno: ENOENT, also
// in a program with more rights than the process that started it; ECHILD if the program took the status itself.
int run(char* const* arguments) noexcept;

}  // namespace ringside::sys
