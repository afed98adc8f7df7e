// expects: deleted function
#include <ringside/trace.hpp>
#include <string>

RINGSIDE_SPAN(wrong, span_dangles, (std::string, user));
#ifdef WRONG
void call(const std::string& s) { wrong::span_dangles span(s + "b"); }
#else
void call(const std::string& s) {
  wrong::span_dangles span(s);
  wrong::span_dangles literal("b");
  wrong::span_dangles view{std::string_view(s)};
}
#endif
