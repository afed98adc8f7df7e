// expects: not for its value.s type
#include <ringside/log.hpp>
#include <string>

#ifdef WRONG
void call(const std::string& s) { RINGSIDE_LOG(info, "{:x}", s); }
#else
void call(const std::string& s) { RINGSIDE_LOG(info, "{:>20.10s}", s); }
#endif
