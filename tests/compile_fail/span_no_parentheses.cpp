// expects: write each field as .type, name.
#include <ringside/trace.hpp>

#ifdef WRONG
RINGSIDE_SPAN(wrong, no_parentheses, u32 id);
#else
RINGSIDE_SPAN(wrong, no_parentheses, (u32, id));
#endif
