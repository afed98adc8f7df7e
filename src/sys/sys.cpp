#include "sys/sys.hpp"

#include <fcntl.h>
#include <linux/futex.h>
#include <linux/magic.h>
#include <linux/membarrier.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <ringside/base/sanitizers.hpp>

#include "sys/memory_limit.hpp"
#include "sys/sandbox.hpp"
#include "sys/side_stack.hpp"
#include "sys/signals_off.hpp"
#include "sys/try.hpp"

namespace ringside::sys {
namespace {

// The regions that the SIGBUS handler may repair. A fixed table: a handler can neither lock nor allocate.
struct Guarded {
  std::atomic<u8*> base{nullptr};
  std::atomic<u64> size{0};
  std::atomic<bool> cut{false};
};
constexpr u32 most_guarded = 1u << 17;  // more than a process may map (vm.max_map_count)
Guarded* guarded = nullptr;             // [0] is unused; a program that only writes takes no 3 MiB of addresses for it
u32 guarded_until = 1, guarded_next = 1;  // entries used so far; where to search for a free one
std::mutex guarding;
struct sigaction previous;
std::atomic<bool> armed{false}, guards_all{false};

u32 free_guard() {
  u32 at = guarded_next;
  while (at < guarded_until && guarded[at].base.load(std::memory_order_relaxed) != nullptr) ++at;
  if (at == most_guarded) return 0;
  guarded_next = at + 1;
  if (at == guarded_until) __atomic_store_n(&guarded_until, at + 1, __ATOMIC_RELEASE);
  return at;
}

Guarded* find(const u8* at) {
  for (u32 i = 1; i < __atomic_load_n(&guarded_until, __ATOMIC_ACQUIRE); ++i) {
    Guarded& g = guarded[i];
    u8* const base = g.base.load(std::memory_order_acquire);
    if (base != nullptr && at >= base && at < base + g.size.load(std::memory_order_relaxed)) return &g;
  }
  return nullptr;
}

void on_sigbus(int signal, siginfo_t* info, void* context) {
  auto* const at = static_cast<u8*>(info->si_addr);
  Guarded* const g = find(at);
  if (g != nullptr) g->cut.store(true, std::memory_order_relaxed);
  if (g != nullptr || (guards_all && info->si_code == BUS_ADRERR)) {
    u8* const page = reinterpret_cast<u8*>(reinterpret_cast<uintptr_t>(at) & ~static_cast<uintptr_t>(page_bytes() - 1));
    if (mmap(page, page_bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED) return;
  }
  if ((previous.sa_flags & SA_SIGINFO) != 0 && previous.sa_sigaction != nullptr)
    return previous.sa_sigaction(signal, info, context);
  if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) return previous.sa_handler(signal);
  ::signal(SIGBUS, SIG_DFL);  // the access faults again, and kills
}

}  // namespace

namespace {
// Reads a file of /proc without allocating; returns the length.
ssize_t small_file(const char* path, char* out, size_t size) noexcept {
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  const ssize_t n = ::read(fd, out, size - 1);
  ::close(fd);
  out[n > 0 ? n : 0] = 0;
  return n;
}

// "/proc/PID/NAME", or "/proc/PID/task/TID/NAME" with tid != 0; out holds 64 bytes.
void proc_path(i32 pid, i32 tid, const char* name, char* path) noexcept {
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
}

ssize_t proc_file(i32 pid, i32 tid, const char* name, char* out, size_t size) noexcept {
  char path[64];
  proc_path(pid, tid, name, path);
  return small_file(path, out, size);
}

u64 inode_of(const char* path) noexcept {
  struct stat st {};
  return stat(path, &st) == 0 ? st.st_ino : 0;
}

// Identifies this process. The kernel clears it in the child of any fork.
struct alignas(largest_page) Wiped {
  std::atomic<u64> process{0};
};
constinit Wiped wiped;
}  // namespace

Fd::~Fd() {
  if (fd_ < 0) return;
  const int saved = errno;
  ::close(fd_);
  errno = saved;
}

u64 page_bytes() noexcept { return static_cast<u64>(sysconf(_SC_PAGESIZE)); }

void guard_mappings() {
  const std::lock_guard lock(guarding);
  if (armed) return;
  void* const table =
      mmap(nullptr, most_guarded * sizeof(Guarded), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (table == MAP_FAILED) return;
  guarded = static_cast<Guarded*>(table);  // zeros: no entry is in use
  armed = true;
  struct sigaction action {};
  action.sa_sigaction = on_sigbus;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigaction(SIGBUS, &action, &previous);
}

void guard_all_mappings() {
  guards_all = true;
  guard_mappings();
}

result<Region> Region::map(int fd, u64 size, bool writable, const std::string& what, u64 offset) {
  const off_t length = lseek(fd, 0, SEEK_END);
  if (length < 0 && errno != ESPIPE) return fail(errno, "cannot measure " + what);
  if (length >= 0 && (static_cast<u64>(length) < offset || static_cast<u64>(length) - offset < size))
    return refuse(std::errc::invalid_argument, what + " is " + std::to_string(length) + " bytes long, but " +
                                                   std::to_string(offset + size) +
                                                   " are needed: it was truncated or is no ring of ringside");
  const bool grows = writable && length >= 0;  // what has no length, such as a ring of the kernel's, is mapped as a whole
  const int how = PROT_READ | (writable ? PROT_WRITE : 0);
  void* const at = grows ? map_shared(fd, size, offset) : mmap(nullptr, size, how, MAP_SHARED, fd, static_cast<off_t>(offset));
  if (at == nullptr || at == MAP_FAILED) return fail(errno, "cannot map " + what);
  Region region;
  region.base_ = static_cast<u8*>(at);
  region.size_ = size;
  if (!armed) return region;
  const std::lock_guard lock(guarding);
  region.guard_ = free_guard();
  if (region.guard_ == 0) return fail(ENOMEM, "cannot map " + what);
  Guarded& g = guarded[region.guard_];
  g.size.store(size, std::memory_order_relaxed);
  g.cut.store(false, std::memory_order_relaxed);
  g.base.store(region.base_, std::memory_order_release);
  return region;
}

Region::~Region() {
  if (base_ == nullptr) return;
  if (guard_ != 0) {
    const std::lock_guard lock(guarding);
    guarded[guard_].base.store(nullptr, std::memory_order_release);
    guarded_next = std::min(guarded_next, guard_);
  }
  munmap(base_, size_);
}

bool Region::cut() const noexcept { return guard_ != 0 && guarded[guard_].cut.load(std::memory_order_relaxed); }

u64 Region::resident_bytes() const noexcept {
  const u64 page = page_bytes();
  u64 pages = 0;
  unsigned char there[4096];
  for (u64 at = 0; at < size_; at += sizeof there * page) {
    const u64 size = std::min<u64>(size_ - at, sizeof there * page);
    if (mincore(base_ + at, size, there) != 0) break;
    pages += static_cast<u64>(
        std::count_if(there, there + (size + page - 1) / page, [](unsigned char one) { return (one & 1) != 0; }));
  }
  return pages * page;
}

void Region::punch(u64 offset, u64 size) const noexcept { madvise(base_ + offset, size, MADV_REMOVE); }

static constinit std::atomic<bool> obeys{false};
void obey_environment() noexcept { obeys.store(true, std::memory_order_relaxed); }

const char* environment(const char* name) noexcept {
  const char* const value = obeys.load(std::memory_order_relaxed) ? std::getenv(name) : secure_getenv(name);
  return value != nullptr && *value != 0 ? value : nullptr;
}

std::string boot_id() {
  auto text = read_file("/proc/sys/kernel/random/boot_id");
  return text ? text->substr(0, text->find('\n')) : "";
}

u64 boot_hash() noexcept {
  static constinit std::atomic<u64> known{0};
  u64 boot = known.load(std::memory_order_relaxed);
  char text[64];
  if (boot == 0 && small_file("/proc/sys/kernel/random/boot_id", text, sizeof text) > 0)
    known.store(boot = hash(std::string_view(text, std::strcspn(text, "\n"))) | 1, std::memory_order_relaxed);
  return boot;
}

result<Fd> open_regular(const std::string& path) {
  Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat st {};
  if (!fd || fstat(fd.get(), &st) != 0) return fail(errno, "cannot open " + path);
  if (!S_ISREG(st.st_mode)) return refuse(std::errc::invalid_argument, path + " is no regular file");
  return result<Fd>(std::move(fd));
}

result<Fd> open_data(const std::string& path) {
  constexpr u64 securityfs = 0x73636673, configfs = 0x62656570, tracefs = 0x74726163;
  const Fd known(::open(path.c_str(), O_PATH | O_CLOEXEC));
  struct stat st {};
  struct statfs on {};
  if (!known || fstat(known.get(), &st) != 0 || fstatfs(known.get(), &on) != 0) return fail(errno, "cannot open " + path);
  if (!S_ISREG(st.st_mode) || st.st_size == 0) return refuse(std::errc::invalid_argument, path + " is empty or no plain file");
  for (const u64 acting : {u64{PROC_SUPER_MAGIC}, u64{SYSFS_MAGIC}, tracefs, u64{DEBUGFS_MAGIC}, securityfs, configfs,
                           u64{CGROUP_SUPER_MAGIC}, u64{CGROUP2_SUPER_MAGIC}})
    if (static_cast<u64>(on.f_type) == acting)
      return refuse(std::errc::invalid_argument, path + " is a file of the kernel's, and opening it may act");
  Fd fd(::open(("/proc/self/fd/" + std::to_string(known.get())).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!fd) return fail(errno, "cannot open " + path);
  return result<Fd>(std::move(fd));
}

std::string link_text(const std::string& path) {
  char text[PATH_MAX];
  const ssize_t n = readlink(path.c_str(), text, sizeof text);
  return n > 0 ? std::string(text, static_cast<size_t>(n)) : std::string();
}

result<std::string> read_file(const std::string& path) {
  const auto fd = RS_TRY(open_regular(path));
  return read_text(fd.get(), path);
}

result<std::string> read_text(int fd, const std::string& path, u64 most) {
  std::string text;
  char buffer[16384];
  for (;;) {
    const ssize_t n = ::read(fd, buffer, sizeof buffer);
    if (n == 0) return text;
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail(errno, "cannot read " + path);
    constexpr i64 believed = 64 << 20;  // a file's size may be anything
    if (struct stat st {}; text.empty() && n == sizeof buffer && fstat(fd, &st) == 0)
      text.reserve(static_cast<size_t>(std::clamp<i64>(st.st_size, n, believed)));
    text.append(buffer, static_cast<size_t>(n));
    if (text.size() > most)
      return refuse(std::errc::file_too_large, path + " is larger than " + std::to_string(most >> 20) + " MiB");
  }
}

result<void> write_text(int fd, const std::string& path, const std::string& text) {
  struct stat st {};
  if (fstat(fd, &st) == 0 && !may_grow_to(static_cast<u64>(st.st_size) + text.size()))
    return fail(errno, "cannot write " + path);
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

std::vector<std::pair<i32, i32>> tgids_of(const result<std::string>& text) {
  std::vector<std::pair<i32, i32>> all;
  for (const auto& [tid, pid] : cmdlines_of(text)) all.emplace_back(tid, std::atoi(pid.c_str()));
  return all;
}

void open_standard_files() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd)  // the lowest free number is taken
    if (fcntl(fd, F_GETFD) < 0) (void)!open("/dev/null", fd == STDOUT_FILENO ? O_RDONLY : O_WRONLY);
}

namespace {
void survive(int signal) {
  struct sigaction action {}, old {};
  sigaction(signal, nullptr, &old);
  if (old.sa_handler != SIG_DFL) return;
  action.sa_handler = [](int) {};
  action.sa_flags = SA_RESTART;
  sigaction(signal, &action, nullptr);
}
}  // namespace

void survive_file_limit() { survive(SIGXFSZ); }
void survive_broken_pipes() { survive(SIGPIPE); }

bool free_part(int fd, u64 offset, u64 size) noexcept {
  return fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset), static_cast<off_t>(size)) == 0;
}

