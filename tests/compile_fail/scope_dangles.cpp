// A scope's name that is gone before its end.
// expects: deleted
#include <ringside/trace.hpp>
#include <string>

void call(const std::string& name) {
#ifdef WRONG
  ringside::scope s{name + "b"};
#else
  const std::string whole = name + "b";
  ringside::scope s{whole}, t{"literal"}, u{name.c_str()}, v{std::string_view(whole)};
#endif
}
