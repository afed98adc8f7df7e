// The reader's side of an external writer, in C99 and C++: for a program that has memory of its own and a way of its own to ask
// the writer, as a hypervisor, a monitor of virtual machines or a driver has. Linux; links libringside-consumer. The writer's
// side is <ringside/remote.h> or <ringside/remote/remote_writer.hpp>, and docs/remote-writers.md the whole story.
//
//   struct ringside_remote_options options = {
//       .name = "hv", .descriptor = blob, .descriptor_bytes = bytes, .region = memory, .region_bytes = size,
//       .events = events, .nr_events = 2, .callbacks = {swap, update, reset, enable, me}};
//   struct ringside_remote_reader* reader = ringside_remote_reader_open(&options, error, sizeof error);
//   ringside_remote_reader_record(reader, "hv.data", 5000000000, error, sizeof error);      // `ringside report hv.data`
//   ringside_remote_reader_close(reader);
//
// Rings only overwrite, keep their size, and are never written by the reader. Nothing in them is trusted: what contradicts the
// reader's own geometry is an error that names the ring, and nothing beyond a sub-buffer is read. Memory that the caller brings
// stays mapped, and of its size, until the reader is closed.
//
// A reader, with what was opened of it, is for one thread at a time; ringside_remote_reader_poke and
// ringside_remote_reader_gone may be called from any. Callbacks come from the thread that reads; update_footers also from those
// that poke, of which ringside_remote_reader_poll_every makes one.
#ifndef RINGSIDE_REMOTE_READER_H
#define RINGSIDE_REMOTE_READER_H

#include <ringside/consumer.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ringside_remote_reader;

enum { RINGSIDE_PAGE_FOOTERS = 1, RINGSIDE_META_PAGE = 2 };  // layout: docs/remote-writers.md

// An answer to swap_reader: `what` is what ringside_ring_swap returned (0 nothing, 1 more, 2 swapped, 3 corrupt), id the page.
struct ringside_remote_answer {
  uint32_t what, id;
  uint32_t refused;     // events that the ring has refused so far, modulo 2^32
  bool counts_refused;  // false: the writer does not count them
};

// Calls to the writer, with the caller's pointer. Each answers 0 or an errno, and ends by itself: ETIMEDOUT says that the
// writer may still answer later, and the reader asks again; any other error concerns this call.
struct ringside_remote_callbacks {
  int (*swap_reader)(void* pointer, uint32_t ring, uint32_t read, struct ringside_remote_answer* answer);
  int (*update_footers)(void* pointer, uint32_t ring);  // with page footers; else NULL is fine
  int (*reset)(void* pointer, uint32_t ring);           // disable, wait until no event is open, reset, enable
  int (*enable)(void* pointer, bool on);                // NULL: the writer always writes
  void* pointer;
};

// A ring in the caller's memory, by address: its sub-buffers by id, of which the first one is the reader's, in any order and
// from any mapping, aligned to 8.
struct ringside_remote_ring {
  uint32_t nr_pages;   // at least 3
  void* meta;          // with a meta-page
  void* const* pages;  // nr_pages
};

struct ringside_remote_event {
  uint32_t id;  // the first two bytes of its payload
  const char *system, *name;
  const char* format;  // the text of a tracefs format file
};

// Memory, one of three: `descriptor` and `region` (ringside_descriptor_pack: by offset); `rings` (by address); neither:
// allocated, nr_rings of `size` bytes of events each. What is 0 or NULL has its default.
struct ringside_remote_options {
  const char* name;  // in messages, and of its rings ("the external writer")
  uint32_t layout;
  uint32_t subbuf_size;       // 4,096 to 262,144, a power of two; a descriptor has its own
  uint32_t clock;             // the writer's: 0 time stamp counter, 1 CLOCK_MONOTONIC in ns, 2 its own, 3 cntvct_el0
  uint64_t ticks_per_second;  // of a clock of its own; 0: it counts no time
  const void* descriptor;     // copied; aligned to 8
  size_t descriptor_bytes;
  void* region;
  uint64_t region_bytes;
  const struct ringside_remote_ring* rings;
  uint32_t nr_rings;
  uint64_t size;
  const struct ringside_remote_event* events;
  size_t nr_events;
  struct ringside_remote_callbacks callbacks;
};

// NULL: error says why.
struct ringside_remote_reader* ringside_remote_reader_open(const struct ringside_remote_options* options, char* error,
                                                           size_t error_size);
void ringside_remote_reader_close(
    struct ringside_remote_reader* reader);  // NULL is fine; what was opened of it is closed before

// Of allocated memory: the file that both sides map, and its descriptor, for the writer. -1, NULL: the caller has them.
int ringside_remote_reader_fd(const struct ringside_remote_reader* reader);
const void* ringside_remote_reader_descriptor(const struct ringside_remote_reader* reader, size_t* bytes);

// Looks at a ring, and wakes those who wait for it. 1: there is something to read; 0: not; else a negative errno.
int ringside_remote_reader_poke(struct ringside_remote_reader* reader, uint32_t ring);
int ringside_remote_reader_poll_every(struct ringside_remote_reader* reader,
                                      uint64_t ns);                                      // in a thread of its own; 0: no more
int ringside_remote_reader_enable(struct ringside_remote_reader* reader, bool on);       // 0, or an errno
int ringside_remote_reader_reset(struct ringside_remote_reader* reader, uint32_t ring);  // while nothing reads it
// The writer is dead: what it has committed is read from the sub-buffers alone, and that is the end.
void ringside_remote_reader_gone(struct ringside_remote_reader* reader, const char* why);

// Its events, alone or in one order with others: recordings, instances, the live kernel (options; NULL: alone). One at a time,
// and closed before the reader.
struct ringside_consumer* ringside_remote_reader_consume(struct ringside_remote_reader* reader,
                                                         const struct ringside_consumer_options* options, char* error,
                                                         size_t error_size);
// Records until the writer is gone, this time is over (0: no limit) or ringside_remote_reader_stop. An older recording becomes
// DIR.old. False: error says why; what was recorded before is there.
bool ringside_remote_reader_record(struct ringside_remote_reader* reader, const char* dir, uint64_t duration_ns, char* error,
                                   size_t error_size);
void ringside_remote_reader_stop(struct ringside_remote_reader* reader);  // from any thread, and from signal handlers

#ifdef __cplusplus
}
#endif
#endif
