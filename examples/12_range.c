// Rings and a mailbox in a range of memory that two sides map: a reserved range behind /dev/mem, or the memory of qemu's
// ivshmem device, which is a file of the host and a PCI resource of the guest. Nothing but that memory is shared; both sides
// look at it.
//
//   host:   ./example_12_range read /dev/shm/rings 0 hv.data
//           qemu ... -object memory-backend-file,id=m,share=on,mem-path=/dev/shm/rings,size=1M -device ivshmem-plain,memdev=m
//   guest:  ./example_12_range write /sys/bus/pci/devices/0000:00:05.0/resource2 0
//   or a second processor that writes, and a range that the kernel was told to leave alone (memmap=1M$0x80000000):
//           ./example_12_range read /dev/mem 0x80000000 hv.data
//
// Without a command it is both, over a file and a range in the middle of it.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <ringside/remote.h>
#include <ringside/remote_reader.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { pages = 9, page = 4096, range = 1 << 20, blob_at = page, most_blob = page, rings_at = 2 * page, most = 20000 };
enum { ask_swap = 1, ask_reset, ask_enable, ask_disable, ask_end };

// At the beginning of the range. The reader fills in a request and then counts `asked` up; the writer follows with `answered`.
struct mailbox {
  uint32_t magic, blob_bytes;  // the magic comes last: then the blob is there
  uint32_t asked, what, read;
  uint32_t answered, swapped, id, refused;
};
static const uint32_t magic = 0x52474D42;