bool may_grow_to(u64 size) noexcept {
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || size <= limit.rlim_cur) return true;
  errno = EFBIG;
  return false;
}

bool set_size(int fd, u64 size) noexcept { return may_grow_to(size) && ftruncate(fd, static_cast<off_t>(size)) == 0; }

bool write_at(int fd, const void* bytes, size_t size, u64 at) noexcept {
  if (!may_grow_to(at + size)) return false;
  const ssize_t done = pwrite(fd, bytes, size, static_cast<off_t>(at));
  if (done >= 0 && static_cast<size_t>(done) != size) errno = ENOSPC;
  return done >= 0 && static_cast<size_t>(done) == size;
}

bool append(int fd, const void* bytes, size_t size, u64 most) noexcept {
  const off_t end = lseek(fd, 0, SEEK_END);
  if (end < 0) return false;
  if (static_cast<u64>(end) + size > most) errno = EFBIG;
  return static_cast<u64>(end) + size <= most && write_at(fd, bytes, size, static_cast<u64>(end));
}

namespace {
// A field of the text of a file "stat", from the fourth on; 0: there is none.
u64 stat_field(const char* text, int wanted) noexcept {
  const char* at = std::strrchr(text, ')');  // the name may hold anything
  for (int field = 2; field < wanted && at != nullptr; ++field) at = std::strchr(at + 1, ' ');
  u64 value = 0;
  if (at != nullptr)
    for (++at; *at >= '0' && *at <= '9'; ++at) value = value * 10 + static_cast<u64>(*at - '0');
  return value;
}
u64 start_in(const char* text) noexcept {
  const char* const end = std::strrchr(text, ')');
  if (end != nullptr && end[1] == ' ' && (end[2] == 'Z' || end[2] == 'X')) return 0;  // dead, but not yet waited for
  return stat_field(text, 22);
}
void comm_in(const char* text, ssize_t size, char* out) noexcept {
  std::memset(out, 0, 16);
  if (size > 0) std::memcpy(out, text, static_cast<size_t>(size - 1 < 15 ? size - 1 : 15));
}
}  // namespace

