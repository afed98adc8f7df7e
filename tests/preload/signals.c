// Programs that use signals, or threads, in ways of their own. Each uses CPU time, and says what it saw.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <threads.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

static volatile unsigned long x;
static volatile sig_atomic_t urgent;
static void on_urgent(int n) { (void)n, ++urgent; }

__attribute__((noinline)) static void burn(void) {
  struct timespec begin, now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
  do {
    for (int i = 0; i < 100000; i++) x += 1;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  } while ((now.tv_sec - begin.tv_sec) * 1000 + (now.tv_nsec - begin.tv_nsec) / 1000000 < 150);
}

static sigset_t full(void) {
  sigset_t set;
  sigfillset(&set);
  return set;
}

static void* burn_and_send(void* none) {
  burn();
  kill(getpid(), SIGTERM);
  return none;
}

// All signals are blocked in all threads, and one waits for them.
static void waits(void) {
  sigset_t set = full(), old;
  pthread_sigmask(SIG_BLOCK, &set, NULL);
  burn();
  pthread_t thread;
  pthread_create(&thread, NULL, burn_and_send, NULL);
  int got = 0;
  sigwait(&set, &got);
  pthread_join(thread, NULL);
  kill(getpid(), SIGTERM);
  siginfo_t info;
  const int next = sigwaitinfo(&set, &info);
  sigprocmask(SIG_SETMASK, NULL, &old);
  const int shown = sigismember(&old, SIGURG);
  const int fd = signalfd(-1, &set, SFD_NONBLOCK);
  burn();
  struct signalfd_siginfo read_one;
  const int nothing = read(fd, &read_one, sizeof read_one) < 0;
  sigset_t urg;
  sigemptyset(&urg);
  sigaddset(&urg, SIGURG);
  sigprocmask(SIG_UNBLOCK, &urg, &old);
  const int before = sigismember(&old, SIGURG);
  sigprocmask(SIG_SETMASK, NULL, &old);
  printf("%d %d %d %d %d %d\n", got, next, shown, nothing, before, sigismember(&old, SIGURG));
}

// A handler of its own: blocked means blocked.
static void handles(void) {
  sigset_t set = full();
  pthread_sigmask(SIG_BLOCK, &set, NULL);
  signal(SIGURG, on_urgent);
  raise(SIGURG);
  const int blocked = urgent;
  pthread_sigmask(SIG_UNBLOCK, &set, NULL);
  burn();
  printf("%d %d\n", blocked, urgent);
}

// The older functions that install handlers.
static void installs(void) {
  sigset(SIGURG, on_urgent);
  raise(SIGURG);
  burn();
  sigset(SIGURG, SIG_HOLD);
  raise(SIGURG);
  const int held = urgent, was_held = sigset(SIGURG, on_urgent) == SIG_HOLD;
  sigignore(SIGURG);
  raise(SIGURG);
  burn();
  sysv_signal(SIGURG, on_urgent);
  raise(SIGURG);
  raise(SIGURG);  // the first one took the handler away
  burn();
  printf("%d %d %d\n", held, was_held, urgent);
}

static int c11_thread(void* none) {
  burn();
  return none == NULL ? 7 : 0;
}
static void c11(void) {
  thrd_t thread;
  int result = 0;
  thrd_create(&thread, c11_thread, NULL);
  thrd_join(thread, &result);
  printf("%d\n", result);
}

// A coroutine on a stack of `size` bytes with a guard page in front of it; signals have a stack of `alternate` bytes.
static ucontext_t main_context, coroutine;
static void coroutines(size_t size, size_t alternate) {
  char* const memory = mmap(NULL, 4096 + size + 4096 + alternate, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  mprotect(memory, 4096, PROT_NONE);
  mprotect(memory + 4096 + size, 4096, PROT_NONE);
  const stack_t stack = {.ss_sp = memory + 4096 + size + 4096, .ss_size = alternate};
  if (sigaltstack(&stack, NULL) != 0) exit(77);
  getcontext(&coroutine);
  coroutine.uc_stack.ss_sp = memory + 4096;
  coroutine.uc_stack.ss_size = size;
  coroutine.uc_link = &main_context;
  makecontext(&coroutine, burn, 0);
  swapcontext(&main_context, &coroutine);
  puts("back");
}

static void* burn_only(void* none) {
  burn();
  return none;
}
// No timer for a second thread.
static void limited(void) {
  const struct rlimit none = {0, 0};
  setrlimit(RLIMIT_SIGPENDING, &none);
  pthread_t thread;
  pthread_create(&thread, NULL, burn_only, NULL);
  pthread_join(thread, NULL);
}

// By a system call, past the C library.
static void blocks(void) {
  const unsigned long all = ~0ul;
  syscall(SYS_rt_sigprocmask, SIG_BLOCK, &all, NULL, sizeof all);
  burn();
  burn();
}

int main(int count, char** argument) {
  const char* const which = count > 1 ? argument[1] : "";
  if (strcmp(which, "waits") == 0) waits();
  if (strcmp(which, "handles") == 0) handles();
  if (strcmp(which, "installs") == 0) installs();
  if (strcmp(which, "c11") == 0) c11();
  if (strcmp(which, "coroutine") == 0) coroutines(4096, 65536);
  if (strcmp(which, "small") == 0) coroutines(65536, 5120);
  if (strcmp(which, "limited") == 0) limited();
  if (strcmp(which, "blocks") == 0) blocks();
  return 0;
}
