// A program that knows nothing of ringside, under what it limits itself to. limited WAY [COUNT]; its exit code: 0, or what
// failed.
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

static long kib(const char* file, const char* name) {
  char line[256];
  long found = -1;
  FILE* const from = fopen(file, "r");
  while (from != NULL && fgets(line, sizeof line, from) != NULL)
    if (strncmp(line, name, strlen(name)) == 0) found = atol(line + strlen(name));
  if (from != NULL) fclose(from);
  return found;
}

#define ALLOW(number) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static int confine(const char* way) {
  struct sock_filter filter[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
                                 ALLOW(SYS_read),
                                 ALLOW(SYS_write),
                                 ALLOW(SYS_exit),
                                 ALLOW(SYS_rt_sigreturn),
                                 BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)};
  const struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
  // Questions that programs ask, and that confine nothing.
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL) != -1 || syscall(SYS_seccomp, SECCOMP_SET_MODE_STRICT, 1, NULL) != -1)
    return 0;
  if (strcmp(way, "strict") == 0) return prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) == 0;
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0;
}

static void* allocate(void* unused) {
  for (int i = 0; i < 100; ++i) {
    void* volatile some = malloc(1234);
    free(some);
  }
  return unused;
}

static pthread_mutex_t all_started = PTHREAD_MUTEX_INITIALIZER;
static void* wait_and_allocate(void* unused) {
  pthread_mutex_lock(&all_started);
  pthread_mutex_unlock(&all_started);
  return allocate(unused);
}

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  mallopt(M_ARENA_MAX, 1);  // another arena takes 128 MiB of addresses, if they are there
  const int count = argc > 2 ? atoi(argv[2]) : 0;
  if (strcmp(argv[1], "mlockall") == 0) {  // prints what is locked, in KiB
    const struct rlimit some = {8192 << 10, 8192 << 10};
    if (setrlimit(RLIMIT_MEMLOCK, &some) != 0 || (count != 0 && setuid((uid_t)count) != 0)) return 3;
    if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0) return 4;
    allocate(NULL);
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 << 10);
    pthread_t thread;
    if (pthread_create(&thread, &small, allocate, NULL) != 0) return 5;
    pthread_join(thread, NULL);
    printf("%ld %ld\n", kib("/proc/self/status", "VmLck:"), kib("/proc/self/status", "RssShmem:"));
    return 0;
  }
  if (strcmp(argv[1], "threads") == 0) {  // prints how many of COUNT start, and the program's addresses, in KiB
    const struct rlimit some = {300 << 20, 300 << 20};
    pthread_t* const threads = calloc((size_t)count, sizeof *threads);
    int started = 0;
    if (setrlimit(RLIMIT_AS, &some) != 0) return 3;
    pthread_mutex_lock(&all_started);
    while (started < count && pthread_create(&threads[started], NULL, wait_and_allocate, NULL) == 0) ++started;
    const long addresses = kib("/proc/self/status", "VmSize:");
    pthread_mutex_unlock(&all_started);
    for (int i = 0; i < started; ++i) pthread_join(threads[i], NULL);
    printf("%d %ld\n", started, addresses);
    return 0;
  }
  if (strcmp(argv[1], "strict") == 0 || strcmp(argv[1], "filter") == 0) {  // COUNT bytes through a pipe, before and behind
    int ends[2];
    char byte = 0;
    if (pipe(ends) != 0) return 3;
    for (int i = 0; i < 2 * count; ++i) {
      if (i == count && !confine(argv[1])) return 77;
      if (write(ends[1], &byte, 1) != 1 || read(ends[0], &byte, 1) != 1) return 4;
    }
    if (write(1, "done\n", 5) != 5) return 5;
    syscall(SYS_exit, 0);
  }
  if (strcmp(argv[1], "strict") == 0 || strcmp(argv[1], "filter") == 0) {  // COUNT bytes through a pipe, before and behind
    int ends[2];
    char byte = 0;
    if (pipe(ends) != 0) return 3;
    for (int i = 0; i < 2 * count; ++i) {
      if (i == count && !confine(argv[1])) return 77;
      if (write(ends[1], &byte, 1) != 1 || read(ends[0], &byte, 1) != 1) return 4;
    }
    if (write(1, "done\n", 5) != 5) return 5;
    syscall(SYS_exit, 0);
  }
  return 2;
}
