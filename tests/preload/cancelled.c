// A thread that is cancelled where it asks for it and nowhere else, while it allocates.
#include <pthread.h>
#include <stdlib.h>

static volatile int allocated, cancelled;

static void* allocate(void* unused) {
  (void)unused;
  for (int i = 0; i < 10000; ++i) {
    void* volatile p = malloc(16);
    free(p);
    if (i == 1000) allocated = 1;
    while (i == 1001 && !cancelled) {
    }
  }
  pthread_testcancel();
  return NULL;
}

int main(void) {
  pthread_t thread;
  void* result;
  if (pthread_create(&thread, NULL, allocate, NULL) != 0) return 2;
  while (!allocated) {
  }
  if (pthread_cancel(thread) != 0) return 3;
  cancelled = 1;
  pthread_join(thread, &result);
  return result == PTHREAD_CANCELED ? 0 : 1;
}
