// Finds what main.cpp wrote.
#include <ringside/consumer.h>
#include <stdio.h>

int main(int argc, char** argv) {
  char error[256] = "usage: reader INSTANCE";
  const char* const where[] = {argc > 1 ? argv[1] : "", NULL};
  const struct ringside_consumer_options options = {.where = where, .duration_ns = 10000000};
  struct ringside_consumer* consumer = ringside_consumer_open(&options, error, sizeof error);
  const int answer = consumer ? ringside_consumer_column(consumer, "outside:hello/answer", error, sizeof error) : -1;
  if (answer < 0) return fprintf(stderr, "%s\n", error), 1;
  struct ringside_consumer_event event;
  int64_t value = 0;
  int found = 0;
  do {
    while (ringside_consumer_next(consumer, &event)) found |= ringside_consumer_number(consumer, answer, &value) && value == 42;
  } while (ringside_consumer_wait(consumer));
  ringside_consumer_close(consumer);
  return found ? 0 : 1;
}
