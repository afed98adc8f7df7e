// Writes events in static constructors: with and without a priority, above the event's declaration, in C, and declared in
// place. Prints how many.
#include <cstdio>
#include <ringside/trace.hpp>

int early_events = 0;
extern "C" void write_early_in_c(void);

void write_early();
struct Global {
  Global() { write_early(); }
} const global;

RINGSIDE_EVENT(early, declared, (u32, from));
RINGSIDE_EVENT(early, again, (u32, from));

[[gnu::constructor(101)]] static void first() {
  write_early();
  early::declared(0);
  ++early_events;
}
struct Other {
  Other() { write_early(); }
} const other;

void write_early() {
  early::declared(1);
  early::again(1);
  RINGSIDE_TRACE("early", "in_place", ("from", early_events));
  RINGSIDE_TRACE("early", "in_place_too", ("from", early_events), ("text", "some"));
  write_early_in_c();
  early_events += 5;
}

int main() {
  write_early();
  std::printf("%d\n", early_events);
}
