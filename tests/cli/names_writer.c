// What threads are called over time.
//   rename          a thread allocates 5001 bytes, names itself "worker" and allocates 5002
//   execute FILE    a thread names itself "executor" and executes FILE, which allocates 6001 bytes
//   ONE TWO         two processes with the same PID, one after the other: ONE allocates 6001 bytes, TWO 6002. In a PID
//                   namespace of its own, as root: ns_last_pid chooses the second PID
//   SIZE            allocates SIZE bytes
//   SIZE FILE       the same, after it has removed FILE
//   memfd WORDS ... executes itself from a file in memory, with WORDS
//   library FILE SIZE   the same in a library, which it has loaded from FILE and removed
//   spin FILE       removes FILE, names itself "spinner" and uses half a second of CPU time
//   enter FILE      allocates 7001 bytes, enters the time namespace FILE and allocates 7002
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

__attribute__((noinline)) static void inside(size_t size) {
  void* volatile block = malloc(size);
  free(block);
}

static void* work(void* unused) {
  inside(5001);
  pthread_setname_np(pthread_self(), "worker");
  inside(5002);
  return unused;
}

static void* execute(void* file) {
  pthread_setname_np(pthread_self(), "executor");
  execl(file, file, "6001", (char*)0);
  return file;
}

static pid_t start(const char* path, const char* size) {
  const pid_t child = fork();
  if (child == 0) {
    execl(path, path, size, (char*)0);
    _exit(1);
  }
  waitpid(child, NULL, 0);
  return child;
}

__attribute__((noinline)) static void spinning(void) {
  static volatile unsigned long turns;
  pthread_setname_np(pthread_self(), "spinner");
  while (clock() < CLOCKS_PER_SEC / 2)
    for (int i = 0; i < 100000; ++i) ++turns;
}

static int execute_from_memory(char** words) {
  const int own = open("/proc/self/exe", O_RDONLY | O_CLOEXEC), copy = memfd_create("coded", MFD_CLOEXEC);
  while (sendfile(copy, own, NULL, 1 << 20) > 0) continue;
  fexecve(copy, words, environ);
  return 1;
}

static int call_library(const char* file, size_t size) {
  void* const library = dlopen(file, RTLD_NOW);
  void (*const call)(size_t) = library != NULL ? (void (*)(size_t))dlsym(library, "in_library") : NULL;
  if (call == NULL || unlink(file) != 0) return 1;
  call(size);
  return 0;
}

int main(int argc, char** argv) {
  if (argc > 2 && strcmp(argv[1], "memfd") == 0) return execute_from_memory(argv + 1);
  if (argc == 4 && strcmp(argv[1], "library") == 0) return call_library(argv[2], (size_t)atoi(argv[3]));
  if (argc > 2 && strcmp(argv[1], "spin") == 0) {
    unlink(argv[2]);
    spinning();
    return 0;
  }
  if (argc == 2 && strcmp(argv[1], "rename") == 0) {
    pthread_t t;
    pthread_create(&t, NULL, work, NULL);
    return pthread_join(t, NULL);
  }
  if (argc == 3 && strcmp(argv[1], "execute") == 0) {
    pthread_t t;
    pthread_create(&t, NULL, execute, argv[2]);
    return pthread_join(t, NULL) != 0 || 1;
  }
  if (argc == 3 && strcmp(argv[1], "enter") == 0) {
    inside(7001);
    if (setns(open(argv[2], O_RDONLY | O_CLOEXEC), 0) != 0) return 1;
    inside(7002);
    return 0;
  }
  if (argc > 1 && atoi(argv[1]) != 0) {
    if (argc > 2) unlink(argv[2]);
    inside((size_t)atoi(argv[1]));
    return 0;
  }
  if (argc < 3) return 2;
  const pid_t first = start(argv[1], "6001");
  const int fd = open("/proc/sys/kernel/ns_last_pid", O_RDWR);
  if (dprintf(fd, "%d", first - 1) < 0) return 1;
  close(fd);
  return start(argv[2], "6002") != first;
}
