// A program that writes events, and limits itself. linked WAY COUNT: prints how many it has written, and how many were refused.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ringside/ringside.h>
#include <string>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <thread>

extern "C" {
[[gnu::weak]] extern const ptrdiff_t __rseq_offset;
}

namespace {

const char* const fields = "\tfield:u64 n;\toffset:8;\tsize:8;\tsigned:0;\n";
constinit ringside_event event{"linked", "tick",  fields, "\"n=%llu\", REC->n", ringside_gate_of("linked", "tick"),
                               0,        nullptr, nullptr};
[[gnu::constructor]] void declare() { ringside_register(&event); }

unsigned long written = 0, refused = 0;
void write_events(unsigned long count) {
  static unsigned long n = 0;
  for (unsigned long i = 0; i < count; ++i) {
    if (!ringside_gate_open(event.gate) || !ringside_wanted(&event)) continue;
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
  } else {
    return 2;
  }
  std::printf("%lu %lu\n", written, refused);
  return 0;
}
