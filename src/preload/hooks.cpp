// Preloaded into an unmodified program by `ringside record --libc LIST -- CMD`: calls the C library, and writes an event about it.
//
// The program must not notice: errno is kept, an event that cannot be written is not, and calls that come from within the hooks
// (the dynamic linker's, the ring's own) go straight through. Safe in signal handlers, before main, after a thread's destructors.
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <time.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "preload/events.hpp"

namespace {

using ringside::u64;

// How deep this thread is in hooks. Static TLS: the first touch must not allocate.
[[gnu::tls_model("initial-exec")]] constinit thread_local int depth = 0;

struct Groups {
  bool malloc, io, mutex;
};
constinit Groups groups{};

// In front of every ordinary constructor: from here on the hooks record.
[[gnu::constructor(101)]] void choose_groups() {
  const char* list = getenv("RINGSIDE_LIBC");
  if (list == nullptr) return;
  groups = {strstr(list, "malloc") != nullptr, strstr(list, "io") != nullptr, strstr(list, "mutex") != nullptr};
}

template <class F>
F next(const char* name) noexcept {
  ++depth;
  F f = reinterpret_cast<F>(dlsym(RTLD_NEXT, name));
  --depth;
  return f;
}

// The next definition of a function, looked up once.
#define NEXT(name)                                                                                  \
  ([]() noexcept {                                                                                  \
    static constinit decltype(&::name) found = nullptr;                                             \
    decltype(&::name) f = __atomic_load_n(&found, __ATOMIC_RELAXED);                                \
    if (f == nullptr) [[unlikely]] {                                                                \
      f = next<decltype(&::name)>(#name);                                                           \
      __atomic_store_n(&found, f, __ATOMIC_RELAXED);                                                \
    }                                                                                               \
    return f;                                                                                       \
  }())

u64 now_ns() noexcept {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<u64>(t.tv_sec) * 1000000000 + static_cast<u64>(t.tv_nsec);
}

// One hooked call: `wanted` says whether it is the outermost and its group is on.
class Call {
 public:
  explicit Call(bool group) noexcept : wanted_(group && depth == 0), errno_(errno) { ++depth; }
  ~Call() { --depth; }
  bool wanted() const noexcept { return wanted_; }
  void start() noexcept {
    if (wanted_) began_ = now_ns();
  }
  u64 lasted() const noexcept { return now_ns() - began_; }

  // Writes the event and puts errno back to what the call itself left.
  template <class Event, class... A>
  void done(const Event& event, A... a) noexcept {
    const int left = errno;
    event(a...);
    errno = left;
  }

 private:
  bool wanted_;
  int errno_;
  u64 began_ = 0;
};

// What dlsym itself allocates before the C library's malloc is known. Never given back.
alignas(16) constinit char early[65536];
constinit size_t early_used = 0;

void* early_alloc(size_t size) noexcept {
  const size_t need = (size + 31) & ~size_t{15};
  const size_t at = __atomic_fetch_add(&early_used, need, __ATOMIC_RELAXED);
  if (at + need > sizeof early) return nullptr;
  memcpy(early + at, &size, sizeof size);
  return early + at + 16;
}
bool is_early(const void* p) noexcept { return p >= early && p < early + sizeof early; }
size_t early_size(const void* p) noexcept {
  size_t size;
  memcpy(&size, static_cast<const char*>(p) - 16, sizeof size);
  return size;
}

// True while the C library's allocator is being looked up by this very thread.
[[gnu::tls_model("initial-exec")]] constinit thread_local bool looking = false;

template <class F>
F allocator(F* found, const char* name) noexcept {
  F f = __atomic_load_n(found, __ATOMIC_RELAXED);
  if (f != nullptr || looking) return f;
  looking = true;
  f = next<F>(name);
  looking = false;
  __atomic_store_n(found, f, __ATOMIC_RELAXED);
  return f;
}
constinit decltype(&::malloc) real_malloc = nullptr;
constinit decltype(&::calloc) real_calloc = nullptr;
constinit decltype(&::realloc) real_realloc = nullptr;
constinit decltype(&::free) real_free = nullptr;

u64 number(const void* p) noexcept { return reinterpret_cast<u64>(p); }

}  // namespace

#define HOOK extern "C" [[gnu::visibility("default")]]

HOOK void* malloc(size_t size) {
  const auto real = allocator(&real_malloc, "malloc");
  if (real == nullptr) return early_alloc(size);
  Call call(groups.malloc);
  if (!call.wanted()) return real(size);
  call.start();
  void* const p = real(size);
  call.done(libc::malloc, u64{size}, number(p), call.lasted());
  return p;
}

HOOK void* calloc(size_t n, size_t size) {
  const auto real = allocator(&real_calloc, "calloc");
  if (real == nullptr) {
    size_t bytes;
    return __builtin_mul_overflow(n, size, &bytes) ? nullptr : early_alloc(bytes);  // still zero: never given back
  }
  Call call(groups.malloc);
  if (!call.wanted()) return real(n, size);
  call.start();
  void* const p = real(n, size);
  call.done(libc::calloc, u64{n}, u64{size}, number(p), call.lasted());
  return p;
}

HOOK void* realloc(void* old, size_t size) {
  const auto real = allocator(&real_realloc, "realloc");
  if (real == nullptr || is_early(old)) {
    void* const p = real == nullptr ? early_alloc(size) : malloc(size);
    if (p != nullptr && old != nullptr) memcpy(p, old, early_size(old) < size ? early_size(old) : size);
    return p;
  }
  Call call(groups.malloc);
  if (!call.wanted()) return real(old, size);
  const u64 before = number(old);
  call.start();
  void* const p = real(old, size);
  call.done(libc::realloc, before, u64{size}, number(p), call.lasted());
  return p;
}

HOOK void free(void* p) {
  if (p == nullptr || is_early(p)) return;
  const auto real = allocator(&real_free, "free");
  if (real == nullptr) return;
  Call call(groups.malloc);
  if (call.wanted()) call.done(libc::free, number(p));  // before: afterwards the address may be somebody else's
  real(p);
}

HOOK ssize_t read(int fd, void* to, size_t count) {
  Call call(groups.io);
  const auto real = NEXT(read);
  if (!call.wanted()) return real(fd, to, count);
  call.start();
  const ssize_t n = real(fd, to, count);
  call.done(libc::read, fd, u64{count}, ringside::i64{n}, call.lasted());
  return n;
}

HOOK ssize_t write(int fd, const void* from, size_t count) {
  Call call(groups.io);
  const auto real = NEXT(write);
  if (!call.wanted()) return real(fd, from, count);
  call.start();
  const ssize_t n = real(fd, from, count);
  call.done(libc::write, fd, u64{count}, ringside::i64{n}, call.lasted());
  return n;
}

HOOK int close(int fd) {
  Call call(groups.io);
  const auto real = NEXT(close);
  const int r = real(fd);
  if (call.wanted()) call.done(libc::close, fd, r);
  return r;
}

namespace {

// open and its kin: the mode is there only for flags that need it.
template <class Real>
int opened(const char* path, int flags, Real real) noexcept {
  Call call(groups.io);
  call.start();
  const int fd = real();
  if (call.wanted()) call.done(libc::open, path, flags, fd, call.lasted());
  return fd;
}
bool needs_mode(int flags) noexcept { return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE; }

}  // namespace

#define MODE_OF(flags)                          \
  mode_t mode = 0;                              \
  if (needs_mode(flags)) {                      \
    va_list rest;                               \
    va_start(rest, flags);                      \
    mode = va_arg(rest, mode_t);                \
    va_end(rest);                               \
  }

HOOK int open(const char* path, int flags, ...) {
  MODE_OF(flags)
  return opened(path, flags, [&] { return NEXT(open)(path, flags, mode); });
}
HOOK int open64(const char* path, int flags, ...) {
  MODE_OF(flags)
  return opened(path, flags, [&] { return NEXT(open64)(path, flags, mode); });
}
HOOK int openat(int dir, const char* path, int flags, ...) {
  MODE_OF(flags)
  return opened(path, flags, [&] { return NEXT(openat)(dir, path, flags, mode); });
}
HOOK int openat64(int dir, const char* path, int flags, ...) {
  MODE_OF(flags)
  return opened(path, flags, [&] { return NEXT(openat64)(dir, path, flags, mode); });
}

HOOK int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  Call call(groups.mutex);
  const auto real = NEXT(pthread_mutex_lock);
  if (!call.wanted()) return real(mutex);
  const u64 address = number(mutex);
  call.start();
  const int r = real(mutex);
  call.done(libc::mutex_lock, address, call.lasted());
  return r;
}