static uint32_t get(const uint32_t* word) { return __atomic_load_n(word, __ATOMIC_ACQUIRE); }
static void put(uint32_t* word, uint32_t value) { __atomic_store_n(word, value, __ATOMIC_RELEASE); }
static uint64_t now(void* context) {
  struct timespec t;
  (void)context;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
static void pause_a_little(void) { usleep(100); }

static void* map(const char* path, off_t offset) {
  const int fd = open(path, O_RDWR | O_SYNC | O_CLOEXEC);
  void* const at = fd >= 0 ? mmap(NULL, range, PROT_READ | PROT_WRITE, MAP_SHARED, fd, offset) : MAP_FAILED;
  if (at == MAP_FAILED) {
    fprintf(stderr, "%s: %s\n", path, strerror(errno));
    exit(1);
  }
  close(fd);
  return at;
}

struct tick {
  uint16_t type;
  uint8_t flags, preempt_count;
  int32_t unused;
  uint64_t number;
};
static const char format[] =
    "name: tick\nID: 1\nformat:\n"
    "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n"
    "\tfield:unsigned long long number;\toffset:8;\tsize:8;\tsigned:0;\n\n"
    "print fmt: \"number=%llu\", REC->number\n";

// --- The writer's side: ringside/remote.h. It copies the blob before it looks at it.
static int write_events(uint8_t* memory) {
  static uint64_t blob[most_blob / 8];
  static struct ringside_page words[pages];
  static struct ringside_ring ring;
  struct mailbox* const box = (struct mailbox*)memory;
  struct tick tick = {1, 0, 0, 0, 0};
  uint32_t answered = 0;
  while (get(&box->magic) != magic) pause_a_little();
  const uint32_t bytes = get(&box->blob_bytes);
  if (bytes > sizeof blob) return 1;
  memcpy(blob, memory + blob_at, bytes);
  const char* const wrong = ringside_descriptor_check(blob, bytes, range);
  if (wrong) {
    fprintf(stderr, "the writer refuses its descriptor: %s\n", wrong);
    return 1;
  }
  ringside_ring_init(&ring, blob, 0, memory, words, now, NULL);
  for (;;) {
    const bool writing = !ring.off && tick.number < most;
    if (writing) {
      ringside_ring_write(&ring, &tick, sizeof tick);
      ++tick.number;
    }
    if (get(&box->asked) == answered) {
      if (!writing) pause_a_little();
      continue;
    }
    const uint32_t what = box->what;
    if (what == ask_swap) box->swapped = ringside_ring_swap(&ring, box->read, &box->id);
    if (what == ask_reset) ringside_ring_reset(&ring);  // no event is open here
    if (what == ask_enable) ringside_ring_enable(&ring);
    if (what == ask_disable) ringside_ring_disable(&ring);
    box->refused = ringside_ring_refused(&ring);
    put(&box->answered, ++answered);
    if (what == ask_end) return 0;
  }
}

// --- The reader's side: ringside/remote_reader.h.
static int ask(struct mailbox* box, uint32_t what, uint32_t read) {
  const uint32_t number = box->asked + 1;
  box->what = what, box->read = read;
  put(&box->asked, number);
  for (const uint64_t until = now(NULL) + 5000000000u; get(&box->answered) != number; pause_a_little())
    if (now(NULL) > until) return EIO;
  return 0;
}
static int swap(void* box, uint32_t ring, uint32_t read, struct ringside_remote_answer* answer) {
  const struct mailbox* const from = box;
  const int error = ask(box, ask_swap, read);
  (void)ring;
  answer->what = from->swapped, answer->id = from->id, answer->refused = from->refused, answer->counts_refused = true;
  return error;
}
static int reset(void* box, uint32_t ring) { return (void)ring, ask(box, ask_reset, 0); }
static int enable(void* box, bool on) { return ask(box, on ? ask_enable : ask_disable, 0); }

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

static int read_range(uint8_t* memory, const char* recording) {
  struct mailbox* const box = (struct mailbox*)memory;
  uint64_t offsets[pages];
  const struct ringside_ring_place ring = {0, pages, rings_at, offsets};
  static uint64_t blob[most_blob / 8];
  char error[512] = "";
  uint32_t k;
  for (k = 0; k < pages; ++k) offsets[k] = rings_at + (uint64_t)(k + 1) * page;
  const size_t bytes = ringside_descriptor_bytes(&ring, 1);
  const char* const wrong = ringside_descriptor_pack(blob, RINGSIDE_META_PAGE, 2, page, range, &ring, 1);
  if (wrong) {
    fprintf(stderr, "%s\n", wrong);
    return 1;
  }
  const struct ringside_remote_event event = {1, "hv", "tick", format};
  const struct ringside_remote_options options = {.name = "hv",
                                                  .clock = 2,
                                                  .ticks_per_second = 1000000000,
                                                  .descriptor = blob,
                                                  .descriptor_bytes = bytes,
                                                  .region = memory,
                                                  .region_bytes = range,
                                                  .events = &event,
                                                  .nr_events = 1,
                                                  .callbacks = {swap, NULL, reset, enable, box}};
  memset(memory, 0, rings_at);
  struct ringside_remote_reader* reader = ringside_remote_reader_open(&options, error, sizeof error);
  if (reader == NULL) {
    fprintf(stderr, "%s\n", error);
    return 1;
  }
  memcpy(memory + blob_at, blob, bytes);
  box->blob_bytes = (uint32_t)bytes;
  put(&box->magic, magic);
  for (k = 0; k < 120 && ask(box, ask_disable, 0) != 0; ++k) box->asked = 0;  // until the writer is there
  int code = 0;
  if (recording && !ringside_remote_reader_record(reader, recording, 1000000000, error, sizeof error))
    fprintf(stderr, "%s\n", error), code = 1;
  if (!recording) code = read_events(reader);
  (void)ask(box, ask_end, 0);
  ringside_remote_reader_close(reader);
  return code;
}

int main(int argc, char** argv) {
  if (argc >= 4 && strcmp(argv[1], "write") == 0) return write_events(map(argv[2], (off_t)strtoull(argv[3], NULL, 0)));
  if (argc >= 4 && strcmp(argv[1], "read") == 0)
    return read_range(map(argv[2], (off_t)strtoull(argv[3], NULL, 0)), argc > 4 ? argv[4] : NULL);
  char file[] = "/tmp/example_12_XXXXXX";
  const int made = mkstemp(file);
  if (made < 0 || ftruncate(made, 3 * range) != 0) {
    perror(file);
    return 1;
  }
  close(made);
  const pid_t writer = fork();
  if (writer == 0) _exit(write_events(map(file, range)));
  int status = 1;
  const int code = read_range(map(file, range), NULL);
  waitpid(writer, &status, 0);
  unlink(file);
  return code != 0 ? code : status;
}
