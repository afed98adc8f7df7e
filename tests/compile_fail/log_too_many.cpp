// expects: has a value without a \{\}
#include <ringside/log.hpp>
#include <string>

#ifdef WRONG
void call(int i) { RINGSIDE_LOG(info, "took {1}", i, i); }
#else
void call(int i) { RINGSIDE_LOG(info, "took {1} {0}", i, i); }
#endif
