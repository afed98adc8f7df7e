// Numbered events from a program's start, a second thread, a child of fork and a thread of that child; says how many it tried
// to write. Its own calls may fail as well; it tries them again.
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <ringside/trace.hpp>

RINGSIDE_EVENT(unit, number, (ringside::u64, n));

namespace {

constexpr int events = 50;

void write_some() {
  for (unsigned n = 0; n < events; ++n) unit::number(n);
}

void* thread_main(void*) {
  write_some();
  return nullptr;
}

// A thread's end is its own calls' and libc's: those must not fail for ever, only once.
void second_thread() {
  pthread_t thread;
  for (int tries = 0; pthread_create(&thread, nullptr, thread_main, nullptr) != 0; ++tries)
    if (tries == 100) _exit(90);
  pthread_join(thread, nullptr);
}

}  // namespace

int main() {
  write_some();
  second_thread();
  pid_t child;
  for (int tries = 0; (child = fork()) < 0; ++tries)
    if (tries == 100) _exit(91);
  if (child == 0) {
    write_some();
    second_thread();
    std::exit(0);
  }
  write_some();
  int status = 0;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR) _exit(92);
  if (status != 0) _exit(93);
  syscall(5001, 1);  // the supervisor leaves this alone
  char text[32];
  const int size = std::snprintf(text, sizeof text, "tried %d\n", 5 * events);
  if (write(1, text, static_cast<size_t>(size)) != size) _exit(94);
  syscall(5001, 0);
}
