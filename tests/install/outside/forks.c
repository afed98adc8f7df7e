// Writes in C, before a fork, on both sides of it, and after a vfork.
#include <ringside/ringside.h>
#include <sys/wait.h>
#include <unistd.h>

RINGSIDE_EVENT(outside, outside_c, (int, step));

int main(void) {
  outside_outside_c(1);
  pid_t child = fork();
  if (child == 0) {
    outside_outside_c(2);
    _exit(0);
  }
  waitpid(child, NULL, 0);
  outside_outside_c(3);
  child = vfork();
  if (child == 0) _exit(0);
  waitpid(child, NULL, 0);
  outside_outside_c(4);
  return 0;
}
