// External writers in plain C: firmware, a guest, a second processor, a process. C99, little endian, header-only and
// freestanding; only what is under "A process" needs Linux and libringside. <ringside/remote/*.hpp> is the same in C++, and
// docs/remote-writers.md the whole story. Readers see no difference.
//
// A line (UART, pipe, file). The ring lies in the writer's own memory; an idle loop pushes finished sub-buffers:
//
//   static uint32_t memory[8 * 4096 / 4]; static struct ringside_page words[8]; static struct ringside_ring ring;
//   ringside_ring_init_stream(&ring, memory, words, 8, 4096, clock, NULL);
//   struct ringside_stream line = {put, NULL, 0};                     // put(context, bytes, n): sends all of them
//   ringside_stream_hello(&line, 2, 4096, 1000000);
//   ringside_stream_event(&line, 7, "board", "sample", format);
//   ringside_ring_write(&ring, &sample, sizeof sample);               // tasks and interrupts
//   ringside_stream_push(&line, 0, &ring, false);                     // the idle loop
//
// Shared memory. The reader sends a descriptor; ring N of it is written, and the reader's requests are answered, by:
//
//   const char* wrong = ringside_descriptor_check(blob, bytes, region_bytes);            // NULL: it is good. A copy of it
//   ringside_ring_init(&ring, blob, N, region, words, clock, NULL);                      // words: ringside_ring_pages(blob, N) of them
//   ringside_ring_write(&ring, &event, sizeof event);
//   ringside_ring_swap(&ring, read, &id); ringside_ring_update(&ring); ringside_ring_reset(&ring);     // swap, update, reset
//
// A process: ringside_process_open and _write, at the end.
//
// Contexts. One context writes to a ring; a handler that interrupts it may write, too, but such an event is refused and counted
// while one is open (`nested`). Another context, on any processor, swaps or pushes: one at a time, and never in the middle of
// another. Neither waits for the other. A ring that is full overwrites its oldest sub-buffer, and the reader counts what it
// missed.
//
// Limits. 32-bit atomics (load, store, compare-and-swap without a library): ARMv7-M and later, RV32A, i486 and later. Without
// them (ARMv6-M, RV32I) or to save them, define RINGSIDE_SINGLE_CORE before the include: then both contexts are on one
// processor, and RINGSIDE_LOCK() and RINGSIDE_UNLOCK(), your macros, disable and enable its interrupts, for a few instructions.
// No 64-bit atomics, no division, no library: memcpy and memset alone. On 32 bits the meta-page's counters (not its events) may
// be read torn when their low half wraps. 3 to 4,095 sub-buffers a ring. A lap has 20 bits: a reader that stops in the
// middle of a swap while the ring goes round 2^20 times may take a later page for the one that it wanted; its index shows it.
#ifndef RINGSIDE_REMOTE_H
#define RINGSIDE_REMOTE_H

#include <ringside/remote_ring.h>

// ---------------------------------------------------------------------------------------------------------------------------
// The descriptor that a reader of shared memory sends (remote/descriptor.hpp describes the blob)

static inline uint32_t ringside_get32(const void* blob, size_t at) {
  uint32_t value;
  __builtin_memcpy(&value, (const uint8_t*)blob + at, sizeof value);
  return value;
}
static inline uint64_t ringside_get64(const void* blob, size_t at) {
  uint64_t value;
  __builtin_memcpy(&value, (const uint8_t*)blob + at, sizeof value);
  return value;
}

