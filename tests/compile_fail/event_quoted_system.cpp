// expects: write the names without quotes
#include <ringside/trace.hpp>

#ifdef WRONG
RINGSIDE_EVENT("wrong", quoted_system, (u32, id));
#else
RINGSIDE_EVENT(wrong, quoted_system, (u32, id));
#endif
