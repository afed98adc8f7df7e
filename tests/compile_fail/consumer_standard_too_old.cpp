// A program in C++17 that reads gets one sentence instead of the library's insides.
// expects: error: .*needs C\+\+20
// options: -std=c++17
#include <ringside/consumer.hpp>

int main() { return ringside::Consumer::open({}).has_value() ? 0 : 1; }
