// many_threads N EVENTS: N threads, one after the other, write EVENTS events each: N rings of threads.
#include <ringside/trace.hpp>

#include <cstdlib>
#include <thread>

RINGSIDE_EVENT(unit, number, (u64, n));

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  unsigned n = 0;
  for (int left = std::atoi(argv[1]); left > 0; --left)
    std::thread([&] {
      for (int i = std::atoi(argv[2]); i > 0; --i) unit::number(n++);
    }).join();
}
