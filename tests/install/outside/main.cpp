#include <ringside/trace.hpp>

RINGSIDE_EVENT(outside, hello, (u32, answer), (cstring, text));

int main() {
  if (ringside_open(nullptr) != 0) return 1;
  outside::hello(42, "from an installed copy");
  ringside_close();
}
