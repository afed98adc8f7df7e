// The system calls of the slow paths, as values that clean up after themselves. Functions that a signal handler may call are
// marked.
#pragma once
#include <ringside/base/result.hpp>
#include <ringside/base/types.hpp>
#include <string>
#include <utility>
#include <vector>

namespace ringside::sys {

class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) noexcept : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd();
  int get() const noexcept { return fd_; }
  [[nodiscard]] int release() noexcept { return std::exchange(fd_, -1); }
  explicit operator bool() const noexcept { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// A shared mapping of a file. If the file is truncated under it, reads yield zeros and `cut()` is true: no SIGBUS reaches the
// program (guard_mappings). Files without a length, like the kernel's rings, check the mapped range themselves.
class Region {
 public:
  Region() = default;
  Region(Region&& other) noexcept
      : base_(std::exchange(other.base_, nullptr)), size_(std::exchange(other.size_, 0)), guard_(other.guard_) {}
  Region& operator=(Region&& other) noexcept {
    std::swap(base_, other.base_);
    std::swap(size_, other.size_);
    std::swap(guard_, other.guard_);
    return *this;
  }
  ~Region();
  static result<Region> map(int fd, u64 size, bool writable, const std::string& what, u64 offset = 0);
  u8* data() const noexcept { return base_; }
  u64 size() const noexcept { return size_; }
  bool cut() const noexcept;
  u64 resident_bytes() const noexcept;              // its memory, touched by any process
  void punch(u64 offset, u64 size)
      const noexcept;  // replaces whole pages by zeros and frees their memory; the file must be mapped writable

 private:
  u8* base_ = nullptr;
  u64 size_ = 0;
  u32 guard_ = 0;  // its entry in the table of guarded regions; 0: none
};

// The kernel's page: what mappings begin at, and what memory is given in. A power of two, 4 KiB or more. Signal-safe.
u64 page_bytes() noexcept;

// Gives whole pages of a file back to the file system; they read as zeros. False: it cannot.
bool free_part(int fd, u64 offset, u64 size) noexcept;

// Installs, once, a SIGBUS handler that puts zero pages under a Region whose file was cut, and passes other faults to the
// previous handler. For consumers; a writer's process keeps its own handlers.
void guard_mappings();
// The same for the mappings that libraries make, as libdw does of the files that it reads names from, for any stranger may cut
// those. For a program that is ringside's alone.
void guard_all_mappings();

// mmap to read and write, from offset 0, by the system call, with nothing of the C library's or of a sanitizer's around it.
// Signal-safe.
void* raw_mmap(void* at, size_t size, int flags, int fd) noexcept;
void raw_munmap(void* at, size_t size) noexcept;  // of such a mapping; errno stays

// A part of a file, shared, to read and write; it costs memory only as it is used, also where mlockall() has all mappings of
// this process locked. The offset is a multiple of the page. Null: errno has the reason. munmap() unmaps it. Signal-safe.
void* map_shared(int fd, u64 size, u64 offset = 0) noexcept;

// Opens a regular file to read. Anything else is refused, for example a FIFO, which would block.
result<Fd> open_regular(const std::string& path);
result<std::string> read_file(const std::string& path);
// The text of a symbolic link; empty: there is none, or it cannot be read.
std::string link_text(const std::string& path);
// For a file that the command line names, which may be a symlink of a stranger's: what is no regular file, is empty, or lies
// on a file system whose files act (tracefs's free_buffer shrinks a ring when it is closed) is refused before it is opened.
result<Fd> open_data(const std::string& path);
// Reads the rest of an open file. `path` is for the error's sentence.
result<std::string> read_text(int fd, const std::string& path, u64 most = 64u << 20);
result<void> write_text(int fd, const std::string& path, const std::string& text);
// Threads and their names from tracefs' saved_cmdlines: lines of "tid name". None if it could not be read.
std::vector<std::pair<i32, std::string>> cmdlines_of(const result<std::string>& saved);
// Threads and their processes from saved_tgids: lines of "tid pid".
std::vector<std::pair<i32, i32>> tgids_of(const result<std::string>& saved);

// Opens /dev/null for each of the descriptors 0, 1 and 2 that is closed: else a file that is opened later would have its number
// and get the text that is printed. To print to a standard output that was closed goes on failing.
void open_standard_files();

// From now on, a write beyond RLIMIT_FSIZE fails with EFBIG instead of killing the process. Executed programs do not inherit
// this.
void survive_file_limit();
// The same for a pipe without a reader: EPIPE.
void survive_broken_pipes();

// False, errno EFBIG: `size` is beyond the process's RLIMIT_FSIZE, where the kernel would kill it with SIGXFSZ. Signal-safe.
bool may_grow_to(u64 size) noexcept;
// ftruncate, pwrite and an append that ask that first. False: errno has the reason, and a part may be written. Signal-safe.
bool set_size(int fd, u64 size) noexcept;
bool write_at(int fd, const void* bytes, size_t size, u64 at) noexcept;
bool append(int fd, const void* bytes, size_t size,
            u64 most) noexcept;  // errno EFBIG also: the file would be larger than `most`

// Field 22 of /proc/PID/stat; 0: no such process. With tid != 0, the thread's. Signal-safe.
u64 start_time(i32 pid, i32 tid = 0) noexcept;
// This thread's; its number may be different in /proc. Signal-safe.
u64 own_start_time() noexcept;
u64 ticks_since_boot() noexcept;  // now, as field 22 has it; signal-safe
void own_comm(char* out) noexcept;  // this process's
i32 gettid() noexcept;
// "comm" of a thread; empty if it is gone. `out` holds 16 bytes. Signal-safe.
void comm_of(i32 pid, i32 tid, char* out) noexcept;
// The CPU that a thread ran on last; -1: it is gone.
i32 cpu_of(i32 tid) noexcept;
bool is_user_of(u32 user, i32 pid) noexcept;  // does the process live, and as this user?
// Its number in the innermost of its PID namespaces, its own; 0: it is gone. tid: of this thread of it.
i32 number_inside(i32 pid, i32 tid = 0);
// The parent of a process; -1: it is gone.
i32 parent_of(i32 pid) noexcept;

// The heavy half of the asymmetric fence (Memory::fence_light). False: the kernel lacks membarrier. Signal-safe.
bool fence_heavy() noexcept;
bool register_fence() noexcept;  // once in each writer's process; signal-safe
// The inodes of the PID namespace and the time namespace; 0: no /proc. Signal-safe.
u64 pid_namespace() noexcept;
u64 time_namespace() noexcept;
bool has_own_users() noexcept;  // in a user namespace, a rootless container's: its root is none of the machine
// "as root"; in such a namespace, or where root has not its rights, "as root outside of this container".
std::string as_root();
bool pids_are_the_kernels() noexcept;  // this is the first PID namespace, whose numbers the kernel's events have
// Whether /proc shows this process's PID namespace. Signal-safe.
bool proc_is_ours() noexcept;
// How long the machine was suspended since it started, by its clocks.
u64 suspended_ns() noexcept;
// Whether /proc has no such thread. Signal-safe.
bool thread_gone(i32 pid, i32 tid) noexcept;

// A number that differs from the parent's; the same in all threads of this process and in a child of vfork. Signal-safe.
u64 this_process() noexcept;
// What this word holds. The kernel reads it, so the address may be unmapped. unknown: it does not say, as in a sandbox.
// Signal-safe.
enum class Held : u8 { value, other, unmapped, unknown };
Held look_at(const u32* at, u32 value) noexcept;
inline bool still_holds(const u32* at, u32 value) noexcept {
  const Held held = look_at(at, value);
  return held == Held::value || held == Held::unknown;
}
// Whether a call whose frame has the address `at` was left by longjmp; `mine` is in the frame of the call that asks, on a stack
// of the same thread, and they are not the same call. An interrupted call lies above its handler on one stack, and an
// interrupted thread is not on the alternate one. Signal-safe.
bool was_left(uintptr_t at, uintptr_t mine) noexcept;
// Makes the kernel allocate memory for all of these bytes of a mapping, so that a store no longer faults. False: there is none
// (a full file system, a limit), and a store would be a SIGBUS; or the memory cgroup has no room, and the kernel would kill the
// process. True also where the kernel cannot be asked (before 5.14). Signal-safe.
bool populate(const void* at, u64 size) noexcept;
// The path of a thread's cgroup in this /proc: the unified hierarchy's; if that is its root, the longest path of the others.
// Empty: unknown, or no such thread.
std::string cgroup_of(i32 tid);
std::string cgroup_in(std::string_view text);  // from the text of /proc/TID/cgroup

// Sleeps while *word == value, at most `ns` (negative: for ever); false: timed out. Between processes.
bool futex_wait(const u32* word, u32 value, i64 ns) noexcept;
void futex_wake_all(u32* word) noexcept;  // signal-safe

// FNV-1a (Fowler, Noll, Vo), 64 bits; `so_far`: the hash of the preceding bytes.
constexpr u64 fnv_basis = 14695981039346656037u;
constexpr u64 hash(std::string_view bytes, u64 so_far = fnv_basis) noexcept {
  for (const char c : bytes) so_far = (so_far ^ static_cast<u8>(c)) * 1099511628211u;
  return so_far;
}

// What the environment says; null: nothing, or an empty text, or this program runs with more rights than the process that
// started it (setuid, setgid, capabilities of its file), which must not choose what such a program opens. The writing side asks
// nothing else: `tools/check_writing_side`.
const char* environment(const char* name) noexcept;
// For a command, first of all: it does what its caller says, also with capabilities of its file.
void obey_environment() noexcept;

std::string boot_id();  // identifies this boot of the machine; empty: unknown
u64 boot_hash() noexcept;  // its hash; 0: unknown; signal-safe
u64 now_ns() noexcept;  // CLOCK_MONOTONIC; signal-safe
u64 thread_ns() noexcept;  // CPU time of this thread

}  // namespace ringside::sys
