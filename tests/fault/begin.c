// Preloaded: tells the supervisor (supervisor.hpp) that a program's loader is done. What fails before is no call of ringside's.
#define _GNU_SOURCE
#include <unistd.h>

__attribute__((constructor)) static void begin(void) { syscall(5000); }
