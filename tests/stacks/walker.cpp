// A program whose stacks are known: it prints the addresses that it sees, its maps, and stops where a debugger sees the same.
// Each time it also allocates 4711 bytes, which a recorder sees.
// usage: walker [handler | tail | coroutine | vfork]: from a signal handler on a stack of its own, from a function that another
// one left to by a jump, from a coroutine, from a child of vfork and from the program that the child then becomes.
#include <execinfo.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#if defined(__cpp_impl_coroutine)
#include <coroutine>
#endif
#include <functional>
#include <stdexcept>

#define KEPT [[gnu::noinline, gnu::noclone]]

namespace walker {

volatile int sink;

KEPT void capture() {
  void* frames[100];
  const int n = backtrace(frames, 100);
  for (int i = 0; i < n; ++i) std::printf("frame %p\n", frames[i]);
  FILE* maps = std::fopen("/proc/self/maps", "r");
  char line[4096];
  while (std::fgets(line, sizeof line, maps) != nullptr) std::printf("map %s", line);
  std::fclose(maps);
  std::fflush(stdout);
  void* volatile memory = std::malloc(4711);
  std::free(memory);
  raise(SIGTRAP);
  sink = sink + 1;
}

template <class T, int depth>
struct Nest {
  KEPT static void go(T value) {
    Nest<T, depth - 1>::go(value + 1);
    sink = sink + depth;
  }
};
template <class T>
struct Nest<T, 0> {
  KEPT static void go(T value) {
    if (value > 0) capture();
    sink = sink + 1;
  }
};

[[gnu::always_inline]] inline void inner_inlined(int n) {
  sink = sink + n;
  Nest<long, 2>::go(n);
  sink = sink + n;
}
[[gnu::always_inline]] inline void outer_inlined(int n) {
  sink = sink + 1;
  inner_inlined(n + 1);
  sink = sink + 2;
}

KEPT static void hidden(int n) {
  outer_inlined(n);
  sink = sink + 3;
}

class Animal {
 public:
  virtual ~Animal() = default;
  KEPT virtual void speak(int n) const {
    hidden(n);
    sink = sink + 4;
  }
};

KEPT int recursive(int n, const Animal& animal) {
  if (n == 0) {
    animal.speak(1);
    return sink;
  }
  const int r = recursive(n - 1, animal) + 1;
  sink = r;
  return r;
}

KEPT void thrown(const Animal& animal) {
  try {
    throw std::runtime_error("caught");
  } catch (const std::exception&) {
    sink = recursive(3, animal);
  }
}

KEPT void tail_called(const Animal& animal) {
  thrown(animal);
  sink = sink + 6;
}
KEPT void leaves_by_a_jump(const Animal& animal) {
  sink = sink + 7;
  return tail_called(animal);
}
KEPT void before_the_jump() {
  const Animal animal;
  leaves_by_a_jump(animal);
  sink = sink + 8;
}

#if defined(__cpp_impl_coroutine)
struct Task {
  struct promise_type {
    Task get_return_object() { return {std::coroutine_handle<promise_type>::from_promise(*this)}; }
    std::suspend_always initial_suspend() noexcept { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() {}
  };
  std::coroutine_handle<promise_type> handle;
};
Task coroutine() {
  const Animal animal;
  thrown(animal);
  sink = sink + 9;
  co_return;
}
KEPT void resumes() {
  const Task task = coroutine();
  task.handle.resume();
  task.handle.destroy();
  sink = sink + 10;
}
#endif

void on_signal(int) { thrown(Animal()); }

KEPT void in_handler() {
  static char stack[1 << 16];
  stack_t alternate{};
  alternate.ss_sp = stack;
  alternate.ss_size = sizeof stack;
  sigaltstack(&alternate, nullptr);
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_ONSTACK;
  sigaction(SIGUSR1, &action, nullptr);
  raise(SIGUSR1);
  sink = sink + 5;
}

KEPT void executed() {
  thrown(Animal());
  sink = sink + 11;
}
KEPT void spawns(const char* program) {
  const Animal animal;
  const pid_t child = vfork();
  if (child == 0) {
    tail_called(animal);
    execl(program, program, "executed", nullptr);
    _exit(9);
  }
  waitpid(child, nullptr, 0);
}

}  // namespace walker

int main(int argc, char** argv) {
  signal(SIGTRAP, SIG_IGN);
  if (argc > 1 && std::strcmp(argv[1], "tail") == 0)
    walker::before_the_jump();
#if defined(__cpp_impl_coroutine)
  else if (argc > 1 && std::strcmp(argv[1], "coroutine") == 0)
    walker::resumes();
#endif
  else if (argc > 1 && std::strcmp(argv[1], "vfork") == 0)
    walker::spawns(argv[0]);
  else if (argc > 1 && std::strcmp(argv[1], "executed") == 0)
    walker::executed();
  else if (argc > 1)
    walker::in_handler();
  else
    walker::thrown(walker::Animal());
  return walker::sink == 0;
}
