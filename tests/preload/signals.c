// Programs that use signals, or threads, in ways of their own. Each uses CPU time, and says what it saw.
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
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
  long burned_us = 0;
  struct timespec before, now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
  while (burned_us < 150000) {
    for (int i = 0; i < 100000; i++) x += 1;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    const long us = (now.tv_sec - before.tv_sec) * 1000000 + (now.tv_nsec - before.tv_nsec) / 1000;
    burned_us += us < 1000 ? us : 1000;  // what a virtual machine did not give is counted as time, and has no timer's tick
    before = now;
  }
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

static sigset_t only_urgent(void) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGURG);
  return set;
}
static int shown(void) {
  sigset_t now;
  sigprocmask(SIG_SETMASK, NULL, &now);
  return sigismember(&now, SIGURG);
}

// It is taken on purpose, by a signalfd and by sigtimedwait.
static void takes(void) {
  sigset_t set = full(), urgent_only = only_urgent();
  sigdelset(&set, SIGALRM);
  pthread_sigmask(SIG_BLOCK, &set, NULL);
  burn();
  const int fd = signalfd(-1, &urgent_only, SFD_NONBLOCK);
  burn();
  struct signalfd_siginfo one;
  const int none = read(fd, &one, sizeof one) < 0;
  kill(getpid(), SIGURG);
  burn();
  struct pollfd ready = {.fd = fd, .events = POLLIN};
  const int polled = poll(&ready, 1, 0), got = read(fd, &one, sizeof one) == sizeof one && one.ssi_code == SI_USER;
  siginfo_t info;
  const struct timespec at_once = {0, 0};
  const int empty = sigtimedwait(&urgent_only, &info, &at_once);
  raise(SIGURG);
  const int taken = sigtimedwait(&urgent_only, &info, &at_once) == SIGURG;
  raise(SIGURG);
  int waited = 0;
  sigwait(&urgent_only, &waited);
  const sigset_t* volatile nowhere = (const sigset_t*)8;
  const int fault = sigtimedwait(nowhere, &info, &at_once) < 0 && errno == EFAULT && signalfd(-1, nowhere, 0) < 0;
  printf("%d %d %d %d %d %d %d %d\n", none, polled, got, empty, taken, waited, fault, shown());
}

// Another thread blocks it before there is a handler.
static volatile int step;
static void* blocks_early(void* none) {
  sigset_t set = full();
  pthread_sigmask(SIG_BLOCK, &set, NULL);
  step = 1;
  while (step != 2) usleep(1000);
  burn();
  const int before = urgent, pending_shown = shown();
  pthread_sigmask(SIG_UNBLOCK, &set, NULL);
  printf("%d %d %d\n", before, pending_shown, urgent);
  return none;
}
static void later(void) {
  pthread_t thread;
  pthread_create(&thread, NULL, blocks_early, NULL);
  while (step != 1) usleep(1000);
  const struct sigaction action = {.sa_handler = on_urgent};
  sigaction(SIGURG, &action, NULL);
  pthread_kill(thread, SIGURG);
  step = 2;
  pthread_join(thread, NULL);
}

// Masks that come back past sigprocmask.
static sigjmp_buf place;
static void keeps_mask(int number) {
  sigset_t none, old;
  sigemptyset(&none);
  pthread_sigmask(SIG_BLOCK, &none, &old);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  printf("%d %d\n", number, shown());
}
static void jumps(void) {
  sigset_t set = full(), urgent_only = only_urgent();
  burn();
  if (sigsetjmp(place, 1) == 0) {
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    printf("%d\n", shown());
    siglongjmp(place, 1);
  }
  printf("%d\n", shown());
  pthread_sigmask(SIG_BLOCK, &set, NULL);
  if (sigsetjmp(place, 1) == 0) {
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    printf("%d\n", shown());
    siglongjmp(place, 1);
  }
  printf("%d\n", shown());
  pthread_sigmask(SIG_UNBLOCK, &set, NULL);
  if (sigsetjmp(place, 1) == 0) {
    pthread_sigmask(SIG_BLOCK, &urgent_only, NULL);
    printf("%d\n", shown());
    siglongjmp(place, 1);
  }
  printf("%d\n", shown());
  const struct sigaction action = {.sa_handler = keeps_mask, .sa_mask = set};
  sigaction(SIGUSR1, &action, NULL);
  raise(SIGUSR1);
  printf("%d\n", shown());
  signal(SIGURG, on_urgent);
  raise(SIGURG);
  printf("%d\n", urgent);
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
  const stack_t none = {.ss_flags = SS_DISABLE};
  sigaltstack(&none, NULL);
  burn();
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
  alarm(300);  // a signal that is lost must not be waited for
  if (strcmp(which, "waits") == 0) waits();
  if (strcmp(which, "handles") == 0) handles();
  if (strcmp(which, "installs") == 0) installs();
  if (strcmp(which, "c11") == 0) c11();
  if (strcmp(which, "coroutine") == 0) coroutines(4096, 65536);
  if (strcmp(which, "small") == 0) coroutines(65536, 5120);
  if (strcmp(which, "usual") == 0) coroutines(65536, 8192);
  if (strcmp(which, "tiny") == 0) coroutines(65536, 2048);
  if (strcmp(which, "takes") == 0) takes();
  if (strcmp(which, "later") == 0) later();
  if (strcmp(which, "jumps") == 0) jumps();
  if (strcmp(which, "limited") == 0) limited();
  if (strcmp(which, "blocks") == 0) blocks();
  return 0;
}
