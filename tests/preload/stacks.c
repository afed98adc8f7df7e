// Allocates in places whose calls are known: prints for each allocation its size and the return addresses that the C library's
// backtrace() finds there. The innermost one differs, because it is another call of the same function.
//   stacks CALLER_NEAR CALLER_FAR
#define _GNU_SOURCE
#include <alloca.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

static void* volatile kept;
static char text[1 << 16];
static size_t used;

static void note(size_t size, void* const* frame, int n) {
  used += (size_t)snprintf(text + used, sizeof text - used, "%zu", size);
  for (int i = 1; i < n; ++i)
    used += (size_t)snprintf(text + used, sizeof text - used, " %lu", (unsigned long)(uintptr_t)frame[i]);
  used += (size_t)snprintf(text + used, sizeof text - used, "\n");
}
static void flush(void) {
  if (write(1, text, used) < 0) abort();
  used = 0;
}

__attribute__((noinline)) static int here(int size) {
  void* frame[300];
  kept = malloc((size_t)size);
  const int n = backtrace(frame, 300);
  note((size_t)size, frame, n);
  free(kept);
  return n;
}
__attribute__((noinline)) static int deep(int depth, int size) {
  const int n = depth == 0 ? here(size) : deep(depth - 1, size);
  __asm__ volatile("");
  return n;
}
__attribute__((noinline)) static int roomy(int bytes, int size) {  // finds its frame by the frame pointer
  char* const room = alloca((size_t)bytes);
  memset(room, 1, (size_t)bytes);
  const int n = here(size);
  __asm__ volatile("" ::"r"(room));
  return n;
}
__attribute__((noinline)) static int aligned(int size) {  // realigns its stack
  volatile _Alignas(128) char room[256];
  memset((char*)room, 2, sizeof room);
  return here(size) + room[5];
}
static int compare(const void* a, const void* b) {
  here(5002);
  return *(const int*)a - *(const int*)b;
}
static void* in_thread(void* size) {
  deep(4, (int)(intptr_t)size);
  return NULL;
}
static int in_handler = 0;
static void handler(int number) {
  (void)number;
  here(in_handler);
}
static void leave(int number, int on) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = handler;
  action.sa_flags = on;
  sigaction(number, &action, NULL);
  raise(number);
}
static ucontext_t back, fiber;
static void in_fiber(void) { deep(3, 5010); }

int main(int count, char** argument) {
  void* first[1];
  backtrace(first, 1);  // loads what it needs
  here(5000);
  deep(30, 5001);
  int numbers[3] = {3, 1, 2};
  qsort(numbers, 3, sizeof numbers[0], compare);
  for (int i = 0; i < 5; ++i) deep(i, 5003);       // the same callers, other frames inside
  for (int i = 0; i < 5; ++i) roomy(100 + 1000 * i, 5004);
  aligned(5005);
  pthread_t thread;
  pthread_create(&thread, NULL, in_thread, (void*)5006);
  pthread_join(thread, NULL);
  in_handler = 5007;
  leave(SIGUSR1, 0);
  const stack_t alternate = {.ss_sp = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
                             .ss_size = 1 << 16};
  sigaltstack(&alternate, NULL);
  in_handler = 5008;
  leave(SIGUSR2, SA_ONSTACK);
  getcontext(&fiber);
  fiber.uc_stack.ss_size = 1 << 16;
  fiber.uc_stack.ss_sp = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  fiber.uc_link = &back;
  makecontext(&fiber, in_fiber, 0);
  swapcontext(&back, &fiber);
  munmap(fiber.uc_stack.ss_sp, 1 << 16);
  here(5011);
  // Two objects, one after the other, at one place if the kernel likes.
  for (int i = 1; i < count && i < 3; ++i) {
    void* const object = dlopen(argument[i], RTLD_NOW);
    int (*call)(int (*)(int), int) = (int (*)(int (*)(int), int))(uintptr_t)(object != NULL ? dlsym(object, "call") : NULL);
    if (call == NULL) return 3;
    call(here, 5011 + i);
    dlclose(object);
  }
  flush();
  const pid_t child = fork();
  if (child == 0) {
    deep(2, 5020);
    flush();
    _exit(0);
  }
  waitpid(child, NULL, 0);
  if (count != 3) return 0;
  execl("/proc/self/exe", argument[0], argument[1], argument[2], "again", NULL);
  return 4;
}
