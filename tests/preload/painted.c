// Prints how many bytes of its caller's stack each of these calls takes: each is made on a coroutine with a painted stack, as a
// new thread's first call and 3,000 times. Ends by a handler that makes 3,000 calls on an alternate stack of 8 KiB, the classic
// SIGSTKSZ, above a page that faults.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

enum { paint = 0xA5, times = 3000 };
static _Alignas(16) unsigned char stack[64 << 10];
static ucontext_t back, there;
static void (*call_now)(void);
static int times_now;
static unsigned char* caller;
static int null_file;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static void* volatile keep;

static void write_one(void) {
  if (write(null_file, "x", 1) != 1) _exit(1);
}
static void open_one(void) {
  const int fd = open("/dev/null", O_RDONLY);
  if (fd < 0) _exit(1);
  close(fd);
}
static void allocate_one(void) {
  keep = malloc(77);
  free(keep);
}
static void lock_memory(void) {
  if (mlockall(MCL_CURRENT | MCL_ONFAULT) == 0) munlockall();
}
static void lock_one(void) {
  pthread_mutex_lock(&mutex);
  pthread_mutex_unlock(&mutex);
}

static void lock_to_write(void) {
  static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
  pthread_rwlock_wrlock(&lock);
  pthread_rwlock_unlock(&lock);
}
static void post_one(void) {
  static sem_t semaphore;
  sem_post(&semaphore);
  sem_wait(&semaphore);
}

__attribute__((noinline)) static void make_calls(void) {
  caller = __builtin_frame_address(0);
  for (int i = 0; i < times_now; ++i) call_now();
}
static void* measure(void* unused) {
  memset(stack, paint, sizeof stack);
  getcontext(&there);
  there.uc_stack.ss_sp = stack;
  there.uc_stack.ss_size = sizeof stack;
  there.uc_link = &back;
  makecontext(&there, make_calls, 0);
  swapcontext(&back, &there);
  return unused;
}
static long bytes_of(void (*call)(void), int how_often) {
  pthread_t thread;
  call_now = call;
  times_now = how_often;
  if (pthread_create(&thread, NULL, measure, NULL) != 0) _exit(1);
  pthread_join(thread, NULL);
  const unsigned char* low = stack;
  while (*low == paint) ++low;
  return caller - low;
}

static void on_signal(int number) {
  (void)number;
  for (int i = 0; i < times; ++i) write_one();
}

int main(void) {
  static const struct {
    const char* name;
    void (*call)(void);
  } calls[] = {{"write", write_one}, {"open", open_one},        {"malloc", allocate_one}, {"mutex", lock_one},
               {"sem", post_one},    {"rwlock", lock_to_write}, {"mlockall", lock_memory}};
  null_file = open("/dev/null", O_WRONLY);
  for (size_t i = 0; i < sizeof calls / sizeof *calls; ++i) {
    call_now = calls[i].call;
    call_now();  // bound by the linker, at least
    const long first = bytes_of(calls[i].call, 1), later = bytes_of(calls[i].call, times);
    printf("%s %ld\n", calls[i].name, first > later ? first : later);
  }
  fflush(stdout);
  char* const pages = mmap(NULL, 12288, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED || mprotect(pages, 4096, PROT_NONE) != 0) return 1;
  const stack_t alternate = {.ss_sp = pages + 4096, .ss_size = 8192};
  const struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};
  if (sigaltstack(&alternate, NULL) != 0 || sigaction(SIGUSR1, &action, NULL) != 0) return 1;
  raise(SIGUSR1);
  return 0;
}
