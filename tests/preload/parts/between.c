// A library that is preloaded beside the recording one, and has functions of the same names.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

long syscall(long number, ...) {
  va_list rest;
  va_start(rest, number);
  long of[6];
  for (int i = 0; i < 6; ++i) of[i] = va_arg(rest, long);
  va_end(rest);
  if (number == SYS_getppid) return 4242;
  long (*const next)(long, ...) = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
  return next(number, of[0], of[1], of[2], of[3], of[4], of[5]);
}

int prctl(int option, ...) {
  va_list rest;
  va_start(rest, option);
  long of[4];
  for (int i = 0; i < 4; ++i) of[i] = va_arg(rest, long);
  va_end(rest);
  if (option == PR_GET_KEEPCAPS) return 77;
  int (*const next)(int, ...) = (int (*)(int, ...))dlsym(RTLD_NEXT, "prctl");
  return next(option, of[0], of[1], of[2], of[3]);
}

// In assembly, because it returns twice. BETWEEN_FORKS in the environment: a fork.
int between_vforks = 0;
__attribute__((visibility("hidden"), used)) void* between_next_vfork;
__attribute__((constructor)) static void find(void) {
  between_next_vfork = getenv("BETWEEN_FORKS") != NULL ? dlsym(RTLD_NEXT, "fork") : dlsym(RTLD_NEXT, "vfork");
}
#if defined(__x86_64__)
__asm__(
    ".pushsection .text\n.globl vfork\n.type vfork, @function\nvfork: movq between_vforks@GOTPCREL(%rip), %rax\n"
    "incl (%rax)\njmp *between_next_vfork(%rip)\n.size vfork, . - vfork\n.popsection");
#elif defined(__aarch64__)
__asm__(
    ".pushsection .text\n.globl vfork\n.type vfork, @function\nvfork: adrp x16, :got:between_vforks\n"
    "ldr x16, [x16, :got_lo12:between_vforks]\nldr w17, [x16]\nadd w17, w17, #1\nstr w17, [x16]\n"
    "adrp x16, between_next_vfork\nldr x16, [x16, :lo12:between_next_vfork]\nbr x16\n.size vfork, . - vfork\n.popsection");
#endif

int mlockall(int flags) {
  (void)flags;
  return 55;
}
