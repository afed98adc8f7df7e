// A program, built with frame pointers and without (sampled_tables), whose samples are known: between two events it is in
// `spun`, then in the kernel, then its short-lived children are in `short_lived`. usage: sampled [short | hold | events]
#include <fcntl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cstring>
#include <ringside/trace.hpp>

#define KEPT [[gnu::noinline, gnu::noclone]]

RINGSIDE_EVENT(sampled, begin);
RINGSIDE_EVENT(sampled, end);

volatile unsigned long sink;

// Of CPU time: however busy the machine is, so much is sampled.
KEPT unsigned long cpu_ns() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<unsigned long>(t.tv_sec) * 1'000'000'000 + static_cast<unsigned long>(t.tv_nsec);
}

KEPT void spun(unsigned long ns) {
  const unsigned long until = cpu_ns() + ns;
  do {
    for (unsigned i = 0; i < 10'000; ++i) sink = sink + i;
  } while (cpu_ns() < until);
}

KEPT void caller_of_spun(unsigned long ns) {
  spun(ns);
  sink = sink + 1;
}

KEPT void short_lived() {
  const unsigned long until = cpu_ns() + 10'000'000;
  do {
    for (unsigned i = 0; i < 10'000; ++i) sink = sink + i;
  } while (cpu_ns() < until);
}

KEPT void in_kernel() {
  static char bytes[1 << 16];
  const int zero = open("/dev/zero", O_RDONLY | O_CLOEXEC);
  for (const unsigned long until = cpu_ns() + 100'000'000; cpu_ns() < until;)
    sink = sink + static_cast<unsigned long>(read(zero, bytes, sizeof bytes));
  close(zero);
}

int main(int count, char** words) {
  if (count > 1 && std::strcmp(words[1], "short") == 0) {
    short_lived();
    return 0;
  }
  if (count > 1 && std::strcmp(words[1], "events") == 0) {
    sampled::begin();
    sampled::end();
    return 0;
  }
  while (count > 1) caller_of_spun(1'000'000'000);
  sampled::begin();
  caller_of_spun(200'000'000);
  sampled::end();
  in_kernel();
  for (int i = 0; i < 3; ++i) {
    const pid_t child = fork();
    if (child == 0) execl(words[0], words[0], "short", nullptr);
    waitpid(child, nullptr, 0);
  }
}
