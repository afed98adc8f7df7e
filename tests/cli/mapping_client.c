// A client of the mapping of trace_pipe_raw as the kernel documents it, which knows nothing of ringside: maps, asks for the
// reader, walks with libtraceevent's kbuffer. Prints each step and each marker's text, times and numbers of events aside.
//   mapping_client FILE
#include <fcntl.h>
#include <kbuffer.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

struct meta {
  unsigned page_size, struct_len, subbuf_size, nr_subbufs;
  unsigned long long lost;
  unsigned id, read;
  unsigned long long flags, entries, overrun, read_events;
};

int main(int argc, char** argv) {
  const int fd = argc == 2 ? open(argv[1], O_RDONLY | O_NONBLOCK) : -1;
  if (fd < 0) return 1;
  const struct meta* meta = mmap(NULL, (size_t)getpagesize(), PROT_READ, MAP_SHARED, fd, 0);
  if (meta == MAP_FAILED) return 2;
  const size_t size = (size_t)meta->subbuf_size * meta->nr_subbufs;
  const char* data = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, meta->page_size);
  if (data == MAP_FAILED) return 3;
  printf("meta %u %u %u %u entries %llu overrun %llu\n", meta->page_size, meta->struct_len, meta->subbuf_size, meta->nr_subbufs,
         meta->entries, meta->overrun);
  struct kbuffer* walk = kbuffer_alloc(KBUFFER_LSIZE_8, KBUFFER_ENDIAN_LITTLE);
  unsigned id = meta->id;
  int seen = (int)meta->read, idle = 0;
  while (idle < 2) {
    if (ioctl(fd, _IO('R', 0x20)) != 0) return 4;
    if (meta->id == id && (int)meta->read == seen) {
      ++idle;
      continue;
    }
    idle = 0;
    if (meta->id != id) seen = 0;
    id = meta->id;
    printf("reader %u read %u of %llu lost %llu\n", id, meta->read, meta->read_events, meta->lost);
    if (kbuffer_load_subbuffer(walk, (void*)(data + (size_t)id * meta->subbuf_size)) != 0) return 5;
    if (kbuffer_missed_events(walk) != 0) printf("missed %d\n", kbuffer_missed_events(walk));
    unsigned long long ts;
    for (char* event = kbuffer_read_event(walk, &ts); event != NULL; event = kbuffer_next_event(walk, &ts)) {
      if (kbuffer_curr_offset(walk) < seen) continue;
      const int bytes = kbuffer_event_size(walk);
      printf("%d %.*s\n", bytes, bytes > 16 ? (int)strcspn(event + 16, "\n") : 0, event + 16);
    }
    seen = (int)meta->read;
  }
  kbuffer_free(walk);
  return 0;
}
