// LTTng-UST's side of writer.lttng_over_event: for each number read, writes that number of events and answers with ns per
// event. Answers "off" if no session has enabled the event.
#define LTTNG_UST_TRACEPOINT_CREATE_PROBES
#define LTTNG_UST_TRACEPOINT_DEFINE
#include <stdio.h>
#include <time.h>

#include "event.h"

static double now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

int main(void) {
  long n;
  while (scanf("%ld", &n) == 1) {
    if (!lttng_ust_tracepoint_enabled(bench, pair)) {
      puts("off");
    } else {
      const double from = now_ns();
      for (long i = 0; i < n; ++i) lttng_ust_tracepoint(bench, pair, (unsigned long)i, (unsigned long)i);
      printf("%.3f\n", (now_ns() - from) / (double)n);
    }
    fflush(stdout);
  }
}
