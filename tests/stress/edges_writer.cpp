// A writer of the storm of edges: edges_writer LEDGER SERIAL SEED PLACE WAY [SOCKET]. The seed determines its decisions.
#include <ringside/remote/process_writer.hpp>
#include <ringside/ringside.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include <memory>
#include <thread>
#include <vector>

#include "edges.hpp"

namespace {

using namespace ringside;
using namespace ringside::test::edges;

constexpr const char* fields =
    "\tfield:u32 who;\toffset:8;\tsize:4;\tsigned:0;\n\tfield:u32 bytes;\toffset:12;\tsize:4;\tsigned:0;\n"
    "\tfield:u64 number;\toffset:16;\tsize:8;\tsigned:0;\n\tfield:u64 check;\toffset:24;\tsize:8;\tsigned:0;\n";
ringside_event event{"edges", "tick",  fields, "\"%u %llu\", REC->who, REC->number", nullptr,
                     0,       nullptr, nullptr};

const Ledger* ledger;
Where where;
u32 serial;
char** arguments;
thread_local u32 me, my_handler;  // lives

void try_one(u32 who) {
  alignas(8) u8 payload[common_bytes + sizeof(Tick) + most_filler];
  Life& life = (*ledger)[who];
  const u64 number = life.before;
  const u32 size = make_tick(payload, who, number);
  __atomic_store_n(&life.before, number + 1, __ATOMIC_RELAXED);
  const bool written = ringside_write(&event, payload, size);
  ++(written ? life.written : life.refused);
  __atomic_store_n(&life.after, number + 1, __ATOMIC_RELEASE);
}

void on_timer(int) {
  const int saved = errno;
  try_one(my_handler);
  errno = saved;
}

void take_lives() {
  me = ledger->take(where, serial);
  my_handler = ledger->take(where, serial);
}

void burst(Random& random, u64 most) {
  for (u64 n = random.below(most); n != 0; --n) try_one(me);
}
void pause_a_little(Random& random) {
  timespec t{0, static_cast<long>(random.below(8'000'000))};
  nanosleep(&t, nullptr);
}

void live(u64 seed, bool handlers) {
  Random random(seed);
  take_lives();
  timer_t timer{};
  if (handlers) {
    sigevent to{};
    to.sigev_notify = SIGEV_THREAD_ID;
    to.sigev_signo = SIGRTMIN;
    to._sigev_un._tid = static_cast<pid_t>(syscall(SYS_gettid));
    const itimerspec period{{0, 700'000}, {0, 100'000}};
    if (timer_create(CLOCK_MONOTONIC, &to, &timer) != 0) handlers = false;
    else timer_settime(timer, 0, &period, nullptr);
  }
  for (u64 n = 1 + random.below(60); n != 0; --n) {
    burst(random, 300);
    pause_a_little(random);
  }
  if (handlers) timer_delete(timer);
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
}

void threads(Random& random, bool handlers) {
  std::vector<std::thread> all;
  for (u64 n = random.below(4); n != 0; --n) {
    try {
      all.emplace_back(live, random(), handlers);
    } catch (const std::exception&) {  // a limit
    }
  }
  live(random(), handlers);
  for (std::thread& t : all) t.join();
}

pid_t fork_somehow(Random& random) {
  switch (random.below(3)) {
    case 0: return fork();
    case 1: return _Fork();
    default: return static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));
  }
}

[[gnu::noinline]] void write_in_vfork() {
  const pid_t child = vfork();
  if (child == 0) {
    try_one(me);
    _exit(0);
  }
  if (child > 0) waitpid(child, nullptr, 0);
}

void forks(Random& random, int depth, bool exec) {
  for (u64 n = 1 + random.below(depth == 0 ? 12 : 4); n != 0; --n) {
    burst(random, 60);
    if (random.one_in(4)) write_in_vfork();
    const pid_t child = fork_somehow(random);
    if (child == 0) {
      Random own(random());
      take_lives();
      burst(own, 100);
      if (exec && own.one_in(2)) {
        const std::string seed = std::to_string(own());
        arguments[3] = const_cast<char*>(seed.c_str());
        arguments[5] = const_cast<char*>("write");
        execv("/proc/self/exe", arguments);
      } else if (depth < 2) {
        forks(own, depth + 1, exec);
      }
      _exit(0);
    }
    random();
    burst(random, 60);  // at the same time as the child
    if (random.one_in(3)) pause_a_little(random);
  }
  for (int status = 0; waitpid(-1, &status, 0) > 0;)
    if (WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL) {
      std::fprintf(stderr, "a child died of signal %d\n", WTERMSIG(status));
      _exit(9);
    } else if (WIFEXITED(status) && WEXITSTATUS(status) == 9) {
      _exit(9);
    }
}

// An external writer; only tries that found a ring count.
void remotely(Random& random, const char* socket) {
  remote::ProcessWriter<> writer(
      {socket,
       {{1, "edges", "tick",
         std::string(
             "name: tick\nID: 1\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\tfield:unsigned "
             "char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\tfield:unsigned char "
             "common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n\tfield:int "
             "common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n") +
             fields + "\nprint fmt: \"%u %llu\", REC->who, REC->number\n"}}});
  if (writer.error() != 0) return;
  const auto write = [&] {
    alignas(8) u8 payload[common_bytes + sizeof(Tick) + most_filler];
    auto* const ring = writer.ring(0);
    if (ring == nullptr) return;
    Life& life = (*ledger)[me];
    const u64 number = life.before;
    const u32 size = make_tick(payload, me, number);
    payload[0] = 1;
    __atomic_store_n(&life.before, number + 1, __ATOMIC_RELAXED);
    ++(ring->write(payload, size) ? life.written : life.refused);
    __atomic_store_n(&life.after, number + 1, __ATOMIC_RELEASE);
  };
  for (u64 n = 50 + random.below(300); n != 0; --n) {
    for (u64 events = random.below(200); events != 0; --events) write();
    if (random.one_in(20)) {
      const pid_t child = fork_somehow(random);
      if (child == 0) {
        me = ledger->take(where, serial);
        for (int i = 0; i < 100; ++i) write();  // each is refused
        _exit((*ledger)[me].written != 0);
      }
      int status = 0;
      waitpid(child, &status, 0);
      if (status != 0) _exit(9);
    }
    pause_a_little(random);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 6) return 2;
  arguments = argv;
  static const Ledger the_ledger(argv[1]);
  ledger = &the_ledger;
  serial = static_cast<u32>(std::strtoul(argv[2], nullptr, 10));
  Random random(std::strtoull(argv[3], nullptr, 10));
  where = static_cast<Where>(std::atoi(argv[4]));
  const std::string way = argv[5];
  struct sigaction action {};
  action.sa_handler = on_timer;
  action.sa_flags = SA_RESTART;
  sigaction(SIGRTMIN, &action, nullptr);
  if (where == Where::remote) {
    me = ledger->take(where, serial);
    remotely(random, argv[6]);
    return 0;
  }
  if (ringside_open(nullptr) != 0 || ringside_register(&event) != 0) return 0;  // a limit
  if (way == "write") threads(random, random.one_in(2));
  else {
    take_lives();
    forks(random, 0, way == "exec");
  }
  return 0;
}
