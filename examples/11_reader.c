// The reader's side in C, with memory and requests of its own, as a hypervisor has them:
//   ./example_11_reader hv.data && ringside report hv.data
// Without a directory it reads the events itself and counts them.
//
// The writer is a process here, and the memory a memfd; in life they are a guest and its ivshmem device, or a second processor
// and a reserved range. Nothing below depends on that but `ask`, which carries a request to the writer and its answer back.
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <ringside/remote.h>
#include <ringside/remote_reader.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { rings = 2, pages = 9, page = 4096, all_pages = rings * (pages + 1), most = 20000 };

struct tick {
  uint16_t type;  // the 8 common bytes of every event; firmware has no threads, so the format leaves common_pid out
  uint8_t flags, preempt_count;
  int32_t unused;
  uint64_t number;
};
static const char format[] =
    "name: tick\nID: 1\nformat:\n"
    "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n"
    "\tfield:unsigned long long number;\toffset:8;\tsize:8;\tsigned:0;\n\n"
    "print fmt: \"number=%llu\", REC->number\n";

// --- The writer's side: ringside/remote.h.

enum { ask_swap, ask_reset, ask_enable, ask_disable };
struct request {
  uint32_t what, ring, read;
};
struct reply {
  uint32_t what, id, refused;
};

