// expects: a field is an integer
#include <ringside/log.hpp>
#include <string>

struct Any {
  int of[3];
};
#ifdef WRONG
void call(const Any& any) { RINGSIDE_LOG(info, "{}", any); }
#else
void call(const Any& any) { RINGSIDE_LOG(info, "{}", static_cast<const void*>(&any)); }
#endif
