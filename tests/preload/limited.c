// A program that knows nothing of ringside, under what it limits itself to. limited WAY [COUNT]; its exit code: 0, or what
// failed.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
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
#include <sys/wait.h>
#include <unistd.h>

static int read_from, read_times;
static void* read_all(void* nothing) {
  char byte;
  for (int n = 0; n < read_times; ++n)
    if (pread(read_from, &byte, 1, 0) != 1) _exit(7);
  return nothing;
}

// A child of vfork, and a child of vfork of that; each allocates, and so does the parent.
static int vfork_twice(int n) {
  const pid_t child = vfork();
  if (child == 0) {
    const pid_t grandchild = vfork();
    void* volatile some = malloc(4321);
    free(some);
    if (grandchild == 0) _exit(n);
    int status = 0;
    if (waitpid(grandchild, &status, 0) != grandchild || WEXITSTATUS(status) != n) _exit(200);
    _exit(n + 1);
  }
  int status = 0;
  void* volatile some = malloc(4321);
  free(some);
  return waitpid(child, &status, 0) == child && WEXITSTATUS(status) == n + 1;
}
static int vforks_in_vforks(void) {
  int done = 0;
  while (done < 100 && vfork_twice(done)) ++done;
  return done == 100;
}

static long kib(const char* file, const char* name) {
  char line[256];
  long found = -1;
  FILE* const from = fopen(file, "r");
  while (from != NULL && fgets(line, sizeof line, from) != NULL)
    if (strncmp(line, name, strlen(name)) == 0) found = atol(line + strlen(name));
  if (from != NULL) fclose(from);
  return found;
}

static volatile char blocked = 0;  // syscall user dispatch asks it

#define ALLOW(number) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static int confine(const char* way) {
  struct sock_filter filter[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
                                 ALLOW(SYS_read),
                                 ALLOW(SYS_write),
                                 ALLOW(SYS_exit),
                                 ALLOW(SYS_exit_group),
                                 ALLOW(SYS_rt_sigreturn),
                                 BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)};
  const struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
  // Questions that programs ask, and that confine nothing.
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL) != -1 || syscall(SYS_seccomp, SECCOMP_SET_MODE_STRICT, 1, NULL) != -1)
    return 0;
  if (strcmp(way, "strict") == 0) return prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) == 0;
  if (strcmp(way, "dispatch") == 0) return prctl(59 /* PR_SET_SYSCALL_USER_DISPATCH */, 1, 0, 0, &blocked) == 0;
#if defined(__x86_64__)
  if (strcmp(way, "counter") == 0) return prctl(PR_SET_TSC, PR_TSC_SIGSEGV, 0, 0, 0) == 0;
#endif
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return 0;
  if (strcmp(way, "listener") == 0)
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program) > 0;
  if (strcmp(way, "together") == 0)
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0;
  return strcmp(way, "filter") == 0 && syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0;
}

static void* allocate(void* unused) {
  for (int i = 0; i < 100; ++i) {
    void* volatile some = malloc(1234);
    free(some);
  }
  return unused;
}

// Bytes between a thread, its child of vfork, and the thread that confines both.
static int child_runs[2], is_confined[2], has_ended[2];
static void send_byte(const int* ends) {
  if (write(ends[1], "x", 1) != 1) _exit(6);
}
static void await_byte(const int* ends) {
  char byte;
  if (read(ends[0], &byte, 1) != 1) _exit(7);
}
static void* wait_for_child(void* unused) {
  const pid_t child = vfork();
  if (child == 0) {
    send_byte(child_runs);
    await_byte(is_confined);
    _exit(0);
  }
  if (child < 0) _exit(8);
  allocate(NULL);
  send_byte(has_ended);
  for (;;) await_byte(child_runs);
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
  if (strcmp(argv[1], "strict") == 0 || strcmp(argv[1], "filter") == 0 ||
      strcmp(argv[1], "listener") == 0) {  // COUNT bytes through a pipe, before and behind
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
  if (strcmp(argv[1], "dispatch") == 0 || strcmp(argv[1], "counter") == 0) {  // COUNT allocations, before and behind
    for (int i = 0; i < 2 * count; ++i) {
      if (i == count && !confine(argv[1])) return 77;
      if (i >= count) blocked = 1;
      void* volatile some = malloc(4321);
      free(some);
      blocked = 0;
    }
    if (write(1, "done\n", 5) != 5) return 5;
    _exit(0);
  }
  if (strcmp(argv[1], "descriptors") == 0) {  // may open nothing; a thread, its child and a thread of that read COUNT times
    const struct rlimit none = {0, 0};
    pthread_t thread;
    char byte;
    read_from = open("/proc/self/exe", O_RDONLY);
    read_times = count;
    if (pread(read_from, &byte, 1, 0) != 1 || setrlimit(RLIMIT_NOFILE, &none) != 0) return 4;
    for (int of_child = 0; of_child < 2; ++of_child) {
      if (pthread_create(&thread, NULL, read_all, NULL) != 0 || pthread_join(thread, NULL) != 0) return 5;
      const pid_t child = of_child == 0 ? fork() : -1;
      if (child > 0) return waitpid(child, NULL, 0) == child ? 0 : 6;
    }
    _exit(0);
  }
  if (strcmp(argv[1], "between") == 0) {  // prints the answers of a library that is preloaded, too
    const long parent = syscall(SYS_getppid);
    const int keeps = prctl(PR_GET_KEEPCAPS);
    printf("%ld %d %d\n", parent, keeps, mlockall(MCL_CURRENT));
    fflush(stdout);
    if (!vforks_in_vforks()) return 4;
    const int* const vforks = dlsym(RTLD_DEFAULT, "between_vforks");
    printf("%d\n", vforks != NULL ? *vforks : 0);
    return 0;
  }
  if (strcmp(argv[1], "child") == 0) {  // ten children of vfork read once, confine themselves, and read COUNT times
    char byte;
    const int file = open("/proc/self/exe", O_RDONLY);
    static struct sock_filter filter[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    static const struct sock_fprog program = {1, filter};
    for (int n = 0; n < 10; ++n) {
      const pid_t child = vfork();
      if (child == 0) {
        for (int i = 0; i <= count; ++i) {
          if (pread(file, &byte, 1, 0) != 1) _exit(4);
          if (i == 0 &&
              (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0))
            _exit(77);
        }
        _exit(0);
      }
      int status = 0;
      if (waitpid(child, &status, 0) != child || status != 0) return WEXITSTATUS(status);
      for (int i = 0; i < 100; ++i)
        if (pread(file, &byte, 1, 0) != 1) return 4;
    }
    return 0;
  }
  if (strcmp(argv[1], "together") == 0) {  // a filter for all threads comes while the child of one of them runs
    pthread_t thread;
    if (pipe(child_runs) != 0 || pipe(is_confined) != 0 || pipe(has_ended) != 0) return 3;
    if (pthread_create(&thread, NULL, wait_for_child, NULL) != 0) return 5;
    await_byte(child_runs);
    if (!confine(argv[1])) return 77;
    send_byte(is_confined);
    await_byte(has_ended);
    if (write(1, "done\n", 5) != 5) return 5;
    _exit(0);
  }
  return 2;
}
