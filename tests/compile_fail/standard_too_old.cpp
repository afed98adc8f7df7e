// A program in C++14 reads one sentence instead of the library's insides.
// expects: ringside/trace.hpp needs C\+\+17: compile with -std=c\+\+17 or later
// options: -std=c++14
#include <ringside/trace.hpp>

RINGSIDE_EVENT(shop, order, (u32, id));