static uint64_t now(void* context) {
  struct timespec t;
  (void)context;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void write_events(int socket, const void* blob, size_t bytes, void* region, size_t region_bytes) {
  static struct ringside_page words[rings][pages];
  static struct ringside_ring ring[rings];
  struct tick tick = {1, 0, 0, 0, 0};
  const char* wrong = ringside_descriptor_check(blob, bytes, region_bytes);
  uint32_t n;
  if (wrong) {
    fprintf(stderr, "the writer refuses its descriptor: %s\n", wrong);
    _exit(1);
  }
  for (n = 0; n < rings; ++n) ringside_ring_init(&ring[n], blob, n, region, words[n], now, NULL);
  for (;;) {
    struct pollfd asked = {socket, POLLIN, 0};
    const bool writing = !ring[0].off && tick.number < most;
    struct request r;
    struct reply a = {0, 0, 0};
    if (writing) {
      ringside_ring_write(&ring[tick.number % rings], &tick, sizeof tick);
      ++tick.number;
    }
    if (poll(&asked, 1, writing ? 0 : -1) <= 0) continue;
    if (recv(socket, &r, sizeof r, 0) != sizeof r || r.ring >= rings) _exit(0);
    if (r.what == ask_swap) a.what = ringside_ring_swap(&ring[r.ring], r.read, &a.id);
    if (r.what == ask_reset) ringside_ring_reset(&ring[r.ring]);  // no event is open here
    for (n = 0; n < rings && r.what >= ask_enable; ++n) {
      if (r.what == ask_enable) ringside_ring_enable(&ring[n]);
      if (r.what == ask_disable) ringside_ring_disable(&ring[n]);
    }
    a.refused = ringside_ring_refused(&ring[r.ring]);
    if (send(socket, &a, sizeof a, MSG_NOSIGNAL) != sizeof a) _exit(0);
  }
}

// --- The reader's side: ringside/remote_reader.h.

static int ask(int socket, uint32_t what, uint32_t ring, uint32_t read, struct reply* a) {
  const struct request r = {what, ring, read};
  struct pollfd answered = {socket, POLLIN, 0};
  if (send(socket, &r, sizeof r, MSG_NOSIGNAL) != sizeof r) return errno;
  if (poll(&answered, 1, 5000) <= 0) return EIO;
  return recv(socket, a, sizeof *a, 0) == sizeof *a ? 0 : EPIPE;
}
static int swap(void* pointer, uint32_t ring, uint32_t read, struct ringside_remote_answer* answer) {
  struct reply a;
  const int error = ask(*(int*)pointer, ask_swap, ring, read, &a);
  if (error) return error;
  answer->what = a.what, answer->id = a.id, answer->refused = a.refused, answer->counts_refused = true;
  return 0;
}
static int reset(void* pointer, uint32_t ring) {
  struct reply a;
  return ask(*(int*)pointer, ask_reset, ring, 0, &a);
}
static int enable(void* pointer, bool on) {
  struct reply a;
  return ask(*(int*)pointer, on ? ask_enable : ask_disable, 0, 0, &a);
}

static int read_events(struct ringside_remote_reader* reader) {
  char error[512];
  struct ringside_consumer_event event;
  struct ringside_consumer* consumer = ringside_remote_reader_consume(reader, NULL, error, sizeof error);
  const int number = consumer ? ringside_consumer_column(consumer, "hv:tick/number", error, sizeof error) : -1;
  uint64_t seen = 0, lost = 0;
  if (number < 0) {
    fprintf(stderr, "%s\n", error);
    return 1;
  }
  do {
    while (ringside_consumer_next(consumer, &event)) {
      int64_t value;
      lost += event.lost;
      if (ringside_consumer_number(consumer, number, &value)) ++seen;
    }
    if (seen + lost >= most) ringside_consumer_stop(consumer);
  } while (ringside_consumer_wait(consumer));
  ringside_consumer_close(consumer);
  printf("%llu events read, %llu lost\n", (unsigned long long)seen, (unsigned long long)lost);
  return seen + lost == most ? 0 : 1;
}

int main(int argc, char** argv) {
  const int memory = memfd_create("rings", MFD_CLOEXEC);
  const size_t bytes = (size_t)all_pages * page;
  void* region = memory >= 0 && ftruncate(memory, (off_t)bytes) == 0
                     ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0)
                     : MAP_FAILED;
  struct ringside_ring_place ring[rings];
  uint64_t offsets[rings][pages];
  static uint64_t blob[512];
  int pair[2];
  uint32_t n, k;
  if (region == MAP_FAILED || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
    perror("no shared memory");
    return 1;
  }

  // Pages as an allocator hands them out: here each ring has every second one, from the end to the beginning.
  for (n = 0; n < rings; ++n) {
    ring[n].id = n, ring[n].nr_pages = pages, ring[n].pages = offsets[n];
    ring[n].meta = (uint64_t)(all_pages - 1 - n) * page;
    for (k = 0; k < pages; ++k) offsets[n][k] = (uint64_t)(all_pages - 1 - n - rings * (k + 1)) * page;
  }
  const char* const wrong = ringside_descriptor_pack(blob, RINGSIDE_META_PAGE, 1, page, bytes, ring, rings);
  if (wrong) {
    fprintf(stderr, "%s\n", wrong);
    return 1;
  }

  const pid_t writer = fork();
  if (writer == 0) {
    close(pair[0]);
    write_events(pair[1], blob, ringside_descriptor_bytes(ring, rings), region, bytes);
  }
  close(pair[1]);

  char error[512] = "";
  const struct ringside_remote_event event = {1, "hv", "tick", format};
  const struct ringside_remote_options options = {.name = "hv",
                                                  .descriptor = blob,
                                                  .descriptor_bytes = ringside_descriptor_bytes(ring, rings),
                                                  .region = region,
                                                  .region_bytes = bytes,
                                                  .events = &event,
                                                  .nr_events = 1,
                                                  .callbacks = {swap, NULL, reset, enable, &pair[0]}};
  struct ringside_remote_reader* reader = ringside_remote_reader_open(&options, error, sizeof error);
  int code = 1;
  if (reader == NULL)
    fprintf(stderr, "%s\n", error);
  else if (argc > 1 && !ringside_remote_reader_record(reader, argv[1], 1000000000, error, sizeof error))
    fprintf(stderr, "%s\n", error);
  else
    code = argc > 1 ? 0 : read_events(reader);
  ringside_remote_reader_close(reader);
  close(pair[0]);
  waitpid(writer, NULL, 0);
  return code;
}
