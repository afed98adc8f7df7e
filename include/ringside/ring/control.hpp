// The control region of a ring: a header of 512 bytes, then one record of 48 bytes for each sub-buffer. Plain integers; all
// access through a Memory. A ring of up to 74 sub-buffers has one page of control.
//
//   Control   | who made it | gate | writer's words | reader's words |
//   Record[0] | slot 0 .. and sub-buffer 0's reserve word, count, committed, base, real_end |
//   Record[1] ...
//
// slot[k] is a place in the ring, everything else in Record[k] belongs to the sub-buffer with id k; they share a record only to
// share a page.
#pragma once
#include <ringside/ring/geometry.hpp>
#include <ringside/ring/words.hpp>

namespace ringside {

// In the ring of a CPU reserve and count are times (published.hpp).
struct Record {
  u64 slot;       // reader (CAS), writer (CAS when it overwrites)
  u64 reserve;    // writer and its handlers: local CAS
  u64 count;      // writer and its handlers: events committed and not yet in `committed`, tagged
  u64 committed;  // outermost writer: what a reader may see
  u64 base;       // outermost writer: index of the first event, stored before the commit place gets here
  u64 real_end;   // who left the sub-buffer: at which position, where its data ended, and whether padding follows
};
static_assert(sizeof(Record) == 48);

// How far the reader is.
struct ReaderState {
  u64 page;      // ReaderPlace
  u64 bytes;     // consumed of the reader page
  u64 events;    // consumed of the reader page
  u64 expected;  // index of the next event, if nothing is lost
  u64 read;      // events consumed in all
  u64 lost;      // events found missing in all
};

// Whose the ring is: one thread's and its signal handlers', or everybody's on one CPU.
enum class RingKind : u32 { thread = 0, cpu = 1 };

struct alignas(64) Control {
  // Written once, by who makes the ring.
  u64 magic;
  u32 version, header_bytes;
  u32 subbuf_size, nr_subbufs, nr_slots, record_bytes;
  u64 owner;  // tid of the owning thread, for whoever checks that it lives
  u64 owner_start;
  u64 kind;  // RingKind
  u64 reserved0;

  // Written by controllers, loaded by each reserve.
  u64 gate;
  u64 mode;  // bit 0: discard mode
  u64 unfenced;  // 1: the writer's process has no membarrier, and nobody may conclude from nest == 0 that it is outside
  u64 reserved1[5];

  // The writer's.
  u64 tail;       // Place; of a CPU's ring: not used, `commit` is the tail
  u64 nest;       // open events: 1 + handlers
  u64 last_time;  // the full time near the newest reserve
  u64 commit;     // Place
  u64 overrun, pages_lost, pages_touched;
  u64 commit_overrun;
  u64 dropped;
  u64 backwards;  // clock readings below the one before, taken as equal
  u64 corrupt;    // 0, or why the writer gave this ring up
  u64 reserved2[5];

  // The reader's, under reader_lock.
  u64 reader_lock;        // 0, or who
  u64 reader_generation;  // state[generation & 1] holds; one store moves the reader on, so its death leaves the old or the new
  u64 intent;             // ReaderPlace of the swap under way
  u64 mapped;             // mappers other than the owner's own consumer
  ReaderState state[2];
  u64 first_index;  // of the first event since the last reset of a CPU's ring
  u64 spare;        // of a CPU's ring: which sub-buffer stands nowhere, ^ the first spare one
  u64 exchange;     // the exchange of it that is under way
  u64 punched;      // moves on before memory of a sub-buffer is given back: whoever knew that there is some, knows it no more
  u64 reserved3[12];
};
static_assert(sizeof(Control) == 512);
static_assert(offsetof(Control, gate) == 64 && offsetof(Control, tail) == 128 && offsetof(Control, reader_lock) == 256);

inline constexpr u64 control_magic = 0x0045444953474E52;  // "RNGSIDE\0"
inline constexpr u32 control_version = 1;

constexpr u64 control_size(const Geometry& g) noexcept { return sizeof(Control) + u64{sizeof(Record)} * g.nr_subbufs(); }

// real_end: the position at which the sub-buffer was left, where its data ended, and whether padding follows (not so if it was
// parked or its writer died). Never 0 for a sub-buffer that was left: padding is put behind an event.
inline constexpr u64 unpadded = u64{1} << 31;
constexpr u64 pack_end(u64 position, u32 end, bool padded) noexcept { return position << 32 | end | (padded ? 0 : unpadded); }
constexpr bool left_at(u64 real_end, u64 position) noexcept {
  return real_end >> 32 == (position & 0xFFFFFFFF) && static_cast<u32>(real_end) != 0;
}
constexpr u32 closed_commit(u64 real_end, u32 capacity) noexcept {
  const auto end = static_cast<u32>(real_end & abi::commit_mask);
  return (real_end & unpadded) != 0 ? end : abi::final_commit(end, capacity);
}

// gate: 0 go on; else bits, so that each comes and goes without the others. off: recording is off, and whoever set it may have the
// ring for himself; frozen: the same for a moment, while recording is on, so what is refused is lost; moved: this ring is given up, its thread gets another; park: position + 2 must be left without touching its
// bytes.
inline constexpr u64 gate_off = u64{1} << 63;
inline constexpr u64 gate_moved = u64{1} << 62;
inline constexpr u64 gate_corrupt = u64{1} << 61;  // of a CPU's ring: its words contradict each other, nobody writes to it any more
inline constexpr u64 gate_frozen = u64{1} << 60;
constexpr bool gate_refuses(u64 gate) noexcept { return (gate & (gate_off | gate_frozen | gate_moved)) != 0; }
constexpr u64 gate_park(u64 position) noexcept { return position + 2; }
inline constexpr u64 gate_remote_open = 1;  // of an external writer's ring: zeros, as a child of fork finds them, are not open
inline constexpr u64 gate_cpu_open = 1;  // of a CPU's ring: zeros are not open, so that nobody writes where its memory was taken away

// The two regions, and where things are in them.
struct Ring {
  Geometry geometry;
  Control* control = nullptr;
  u8* data = nullptr;              // the meta-page; sub-buffers follow
  u8* const* places = nullptr;     // or they stand here: the place of each
  RingKind kind = RingKind::thread;

  RS_INLINE Record& record(u32 id) const noexcept { return reinterpret_cast<Record*>(control + 1)[id]; }
  RS_INLINE u8* subbuf(u32 id) const noexcept { return places == nullptr ? data + geometry.offset_of(id) : places[id]; }
  RS_INLINE abi::SubBufferHeader& header(u32 id) const noexcept { return *reinterpret_cast<abi::SubBufferHeader*>(subbuf(id)); }
};

// Called behind each slow step: the tail or the commit place has moved to another sub-buffer, or the reader page was swapped. A Memory
// with stepped(ring) is told so; tests check the ring's structure there (tests/single.hpp). The structure holds between any two
// accesses of anybody, but a check loads many words: it is right only where nobody else moves them meanwhile. So no product does it,
// whose writer, handlers and readers share the ring.
template <class M>
RS_INLINE void after_step([[maybe_unused]] const Ring& ring) noexcept {
  if constexpr (requires { M::stepped(ring); }) M::stepped(ring);
}

}  // namespace ringside
