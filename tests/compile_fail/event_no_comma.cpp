// expects: write each field as .type, name.
#include <ringside/trace.hpp>

#ifdef WRONG
RINGSIDE_EVENT(wrong, no_comma, (u32 id));
#else
RINGSIDE_EVENT(wrong, no_comma, (u32, id));
#endif
