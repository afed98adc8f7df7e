// expects: a message is a literal
#include <ringside/log.hpp>
#include <string>

#ifdef WRONG
void call(const char* text) { RINGSIDE_LOG(info, text); }
#else
void call(const char* text) { RINGSIDE_LOG(info, "{}", text); }
#endif