// sum * 0x100000001B3, for processors that do not multiply: compilers would make one multiplication of all the terms.
static inline uint64_t ringside_checksum_step(uint64_t sum) {
  uint64_t out = sum;
  __asm__("" : "+r"(out));
  out += sum << 1;
  __asm__("" : "+r"(out));
  out += sum << 4;
  __asm__("" : "+r"(out));
  out += sum << 5;
  __asm__("" : "+r"(out));
  out += sum << 7;
  __asm__("" : "+r"(out));
  out += sum << 8;
  __asm__("" : "+r"(out));
  return out + (sum << 40);
}
// Is the offset one of a ring before `index`, or of this one before place `k`?
static inline bool ringside_descriptor_has(const void* blob, uint32_t index, uint32_t k, uint64_t offset) {
  size_t at = 48;
  uint32_t ring, n;
  for (ring = 0; ring <= index; ++ring) {
    uint32_t end = ring == index ? k : ringside_get32(blob, at + 4) + 1;
    for (n = 0; n < end; ++n)
      if (ringside_get64(blob, at + 8 + (size_t)n * 8) == offset) return true;
    at += 16 + (size_t)ringside_get32(blob, at + 4) * 8;
  }
  return false;
}
// NULL: the blob is a descriptor for a region of this size, as this side sees it; otherwise what is wrong with it. The caller's
// own copy of it, aligned to 8: nobody else can change it from now on.
static inline const char* ringside_descriptor_check(const void* blob, size_t bytes, uint64_t region_bytes) {
  uint64_t sum = 0xCBF29CE484222325u, free = 0;
  uint32_t size, subbuf, rings, ring, last = 0, before = 0;
  bool ascending = true;
  size_t at;
  if (bytes < 48) return "it is shorter than its header";
  if (ringside_get64(blob, 0) != 0x45544F4D45525352u) return "its magic number is not RSREMOTE";
  if (ringside_get32(blob, 8) != 1) return "its version is not 1";
  size = ringside_get32(blob, 12);
  if (size > bytes || size < 48 || size % 8) return "its length is not that of the blob";
  for (at = 0; at < size; at += 8) sum = ringside_checksum_step(sum ^ (at == 40 ? 0 : ringside_get64(blob, at)));
  if (sum != ringside_get64(blob, 40)) return "its checksum does not match";
  if (ringside_get32(blob, 16) - 1 > 1) return "its layout is neither page footers nor a meta-page";
  if (ringside_get32(blob, 20) > 3) return "its clock is unknown";
  subbuf = ringside_get32(blob, 24);
  if (subbuf < 4096 || subbuf > 262144 || (subbuf & (subbuf - 1)))
    return "its sub-buffer size is no power of two from 4096 to 262144";
  if (ringside_get64(blob, 32) > region_bytes) return "it describes more memory than there is";
  if ((size_t)ringside_get64(blob, 32) != ringside_get64(blob, 32))
    return "it describes more memory than this processor can address";
  rings = ringside_get32(blob, 28);
  if (rings == 0) return "it has no rings";
  for (at = 48, ring = 0; ring < rings; ++ring) {
    uint32_t id, pages, k;
    if (size - at < 16) return "it ends within a ring";
    id = ringside_get32(blob, at);
    pages = ringside_get32(blob, at + 4);
    if (ring && id <= last) return id == last ? "two rings have the same id" : "the rings' ids do not ascend";
    last = id;
    if (pages < 3) return "a ring has fewer than 3 sub-buffers";
    if (pages > RINGSIDE_SLOT_IDS) return "a ring has too many sub-buffers";
    if (id >= 1u << 24) return "a ring's id is not below 2^24";
    if ((size - at - 16) / 8 < pages) return "it ends within a ring";
    for (k = 0; k <= pages; ++k) {
      uint64_t offset = ringside_get64(blob, at + 8 + (size_t)k * 8);  // the meta-page, then the sub-buffers
      if (offset & (subbuf - 1)) return "an offset is no multiple of the sub-buffer size";
      if (offset > ringside_get64(blob, 32) || ringside_get64(blob, 32) - offset < subbuf)
        return "a sub-buffer reaches beyond the region";
      ascending = ascending && offset >= free;
      free = offset + subbuf;
      if (++before > 4096 && !ascending) return "more than 4,096 sub-buffers do not ascend";
      if (!ascending && ringside_descriptor_has(blob, ring, k, offset)) return "two sub-buffers are one";
    }
    at += 16 + (size_t)pages * 8;
  }
  return at == size ? NULL : "something follows its last ring";
}

static inline uint32_t ringside_descriptor_rings(const void* blob) { return ringside_get32(blob, 28); }
// The clock that the reader expects: 0 the time stamp counter, 1 CLOCK_MONOTONIC in ns, 2 yours, 3 cntvct_el0. Refuse one that
// you do not have.
static inline uint32_t ringside_descriptor_clock(const void* blob) { return ringside_get32(blob, 20); }

