// Closes all descriptors that it did not open, then goes on: files, threads, children. Prints what it sees; the same without
// recording. closer DIRECTORY range|loop|raw
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void* volatile keep;

// Every descriptor below 64 that is open.
static void print_open(const char* when) {
  printf("%s:", when);
  for (int fd = 0; fd < 64; ++fd)
    if (fcntl(fd, F_GETFD) >= 0) printf(" %d", fd);
  printf("\n");
}

static void use_files(const char* directory) {
  char path[4096], back[16];
  for (int i = 0; i < 20; ++i) {
    snprintf(path, sizeof path, "%s/%d.%d", directory, getpid(), i);
    const int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    printf("%d ", fd);
    if (write(fd, "untouched", 10) != 10) printf("not written ");
    free(keep = malloc(555));
  }
  for (int i = 0; i < 20; ++i) {
    snprintf(path, sizeof path, "%s/%d.%d", directory, getpid(), i);
    const int fd = open(path, O_RDONLY);
    if (read(fd, back, sizeof back) != 10 || strcmp(back, "untouched") != 0) printf("damaged ");
    close(fd);
  }
}

static void* in_thread(void* directory) {
  use_files(directory);
  return NULL;
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  free(keep = malloc(555));  // the ring is there before
  if (strcmp(argv[2], "range") == 0) close_range(3, ~0U, 0);
  for (int fd = 3; fd < 1024; ++fd) {
    if (strcmp(argv[2], "loop") == 0) close(fd);
    if (strcmp(argv[2], "raw") == 0) syscall(SYS_close, fd);
  }
  print_open("start");
  use_files(argv[1]);
  pthread_t thread;
  pthread_create(&thread, NULL, in_thread, argv[1]);
  pthread_join(thread, NULL);
  print_open("thread");
  fflush(stdout);
  if (fork() == 0) {
    closefrom(3);
    use_files(argv[1]);
    print_open("child");
    fflush(stdout);
    _exit(0);
  }
  wait(NULL);
  return 0;
}
