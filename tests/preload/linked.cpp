// A program that writes events, and limits itself. linked WAY COUNT: prints how many it has written, and how many were refused.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ringside/trace.hpp>
#include <string>
#include <thread>
#include <vector>

RINGSIDE_EVENT(linked, note, (u64, n), (cstring, text));

extern "C" {
[[gnu::weak]] extern const ptrdiff_t __rseq_offset;
}

namespace {

constexpr const char* fields = "\tfield:u64 n;\toffset:8;\tsize:8;\tsigned:0;\n";
constinit ringside_event event{"linked", "tick",  fields, "\"n=%llu\", REC->n", nullptr,
                               0,        nullptr, nullptr};
[[gnu::constructor]] void declare() { ringside_register(&event); }

unsigned long written = 0, refused = 0;
void write_events(unsigned long count) {
  static unsigned long n = 0;
  for (unsigned long i = 0; i < count; ++i) {
    if (!ringside_gate_open(ringside_gate_of(event.system, event.name)) || !ringside_wanted(&event)) continue;
    unsigned long payload[2] = {0, n++};
    ++(ringside_write(&event, payload, sizeof payload) ? written : refused);
  }
}

// The kernel takes a thread's registration back. True: it did.
bool leave_rseq() {
  if (&__rseq_offset == nullptr) return false;
  char* const area = static_cast<char*>(__builtin_thread_pointer()) + __rseq_offset;
  return syscall(SYS_rseq, area, 32, 1, 0x53053053) == 0;
}

volatile char blocked = 0;  // syscall user dispatch asks it

// Beside the four calls of strict mode, a filter has what ends a process, and what threads need.
bool confine(const std::string& way, unsigned flags = 0) {
  if (way == "strict") return prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) == 0;
#if defined(__x86_64__)
  if (way == "counter") return prctl(PR_SET_TSC, PR_TSC_SIGSEGV, 0, 0, 0) == 0;
#endif
  if (way == "dispatch") return prctl(59 /* PR_SET_SYSCALL_USER_DISPATCH */, 1, 0, 0, &blocked) == 0;
  std::vector<sock_filter> filter{BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
  std::vector<unsigned> allowed{SYS_read, SYS_write, SYS_exit, SYS_rt_sigreturn, SYS_exit_group};
  if (way == "threads")
    allowed.insert(allowed.end(), {SYS_futex, SYS_clone, SYS_clone3, SYS_mmap, SYS_mprotect, SYS_madvise, SYS_munmap,
                                   SYS_set_robust_list, SYS_rseq, SYS_rt_sigprocmask, SYS_rt_sigaction});
  if (way == "fork") allowed.insert(allowed.end(), {SYS_clone, SYS_set_robust_list, SYS_gettid, SYS_wait4});
  for (const unsigned number : allowed) {
    filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1));
    filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  }
  filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS));
  const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program) == 0;
}

// COUNT events before and behind; the text leaves by write alone, the process by exit.
int sandboxed(const std::string& way, unsigned long count) {
  write_events(count);
  const int done = way == "unprepared" ? 0
                                       : ringside_prepare_sandbox(way == "too-small"                    ? 4096
                                                                  : way == "strict" || way == "counter" ? 0
                                                                                                        : SIZE_MAX);
  if (!confine(way)) return 77;
  if (way == "paused") {  // an event for each byte
    for (char byte; ::read(0, &byte, 1) == 1;) write_events(1);
    syscall(SYS_exit, refused == 0 ? 0 : 1);
  }
  if (way == "threads")
    for (int i = 0; i < 4; ++i) std::thread(write_events, count).join();
  blocked = way == "dispatch";
  write_events(count);
  blocked = 0;
  if (way == "fork") {
    if (const pid_t child = fork(); child == 0) {
      refused = 0;
      write_events(count);
      syscall(SYS_exit, refused == count ? 0 : 1);
    } else {
      int status = 1;
      if (wait4(child, &status, 0, nullptr) != child || status != 0) return 9;
      refused += count;
    }
  }
  char text[64];
  const int size = std::snprintf(text, sizeof text, "%lu %lu %d\n", written, refused, done);
  (void)!::write(1, text, static_cast<size_t>(size));
  syscall(SYS_exit, 0);
  return 1;
}

// Four threads write their first events, and more, while the filter comes for all of them.
int sandboxed_together(unsigned long count) {
  static std::atomic<unsigned> started{0}, left{4};
  static std::atomic<unsigned long> tried{0};
  static std::atomic<bool> confined{false};
  for (unsigned k = 0; k < 4; ++k)
    std::thread([=] {
      for (++started; started != 4;) asm volatile("");
      for (unsigned long i = 0; i < (k + 1) * count / 8; ++i) asm volatile("" ::"r"(i));
      for (bool last = false; !last; ++tried) {
        last = confined;  // so that each writes in the sandbox
        const bool is_long = tried % 4 == 0;
        linked::note(k,
                     is_long ? "a text of more than forty-eight bytes, which does not stand on its caller's stack" : "short");
      }
      --left;
      for (;;) asm volatile("");
    }).detach();
  while (started != 4) std::this_thread::yield();
  const int done = ringside_prepare_sandbox(SIZE_MAX);
  if (!confine("filter", SECCOMP_FILTER_FLAG_TSYNC)) return 77;
  confined = true;
  while (left != 0) asm volatile("");
  char text[64];
  const int size = std::snprintf(text, sizeof text, "%d %lu\n", done, tried.load());
  (void)!::write(1, text, static_cast<size_t>(size));
  syscall(SYS_exit_group, 0);
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const std::string way = argv[1];
  const unsigned long count = std::strtoul(argv[2], nullptr, 10);
  if (way == "write") {
    write_events(count);
  } else if (way == "unregistered") {
    write_events(count);
    if (!leave_rseq()) return 77;
    write_events(count);
  } else if (way == "fsize") {
    // The limit comes down while the program runs; then rings are made.
    const rlimit none{0, RLIM_INFINITY};
    if (setrlimit(RLIMIT_FSIZE, &none) != 0) return 3;
    for (int i = 0; i < 4; ++i) std::thread(write_events, count).join();
  } else if (way == "strict" || way == "filter" || way == "threads" || way == "too-small" || way == "fork" || way == "paused" ||
             way == "unprepared" || way == "dispatch" || way == "counter") {
    return sandboxed(way, count);
  } else if (way == "together") {
    return sandboxed_together(count);
  } else {
    return 2;
  }
  std::printf("%lu %lu\n", written, refused);
  return 0;
}
