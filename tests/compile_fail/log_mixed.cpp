// expects: mixes \{\} and \{0\}
#include <ringside/log.hpp>
#include <string>

#ifdef WRONG
void call(int i) { RINGSIDE_LOG(info, "{} {0}", i); }
#else
void call(int i) { RINGSIDE_LOG(info, "{0} {0}", i); }
#endif
