// The control region of a ring: a header of 512 bytes, then a record of 48 bytes for each sub-buffer. Plain integers; all
// access is through a Memory. A ring of up to 74 sub-buffers has one page of control.
//
// clang-format off
//   offset  word                written by                             read by                                   edge (orders.hpp)
//  +------------------------------ Control: by the maker of the ring, once ------------------------------------------------------+
//  |   0    magic .. life       the maker (owner: each owner)          everybody                                 -
//  +------------------------------ by controllers -------------------------------------------------------------------------------+
//  |  64    gate                controllers: atomic or, and, CAS;      each reserve, each sequence               GATE
//  |                            a writer: CAS, when it has left the
//  |                            parked position, or gives up a CPU's ring
//  |  72    mode                controllers                            a writer whose next place is unread       -
//  |  80    unfenced            each owner, before its first event     controllers, before they trust nest       -
//  +------------------------------ by the writer and its handlers ---------------------------------------------------------------+
//  | 128    tail                handlers and writer: local CAS         they; counters, recovery                  -
//  | 136    nest                handlers and writer: plain stores      they; controllers, after fence_heavy      QUIET, GATE
//  | 144    last_time           handlers and writer                    they                                      -
//  | 152    commit              outermost writer (CPU: a sequence)     readers, iterators, counters              ADVANCE
//  | 160    overrun .. corrupt  writer: local add (CPU: a sequence,    counters                                  -
//  |                            or CAS)
//  +------------------------------ by the reader, under reader_lock -------------------------------------------------------------+
//  | 256    reader_lock         readers: CAS, store of 0               readers                                   LOCK
//  | 264    reader_generation   the reader                             readers, iterators, counters              STATE
//  | 272    intent              the reader, before its CAS of a slot   repair, iterators                          INTENT
//  | 280    mapped              servers: atomic add, CAS               controllers                               -
//  | 288    state[2]            the reader: the one that does not hold readers, iterators, counters              STATE
//  | 384    first_index         the reader, when it restarts           counters                                  -
//  | 392    spare, exchange     the reader, around its CAS of a slot   the reader, repair                        INTENT
//  | 408    punched             code that gives memory back: atomic add writers, before and after they enter      -
//  +------------------------------ Record[id], one for each sub-buffer ----------------------------------------------------------+
//  |   0    slot                the reader: CAS; a writer: CAS, when   writers that enter, readers, iterators    SWAP, ENTER
//  |                            it overwrites (CPU: enters)
//  |   8    reserve             handlers and writer: local CAS, or     they; recovery                            -
//  |                            the plain store of the usual way
//  |  16    count               handlers and writer: local add, CAS    they                                      -
//  |  24    committed           outermost writer (CPU: a sequence)     readers, iterators, counters              COMMIT
//  |  32    base                outermost writer (CPU: a sequence)     readers, iterators, counters              ADVANCE
//  |  40    real_end            code that leaves the sub-buffer        writer and handlers; readers              ADVANCE
//  +------------------------------ data region -----------------------------------------------------------------------------------+
//           meta-page           the reader, last reader.id             mappers                                   PLACE
//           header.commit       outermost writer (CPU: a sequence)     mappers; readers of a CPU's ring          COMMIT
// clang-format on
//
// Exceptions: recover writes the writer's words when there is no writer; clear_words clears all words when there is neither
// writer nor reader (of the maker's it writes only `life`); the reader writes to its own page, which the writer has left:
// flag_missed (committed, real_end, header.commit) and find_from (header.commit).
//
// slot[k] is a place in the ring. All else in Record[k] belongs to the sub-buffer with id k. The two share a record only to
// share a page. In the ring of a CPU, reserve and count are two times, stored by sequences (published.hpp).
#pragma once
#include <ringside/ring/geometry.hpp>
#include <ringside/ring/words.hpp>

namespace ringside {

struct Record {
  u64 slot;       // which sub-buffer is at position k + lap * n
  u64 reserve;    // time and end of the last reservation
  u64 count;      // events committed and not yet in `committed`, tagged with the position
  u64 committed;  // what a reader may see
  u64 base;       // index of the first event; stored before the commit position gets here
  u64 real_end;   // the position at which the sub-buffer was left, where its data ended, whether padding follows
};
static_assert(sizeof(Record) == 48);

// How far the reader has read.
struct ReaderState {
  u64 page;      // ReaderPlace
  u64 bytes;     // consumed on the reader page
  u64 events;    // consumed on the reader page
  u64 expected;  // index of the next event, if nothing is lost
  u64 read;      // events consumed in all
  u64 lost;      // events found missing in all
};

// Whose ring it is: one thread's, with its signal handlers, or that of all threads on one CPU.
enum class RingKind : u32 { thread = 0, cpu = 1 };

struct alignas(64) Control {
  // Written once, by the maker of the ring.
  u64 magic;
  u32 version, header_bytes;
  u32 subbuf_size, nr_subbufs, nr_slots, record_bytes;
  u64 owner;  // tid of the owning thread, to check whether it lives
  u64 owner_start;
  u64 kind;  // RingKind
  u64 life;  // another number each time that the words are made, or cleared

  // Written by controllers, loaded by each reserve.
  u64 gate;
  u64 mode;  // bit 0: discard mode
  u64 unfenced;  // 1: the writer's process has no membarrier, so nest == 0 does not mean that it is outside
  u64 reserved1[5];