u64 start_time(i32 pid, i32 tid) noexcept {
  char text[512];
  return pid <= 0 || proc_file(pid, tid, "stat", text, sizeof text) <= 0 ? 0 : start_in(text);
}
u64 own_start_time() noexcept {
  char text[512];
  return small_file("/proc/thread-self/stat", text, sizeof text) <= 0 ? 0 : start_in(text);
}
u64 ticks_since_boot() noexcept {
  timespec t{};
  clock_gettime(CLOCK_BOOTTIME, &t);
  return static_cast<u64>(t.tv_sec) * 100 + static_cast<u64>(t.tv_nsec) / 10'000'000;  // USER_HZ is 100
}
void own_comm(char* out) noexcept {
  char text[32] = "";
  const ssize_t n = small_file("/proc/self/comm", text, sizeof text);
  comm_in(text, n, out);
}

void* raw_mmap(void* at, size_t size, int flags, int fd) noexcept {
#if RINGSIDE_TSAN  // it must know, or it takes memory that is used again for that of its former user
  if (at == nullptr) return mmap(at, size, PROT_READ | PROT_WRITE, flags, fd, 0);
#endif
#ifdef SYS_mmap
  constexpr long mmap_of_all = SYS_mmap;
#else
  constexpr long mmap_of_all = SYS_mmap2;  // counts the offset in pages
#endif
  // Every argument is as wide as the system call takes it.
  return reinterpret_cast<void*>(syscall(mmap_of_all, at, size, long{PROT_READ | PROT_WRITE}, long{flags}, long{fd}, 0L));
}
void raw_munmap(void* at, size_t size) noexcept {
  const int saved = errno;
#if RINGSIDE_TSAN
  munmap(at, size);
#else
  syscall(SYS_munmap, at, size);
#endif
  errno = saved;
}

