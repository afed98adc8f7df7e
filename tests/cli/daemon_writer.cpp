// Becomes a daemon: its parent ends at once, the child writes events in two halves.
//   daemon_writer SILENT READY GO: SILENT=1, it writes the first half only once the file GO is there; it makes the file READY
//   before it waits for GO, and DONE behind its last event.
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <ringside/trace.hpp>

RINGSIDE_EVENT(d, ev, (u32, n));

int main(int argc, char** argv) {
  if (argc < 5) return 2;
  const bool silent = std::strcmp(argv[1], "1") == 0;
  if (fork() != 0) _exit(0);
  const auto half = [](unsigned from) {
    for (unsigned n = from; n < from + 500; ++n) d::ev(n);
  };
  if (!silent) half(0);
  close(open(argv[2], O_CREAT | O_WRONLY, 0600));
  while (access(argv[3], F_OK) != 0) usleep(1000);
  if (silent) half(0);
  half(500);
  close(open(argv[4], O_CREAT | O_WRONLY, 0600));
}