// A ring of a descriptor to pack, or of a checked one. Offsets are multiples of subbuf_size, in any order. Without a reader, a
// writer packs its own.
struct ringside_ring_place {
  uint32_t id, nr_pages;  // ids ascend; 3 to 4,095 sub-buffers
  uint64_t meta;          // offset of the meta-page, subbuf_size long; with page footers the place for one, which nobody writes
  const uint64_t* pages;  // offsets of the sub-buffers; the first one is the reader's
};
static inline size_t ringside_descriptor_bytes(const struct ringside_ring_place* rings, uint32_t n) {
  size_t bytes = 48;
  uint32_t k;
  for (k = 0; k < n; ++k) bytes += 16 + (size_t)rings[k].nr_pages * 8;
  return bytes;
}
// to: ringside_descriptor_bytes of them, aligned to 8. layout: 1 page footers, 2 a meta-page. NULL: it is good; otherwise what
// is wrong.
static inline const char* ringside_descriptor_pack(void* to, uint32_t layout, uint32_t clock, uint32_t subbuf_size,
                                                   uint64_t region_bytes, const struct ringside_ring_place* rings, uint32_t n) {
  uint8_t* blob = (uint8_t*)to;
  uint64_t magic = 0x45544F4D45525352u, sum = 0xCBF29CE484222325u;
  size_t bytes = ringside_descriptor_bytes(rings, n), at;
  uint32_t head[6] = {1, 0, 0, 0, 0, 0}, k;
  if (bytes > 1u << 30) return "it is longer than a GiB";
  head[1] = (uint32_t)bytes, head[2] = layout, head[3] = clock, head[4] = subbuf_size, head[5] = n;
  __builtin_memcpy(blob, &magic, 8);
  __builtin_memcpy(blob + 8, head, sizeof head);
  __builtin_memcpy(blob + 32, &region_bytes, 8);
  for (at = 48, k = 0; k < n; ++k) {
    __builtin_memcpy(blob + at, &rings[k].id, 4);
    __builtin_memcpy(blob + at + 4, &rings[k].nr_pages, 4);
    __builtin_memcpy(blob + at + 8, &rings[k].meta, 8);
    __builtin_memcpy(blob + at + 16, rings[k].pages, (size_t)rings[k].nr_pages * 8);
    at += 16 + (size_t)rings[k].nr_pages * 8;
  }
  for (at = 0; at < bytes; at += 8) sum = ringside_checksum_step(sum ^ (at == 40 ? 0 : ringside_get64(blob, at)));
  __builtin_memcpy(blob + 40, &sum, 8);
  return ringside_descriptor_check(blob, bytes, region_bytes);
}

// The place of ring `index` in a checked descriptor.
static inline size_t ringside_descriptor_ring(const void* blob, uint32_t index) {
  size_t at = 48;
  for (; index; --index) at += 16 + (size_t)ringside_get32(blob, at + 4) * 8;
  return at;
}
static inline uint32_t ringside_ring_pages(const void* blob, uint32_t index) {
  return ringside_get32(blob, ringside_descriptor_ring(blob, index) + 4);
}

static inline struct ringside_ring_place ringside_descriptor_unpack(const void* blob, uint32_t index) {
  size_t at = ringside_descriptor_ring(blob, index);
  struct ringside_ring_place r;
  r.id = ringside_get32(blob, at);
  r.nr_pages = ringside_get32(blob, at + 4);
  r.meta = ringside_get64(blob, at + 8);
  r.pages = (const uint64_t*)(const void*)((const uint8_t*)blob + at + 16);
  return r;
}

// Ring `index` of a checked descriptor, empty and disabled. The blob stays where it is while the ring is used. region: where
// this side has it, aligned to 8; words: ringside_ring_pages of them, which no other side sees.
static inline void ringside_ring_init(struct ringside_ring* r, const void* blob, uint32_t index, void* region,
                                      struct ringside_page* words, uint64_t (*clock)(void*), void* context) {
  size_t at = ringside_descriptor_ring(blob, index);
  __builtin_memset(r, 0, sizeof *r);
  r->region = (uint8_t*)region;
  r->pages = (const uint64_t*)(const void*)((const uint8_t*)blob + at + 16);
  r->page = words;
  r->clock = clock;
  r->context = context;
  r->footers = ringside_get32(blob, 16) == 1;
  r->meta = r->footers ? NULL : r->region + (size_t)ringside_get64(blob, at + 8);
  r->subbuf_size = ringside_get32(blob, 24);
  r->capacity = r->subbuf_size - RINGSIDE_HEADER - (r->footers ? (uint32_t)RINGSIDE_FOOTER : 0);
  r->nr_pages = ringside_get32(blob, at + 4);
  r->nr_slots = r->nr_pages - 1;
  r->id = ringside_get32(blob, at);
  r->off = 1;
  while (1u << r->shift < r->subbuf_size) ++r->shift;
  ringside_ring_reset(r);
}

