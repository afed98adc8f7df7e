// Included by headers that need C++20: says so in one sentence, and ends the compilation there.
#pragma once
#if __cplusplus < 202002L
#error "this header of ringside needs C++20: compile with -std=c++20 or later; <ringside/trace.hpp> takes C++17, <ringside/ringside.h> C99"
#include <ringside needs -std=c++20>
#endif
