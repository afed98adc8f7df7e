// Leaves recorded calls halfway: by siglongjmp from a handler, and by cancellation. Then 50 closes of descriptor 62, each way.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

static sigjmp_buf out;
static const char* fifo;

static void on_timer(int number) {
  (void)number;
  siglongjmp(out, 1);
}

static void close_fifty(void* nothing) {
  (void)nothing;
  for (int i = 0; i < 50; ++i) close(62);
}

static void* waits_in_read(void* end) {
  char byte;
  pthread_cleanup_push(close_fifty, NULL);
  if (read(*(int*)end, &byte, 1) == 1) _exit(100);
  pthread_cleanup_pop(1);
  return NULL;
}

static void* waits_in_open(void* nothing) {
  pthread_cleanup_push(close_fifty, NULL);
  open(fifo, O_RDONLY);
  pthread_cleanup_pop(1);
  return nothing;
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  fifo = argv[1];
  int ends[2];
  char byte;
  if (mkfifo(fifo, 0600) != 0 || pipe(ends) != 0) return 100;
  signal(SIGALRM, on_timer);
  const struct itimerval once = {{0, 0}, {0, 20000}};
  if (sigsetjmp(out, 1) == 0) {
    setitimer(ITIMER_REAL, &once, NULL);
    if (read(ends[0], &byte, 1) == 1) return 100;
  }
  close_fifty(NULL);
  void* (*const ways[])(void*) = {waits_in_read, waits_in_open};
  for (int i = 0; i < 2; ++i) {
    pthread_t thread;
    void* result;
    pthread_create(&thread, NULL, ways[i], &ends[0]);
    usleep(20000);
    pthread_cancel(thread);
    pthread_join(thread, &result);
    if (result != PTHREAD_CANCELED) return 101;
  }
  return 0;
}
