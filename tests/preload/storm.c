// A handler that writes and allocates, at 1 kHz, on top of calls that are recorded too. Prints how many there were:
// writes (as many mallocs of 77 bytes), reads, locks.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <unistd.h>

static int ends[2];
static volatile int writes;
static void* volatile keep;

static void on_timer(int number) {
  (void)number;
  ++writes;
  if (write(ends[1], "x", 1) != 1) _exit(100);
  keep = malloc(77);  // main does not allocate meanwhile
  free(keep);
}

int main(void) {
  static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  const struct itimerval on = {{0, 1000}, {0, 1000}}, off = {{0, 0}, {0, 0}};
  int reads = 0, locks = 0;
  char byte;
  if (pipe(ends) != 0) return 100;
  struct sigaction action = {.sa_handler = on_timer, .sa_flags = SA_RESTART};
  sigaction(SIGALRM, &action, NULL);
  setitimer(ITIMER_REAL, &on, NULL);
  for (int i = 0; i < 300; ++i, ++reads)  // the handler interrupts a read that sleeps
    if (read(ends[0], &byte, 1) != 1) return 100;
  for (int i = 0; i < 30000; ++i, ++locks) {  // and anything else
    pthread_mutex_lock(&mutex);
    pthread_mutex_unlock(&mutex);
    for (volatile int idle = 0; idle < 3000; ++idle) {
    }
    if (i % 2048 == 0)
      while (reads < writes) {
        if (read(ends[0], &byte, 1) != 1) return 100;
        ++reads;
      }
  }
  setitimer(ITIMER_REAL, &off, NULL);
  printf("%d %d %d\n", writes, reads, locks);
  return 0;
}