// A new mapping is locked, and filled, if the process has asked for that; one that grows stays as it is.
void* map_shared(int fd, u64 size, u64 offset) noexcept {
#if RINGSIDE_TSAN  // it sees no mapping grow
  void* const whole = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, static_cast<off_t>(offset));
  return whole != MAP_FAILED ? whole : nullptr;
#endif
  const u64 page = page_bytes();
  void* const first = mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, static_cast<off_t>(offset));
  if (first == MAP_FAILED) return nullptr;
  const int saved = errno;
  (void)munlock(first, page);
  errno = saved;
  void* const all = size > page ? mremap(first, page, size, MREMAP_MAYMOVE) : first;
  if (all != MAP_FAILED) return all;
  const int error = errno;
  munmap(first, page);
  errno = error;
  return nullptr;
}

i32 gettid() noexcept { return static_cast<i32>(syscall(SYS_gettid)); }

void comm_of(i32 pid, i32 tid, char* out) noexcept {
  char text[32] = "";
  const ssize_t n = proc_file(pid, tid, "comm", text, sizeof text);
  comm_in(text, n, out);
}

namespace {
i32 number_in_stat(i32 pid, int field) noexcept {
  char text[1024];
  return pid <= 0 || proc_file(pid, 0, "stat", text, sizeof text) <= 0 ? -1 : static_cast<i32>(stat_field(text, field));
}
}  // namespace
i32 cpu_of(i32 tid) noexcept { return number_in_stat(tid, 39); }
bool is_user_of(u32 user, i32 pid) noexcept {
  char path[64];
  proc_path(pid, 0, "", path);
  struct stat st {};
  return stat(path, &st) == 0 && st.st_uid == user;
}

