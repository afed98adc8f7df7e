#include "sys/sys.hpp"

#include <fcntl.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <mutex>

namespace ringside::sys {
namespace {

// The regions that the SIGBUS handler may mend. A fixed table: a handler can neither lock nor allocate.
struct Guarded {
  std::atomic<u8*> base{nullptr};
  std::atomic<u64> size{0};
  std::atomic<bool> cut{false};
};
Guarded guarded[16384];
std::mutex guarding;
struct sigaction previous;
std::atomic<bool> armed{false};
std::atomic<bool> any_cut{false};

Guarded* find(const u8* at) {
  for (Guarded& g : guarded) {
    u8* const base = g.base.load(std::memory_order_acquire);
    if (base != nullptr && at >= base && at < base + g.size.load(std::memory_order_relaxed)) return &g;
  }
  return nullptr;
}

void on_sigbus(int signal, siginfo_t* info, void* context) {
  auto* const at = static_cast<u8*>(info->si_addr);
  if (Guarded* g = find(at)) {
    g->cut.store(true, std::memory_order_relaxed);
    any_cut.store(true, std::memory_order_relaxed);
    u8* const page = reinterpret_cast<u8*>(reinterpret_cast<uintptr_t>(at) & ~uintptr_t{page_size - 1});
    if (mmap(page, page_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED) return;
  }
  if ((previous.sa_flags & SA_SIGINFO) != 0 && previous.sa_sigaction != nullptr) return previous.sa_sigaction(signal, info, context);
  if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) return previous.sa_handler(signal);
  ::signal(SIGBUS, SIG_DFL);  // the access faults again, and kills
}

}  // namespace

Fd::~Fd() {
  if (fd_ >= 0) ::close(fd_);
}

void guard_mappings() {
  const std::lock_guard lock(guarding);
  if (armed.exchange(true)) return;
  struct sigaction action {};
  action.sa_sigaction = on_sigbus;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigaction(SIGBUS, &action, &previous);
}

result<Region> Region::map(int fd, u64 size, bool writable, const std::string& what, u64 offset) {
  const off_t length = lseek(fd, 0, SEEK_END);
  if (length < 0 && errno != ESPIPE) return fail(errno, "cannot measure " + what);
  if (length >= 0 && (static_cast<u64>(length) < offset || static_cast<u64>(length) - offset < size))
    return refuse(std::errc::invalid_argument, what + " is " + std::to_string(length) + " bytes long, but " + std::to_string(offset + size) +
                                                 " are needed: it was truncated or is no ring of ours");
  void* const at = mmap(nullptr, size, PROT_READ | (writable ? PROT_WRITE : 0), MAP_SHARED, fd, static_cast<off_t>(offset));
  if (at == MAP_FAILED) return fail(errno, "cannot map " + what);
  Region region;
  region.base_ = static_cast<u8*>(at);
  region.size_ = size;
  const std::lock_guard lock(guarding);
  if (armed) {
    for (Guarded& g : guarded) {
      if (g.base.load(std::memory_order_relaxed) != nullptr) continue;
      g.size.store(size, std::memory_order_relaxed);
      g.cut.store(false, std::memory_order_relaxed);
      g.base.store(region.base_, std::memory_order_release);
      break;
    }
  }
  return region;
}

Region::~Region() {
  if (base_ == nullptr) return;
  if (armed) {
    const std::lock_guard lock(guarding);
    if (Guarded* g = find(base_)) g->base.store(nullptr, std::memory_order_release);
  }
  munmap(base_, size_);
}

bool Region::cut() const noexcept {
  const Guarded* g = any_cut.load(std::memory_order_relaxed) ? find(base_) : nullptr;
  return g != nullptr && g->cut.load(std::memory_order_relaxed);
}

std::string boot_id() {
  auto text = read_file("/proc/sys/kernel/random/boot_id");
  return text ? text->substr(0, text->find('\n')) : "";
}

result<Fd> open_regular(const std::string& path) {
  Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat st {};
  if (!fd || fstat(fd.get(), &st) != 0) return fail(errno, "cannot open " + path);
  if (!S_ISREG(st.st_mode)) return refuse(std::errc::invalid_argument, path + " is no regular file");
  return result<Fd>(std::move(fd));
}

result<std::string> read_file(const std::string& path) {
  const auto fd = open_regular(path);
  if (!fd) return tl::unexpected<Error>(fd.error());
  return read_text(fd->get(), path);
}

result<std::string> read_text(int fd, const std::string& path, u64 most) {
  std::string text;
  char buffer[16384];
  for (;;) {
    const ssize_t n = ::read(fd, buffer, sizeof buffer);
    if (n == 0) return text;
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail(errno, "cannot read " + path);
    text.append(buffer, static_cast<size_t>(n));
    if (text.size() > most) return refuse(std::errc::file_too_large, path + " is larger than " + std::to_string(most >> 20) + " MiB");
  }
}

result<void> write_text(int fd, const std::string& path, const std::string& text) {
  struct stat st {};
  if (fstat(fd, &st) == 0 && !may_grow_to(static_cast<u64>(st.st_size) + text.size())) return fail(errno, "cannot write " + path);
  for (size_t at = 0; at < text.size();) {
    const ssize_t n = ::write(fd, text.data() + at, text.size() - at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail(errno, "cannot write " + path);
    at += static_cast<size_t>(n);
  }
  return {};
}

std::vector<std::pair<i32, std::string>> cmdlines_of(const result<std::string>& text) {
  std::vector<std::pair<i32, std::string>> all;
  for (size_t at = 0; text && at < text->size();) {
    const size_t end = std::min(text->find('\n', at), text->size()), space = text->find(' ', at);
    if (space < end) all.emplace_back(std::atoi(text->c_str() + at), text->substr(space + 1, end - space - 1));
    at = end + 1;
  }
  return all;
}

bool may_grow_to(u64 size) noexcept {
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || size <= limit.rlim_cur) return true;
  errno = EFBIG;
  return false;
}

namespace {
// Reads a /proc file of a thread without allocating; answers the length.
ssize_t proc_file(i32 pid, i32 tid, const char* name, char* out, size_t size) noexcept {
  char path[64];
  const auto number = [](char* at, u32 value) {
    char digits[12];
    int n = 0;
    do digits[n++] = static_cast<char>('0' + value % 10);
    while ((value /= 10) != 0);
    while (n > 0) *at++ = digits[--n];
    return at;
  };
  char* at = path;
  std::memcpy(at, "/proc/", 6);
  at = number(at + 6, static_cast<u32>(pid));
  if (tid != 0) {
    std::memcpy(at, "/task/", 6);
    at = number(at + 6, static_cast<u32>(tid));
  }
  *at++ = '/';
  std::strcpy(at, name);
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  const ssize_t n = ::read(fd, out, size - 1);
  ::close(fd);
  out[n > 0 ? n : 0] = 0;
  return n;
}
}  // namespace

u64 start_time(i32 pid, i32 tid) noexcept {
  char text[512];
  if (pid <= 0 || proc_file(pid, tid, "stat", text, sizeof text) <= 0) return 0;
  const char* at = std::strrchr(text, ')');  // the name may hold anything
  if (at == nullptr) return 0;
  if (at[1] == ' ' && (at[2] == 'Z' || at[2] == 'X')) return 0;  // dead, only not yet waited for
  for (int field = 2; field < 22 && at != nullptr; ++field) at = std::strchr(at + 1, ' ');
  u64 value = 0;
  if (at != nullptr)
    for (++at; *at >= '0' && *at <= '9'; ++at) value = value * 10 + static_cast<u64>(*at - '0');
  return value;
}

i32 gettid() noexcept { return static_cast<i32>(syscall(SYS_gettid)); }

void comm_of(i32 pid, i32 tid, char* out) noexcept {
  char text[32] = "";
  const ssize_t n = proc_file(pid, tid, "comm", text, sizeof text);
  std::memset(out, 0, 16);
  if (n > 0) std::memcpy(out, text, static_cast<size_t>(n - 1 < 15 ? n - 1 : 15));
}

bool fence_heavy() noexcept { return syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0) == 0; }
bool register_fence() noexcept { return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0; }

u64 pid_namespace() noexcept {
  struct stat st {};
  return stat("/proc/self/ns/pid", &st) == 0 ? st.st_ino : 0;
}

bool futex_wait(const u32* word, u32 value, i64 ns) noexcept {
  timespec timeout{ns / 1000000000, ns % 1000000000};
  const long r = syscall(SYS_futex, word, FUTEX_WAIT, value, ns < 0 ? nullptr : &timeout, nullptr, 0);
  return !(r < 0 && errno == ETIMEDOUT);
}

void futex_wake_all(u32* word) noexcept { syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0); }

u64 now_ns() noexcept {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<u64>(t.tv_sec) * 1000000000 + static_cast<u64>(t.tv_nsec);
}

}  // namespace ringside::sys
