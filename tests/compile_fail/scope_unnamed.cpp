// A scope without a name ends at once.
// expects: nodiscard|ignoring
#include <ringside/trace.hpp>

void call() {
#ifdef WRONG
  ringside::scope{"parse"};
#else
  ringside::scope s{"parse"};
#endif
}
