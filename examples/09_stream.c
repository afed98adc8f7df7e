// 04_stream.cpp in plain C: firmware without shared memory, and without a C++ compiler:
//   ./example_09_stream | ringside stream - -o fw.data && ringside report fw.data
// An argument says how many events (default 10,000).
#include <ringside/remote.h>
#include <stdio.h>
#include <stdlib.h>

struct sample {
  uint16_t type;  // the 8 common bytes of every event
  uint8_t flags, preempt_count;
  int32_t pid;
  uint32_t number, volts;
};
static const char format[] =
    "name: sample\nID: 7\nformat:\n"
    "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n"
    "\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n"
    "\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n"
    "\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n"
    "\tfield:unsigned int number;\toffset:8;\tsize:4;\tsigned:0;\n"
    "\tfield:unsigned int volts;\toffset:12;\tsize:4;\tsigned:0;\n\n"
    "print fmt: \"number=%u volts=%u\", REC->number, REC->volts\n";

// What firmware would place in its RAM: 8 sub-buffers of 4 KiB, and 16 bytes for each.
static uint64_t memory[8 * 4096 / 8];
static struct ringside_page words[8];
static struct ringside_ring ring;

static uint64_t us;  // a timer, say
static uint64_t timer(void* context) { return *(uint64_t*)context; }
static void put(void* context, const void* bytes, uint32_t n) { fwrite(bytes, 1, n, (FILE*)context); }

int main(int argc, char** argv) {
  const unsigned events = argc > 1 ? (unsigned)atoi(argv[1]) : 10000;
  struct ringside_stream line = {put, stdout, 0};
  const struct ringside_ring* const rings[] = {&ring};
  unsigned n;

  if (!ringside_ring_init_stream(&ring, memory, words, 8, 4096, timer, &us)) return 1;
  ringside_stream_hello(&line, 2, 4096, 1000000);
  ringside_stream_event(&line, 7, "board", "sample", format);
  for (n = 0; n < events; ++n) {
    struct sample s = {7, 0, 0, 0, n, 3300 + n % 17};
    us += 125;
    ringside_ring_write(&ring, &s, sizeof s);                     // in tasks and interrupts
    if (n % 100 == 0) ringside_stream_push(&line, 0, &ring, false);  // in the idle task
  }
  ringside_stream_push(&line, 0, &ring, true);
  ringside_stream_end_of(&line, rings, 1);
  return 0;
}
