// expects: not for its value.s type
#include <ringside/log.hpp>
#include <string>

#ifdef WRONG
void call(int i, double d) { RINGSIDE_LOG(info, "{:.2f}", i); }
#else
void call(int i, double d) { RINGSIDE_LOG(info, "{:.2f} {:d}", d, i); }
#endif
