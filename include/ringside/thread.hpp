// This thread's way into its ring, as a call site sees it: what the typed events and ringside_begin share. Not for users.
#pragma once
#include <ringside/ringside.h>

#include <ringside/ring/writer.hpp>

namespace ringside {

enum class ClockKind : u32 { tsc, mono, counter };

// Reads the clock of one ring. Signal-safe.
struct RingClockNow {
  ClockKind kind = ClockKind::mono;
  u64* counter = nullptr;  // counter: the instance's
  // Reads it if that takes no call: then the writer's usual path has none.
  RS_INLINE bool at_once([[maybe_unused]] u64& ticks) const noexcept {
#if defined(__x86_64__)
    ticks = __builtin_ia32_rdtsc();
    return kind == ClockKind::tsc;
#else
    return false;
#endif
  }
  u64 now() noexcept {
    u64 ticks;
    return at_once(ticks) ? ticks : slow();
  }
  u64 slow() noexcept;
};

namespace detail {

// Moves on at open and close: whoever attached before has to attach anew. Stands on a page that the kernel wipes in the child of
// any fork or clone without shared memory: there it reads 0, and the child attaches anew. (Only an event that is open during a raw
// clone, which runs no fork handlers, still ends in the parent's ring.)
extern struct alignas(4096) Epoch {
  u64 now;
} epoch;
inline constexpr u64 not_attached = ~u64{0};

struct ThisThread {
  using Writer = ringside::Writer<RingClockNow>;
  u64 attached_at = not_attached;  // the epoch of its attachment
  i32 tid = 0;
  bool inside = false;  // our own calls, perhaps traced: events that they write are refused
  Writer* writer = nullptr;  // of the newest ring; loaded once for an event, since a handler may change it

  RS_INLINE bool attached() const noexcept { return attached_at == __atomic_load_n(&epoch.now, __ATOMIC_RELAXED); }
  RS_INLINE Writer* attached_writer() const noexcept { return attached() ? writer : nullptr; }
  // The 8 common bytes of an event of this thread.
  RS_INLINE void put_common(const ringside_event& event, u8* payload) const noexcept {
    const u64 common = (event.id & 0xFFFF) | u64{static_cast<u32>(tid)} << 32;
    __builtin_memcpy(payload, &common, sizeof common);
  }
};
// Static TLS: no allocation at the first touch, so that a signal handler may be the first.
[[gnu::tls_model("initial-exec")]] extern constinit thread_local ThisThread this_thread;

// After this writer's reserve_at_once has failed, or with null when the thread is not attached: attaches, leaves a ring of old
// sizes, or reserves in full, and puts the common bytes.
bool begin_slowly(const ringside_event& event, u32 size, Slot& slot, ThisThread::Writer* writer, u64 nest) noexcept;
void end_slowly(const Slot& slot) noexcept;

}  // namespace detail
}  // namespace ringside