// ---------------------------------------------------------------------------------------------------------------------------
// A stream: whole sub-buffers over a line (remote/stream.hpp describes the frames)

struct ringside_stream {
  void (*put)(void* context, const void* bytes, uint32_t n);  // sends all of them, in order
  void* context;
  uint32_t sequence;  // 0
};

struct ringside_piece {
  const void* data;
  uint32_t bytes;
};

// CRC-32 as in Ethernet and zlib.
static inline uint32_t ringside_crc32(const void* data, uint32_t bytes, uint32_t crc) {
  static const uint32_t table[16] = {0x00000000, 0x1DB71064, 0x3B6E20C8, 0x26D930AC, 0x76DC4190, 0x6B6B51F4,
                                     0x4DB26158, 0x5005713C, 0xEDB88320, 0xF00F9344, 0xD6D6A3E8, 0xCB61B38C,
                                     0x9B64C2B0, 0x86D3D2D4, 0xA00AE278, 0xBDBDF21C};
  uint32_t i;
  crc = ~crc;
  for (i = 0; i < bytes; ++i) {
    crc ^= ((const uint8_t*)data)[i];
    crc = crc >> 4 ^ table[crc & 15];
    crc = crc >> 4 ^ table[crc & 15];
  }
  return ~crc;
}

static inline void ringside_stream_send(struct ringside_stream* s, uint32_t kind, uint32_t ring, uint64_t first,
                                        uint32_t events, uint32_t refused, const struct ringside_piece* piece, uint32_t n) {
  uint32_t h[10] = {0x52465352, kind | ring << 16, s->sequence++, 0, (uint32_t)first, (uint32_t)(first >> 32),
                    events,     0,                 refused,       0},
           i;
  for (i = 0; i < n; ++i) {
    h[3] += piece[i].bytes;
    h[7] = ringside_crc32(piece[i].data, piece[i].bytes, h[7]);
  }
  h[9] = ringside_crc32(h, 36, 0);
  s->put(s->context, h, sizeof h);
  for (i = 0; i < n; ++i)
    if (piece[i].bytes) s->put(s->context, piece[i].data, piece[i].bytes);
}

// clock: 2, the writer's own, with that number of ticks a second (0: it counts no time); 0 and 1: the reader's time stamp
// counter, the reader's CLOCK_MONOTONIC in ns. hello and events may be repeated, for readers that come late.
static inline void ringside_stream_hello(struct ringside_stream* s, uint32_t clock, uint32_t subbuf_size,
                                         uint64_t ticks_per_second) {
  uint32_t hello[6] = {1, clock, subbuf_size, 1, (uint32_t)ticks_per_second, (uint32_t)(ticks_per_second >> 32)};
  struct ringside_piece piece = {hello, sizeof hello};
  ringside_stream_send(s, 1, 0, 0, 0, 0, &piece, 1);
}
static inline uint32_t ringside_text_bytes(const char* text) {
  uint32_t n = 0;
  while (text[n]) ++n;
  return n + 1;
}
// id: the first two bytes of its payloads; format: the text of a tracefs format file.
static inline void ringside_stream_event(struct ringside_stream* s, uint32_t id, const char* system, const char* name,
                                         const char* format) {
  struct ringside_piece pieces[4];
  pieces[0].data = &id, pieces[0].bytes = 4;
  pieces[1].data = system, pieces[1].bytes = ringside_text_bytes(system);
  pieces[2].data = name, pieces[2].bytes = ringside_text_bytes(name);
  pieces[3].data = format, pieces[3].bytes = ringside_text_bytes(format);
  ringside_stream_send(s, 2, 0, 0, 0, 0, pieces, 4);
}

