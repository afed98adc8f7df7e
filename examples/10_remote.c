// 03_remote.cpp in plain C: a process that owns no rings. A reader brings them along, and may come and go:
//   ./example_10_remote /tmp/app.rings &
//   ringside remote /tmp/app.rings --duration 2s -o app.data && ringside report app.data
// Without a path it writes to nobody for a moment and ends.
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <ringside/remote.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct tick {
  uint16_t type;  // the 8 common bytes of every event
  uint8_t flags, preempt_count;
  int32_t pid;
  uint64_t number, twice;
};
static const char format[] =
    "name: tick\nID: 1\nformat:\n"
    "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n"
    "\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n"
    "\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n"
    "\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n"
    "\tfield:unsigned long long number;\toffset:8;\tsize:8;\tsigned:0;\n"
    "\tfield:unsigned long long twice;\toffset:16;\tsize:8;\tsigned:0;\n\n"
    "print fmt: \"number=%llu twice=%llu\", REC->number, REC->twice\n";

int main(int argc, char** argv) {
  const struct ringside_process_event event = {1, "app", "tick", format};
  struct ringside_process_options options = {.events = &event, .nr_events = 1, .nr_rings = 1};
  const struct timespec pause = {0, 100000};
  struct ringside_process* process;
  char path[64];
  uint64_t n;

  snprintf(path, sizeof path, "/tmp/ringside-example-%d", (int)getpid());
  options.path = argc > 1 ? argv[1] : path;
  process = ringside_process_open(&options);
  if (process == NULL) {
    fprintf(stderr, "cannot listen at %s: %s\n", options.path, strerror(errno));
    return 1;
  }
  for (n = 0; argc > 1 || n < 100; ++n) {
    struct tick tick = {1, 0, 0, 0, 0, 0};
    tick.pid = (int32_t)getpid();
    tick.number = n;
    tick.twice = 2 * n;
    ringside_process_write(process, 0, &tick, sizeof tick);  // false: nobody reads
    nanosleep(&pause, NULL);
  }
  ringside_process_close(process);
  return 0;
}
