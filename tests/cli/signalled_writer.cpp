// Writes 1,000 events and waits for the signal that ends it.
#include <ringside/trace.hpp>
#include <unistd.h>

RINGSIDE_EVENT(unit, number, (u64, n));

int main() {
  for (unsigned n = 0; n < 1000; ++n) unit::number(n);
  for (;;) pause();
}
