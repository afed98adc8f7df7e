// expects: (.warning. is not a member|no member named .warning.)
#include <ringside/log.hpp>
#include <string>

#ifdef WRONG
void call() { RINGSIDE_LOG(warning, "x"); }
#else
void call() { RINGSIDE_LOG(warn, "x"); }
#endif
