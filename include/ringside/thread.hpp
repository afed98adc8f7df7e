// This thread's way into the rings, as a call site sees it: the common part of typed events and ringside_write. Not for users.
#pragma once
#include <ringside/ringside.h>

#include <ringside/base/ticks.hpp>
#include <ringside/ring/append.hpp>

namespace ringside {

struct Opened;

// Reads the clock of one instance. Signal-safe.
struct RingClockNow {
  ClockKind kind = ClockKind::mono;
  u64* counter = nullptr;  // counter: the instance's
  // Reads it, if that takes no call, so that the writer's usual way contains none. False: use now().
  RINGSIDE_INLINE bool at_once(u64& ticks) const noexcept { return ticks_of(kind, ticks); }
  // Can a restartable sequence read it? Others read it beforehand.
  bool in_sequence() const noexcept { return is_instruction(kind); }
  u64 now() noexcept { return in_sequence() ? read_ticks() : slow(); }
  u64 slow() noexcept;
};

namespace detail {

// Incremented at open and close, before either changes anything, so that every thread that is attached has to attach again.
// Lies on a page that the kernel wipes in the child of any fork or clone without shared memory: there it reads 0, and the
// child attaches again.
extern struct alignas(largest_page) Epoch {
  u64 now;
} epoch;
inline constexpr u64 not_attached = ~u64{0};

struct ThisThread {
  u64 on_cpus_at = not_attached;  // the epoch since which it writes to the rings of CPUs
  i32 tid = 0;
  u32 borrowed = 0;     // a child of vfork runs on this thread, and the kernel has dropped its registration: its events go to a
                        // ring of their own
  bool inside = false;  // inside one of our own calls, which may be traced: events from there are refused

  // For the library's own files, each for the one that is named. Whatever is larger is mapped when a thread needs it: of static
  // TLS, a process has little left for plug-ins (1.5 KB for all that it loads, in glibc).
  uint8_t walk_ends = 0;       // unwind.cpp: how often the thread's end has freed its walks
  bool refuses : 1;        // sandbox.hpp: its events are refused and counted
  bool holds_calls : 1;    // vfork.cpp: the parent is in SystemCalls, until the child begins
  bool inside_before : 1;  // these words of the parent
  bool refuses_before : 1;
  uint8_t cancel_before = 0;
  u32 refused_in_a_row = 0;    // write.cpp: since the epoch `refused_at`, which ends in these bits
  u32 refused_at = 0;
  i32 tid_before = 0;
  u64 on_cpus_before = 0;
  u64 numbered_at = not_attached;  // introduce.cpp: the epoch since which it has its number; it keeps it, also with another ring
  void* rings = nullptr;           // thread_ring.cpp: ThreadRings
  void* walks = nullptr;           // unwind.cpp: Walks

  RINGSIDE_INLINE bool on_cpus() const noexcept { return on_cpus_at == __atomic_load_n(&epoch.now, __ATOMIC_RELAXED); }
};
static_assert(sizeof(ThisThread) <= 64);
// Static TLS: the first access allocates nothing, so it may come from a signal handler.
[[gnu::tls_model("initial-exec")]] RINGSIDE_CONSTINIT extern thread_local ThisThread this_thread;

// The rings of CPUs of the open instance. Never freed, because a thread may be in the middle of an event.
struct CpuSide {
  CpuRings* rings = nullptr;
  i64 area = 0;  // __rseq_offset
  const Opened* in = nullptr;
};
RINGSIDE_CONSTINIT extern const CpuSide* cpu_side;

// Answers the event's id; 0: the instance does not know the event.
RINGSIDE_INLINE u32 put_common(const ringside_event& event, i32 tid, void* payload) noexcept {
  const u32 id = __atomic_load_n(&event.id, __ATOMIC_ACQUIRE) & 0xFFFF;
  const u64 common = id | u64{static_cast<u32>(tid)} << 32;
  __builtin_memcpy(payload, &common, sizeof common);
  return id;
}

#if RINGSIDE_RSEQ
// Any event that is not a usual one (CpuWriter::write_slowly).
Refused append_slowly(const CpuSide& side, const void* payload, u32 size) noexcept;

// no_ring: the thread does not write to the rings of CPUs (yet). `as`: as for write_slowly. Way::usual: moved, if it is no usual
// event.
enum class Way { any, usual, slow };
template <u32 known = 0, Way way = Way::any>
RINGSIDE_INLINE Refused write_to_cpus(const ThisThread& t, const ringside_event& event, i32 as, void* payload,
                                      u32 size) noexcept {
  // In this order: if the epoch is still that of the attachment, id, rings and the thread's number belong to one instance, also
  // where a handler has just attached the thread.
  const u64 at = __atomic_load_n(&t.on_cpus_at, __ATOMIC_ACQUIRE);
  const u32 id = put_common(event, as != 0 ? as : __atomic_load_n(&t.tid, __ATOMIC_RELAXED), payload);
  const CpuSide* const side = __atomic_load_n(&cpu_side, __ATOMIC_ACQUIRE);
  if (RINGSIDE_UNLIKELY(at != __atomic_load_n(&epoch.now, __ATOMIC_RELAXED))) return Refused::no_ring;
  if (RINGSIDE_UNLIKELY(id == 0)) return Refused::not_wanted;
  if (way != Way::slow && append_usually<Rseq, Hardware, known>(*side->rings, side->area, payload, size)) return Refused::no;
  return way != Way::usual ? append_slowly(*side, payload, size) : Refused::moved;
}
#endif

// Attaches the thread, maps a ring that is not mapped, or writes to a ring of the thread's own. why: the reason for which the
// rings of CPUs did not take the event; no_ring also if the thread does not write to them (yet). False: refused, and counted.
// The payload is complete except for its common bytes, which name this thread, or `as` if that is not 0.
bool write_slowly(const ringside_event& event, void* payload, u32 size, Refused why, i32 as = 0) noexcept;

// known: known_size(size) if the payload always has the same size.
template <u32 known = 0>
RINGSIDE_INLINE bool write_event([[maybe_unused]] const ThisThread& t, const ringside_event& event, void* payload,
                                 u32 size) noexcept {
  Refused why = Refused::no_ring;
#if RINGSIDE_RSEQ
  why = write_to_cpus<known>(t, event, 0, payload, size);
  if (RINGSIDE_LIKELY(why == Refused::no)) return true;
#endif
  return write_slowly(event, payload, size, why);
}

}  // namespace detail
}  // namespace ringside
