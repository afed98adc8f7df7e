// expects: ringside: two fields of an event have the same name|(redefinition of parameter|duplicate parameter name)
#include <ringside/trace.hpp>

#ifdef WRONG
RINGSIDE_EVENT(wrong, same_name, (u32, size), (u64, size));
#else
RINGSIDE_EVENT(wrong, same_name, (u32, size), (u64, length));
#endif
void call() { wrong::same_name(1, 2); }
