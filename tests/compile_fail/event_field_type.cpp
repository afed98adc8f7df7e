// expects: ringside: a field is an integer
#include <ringside/trace.hpp>

struct Pair {
  int a, b;
};

#ifdef WRONG
RINGSIDE_EVENT(wrong, field_type, (Pair, pair));
void call() { wrong::field_type(Pair{1, 2}); }
#else
RINGSIDE_EVENT(wrong, field_type, (int, a), (int, b));
void call() { wrong::field_type(1, 2); }
#endif
