// expects: has a \{\} without a value
#include <ringside/log.hpp>
#include <string>

#ifdef WRONG
void call(int i) { RINGSIDE_LOG(info, "took {} of {}", i); }
#else
void call(int i) { RINGSIDE_LOG(info, "took {} of {}", i, i); }
#endif