// Sends the sub-buffers that the writer has left; with `unfinished` also what is on the one that it is on. By one context.
static inline void ringside_stream_push(struct ringside_stream* s, uint32_t number, struct ringside_ring* r, bool unfinished) {
  for (;;) {
    bool left;
    uint32_t filled = ringside_ring_filled(r, &left), at, events = 0;
    if (r->stood && (left || unfinished) && filled > r->bytes) {
      const uint8_t* data = ringside_ring_page(r, r->own) + RINGSIDE_HEADER;
      uint64_t header[2], time = r->bytes ? r->time : ringside_get64(data - RINGSIDE_HEADER, 0);
      struct ringside_piece pieces[2];
      header[0] = time;
      header[1] = filled - r->bytes;
      for (at = r->bytes; at < filled;) {  // its events, and the time of the last one
        uint32_t word = ringside_get32(data, at), type = word & 31, more = filled - at >= 8 ? ringside_get32(data, at + 4) : 4;
        time += word >> 5;
        if (type == 30) time += (uint64_t)more << 27;
        events += type < 29;
        if (type == 29 && word >> 5) time -= word >> 5;
        at += type == 30 ? 8 : type == 0 || type == 29 ? 4 + more : 4 + 4 * type;
      }
      pieces[0].data = header, pieces[0].bytes = sizeof header;
      pieces[1].data = data + r->bytes, pieces[1].bytes = filled - r->bytes;
      if (events)
        ringside_stream_send(s, 3, number, ringside_peek_long(&r->page[r->own].base) + r->events, events,
                             ringside_ring_refused(r), pieces, 2);
      r->bytes = filled;
      r->events += events;
      r->read += events;
      r->time = time;
      continue;
    }
    if ((r->stood && !left) || ringside_ring_take(r) != RINGSIDE_SWAPPED) return;
  }
}
// The end of the line: a reader stops here. rings: those that were pushed, so that their refused events are counted to the last
// one; NULL and 0: they are not.
static inline void ringside_stream_end_of(struct ringside_stream* s, const struct ringside_ring* const* rings, uint32_t n) {
  uint64_t refused = 0;
  uint32_t k;
  for (k = 0; k < n; ++k) refused += ringside_ring_refused(rings[k]);
  ringside_stream_send(s, 4, 0, refused, n, 0, NULL, 0);
}
static inline void ringside_stream_end(struct ringside_stream* s) { ringside_stream_end_of(s, NULL, 0); }

// ---------------------------------------------------------------------------------------------------------------------------
// A process: listens at a path, and writes while a reader is attached (remote/process_writer.hpp). Links libringside.

#if __STDC_HOSTED__ && defined(__linux__)
#ifdef __cplusplus
extern "C" {
#endif

struct ringside_process_event {
  uint32_t id;  // the first two bytes of its payload
  const char *system, *name;  // 63 bytes at most
  const char* format;         // the text of a tracefs format file; 3,839 bytes at most
};
struct ringside_process_ring {
  const char* name;  // 63 bytes at most; what report shows for events without a thread
  int32_t cpu;       // whose events it holds; -1: of several
};
struct ringside_process_options {
  const char* path;  // of the socket; mode 0600: for readers of this user and of root
  const struct ringside_process_event* events;
  size_t nr_events;
  // Requests that a program may take, or leave NULL. They are called on the service's thread, must be quick, and answer 0 or an
  // errno: makes an event of the reader's text; starts or stops writing an event.
  int (*write)(void* context, uint32_t ring, const char* text, size_t bytes);
  int (*switch_event)(void* context, uint32_t id, bool on);
  void* context;
  uint32_t nr_rings;  // that the program writes to, which a reader brings along; 0: not known before they are written to
  const struct ringside_process_ring* rings;  // what these are, nr_rings of them; NULL: not known
};
struct ringside_process;

// NULL: errno says why. EADDRINUSE: another writer listens at the path. EEXIST: a file that is no socket is there; it stays.
// E2BIG: an event's text does not fit, or there are more than 4,095 events. The texts are copied. Its service is a thread of
// its own, with descriptors of its own.
struct ringside_process* ringside_process_open(const struct ringside_process_options* options);
void ringside_process_close(struct ringside_process* process);  // NULL is fine
// The path at which a writer of this name is found without being named (`ringside mount`: remotes/NAME). Returns 0, or an
// errno.
int ringside_process_announced_path(const char* name, char* path, size_t size);
// Writes an event into a ring, which belongs to one thread and its signal handlers. False: no reader is attached, it has fewer
// rings, or the ring refused the event and counted it.
bool ringside_process_write(struct ringside_process* process, uint32_t ring, const void* payload, uint32_t size);
bool ringside_process_attached(struct ringside_process* process);

#ifdef __cplusplus
}
#endif
#endif

#endif  // RINGSIDE_REMOTE_H
