// expects: ringside: names that start with common_ are the format's own
#include <ringside/trace.hpp>

#ifdef WRONG
RINGSIDE_EVENT(wrong, common_name, (u32, common_pid));
#else
RINGSIDE_EVENT(wrong, common_name, (u32, pid));
#endif
void call() { wrong::common_name(1); }