i32 number_inside(i32 pid, i32 tid) {
  char path[64];
  proc_path(pid, tid, "status", path);
  const auto text = read_file(path);
  const size_t at = text ? text->find("\nNSpid:") : std::string::npos;
  if (at == std::string::npos) return 0;
  const std::string line = text->substr(at + 7, text->find('\n', at + 1) - at - 7);
  return std::atoi(line.c_str() + line.find_last_of(" \t") + 1);
}

i32 parent_of(i32 pid) noexcept { return number_in_stat(pid, 4); }

bool fence_heavy() noexcept { return syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0) == 0; }
bool register_fence() noexcept { return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0; }

bool has_own_users() noexcept {
  constexpr u64 first = 0xEFFFFFFD;
  const u64 own = inode_of("/proc/self/ns/user");
  return own != 0 && own != first;
}
std::string as_root() {
  constexpr unsigned long sys_admin = 21;  // that a container's root cannot get
  const bool contained = has_own_users() || prctl(PR_CAPBSET_READ, sys_admin, 0, 0, 0) == 0;
  return contained ? "as root outside of this container" : "as root";
}
u64 pid_namespace() noexcept { return inode_of("/proc/self/ns/pid"); }
u64 time_namespace() noexcept { return inode_of("/proc/self/ns/time"); }
bool pids_are_the_kernels() noexcept {
  constexpr u64 first = 0xEFFFFFFC;
  return pid_namespace() == first;
}

bool proc_is_ours() noexcept {
  char said[16] = "", own[16];
  *std::to_chars(own, own + sizeof own - 1, getpid()).ptr = 0;
  const ssize_t n = readlink("/proc/self", said, sizeof said - 1);
  return n > 0 && std::strcmp(said, own) == 0;
}

u64 suspended_ns() noexcept {
  const auto now = [](clockid_t clock) {
    timespec t{};
    clock_gettime(clock, &t);
    return t.tv_sec * 1'000'000'000 + t.tv_nsec;
  };
  const i64 before = now(CLOCK_MONOTONIC), boot = now(CLOCK_BOOTTIME), after = now(CLOCK_MONOTONIC);
  return boot <= after ? 0 : static_cast<u64>(boot - before);
}

bool thread_gone(i32 pid, i32 tid) noexcept {
  char path[64];
  proc_path(pid, tid, "stat", path);
  return access(path, F_OK) != 0 && errno == ENOENT;
}

u64 this_process() noexcept {
  enum : u32 { unknown, can, cannot };
  static constinit std::atomic<u32> wiping{unknown};
  u32 how = wiping.load(std::memory_order_relaxed);
  if (how == unknown)
    wiping.store(how = madvise(&wiped, sizeof wiped, MADV_WIPEONFORK) == 0 ? can : cannot, std::memory_order_relaxed);
  if (how == cannot) return static_cast<u64>(getpid());
  u64 now = wiped.process.load(std::memory_order_relaxed);
  if (now != 0) return now;
  const u64 next = now_ns() | 1;  // later than the parent's
  return wiped.process.compare_exchange_strong(now, next, std::memory_order_relaxed) ? next : now;
}

Held look_at(const u32* at, u32 value) noexcept {
  const SystemCalls calls;
  if (!calls) return Held::unknown;
  const int saved = errno;
  // Compares, without waiters to move.
  const bool same = syscall(SYS_futex, at, FUTEX_CMP_REQUEUE | FUTEX_PRIVATE_FLAG, 0, nullptr, at, value) >= 0;
  const Held held = same              ? Held::value
                    : errno == EAGAIN ? Held::other
                    : errno == EFAULT ? Held::unmapped
                                      : Held::unknown;
  errno = saved;
  return held;
}

