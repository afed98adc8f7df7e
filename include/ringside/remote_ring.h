// The ring of ringside/remote.h, and its reader's side, in plain C. Include that.
//
// Words. slot[k] says which sub-buffer is at the positions k, k + n, k + 2n, ... It is the only word that both contexts
// store, by a compare-and-swap (RINGSIDE_CAS):
//
//   slot    writer, when it enters a position that is unread: {lap - 1, id} -> {lap, id}         pairs: SWAP, ENTER
//           reader, when it takes position r: {lap, id} -> {lap + 1, the page that it gives back}
//   tail    writer: release, after events and base of the page that it left and entered          pairs: ADVANCE
//   commit  (in the page) writer: release, after the event                                        pairs: COMMIT
//   off     the service; the writer loads it after its store of `busy`, and the service loads      (docs/design/ring.md)
//           `busy` after it and a heavy fence
//
// A loser of the compare-and-swap looks again. After the reader's has succeeded, the page is its own: the writer looks at the
// slot before it enters, so it never stores into it, except that it finishes the page if it is still on it.
#ifndef RINGSIDE_REMOTE_RING_H
#define RINGSIDE_REMOTE_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "ringside/remote.h: rings are little endian"
#endif

// Access to shared words. load: acquire; store: release; cas: both; peek and put: relaxed, ordered by one of the others.
#if defined(RINGSIDE_OWN_MEMORY)  // the includer has defined all of them (tests/model)
#elif defined(RINGSIDE_SINGLE_CORE)
#if !defined(RINGSIDE_LOCK) || !defined(RINGSIDE_UNLOCK)
#error "ringside/remote.h: RINGSIDE_SINGLE_CORE wants RINGSIDE_LOCK() and RINGSIDE_UNLOCK(), which disable and enable interrupts"
#endif
#define RINGSIDE_BARRIER() __asm__ volatile("" ::: "memory")
static inline uint32_t ringside_load(const uint32_t* at) {
  uint32_t value = *(const volatile uint32_t*)at;
  RINGSIDE_BARRIER();
  return value;
}
static inline void ringside_store(uint32_t* at, uint32_t value) {
  RINGSIDE_BARRIER();
  *(volatile uint32_t*)at = value;
}
static inline bool ringside_cas(uint32_t* at, uint32_t before, uint32_t after) {
  bool same;
  RINGSIDE_LOCK();
  RINGSIDE_BARRIER();
  same = *(volatile uint32_t*)at == before;
  if (same) *(volatile uint32_t*)at = after;
  RINGSIDE_BARRIER();
  RINGSIDE_UNLOCK();
  return same;
}
#define RINGSIDE_LIGHT_FENCE() RINGSIDE_BARRIER()
#define RINGSIDE_RELEASE_FENCE() RINGSIDE_BARRIER()
#else
#if __GCC_ATOMIC_INT_LOCK_FREE != 2
#error "ringside/remote.h: this processor has no 32-bit compare-and-swap: define RINGSIDE_SINGLE_CORE, RINGSIDE_LOCK() and RINGSIDE_UNLOCK()"
#endif
static inline uint32_t ringside_load(const uint32_t* at) { return __atomic_load_n(at, __ATOMIC_ACQUIRE); }
static inline void ringside_store(uint32_t* at, uint32_t value) { __atomic_store_n(at, value, __ATOMIC_RELEASE); }
static inline bool ringside_cas(uint32_t* at, uint32_t before, uint32_t after) {
  return __atomic_compare_exchange_n(at, &before, after, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}
#define RINGSIDE_LIGHT_FENCE() __atomic_signal_fence(__ATOMIC_SEQ_CST)
#define RINGSIDE_RELEASE_FENCE() __atomic_thread_fence(__ATOMIC_RELEASE)
#endif

#ifndef RINGSIDE_OWN_MEMORY
static inline uint32_t ringside_peek(const uint32_t* at) { return *(const volatile uint32_t*)at; }
static inline void ringside_put(uint32_t* at, uint32_t value) { *(volatile uint32_t*)at = value; }
static inline uint64_t ringside_peek_long(const uint64_t* at) { return *(const volatile uint64_t*)at; }
static inline void ringside_put_long(uint64_t* at, uint64_t value) {
#if __SIZEOF_POINTER__ == 8
  *(volatile uint64_t*)at = value;
#else
  ringside_put((uint32_t*)(void*)at + 1, (uint32_t)(value >> 32));
  ringside_put((uint32_t*)(void*)at, (uint32_t)value);
#endif
}
#endif

// ---------------------------------------------------------------------------------------------------------------------------
// A ring

// What the writer's side keeps of each sub-buffer.
struct ringside_page {
  uint32_t slot;    // of position k: lap << 12 | id
  uint32_t events;  // the rest belongs to the sub-buffer k
  uint64_t base;    // index of its first event
};

struct ringside_ring {
  uint8_t* region;        // sub-buffer id: region + (pages ? pages[id] : id * subbuf_size)
  const uint64_t* pages;
  uint8_t* meta;          // the meta-page; NULL: there is none
  struct ringside_page* page;
  uint64_t (*clock)(void* context);  // any counter that does not go back
  void* context;
  uint32_t subbuf_size, capacity, nr_pages, nr_slots, id;
  bool footers;
  uint8_t shift;  // 1 << shift is subbuf_size: not every processor multiplies

  // The writer's.
  uint32_t tail;     // its position, low 32 bits
  uint32_t k, lap;   // the same: k + lap * nr_slots
  uint32_t on;       // the sub-buffer there
  uint32_t offset;   // of its data, up to which all is published
  uint32_t reserved; // where the open event ends
  uint32_t busy;     // an event is open
  uint64_t last_time, position, overrun, pages_lost;
  uint32_t nested;   // events refused because one was open
  uint32_t too_big;
  uint32_t corrupt;  // the words contradicted each other: nothing more is written

  // The reader's side.
  uint32_t off;                  // 1: no event begins
  uint32_t own;                  // the reader page
  uint32_t next, next_k, next_lap;  // the position after the one that it was taken from
  bool stood;                    // it has been in the ring
  uint32_t bytes, events;        // consumed of it
  uint64_t time;                 // of the last event consumed, for streams
  uint64_t expected, lost, read;
};

enum { RINGSIDE_SLOT_IDS = 4095, RINGSIDE_HEADER = 16, RINGSIDE_FOOTER = 32 };

static inline uint8_t* ringside_ring_page(const struct ringside_ring* r, uint32_t id) {
  return r->region + (r->pages ? (size_t)r->pages[id] : (size_t)id << r->shift);
}
static inline uint32_t* ringside_ring_commit(const struct ringside_ring* r, uint32_t id) {
  return (uint32_t*)(void*)(ringside_ring_page(r, id) + 8);
}
static inline void ringside_put32(uint8_t* at, uint32_t value) { ringside_put((uint32_t*)(void*)at, value); }
static inline void ringside_put64(uint8_t* at, uint64_t value) { ringside_put_long((uint64_t*)(void*)at, value); }
static inline uint8_t* ringside_ring_footer(const struct ringside_ring* r, uint32_t id) {
  return ringside_ring_page(r, id) + r->subbuf_size - RINGSIDE_FOOTER;
}

// The bytes that an event with such a payload takes, its header included.
static inline uint32_t ringside_event_bytes(uint32_t payload) {
  uint32_t n = payload ? payload : 1;
  if (n > 112) n += 4;
  n = (n + 4 + 3) & ~(uint32_t)3;
  return n == 12 ? 16 : n;
}

static inline void ringside_ring_mark(struct ringside_ring* r, uint32_t id, uint32_t reader_bits, bool commit) {
  uint32_t order = 0;
  if (!r->footers) return;
  while (((uint32_t)4096 << order) < r->subbuf_size) ++order;
  ringside_put32(ringside_ring_footer(r, id) + 4, r->id << 8 | reader_bits);
  ringside_put32(ringside_ring_footer(r, id), 0x52530000u | order << 8 | (commit ? 4u : 0u));
}

// Empties the ring; the reader begins again, at sub-buffer 0. Nothing is open on it (ringside_ring_quiet).
static inline void ringside_ring_reset(struct ringside_ring* r) {
  uint32_t id, word;
  r->tail = r->k = r->lap = r->offset = r->reserved = 0;
  r->on = 1;
  r->position = r->overrun = r->pages_lost = r->expected = r->lost = r->read = r->time = 0;
  r->own = r->next = r->next_k = r->next_lap = r->bytes = r->events = 0;
  r->stood = false;
  r->too_big = r->corrupt = 0;
  ringside_put(&r->nested, 0);
  for (id = 0; id < r->nr_pages; ++id) {
    uint8_t* at = ringside_ring_page(r, id);
    ringside_put(&r->page[id].slot, id + 1);  // position k = id, lap 0
    ringside_put(&r->page[id].events, 0);
    ringside_put_long(&r->page[id].base, 0);
    ringside_put64(at, 0);
    ringside_put32(at + 8, 0);
    ringside_put32(at + 12, 0);  // the upper half of commit, for good
    if (r->footers)
      for (word = 8; word < RINGSIDE_FOOTER; word += 8) ringside_put64(ringside_ring_footer(r, id) + word, 0);
    ringside_ring_mark(r, id, id == 0 ? 2 : id == 1 ? 1 : 0, id == 1);
  }
  if (r->meta) {
    ringside_put32(r->meta, r->subbuf_size);
    ringside_put32(r->meta + 4, 80);
    ringside_put32(r->meta + 8, r->subbuf_size);
    ringside_put32(r->meta + 12, r->nr_pages);
    ringside_put64(r->meta + 16, 0);
    ringside_put32(r->meta + 24, 0);
    ringside_put32(r->meta + 28, 0);
    for (word = 32; word < 80; word += 8) ringside_put64(r->meta + word, 0);
  }
  RINGSIDE_RELEASE_FENCE();
}

// A ring for a stream: nr_pages sub-buffers of subbuf_size bytes (4,096 to 262,144, a power of two) in `memory`, aligned to 8.
// words: nr_pages of them. Answers false for sizes that are not possible.
static inline bool ringside_ring_init_stream(struct ringside_ring* r, void* memory, struct ringside_page* words,
                                             uint32_t nr_pages, uint32_t subbuf_size, uint64_t (*clock)(void*), void* context) {
  __builtin_memset(r, 0, sizeof *r);
  if (nr_pages < 3 || nr_pages > RINGSIDE_SLOT_IDS || subbuf_size < 4096 || subbuf_size > 262144 ||
      (subbuf_size & (subbuf_size - 1)))
    return false;
  r->region = (uint8_t*)memory;
  r->page = words;
  r->clock = clock;
  r->context = context;
  r->subbuf_size = subbuf_size;
  r->capacity = subbuf_size - RINGSIDE_HEADER;
  r->nr_pages = nr_pages;
  r->nr_slots = nr_pages - 1;
  while (1u << r->shift < subbuf_size) ++r->shift;
  ringside_ring_reset(r);
  return true;
}

// The writing context: room for an event of `size` bytes, which is to be filled and committed. NULL: it is refused.
static inline void* ringside_ring_reserve(struct ringside_ring* r, uint32_t size);
static inline void ringside_ring_commit_event(struct ringside_ring* r);
static inline bool ringside_ring_write(struct ringside_ring* r, const void* payload, uint32_t size) {
  void* to = ringside_ring_reserve(r, size);
  if (!to) return false;
  if (size) __builtin_memcpy(to, payload, size);
  ringside_ring_commit_event(r);
  return true;
}

// Leaves the sub-buffer, and enters the next one. False: the words contradict each other.
static inline bool ringside_ring_next(struct ringside_ring* r) {
  uint32_t left = r->capacity - r->offset, k = r->k + 1 == r->nr_slots ? 0 : r->k + 1;
  uint32_t lap = (r->lap + (k == 0)) & 0xFFFFF, id, slot;
  uint8_t* pad = ringside_ring_page(r, r->on) + RINGSIDE_HEADER + r->offset;
  uint64_t base = ringside_peek_long(&r->page[r->on].base) + ringside_peek(&r->page[r->on].events);
  if (left >= 8) {  // padding that counts as data, or a word that ends the data
    ringside_put32(pad, 29 | 1 << 5);
    ringside_put32(pad + 4, left - 4);
    ringside_store(ringside_ring_commit(r, r->on), r->capacity);
  } else if (left >= 4) {
    ringside_put32(pad, 29);
  }
  for (;;) {
    uint32_t ahead;
    slot = ringside_load(&r->page[k].slot);
    id = slot & 4095;
    ahead = (lap - (slot >> 12)) & 0xFFFFF;
    if (id >= r->nr_pages || ahead > 1) {
      r->corrupt = 1;
      return false;
    }
    if (ahead == 0) break;
    if (!ringside_cas(&r->page[k].slot, slot, lap << 12 | id)) continue;  // the reader has taken it
    r->overrun += ringside_peek(&r->page[id].events);
    if (r->meta) {
      ringside_put64(r->meta + 48, r->overrun);
      ringside_put64(r->meta + 64, ++r->pages_lost);
    }
    break;
  }
  RINGSIDE_RELEASE_FENCE();
  ringside_store(ringside_ring_commit(r, id), 0);
  RINGSIDE_RELEASE_FENCE();  // before its footer changes
  ++r->position;
  ringside_put_long(&r->page[id].base, base);
  ringside_put(&r->page[id].events, 0);
  if (r->footers) {
    ringside_store((uint32_t*)(void*)(ringside_ring_footer(r, id) + 4), r->id << 8);
    ringside_put64(ringside_ring_footer(r, id) + 8, base);
    ringside_put64(ringside_ring_footer(r, id) + 16, r->position);
  }
  if (r->meta) ringside_put64(r->meta + 72, r->position);
  r->k = k;
  r->lap = lap;
  ringside_put(&r->on, id);
  r->offset = 0;
  ringside_store(&r->tail, r->tail + 1);
  return true;
}

static inline void* ringside_ring_refuse(struct ringside_ring* r, uint32_t* counter) {
  if (counter) ++*counter;
  RINGSIDE_LIGHT_FENCE();
  ringside_store(&r->busy, 0);
  return NULL;
}

static inline void* ringside_ring_reserve(struct ringside_ring* r, uint32_t size) {
  uint32_t bytes = size <= r->subbuf_size ? ringside_event_bytes(size) : r->subbuf_size, stamp, head;
  uint64_t now, delta;
  uint8_t* at;
  if (ringside_peek(&r->busy)) {
    uint32_t before;
    do before = ringside_peek(&r->nested);
    while (!ringside_cas(&r->nested, before, before + 1));
    return NULL;
  }
  ringside_put(&r->busy, 1);
  RINGSIDE_LIGHT_FENCE();
  if (ringside_peek(&r->off) || r->corrupt) return ringside_ring_refuse(r, NULL);
  if (bytes > r->capacity) return ringside_ring_refuse(r, &r->too_big);
  now = r->clock(r->context);
  if ((int64_t)(now - r->last_time) < 0) now = r->last_time;
  for (;;) {
    delta = r->offset ? now - r->last_time : 0;
    stamp = delta >> 27 ? 8 : 0;
    if (r->offset + stamp + bytes <= r->capacity && !(delta >> 59)) break;
    if (!ringside_ring_next(r)) return ringside_ring_refuse(r, NULL);
  }
  at = ringside_ring_page(r, r->on) + RINGSIDE_HEADER + r->offset;
  if (!r->offset) ringside_put64(ringside_ring_page(r, r->on), now);
  if (stamp) {
    ringside_put32(at, 30 | (uint32_t)(delta & 0x7FFFFFF) << 5);
    ringside_put32(at + 4, (uint32_t)(delta >> 27));
    at += 8;
    delta = 0;
  }
  head = bytes - 4 > 112 ? 8 : 4;
  ringside_put32(at, (head == 4 ? (bytes - 4) / 4 : 0) | (uint32_t)delta << 5);
  if (head == 8) ringside_put32(at + 4, bytes - 4);
  if (bytes - head > size) {  // what rounding added
    ringside_put32(at + bytes - 4, 0);
    if (bytes - head > size + 4) ringside_put32(at + bytes - 8, 0);
  }
  r->last_time = now;
  r->reserved = r->offset + stamp + bytes;
  return at + head;
}

static inline void ringside_ring_commit_event(struct ringside_ring* r) {
  uint32_t events = ringside_peek(&r->page[r->on].events) + 1;
  r->offset = r->reserved;
  ringside_put(&r->page[r->on].events, events);
  ringside_store(ringside_ring_commit(r, r->on), r->offset);
  if (r->meta) ringside_put64(r->meta + 40, ringside_peek_long(&r->page[r->on].base) + events);
  RINGSIDE_LIGHT_FENCE();
  ringside_store(&r->busy, 0);
}

// ---------------------------------------------------------------------------------------------------------------------------
// The reader's side of a ring

// What ringside_ring_swap did: the numbers of the protocol.
enum ringside_swap { RINGSIDE_NOTHING, RINGSIDE_MORE, RINGSIDE_SWAPPED, RINGSIDE_CORRUPT };

// Takes the oldest sub-buffer, and leaves the reader page in its place.
static inline enum ringside_swap ringside_ring_take(struct ringside_ring* r) {
  for (;;) {
    uint32_t tail = ringside_load(&r->tail), distance = tail - r->next, slot, id, behind;
    if ((int32_t)distance < 0) return RINGSIDE_NOTHING;
    if (distance >= r->nr_slots) {  // overtaken: the oldest position that can still be there
      uint32_t skip = distance - r->nr_slots + 1;
      r->next += skip;
      for (; skip >= r->nr_slots; skip -= r->nr_slots) ++r->next_lap;
      r->next_k += skip;
      if (r->next_k >= r->nr_slots) r->next_k -= r->nr_slots, ++r->next_lap;
      r->next_lap &= 0xFFFFF;
    }
    slot = ringside_load(&r->page[r->next_k].slot);
    id = slot & 4095;
    behind = ((slot >> 12) - r->next_lap) & 0xFFFFF;
    if (id >= r->nr_pages || behind >= 0x80000) return RINGSIDE_CORRUPT;
    if (behind == 0) {
      if (r->next == tail && ringside_load(ringside_ring_commit(r, id)) == 0) return RINGSIDE_NOTHING;
      if (!ringside_cas(&r->page[r->next_k].slot, slot, ((r->next_lap + 1) & 0xFFFFF) << 12 | r->own)) continue;
    }
    ++r->next;
    if (++r->next_k == r->nr_slots) {
      r->next_k = 0;
      r->next_lap = (r->next_lap + 1) & 0xFFFFF;
    }
    if (behind != 0) continue;  // the writer has overwritten that position
    r->own = id;
    r->stood = true;
    r->bytes = r->events = 0;
    return RINGSIDE_SWAPPED;
  }
}

// How far the reader page is filled; left: the writer has left it, and this is final.
static inline uint32_t ringside_ring_filled(struct ringside_ring* r, bool* left) {
  *left = r->stood && (int32_t)(ringside_load(&r->tail) - r->next) >= 0;  // before the page: what follows is final then
  return r->stood ? ringside_load(ringside_ring_commit(r, r->own)) : 0;
}

// For the service. read: data bytes of the reader page that the reader has read. Only when that is all of it, and the writer
// has left it, the reader gets another page, whose number is *id.
static inline enum ringside_swap ringside_ring_swap(struct ringside_ring* r, uint32_t read, uint32_t* id) {
  uint32_t before = r->own, filled;
  uint64_t lost;
  bool left;
  enum ringside_swap done;
  *id = r->own;
  filled = ringside_ring_filled(r, &left);
  if (filled > read) return RINGSIDE_MORE;
  if (r->stood && filled > r->bytes) r->bytes = filled;
  done = RINGSIDE_NOTHING;
  lost = 0;
  if (!r->stood || left) {
    if (left) {  // events and base are final, too
      uint32_t events = ringside_peek(&r->page[r->own].events);
      r->read += events - r->events;
      r->events = events;
      r->expected = ringside_peek_long(&r->page[r->own].base) + events;
    }
    done = ringside_ring_take(r);
  }
  if (done == RINGSIDE_CORRUPT) return done;
  if (done == RINGSIDE_SWAPPED) {
    lost = ringside_peek_long(&r->page[r->own].base) - r->expected;
    r->lost += lost;
    *id = r->own;
  }
  if (r->meta) {
    ringside_put64(r->meta + 16, lost);
    ringside_put32(r->meta + 28, r->bytes);
    ringside_put64(r->meta + 56, r->read);
    if (done == RINGSIDE_SWAPPED) ringside_store((uint32_t*)(void*)(r->meta + 24), r->own);
  }
  if (done == RINGSIDE_SWAPPED && r->footers) {  // READER is set before it is removed
    ringside_put64(ringside_ring_footer(r, r->own) + 24, r->lost);
    ringside_store((uint32_t*)(void*)(ringside_ring_footer(r, r->own) + 4), r->id << 8 | 2);
    // The writer may be there already, and store the same.
    ringside_store((uint32_t*)(void*)(ringside_ring_footer(r, before) + 4), r->id << 8);
  }
  return done;
}

// For the service: the status bits of the footers, which are hints. A meta-page is always up to date.
static inline void ringside_ring_update(struct ringside_ring* r) {
  uint32_t tail = ringside_load(&r->tail), distance = tail - r->next, k = r->next_k, lap = r->next_lap, id, head, on;
  if (!r->footers) return;
  head = on = ringside_peek(&r->on);
  if ((int32_t)distance > 0) {
    uint32_t skip = distance >= r->nr_slots ? distance - r->nr_slots + 1 : 0, n = distance - skip;
    for (; skip >= r->nr_slots; skip -= r->nr_slots) ++lap;
    k += skip;
    for (;; ++k, --n) {
      uint32_t slot;
      if (k >= r->nr_slots) k -= r->nr_slots, ++lap;
      slot = ringside_load(&r->page[k].slot);
      if (n == 0) break;
      if ((slot >> 12) == (lap & 0xFFFFF)) {
        head = slot & 4095;
        break;
      }
    }
  }
  for (id = 0; id < r->nr_pages; ++id) ringside_ring_mark(r, id, id == r->own ? 2 : id == head ? 1 : 0, id == on);
}

// Switching. After disable no event begins; quiet: none is open. In between the service issues the other half of the writer's
// light fence: membarrier in a process, nothing on the writer's own processor, a barrier that the other processor executes.
static inline void ringside_ring_enable(struct ringside_ring* r) { ringside_store(&r->off, 0); }
static inline void ringside_ring_disable(struct ringside_ring* r) { ringside_store(&r->off, 1); }
// Events that were refused because one was open, or because they can never fit. Final once the ring is disabled and quiet.
static inline uint32_t ringside_ring_refused(const struct ringside_ring* r) {
  return ringside_peek(&r->nested) + ringside_peek(&r->too_big);
}
static inline bool ringside_ring_quiet(const struct ringside_ring* r) { return ringside_load(&r->busy) == 0; }

#endif  // RINGSIDE_REMOTE_RING_H
