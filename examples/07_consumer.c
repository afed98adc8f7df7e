// The consumer in C: which tasks run, and how long they wait once woken; live, as root, for a second.
#include <ringside/consumer.h>
#include <stdio.h>

int main(void) {
  char error[512];
  const char* const kernel[] = {"sched:sched_waking", "sched:sched_switch", NULL};
  const struct ringside_consumer_options options = {.kernel = kernel, .duration_ns = 1000000000};
  struct ringside_consumer* consumer = ringside_consumer_open(&options, error, sizeof error);
  struct ringside_hist* tasks =
      consumer ? ringside_hist_open(consumer, "sched:sched_switch/next_comm", NULL, error, sizeof error) : NULL;
  struct ringside_latency* waits = tasks ? ringside_latency_open(consumer, "sched:sched_waking", "sched:sched_switch", "pid",
                                                                 "next_pid", error, sizeof error)
                                         : NULL;
  if (!waits) {
    fprintf(stderr, "%s\n", error);
    return 1;
  }
  struct ringside_consumer_event event;
  uint64_t ns, longest = 0;
  do {
    while (ringside_consumer_next(consumer, &event)) {
      ringside_hist_add(tasks);
      if (ringside_latency_add(waits, &ns) && ns > longest) longest = ns;
    }
  } while (ringside_consumer_wait(consumer));

  for (size_t row = 0, n = ringside_hist_sort(tasks); row < n && row < 10; ++row)
    printf("%-16s %8llu\n", ringside_hist_key(tasks, row, 0), (unsigned long long)ringside_hist_count(tasks, row));
  printf("%llu waits, median %.1f us, longest %.1f us; %llu events lost\n", (unsigned long long)ringside_latency_count(waits),
         ringside_latency_quantile(waits, .5) / 1e3, (double)longest / 1e3,
         (unsigned long long)ringside_consumer_missing(consumer, NULL));
  ringside_latency_close(waits);
  ringside_hist_close(tasks);
  ringside_consumer_close(consumer);
  return 0;
}
