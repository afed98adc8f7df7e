// Preloaded: a kernel whose pages have PAGES_SHIM bytes, as far as the C library's calls show it. Mappings begin at such pages
// and fill them; an address or an offset inside of one is EINVAL, as that kernel says. Calls of the C library's own, and system
// calls, pass by.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { small = 4096 };

static size_t page(void) {
  const char* text = getenv("PAGES_SHIM");
  const size_t value = text != NULL ? strtoul(text, NULL, 10) : 0;
  return value > small ? value : small;
}
static size_t whole(size_t size, size_t unit) { return (size + unit - 1) / unit * unit; }
static int wrong(const void* at) {
  if ((uintptr_t)at % page() == 0) return 0;
  errno = EINVAL;
  return 1;
}

long sysconf(int name) {
  if (name == _SC_PAGESIZE) return (long)page();
  static long (*next)(int);
  if (next == NULL) *(void**)&next = dlsym(RTLD_NEXT, "sysconf");
  return next(name);
}

void* mmap(void* at, size_t size, int protection, int flags, int fd, off_t offset) {
  const size_t unit = page(), bytes = whole(size, unit);
  const int fixed = (flags & (MAP_FIXED | MAP_FIXED_NOREPLACE)) != 0;
  if ((size_t)offset % unit != 0 || (fixed && wrong(at))) {
    errno = EINVAL;
    return MAP_FAILED;
  }
  if (!fixed) {
    char* const room =
        (char*)syscall(SYS_mmap, NULL, bytes + unit, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, (off_t)0);
    if (room == MAP_FAILED) return MAP_FAILED;
    at = (char*)whole((size_t)(uintptr_t)room, unit);
    const size_t before = (size_t)((char*)at - room);
    if (before != 0) syscall(SYS_munmap, room, before);
    syscall(SYS_munmap, (char*)at + bytes, unit - before);
    flags |= MAP_FIXED;
  }
  // What is mapped of a file ends with it: the rest of its last page is zeros.
  struct stat file;
  if (fd >= 0 && fstat(fd, &file) == 0 && S_ISREG(file.st_mode) && file.st_size > offset && (size_t)(file.st_size - offset) < size)
    size = (size_t)(file.st_size - offset);
  void* const got = (void*)syscall(SYS_mmap, at, fd < 0 ? bytes : size, protection, flags, fd, offset);
  if (got == MAP_FAILED) {
    const int error = errno;
    if (!fixed) syscall(SYS_munmap, at, bytes);
    errno = error;
    return got;
  }
  const size_t mapped = whole(size, small);
  if (fd >= 0 && mapped < bytes)
    syscall(SYS_mmap, (char*)got + mapped, bytes - mapped, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, (off_t)0);
  return got;
}

// Of the whole of a mapping, which may move.
void* mremap(void* at, size_t old, size_t size, int flags, ...) {
  const size_t unit = page(), bytes = whole(size, unit), mapped = whole(size, small);
  if (wrong(at) || flags != MREMAP_MAYMOVE) {
    errno = EINVAL;
    return MAP_FAILED;
  }
  char* const room =
      (char*)syscall(SYS_mmap, NULL, bytes + unit, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, (off_t)0);
  if (room == MAP_FAILED) return MAP_FAILED;
  char* const to = (char*)whole((size_t)(uintptr_t)room, unit);
  const size_t before = (size_t)(to - room);
  if (before != 0) syscall(SYS_munmap, room, before);
  syscall(SYS_munmap, to + bytes, unit - before);
  void* const got = (void*)syscall(SYS_mremap, at, whole(old, unit), mapped, MREMAP_MAYMOVE | MREMAP_FIXED, to);
  if (got != MAP_FAILED && mapped < bytes)
    syscall(SYS_mmap, to + mapped, bytes - mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, (off_t)0);
  return got;
}

int munmap(void* at, size_t size) { return wrong(at) ? -1 : (int)syscall(SYS_munmap, at, whole(size, page())); }
int mprotect(void* at, size_t size, int protection) {
  return wrong(at) ? -1 : (int)syscall(SYS_mprotect, at, whole(size, page()), protection);
}

// MADV_WIPEONFORK is for objects of the program, which the compiler aligns to the largest page of the processor: here 4 KiB.
int madvise(void* at, size_t size, int advice) {
  if (advice != MADV_WIPEONFORK && wrong(at)) return -1;
  return (int)syscall(SYS_madvise, at, advice == MADV_WIPEONFORK ? size : whole(size, page()), advice);
}

int mincore(void* at, size_t size, unsigned char* there) {
  if (wrong(at)) return -1;
  const size_t unit = page();
  for (size_t n = 0; n < whole(size, unit) / unit; ++n) {
    unsigned char some[64];  // of one page
    if (unit / small > sizeof some) abort();
    if (syscall(SYS_mincore, (char*)at + n * unit, unit, some) != 0) return -1;
    there[n] = 0;
    for (size_t k = 0; k < unit / small; ++k) there[n] |= some[k] & 1;
  }
  return 0;
}
