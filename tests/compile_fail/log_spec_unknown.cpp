// expects: what printf has, too
#include <ringside/log.hpp>
#include <string>

#ifdef WRONG
void call(int i) { RINGSIDE_LOG(info, "{:^9}", i); }
#else
void call(int i) { RINGSIDE_LOG(info, "{:<9}", i); }
#endif
