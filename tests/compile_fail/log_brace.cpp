// expects: of a message.s text is doubled
#include <ringside/log.hpp>
#include <string>

#ifdef WRONG
void call(int i) { RINGSIDE_LOG(info, "{} }", i); }
#else
void call(int i) { RINGSIDE_LOG(info, "{} }}", i); }
#endif
