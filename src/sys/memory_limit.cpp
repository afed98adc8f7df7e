// Control groups, versions 1 and 2: Documentation/admin-guide/cgroup-v1/memory.rst and cgroup-v2.rst of the kernel.
#include "sys/memory_limit.hpp"

#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

#include "sys/side_stack.hpp"
#include "sys/signals_off.hpp"
#include "sys/sys.hpp"

namespace ringside::sys {
namespace {

struct Names {
  const char *root, *limit, *use, *inactive, *active;
};
constexpr Names versions[] = {
    {"/sys/fs/cgroup", "/memory.max", "/memory.current", "inactive_file", "active_file"},
    {"/sys/fs/cgroup/memory", "/memory.limit_in_bytes", "/memory.usage_in_bytes", "total_inactive_file", "total_active_file"},
};
constexpr u64 no_limit = u64{1} << 60;  // version 1 shows a number near 2^63

struct Level {
  const Names* names = nullptr;
  char folder[400] = {};
};
constexpr u32 most_levels = 8;
constinit Level levels[most_levels];
constinit std::atomic<u32> nr_levels{0};
constinit std::atomic<u32> looked_as{0};  // the effective user then
// The process (this_process) that has begun to look, and the one that has looked: a fork's child looks again.
constinit std::atomic<u64> looking{0}, looked{0};
constinit std::atomic<const int*> looker{nullptr};  // the thread that looks: its errno, which a child of vfork has, too

// Asking takes some 30 us, and each refused event asks.
constinit std::atomic<u64> full_at{0};  // CLOCK_MONOTONIC_COARSE
constexpr u64 ask_again_ns = 10'000'000;

// Bare system calls: this runs in the middle of an event, whose thread must not be cancelled here, and the C library's
// functions may be hooks that write events themselves.
bool read_file(const char* folder, const char* name, char* out, size_t size) noexcept {
  char path[sizeof Level::folder + 32];
  std::strcpy(stpcpy(path, folder), name);
  const long fd = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
  if (fd < 0) return false;
  size_t have = 0;
  for (long n; have < size - 1 && ((n = syscall(SYS_read, fd, out + have, size - 1 - have)) > 0 || (n < 0 && errno == EINTR));)
    if (n > 0) have += static_cast<size_t>(n);
  syscall(SYS_close, fd);
  out[have] = 0;
  return have != 0;
}

enum class Found { number, none, unreadable };  // none: "max", or the group is gone

Found number_in(const Level& level, const char* name, u64& value) noexcept {
  char text[32];
  if (!read_file(level.folder, name, text, sizeof text))
    return errno == ENOENT || errno == ENODEV ? Found::none : Found::unreadable;
  char* end;
  value = std::strtoull(text, &end, 10);
  return end != text ? Found::number : Found::none;
}

// The folder of the process's own cgroup, then those around it up to the root.
void look_at_levels(const Names& names, const char* path, size_t length) noexcept {
  const size_t root = std::strlen(names.root);
  if (root + length >= sizeof Level::folder) return;
  Level level{&names, {}};
  std::memcpy(stpcpy(level.folder, names.root), path, length);
  if (syscall(SYS_faccessat, AT_FDCWD, level.folder, F_OK) != 0)
    level.folder[root] = 0;  // the path is of another namespace: the mounted group is the container's
  for (u32 count = nr_levels.load(std::memory_order_relaxed); count < most_levels;) {
    u64 limit = 0;
    if (number_in(level, names.limit, limit) == Found::number && limit < no_limit)
      levels[count] = level, nr_levels.store(++count, std::memory_order_relaxed);
    char* const last = std::strrchr(level.folder, '/');
    if (last < level.folder + root) return;
    *last = 0;
  }
}

void read_limits() noexcept {
  char text[4096];
  if (!read_file("/proc/self", "/cgroup", text, sizeof text)) return;
  for (const char* line = text; *line != 0;) {  // "HIERARCHY:CONTROLLERS:PATH"
    const size_t length = std::strcspn(line, "\n");
    const char* const first = static_cast<const char*>(std::memchr(line, ':', length));
    const char* const second =
        first == nullptr
            ? nullptr
            : static_cast<const char*>(std::memchr(first + 1, ':', length - static_cast<size_t>(first + 1 - line)));
    if (second != nullptr) {
      const auto rest = static_cast<size_t>(line + length - (second + 1));
      const bool unified = second == first + 1, memory = second - first == 7 && std::memcmp(first + 1, "memory", 6) == 0;
      if (unified || memory) look_at_levels(versions[memory ? 1 : 0], second + 1, rest);
    }
    line += length + (line[length] != 0);
  }
}

bool room_in(const Level& level, u64 size) noexcept {
  u64 limit = 0, use = 0;
  const Found limited = number_in(level, level.names->limit, limit);
  if (limited == Found::unreadable) return false;  // too few descriptors, for example: there is a limit, at an unknown distance
  if (limited == Found::none || limit >= no_limit) return true;
  if (const Found used = number_in(level, level.names->use, use); used != Found::number) return used == Found::none;
  const u64 wanted = size + limit / 16;
  if (use + wanted <= limit) return true;
  char text[4096];
  if (!read_file(level.folder, "/memory.stat", text, sizeof text)) return false;
  const u64 cache = number_behind(text, level.names->inactive) + number_behind(text, level.names->active);
  return use - (cache < use ? cache : use) + wanted <= limit;
}

// False: there is no stack to look on.
bool look() noexcept {
  const u64 own = this_process();
  u64 before = looking.load(std::memory_order_relaxed);
  if (before == own || !looking.compare_exchange_strong(before, own, std::memory_order_acquire)) return true;
  looker.store(&errno, std::memory_order_relaxed);
  const auto read = [own]() noexcept {
    nr_levels.store(0, std::memory_order_relaxed);
    looked_as.store(geteuid(), std::memory_order_relaxed);
    read_limits();
    looked.store(own, std::memory_order_release);
  };
  const SignalsOff off;
  const bool done = on_side_stack(read);
  looker.store(nullptr, std::memory_order_relaxed);
  if (!done) looking.store(0, std::memory_order_relaxed);
  return done;
}

}  // namespace

u64 number_behind(const char* text, const char* name) noexcept {
  const size_t length = std::strlen(name);
  for (const char* line = text; *line != 0;) {
    if (std::strncmp(line, name, length) == 0 && line[length] == ' ') return std::strtoull(line + length, nullptr, 10);
    line += std::strcspn(line, "\n");
    line += *line == '\n';
  }
  return 0;
}

void look_again_after_vfork() noexcept {
  if (looker.load(std::memory_order_relaxed) != &errno) return;
  looker.store(nullptr, std::memory_order_relaxed);
  looking.store(0, std::memory_order_relaxed);
}

bool same_user() noexcept { return geteuid() == looked_as.load(std::memory_order_relaxed); }

bool memory_is_limited() noexcept {
  if (looked.load(std::memory_order_acquire) != this_process()) {
    const int saved = errno;
    const bool can_tell = look();
    errno = saved;
    if (!can_tell) return true;
    // Another thread is looking, or this is a handler that interrupted it.
    if (looked.load(std::memory_order_acquire) != this_process()) return false;
  }
  return nr_levels.load(std::memory_order_relaxed) != 0;
}

bool memory_left(u64 size) noexcept {
  if (!memory_is_limited()) return true;
  const int saved = errno;
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  const u64 ns = static_cast<u64>(now.tv_sec) * 1'000'000'000 + static_cast<u64>(now.tv_nsec);
  bool room = ns - full_at.load(std::memory_order_relaxed) >= ask_again_ns;
  for (u32 n = 0; n < nr_levels.load(std::memory_order_relaxed) && room; ++n)
    if (room = room_in(levels[n], size); !room) full_at.store(ns, std::memory_order_relaxed);
  errno = saved;
  return room;
}

}  // namespace ringside::sys
