// A scope without a name ends at once.
// GCC 12 says so only of a constructor that is itself nodiscard.
// only: clang
// expects: nodiscard
#include <ringside/trace.hpp>

void call() {
#ifdef WRONG
  ringside::scope{"parse"};
#else
  ringside::scope s{"parse"};
#endif
}