bool was_left(uintptr_t at, uintptr_t mine) noexcept {
  if (at == mine) return true;
  stack_t alternate{};
  const SystemCalls calls;
  if (!calls || sigaltstack(nullptr, &alternate) != 0) return false;
  const auto on_it = [&](uintptr_t address) {
    return (alternate.ss_flags & SS_DISABLE) == 0 && address - reinterpret_cast<uintptr_t>(alternate.ss_sp) < alternate.ss_size;
  };
  if (on_it(at) != on_it(mine)) return on_it(at);
  return at < mine;
}

namespace {
bool is_resident(u64 first, u64 end) noexcept {
  if (!same_user()) return false;  // for a file that this process may not write, mincore reports all of it as present
  const u64 page = page_bytes();
  u8 there[64];
  for (u64 at = first; at < end; at += sizeof there * page) {
    const u64 pages = std::min<u64>((end - at) / page, sizeof there);
    if (mincore(reinterpret_cast<void*>(at), pages * page, there) != 0) return false;
    for (u64 n = 0; n < pages; ++n)
      if ((there[n] & 1) == 0) return false;
  }
  return true;
}

bool populate_pages(u64 first, u64 end) noexcept {
  constexpr int populate_write = 23;  // MADV_POPULATE_WRITE
  const SystemCalls calls;
  if (!calls) return false;
  const int saved = errno;
  int done;
  do {
    done = madvise(reinterpret_cast<void*>(first), end - first, populate_write);
  } while (done != 0 && (errno == EINTR || errno == EAGAIN));
  const bool backed = done == 0 || errno == EINVAL;
  errno = saved;
  return backed;
}

[[gnu::noinline]] bool populate_within_limit(u64 first, u64 end) noexcept {
  bool backed = false;
  const auto step = [&]() noexcept {
    const int saved = errno;
    const bool allowed = memory_left(end - first) || is_resident(first, end);
    errno = saved;
    backed = allowed && populate_pages(first, end);
  };
  const SignalsOff off;
  return on_side_stack(step) && backed;
}
}  // namespace

bool populate(const void* at, u64 size) noexcept {
  const u64 first = reinterpret_cast<u64>(at) & ~(page_bytes() - 1),
            end = align_up(reinterpret_cast<u64>(at) + size, page_bytes());
  return memory_is_limited() ? populate_within_limit(first, end) : populate_pages(first, end);
}

// Lines "HIERARCHY:CONTROLLERS:PATH"; the unified hierarchy's is "0::PATH".
std::string cgroup_in(std::string_view text) {
  std::string_view unified, longest;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const size_t first = line.find(':'), second = first == line.npos ? line.npos : line.find(':', first + 1);
    if (second == line.npos) continue;
    const std::string_view path = line.substr(second + 1);
    if (line.substr(0, 3) == "0::") unified = path;
    if (path.size() > longest.size()) longest = path;
  }
  return std::string(unified.size() > 1 ? unified : longest);
}
std::string cgroup_of(i32 tid) {
  // The kernel lists the names of thousands of threads, most of which have ended: this is a fifth of a failing open().
  if (tid <= 0 || (kill(tid, 0) != 0 && errno == ESRCH)) return "";
  const auto text = read_file("/proc/" + std::to_string(tid) + "/cgroup");
  return text ? cgroup_in(*text) : "";
}

bool futex_wait(const u32* word, u32 value, i64 ns) noexcept {
  timespec timeout{static_cast<time_t>(ns / 1000000000), static_cast<long>(ns % 1000000000)};
#ifdef SYS_futex_time64  // 32 bits: the C library has times of either width
  constexpr long wait = sizeof(time_t) == 8 ? SYS_futex_time64 : SYS_futex;
#else
  constexpr long wait = SYS_futex;
#endif
  const long r = syscall(wait, word, FUTEX_WAIT, value, ns < 0 ? nullptr : &timeout, nullptr, 0);
  return !(r < 0 && errno == ETIMEDOUT);
}

void futex_wake_all(u32* word) noexcept { syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0); }

u64 thread_ns() noexcept {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<u64>(t.tv_sec) * 1'000'000'000 + static_cast<u64>(t.tv_nsec);
}

u64 now_ns() noexcept {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<u64>(t.tv_sec) * 1000000000 + static_cast<u64>(t.tv_nsec);
}

}  // namespace ringside::sys
