// expects: write \*pointer for the value
#include <ringside/log.hpp>
#include <string>

#ifdef WRONG
void call(int* pointer) { RINGSIDE_LOG(info, "{}", pointer); }
#else
void call(int* pointer) { RINGSIDE_LOG(info, "{} {}", *pointer, static_cast<void*>(pointer)); }
#endif
