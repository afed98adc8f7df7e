#include "mount/marker.hpp"

#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <map>

#include "sys/try.hpp"
#include "writer/process.hpp"

namespace ringside::mount {
namespace {

struct Message {
  i32 tid;
  i32 cpu;  // -1: not known
  u32 raw;
  char comm[16];
  char bytes[longest_marker];
};
constexpr size_t head_size = offsetof(Message, bytes);
constexpr size_t most_clients = 4096;  // whose numbers are remembered

// Like the kernel's: same fields, same print fmt.
constinit ringside_event print_event{"ftrace",
                                     "print",
                                     "\tfield:unsigned long ip;\toffset:8;\tsize:8;\tsigned:0;\n"
                                     "\tfield:char buf[];\toffset:16;\tsize:0;\tsigned:0;\n",
                                     "\"%ps: %s\", (void *)REC->ip, REC->buf",
                                     nullptr,
                                     0,
                                     nullptr,
                                     nullptr};
constinit ringside_event raw_event{"ftrace",
                                   "raw_data",
                                   "\tfield:unsigned int id;\toffset:8;\tsize:4;\tsigned:0;\n"
                                   "\tfield:char buf[];\toffset:12;\tsize:0;\tsigned:0;\n",
                                   "\"id:%04x %08x\", REC->id, (int)REC->buf[0]",
                                   nullptr,
                                   0,
                                   nullptr,
                                   nullptr};

// The kernel's function that writes its markers: readers name a marker by this address. 0: the kernel does not show it.
u64 address_of_tracing_mark_write() {
  const auto symbols = sys::read_file("/proc/kallsyms");
  const size_t at = symbols ? symbols->find(" tracing_mark_write") : std::string::npos;
  return at != std::string::npos ? std::strtoull(symbols->c_str() + symbols->rfind('\n', at) + 1, nullptr, 16) : 0;
}

i32 write_one(const Message& m, size_t size, i32 as) {
  alignas(8) u8 payload[16 + longest_marker + 1] = {};
  const u32 head = m.raw != 0 ? 8 : 16;
  if (m.raw == 0) {
    static const u64 ip = address_of_tracing_mark_write();
    std::memcpy(payload + 8, &ip, sizeof ip);
  }
  std::memcpy(payload + head, m.bytes, size);
  const auto whole = static_cast<u32>(head + size + (m.raw != 0 ? 0 : 1));
  // common_pid: the thread that wrote it, not this process, by the instance's number for it
  return detail::write_slowly(m.raw != 0 ? raw_event : print_event, payload, whole, Refused::no_ring, as) ? 0 : EBADF;
}

// To the CPU that the client runs on, unless this process may not go there.
void go_to(i32 cpu) noexcept {
  static i32 bound = -1;
  if (cpu < 0 || cpu >= CPU_SETSIZE || cpu == bound) return;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(cpu, &one);
  bound = sched_setaffinity(0, sizeof one, &one) == 0 ? cpu : -1;
}

[[noreturn]] void serve(int socket, const std::string& instance) {
  prctl(PR_SET_NAME, "ringside-marker");
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) signal(number, SIG_IGN);
  ringside_close();  // RINGSIDE_INSTANCE may have opened a different one
  forget_events();  // the events of `ringside` itself
  i32 ready = ringside_open(instance.c_str());
  if (ready == 0) ready = ringside_register(&print_event);
  if (ready == 0) ready = ringside_register(&raw_event);
  if (send(socket, &ready, sizeof ready, MSG_NOSIGNAL) != sizeof ready || ready != 0) _exit(1);
  static Message m;
  struct Known {
    i32 number;
    std::string comm;
  };
  std::map<i32, Known> clients;  // by TID
  for (;;) {
    const ssize_t n = recv(socket, &m, sizeof m, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < static_cast<ssize_t>(head_size)) _exit(0);
    if (clients.size() >= most_clients) clients.clear();
    Known& client = clients[m.tid];
    if (const std::string comm(m.comm, strnlen(m.comm, sizeof m.comm));
        m.tid != 0 && (client.number == 0 || client.comm != comm)) {
      client = {introduce_other(*opened_now(), m.tid, m.comm), comm};
      if (const sys::Fd dir = opened_now()->directory()) save_names(dir.get(), client.number, client.number, m.comm);
    }
    go_to(m.cpu);
    const i32 done = write_one(m, static_cast<size_t>(n) - head_size, client.number);
    if (send(socket, &done, sizeof done, MSG_NOSIGNAL) != sizeof done) _exit(0);
  }
}

// The answer to one message, or -1.
i32 answer(int socket) {
  i32 value = -1;
  pollfd ready{socket, POLLIN, 0};
  for (;;) {
    const int n = poll(&ready, 1, 2000);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0 || recv(socket, &value, sizeof value, MSG_DONTWAIT) != sizeof value) return -1;
    return value;
  }
}

}  // namespace

result<void> Marker::start() {
  if (pid_ > 0) return {};
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) return fail(errno, "cannot make a socket");
  sys::Fd ours(pair[0]), theirs(pair[1]);
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ < 0) return fail(errno, "cannot start a process that writes markers");
  if (pid_ == 0) {
    if (getppid() != parent) _exit(1);
    // No descriptor of the mount stays open here: one of the session would keep it alive.
    const int socket = dup2(theirs.get(), 3);
    close_range(4, ~0u, 0);
    serve(socket, instance_);
  }
  socket_ = std::move(ours);
  theirs = sys::Fd();
  if (const i32 ready = answer(socket_.get()); ready != 0) {
    stop();
    return fail(ready < 0 && ready != -1 ? -ready : EIO, "no process can write markers to " + instance_);
  }
  return {};
}

void Marker::stop() {
  if (pid_ <= 0) return;
  socket_ = sys::Fd();
  kill(pid_, SIGKILL);  // its death can corrupt nothing: it holds nothing
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
}

result<void> Marker::write(bool raw, std::string_view bytes, i32 tid) {
  RS_TRY(start());
  Message m{};
  m.tid = tid;
  m.cpu = sys::cpu_of(tid);
  m.raw = raw ? 1 : 0;
  sys::comm_of(tid, 0, m.comm);
  std::memcpy(m.bytes, bytes.data(), std::min(bytes.size(), sizeof m.bytes));
  const size_t size = head_size + std::min(bytes.size(), sizeof m.bytes);
  const bool sent = send(socket_.get(), &m, size, MSG_NOSIGNAL | MSG_DONTWAIT) == static_cast<ssize_t>(size);
  const i32 done = sent ? answer(socket_.get()) : -1;
  if (done < 0) {
    stop();
    return refuse(std::errc::io_error, "the process that writes markers to " + instance_ + " has gone");
  }
  if (done != 0) return fail(done, "the marker found no room in " + instance_);
  return {};
}

}  // namespace ringside::mount
