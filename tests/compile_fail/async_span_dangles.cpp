// expects: (use of deleted function|call to deleted)
#include <ringside/trace.hpp>
#include <string>

#ifdef WRONG
void call(const std::string& s) { ringside::async_span span(s + "b", 1); }
#else
void call(const std::string& s) { ringside::async_span span(s, 1); }
#endif
