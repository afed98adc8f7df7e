// A child gives its rights up, and with them the instance; 20,000 mallocs of 5 bytes later it ends with 6.
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void* volatile keep;

int main(void) {
  int status = 0;
  free(keep = malloc(5));
  if (fork() == 0) {
    if (setuid(65534) != 0) _exit(1);
    for (int i = 0; i < 20000; ++i) free(keep = malloc(5));
    _exit(6);
  }
  wait(&status);
  return WEXITSTATUS(status);
}