  // The writer's.
  u64 tail;       // Place; not used in a CPU's ring, where `commit` is the tail
  u64 nest;       // open events: 1 + handlers
  u64 last_time;  // the full time near the newest reserve
  u64 commit;     // Place
  u64 overrun, pages_lost, pages_touched;
  u64 commit_overrun;
  u64 dropped;
  u64 backwards;  // clock readings below the one before, which were taken as equal
  u64 corrupt;    // 1: the writer gave this ring up
  u64 reserved2[5];

  // The reader's, under reader_lock.
  u64 reader_lock;        // 0, or its holder
  u64 reader_generation;  // state[generation & 1] holds; one store moves the reader on, so a death leaves the old state or the
                          // new one
  u64 intent;             // ReaderPlace of the swap under way
  u64 mapped;             // mappers other than the owner's own consumer
  ReaderState state[2];
  u64 first_index;  // CPU's ring: index of the first event since the last reset
  u64 spare;        // CPU's ring: the id of the sub-buffer that has no place, ^ the first spare id
  u64 exchange;     // the exchange of the spare sub-buffer that is under way
  u64 punched;      // incremented before memory of a sub-buffer is given back: what was known about memory is then out of date
  u64 reserved3[12];
};
static_assert(sizeof(Control) == 512);
static_assert(offsetof(Control, gate) == 64 && offsetof(Control, tail) == 128 && offsetof(Control, reader_lock) == 256);

inline constexpr u64 control_magic = 0x0045444953474E52;  // "RNGSIDE\0"
inline constexpr u32 control_version = 1;

constexpr u64 control_size(const Geometry& g) noexcept { return sizeof(Control) + u64{sizeof(Record)} * g.nr_subbufs(); }

// real_end: the position at which the sub-buffer was left, where its data ended, and whether padding follows. No padding
// follows if the sub-buffer was parked or its writer died. Never 0 for a sub-buffer that was left: padding comes after an
// event.
inline constexpr u64 unpadded = u64{1} << 31;
constexpr u64 pack_end(u64 position, u32 end, bool padded) noexcept { return position << 32 | end | (padded ? 0 : unpadded); }
constexpr bool left_at(u64 real_end, u64 position) noexcept {
  return real_end >> 32 == (position & 0xFFFFFFFF) && static_cast<u32>(real_end) != 0;
}
constexpr u32 closed_commit(u64 real_end, u32 capacity) noexcept {
  const auto end = static_cast<u32>(real_end & abi::commit_mask);
  return (real_end & unpadded) != 0 ? end : abi::final_commit(end, capacity);
}

// gate. 0: go on. Otherwise bits, so that each comes and goes without the others:
//   off      recording is off; the controller that set it may take the ring for itself
//   masked   CPU's ring: this CPU is not to be recorded
//   frozen   the same for a moment, while recording is on, so what is refused is lost
//   moved    this ring is given up; its thread gets another one
//   park     position + 2: this position must be left without touching its bytes
inline constexpr u64 gate_off = u64{1} << 63;
inline constexpr u64 gate_moved = u64{1} << 62;
inline constexpr u64 gate_corrupt = u64{1} << 61;  // CPU's ring: its words contradict each other; it takes no more events
inline constexpr u64 gate_frozen = u64{1} << 60;
inline constexpr u64 gate_masked = u64{1} << 59;
constexpr bool gate_refuses(u64 gate) noexcept { return (gate & (gate_off | gate_frozen | gate_moved)) != 0; }
constexpr u64 gate_park(u64 position) noexcept { return position + 2; }
// Rings where zeros are not open:
inline constexpr u64 gate_remote_open = 1;  // an external writer's; a child of fork finds zeros
inline constexpr u64 gate_cpu_open = 1;     // a CPU's; it reads 0 where its memory was taken away

// Why an event was refused. disabled: recording is off. not_wanted: the instance does not know the event, or leaves out what
// this CPU writes: nothing is lost. no_memory: there is none for the next sub-buffer. no_ring: in a CPU's ring, the thread is
// not registered with the kernel, or its CPU's ring cannot be mapped; in an external writer's, this process is a child of fork.
// interrupted: in a CPU's ring, every try was.
enum class Refused : u8 {
  no,
  too_big,
  disabled,
  frozen,
  moved,
  full,
  commit_overrun,
  corrupt,
  no_memory,
  no_ring,
  interrupted,
  not_wanted
};

// The two regions, and where things are in them.
struct Ring {
  Geometry geometry;
  Control* control = nullptr;
  u8* data = nullptr;              // the meta-page; the sub-buffers follow, unless places is set
  u8* const* places = nullptr;     // the address of each sub-buffer
  RingKind kind = RingKind::thread;

  RINGSIDE_INLINE Record& record(u32 id) const noexcept { return reinterpret_cast<Record*>(control + 1)[id]; }
  RINGSIDE_INLINE u8* subbuf(u32 id) const noexcept { return places == nullptr ? data + geometry.offset_of(id) : places[id]; }
  RINGSIDE_INLINE abi::SubBufferHeader& header(u32 id) const noexcept {
    return *reinterpret_cast<abi::SubBufferHeader*>(subbuf(id));
  }
};

}  // namespace ringside
