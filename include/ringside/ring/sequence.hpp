// Words that the restartable sequences (rseq.hpp) are given: a process's rings of CPUs, and what is to be stored where.
#pragma once
#include <ringside/ring/control.hpp>
#include <ringside/ring/doorbell.hpp>
#include <ringside/ring/orders.hpp>

namespace ringside {

// done: published. moved: what was seen no longer holds. aborted: by the kernel. late: the time that has passed is not
// below `limit`. After the latter three, nothing of the event can be seen; look again.
enum class Sequence : u8 { done, moved, aborted, late };

// Where a process has mapped the ring of a CPU. Never changes; all addresses come from here.
struct CpuPlace {
  Control* control;
  u8* first;         // sub-buffer 0
  u64 subbuf_size;
  u64 nr_subbufs, capacity;
  Ring ring;         // the same, for C++
  // Does this sub-buffer have memory, so that no store into it faults? Asked before a sub-buffer is entered. Null: there
  // always is.
  bool (*back)(const CpuPlace& place, u32 id) noexcept = nullptr;
};

// This process's rings of the CPUs 0 to nr - 1. One that is not mapped is a place whose gate is shut.
struct CpuRings {
  Doorbell bell;
  u32 nr_usual;  // the number of CPUs that the usual sequence serves: nr, or 0 if no instruction reads the clock
  u32 nr;
  const CpuPlace* place[1];  // as many as there are CPUs
};

RINGSIDE_INLINE const CpuPlace& place_in(const CpuRings& rings, u32 cpu) noexcept {
  return *__atomic_load_n(&rings.place[cpu], map_observe);
}

// An event without its time.
struct Shape {
  u64 grow;        // 1 << 32 | its bytes: what it adds to `committed`
  u64 head;  // its first 8 bytes: the header, then array[0] of a large event, or the first bytes of a payload below 8 bytes
  u64 payload_at;  // 4 or 8
  u64 size;        // bytes of payload that are copied: a multiple of 8
  u64 tail_bytes;  // its last 8 bytes, stored before head and payload: the payload's rest, and zeros
};

// The largest payload, in bytes, that the usual sequence copies without a loop if the size is known at compile time. A multiple
// of 4.
inline constexpr u32 most_known = 64;

// For appending any event. All addresses come from the process's own geometry.
struct Append {
  u64 cpu;               // the ring's
  Control* control;      // gate == gate_cpu_open and commit == tail, or moved
  u64 tail;
  u64* commit;           // of the sub-buffer's header; == committed bytes so far, or moved
  u64 before, after;     // the latter is stored last
  u64 last, limit;       // now - last < limit, or late
  u64 given;             // now; 0: the sequence reads the counter of this processor itself
  u64* time;             // = now: of the two times, the one that the last event did not use
  u64* stamp;            // = now: the header's time_stamp for the first event, otherwise `time` once more
  u8* at;  // where the event goes; if `extend` is not 0, a time extend of now - last goes there, and the event after it
  u64 extend;
  u64 head, delta_mask;  // first 8 bytes: head | (now - last & delta_mask) << 5
  u64 tail_bytes;        // of its shape
  u8* to;                // `size` bytes from `from`, a multiple of 8
  const void* from;
  u64 size;
  u64* committed;        // = committed_after, before commit
  u64 committed_after;
};

// How a sequence knows that its thread went on without interruption since the clock was read, where that takes a call.
struct Guard {
  u64 run;           // 0: it stores its descriptor, and leaves. 1: the descriptor is still there. 2: by the stopwatch
  u64 now;           // the clock's
  u64 since, limit;  // the stopwatch: this processor's counter before the clock was read, and how many ticks may pass
  u64 cpu;           // where that was
};

// For entering the next sub-buffer.
struct Enter {
  u64 cpu;
  Control* control;
  u64 tail, next_tail;    // the latter is stored last
  u64* commit;            // of the sub-buffer that is left; == before, or moved
  u64 before;
  u64* committed;         // = committed_final: events and bytes that belong together, whatever was cut off before that
  u64 committed_final;
  u64* real_end;          // = end
  u64 end;
  u32 *pad0, *pad1;       // = the two words of padding; a word of our own where there is no room
  u64 padding;
  Record* fresh;          // base; committed = 0, both times = 0
  u64 base;
  abi::SubBufferHeader* header;  // commit = 0, time_stamp = last: its first event must not be earlier
  u64 last;
};

// For counting an event that a full ring refuses, in the ring that refused it, which may be moved aside at any moment.
struct Refuse {
  u64 cpu;
  Control* control;
  u64 tail;
  u64* word;  // += 1
};

}  // namespace ringside
