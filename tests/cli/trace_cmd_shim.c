// trace-cmd for kernels that refuse the files of the function tracer (EPERM): it gives up, or crashes, though it needs none of
// them for events. Preloaded, these files are /dev/null. trace-cmd 3.1 also measures the kernel's list of names before it copies
// it, and its file is damaged if that grew meanwhile: all that it reads of the list is of one moment.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef int (*opener)(const char*, int, ...);

// A copy of a file: what is read of it later is the same.
static const char* copy_of(const char* path) {
  static char copy[32];
  if (copy[0] != 0) return copy;
  const int from = ((opener)dlsym(RTLD_NEXT, "open"))(path, O_RDONLY | O_CLOEXEC), to = memfd_create("copy", MFD_CLOEXEC);
  if (from < 0 || to < 0) return path;
  char part[4096];
  for (ssize_t n; (n = read(from, part, sizeof part)) > 0;)
    if (write(to, part, (size_t)n) != n) return path;
  close(from);
  snprintf(copy, sizeof copy, "/proc/self/fd/%d", to);
  return copy;
}

static const char* allowed(const char* path) {
  static const char* const refused[] = {"/set_ftrace_filter", "/set_ftrace_notrace", "/set_graph_function",
                                        "/set_graph_notrace", "/set_ftrace_pid",     "/ftrace_enabled"};
  const char* name = strrchr(path, '/');
  for (size_t i = 0; name != NULL && i < sizeof refused / sizeof *refused; ++i)
    if (strcmp(name, refused[i]) == 0) return "/dev/null";
  return name != NULL && strcmp(name, "/saved_cmdlines") == 0 ? copy_of(path) : path;
}

#define OPEN(name)                                          \
  int name(const char* path, int flags, ...) {              \
    va_list rest;                                           \
    va_start(rest, flags);                                  \
    const int mode = (flags & O_CREAT) ? va_arg(rest, int) : 0; \
    va_end(rest);                                           \
    return ((opener)dlsym(RTLD_NEXT, #name))(allowed(path), flags, mode); \
  }
OPEN(open)
OPEN(open64)
OPEN(__open_2)
OPEN(__open64_2)
FILE* fopen(const char* path, const char* mode) {
  return ((FILE * (*)(const char*, const char*)) dlsym(RTLD_NEXT, "fopen"))(allowed(path), mode);
}
FILE* fopen64(const char* path, const char* mode) { return fopen(path, mode); }
