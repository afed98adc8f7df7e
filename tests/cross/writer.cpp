// A writer built for another processor: 1,000 numbered events in each of two threads. 3: the instance named first refused it.
#include <ringside/trace.hpp>
#include <cstdio>
#include <cstring>
#include <thread>

RINGSIDE_EVENT(cross, number, (u32, thread), (u32, n));

int main(int argc, char** argv) {
  if (argc > 1) {
    if (const int error = ringside_open(argv[1]); error != 0) {
      std::fprintf(stderr, "refused: %s\n", std::strerror(-error));
      return 3;
    }
  }
  const auto write = [](ringside::u32 thread) {
    for (ringside::u32 n = 0; n < 1000; ++n) cross::number(thread, n);
  };
  std::thread other(write, 1);
  write(0);
  other.join();
  RINGSIDE_MARKER("%u threads", 2u);  // its field ip is a pointer of this processor
}
