// Signals, forks and clones of each kind. forks WAY COUNT: prints how many bytes it has read. Another process sends SIGUSR1,
// once at each step, a little later each time.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static struct {
  unsigned long reads;
  volatile int signal, over;  // none, wanted or coming; no more are sent
} * shared;
enum { none, wanted, coming };
static int file;
static const char* way;
static sigjmp_buf out;
static volatile sig_atomic_t may_leave;

static void read_one(void) {
  char byte;
  if (pread(file, &byte, 1, 0) != 1) _exit(100);
  __atomic_fetch_add(&shared->reads, 1, __ATOMIC_RELAXED);
}
static void await(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR) _exit(101);
  if (status != 0) _exit(102);
}
static void fork_one(void) {
  const pid_t child = fork();
  if (child == 0) {
    read_one();
    _exit(0);
  }
  await(child);
}
static void on_signal(int number) {
  (void)number;
  const int before = errno;
  read_one();
  if (strcmp(way, "nest") == 0) fork_one();
  errno = before;
  if (may_leave) {
    may_leave = 0;
    siglongjmp(out, 1);
  }
}
static void send_signals(pid_t to) {
  for (unsigned step = 0; !shared->over; ++step) {
    while (shared->signal != wanted && !shared->over)
      if (getppid() != to) return;
    shared->signal = coming;
    for (volatile unsigned i = 0; i < step % 64 * 1000; ++i) {
    }
    if (!shared->over) kill(to, SIGUSR1);
    shared->signal = none;
  }
}

static int read_many(void* unused) {
  (void)unused;
  for (int i = 0; i < 100; ++i) read_one();
  return 0;
}
static _Alignas(16) char stack[64 << 10];
static void fork_and_leave(void) {
  if (sigsetjmp(out, 1) == 0) {
    may_leave = 1;
    if (fork() == 0) _exit(0);
    may_leave = 0;
  }
  while (waitpid(-1, NULL, WNOHANG) > 0) {
  }
}
static void clone_one(int flags) {
  await(clone(read_many, stack + sizeof stack, flags | SIGCHLD, NULL));
  read_many(NULL);
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  way = argv[1];
  file = open("/proc/self/exe", O_RDONLY);
  shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  const pid_t self = getpid(), sender = strncmp(way, "clone", 5) != 0 ? fork() : -1;
  if (sender == 0) {
    send_signals(self);
    _exit(0);
  }
  const struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
  sigaction(SIGUSR1, &action, NULL);
  for (int i = 0; i < atoi(argv[2]); ++i) {
    if (sender > 0) shared->signal = wanted;
    while (shared->signal == wanted) usleep(10);
    if (strcmp(way, "fork") == 0 || strcmp(way, "nest") == 0) {
      fork_one();
    } else if (strcmp(way, "mlockall") == 0) {
      if (mlockall(MCL_CURRENT | MCL_ONFAULT) == 0) munlockall();
    } else if (strcmp(way, "jump") == 0) {
      fork_and_leave();
    } else if (strcmp(way, "clone-vfork") == 0) {
      clone_one(CLONE_VM | CLONE_VFORK);
    } else if (strcmp(way, "clone-vm") == 0) {
      clone_one(CLONE_VM);
    } else if (strcmp(way, "clone") == 0) {
      clone_one(0);
      const pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
      if (child == 0) _exit(read_many(NULL));
      await(child);
    } else if (strcmp(way, "clone-number") == 0) {  // the kernel refuses this combination
      if (syscall(SYS_clone, CLONE_VM | CLONE_THREAD, 0, 0, 0, 0) != -1 || errno != EINVAL) return 3;
    } else {
      return 2;
    }
    while (shared->signal != none) usleep(10);
    read_one();
  }
  signal(SIGUSR1, SIG_IGN);
  shared->over = 1;
  if (sender > 0) await(sender);
  while (waitpid(-1, NULL, 0) > 0 || errno == EINTR) {
  }
  printf("%lu\n", shared->reads);
  return 0;
}
