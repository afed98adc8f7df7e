// expects: write each field as .name, value.
#include <ringside/trace.hpp>

#ifdef WRONG
void call(int id) { RINGSIDE_TRACE("wrong", "no_parentheses", id); }
#else
void call(int id) { RINGSIDE_TRACE("wrong", "no_parentheses", ("id", id)); }
#endif
