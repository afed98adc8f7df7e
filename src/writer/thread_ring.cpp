// Rings of one thread, one per depth of nested handlers, each made at the first event there. For instances without rings of
// CPUs, and for threads that cannot write to those.
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <new>
#include <utility>

#include "writer/find_ring.hpp"
#include "writer/kept_rings.hpp"
#include "writer/process.hpp"
#include "writer/members.hpp"
#include "sys/beneath.hpp"

namespace ringside {
namespace {

using detail::this_thread;
struct Back : ShowNothing {
  Backing<128>* backing;
  bool back(const Ring& ring, u32 id) const noexcept { return backing->back(ring, id); }
};
using OwnWriter = Writer<RingClockNow, Hardware, Orders{}, Back>;

// A ring that this thread has taken, and its writer.
struct Own : TakenRing {
  u64 attached_at;  // the epoch of its attachment
  i32 tid;  // the thread that owns it; 0 in a child: none
  u64 live;  // RingEntry::state
  alignas(OwnWriter) unsigned char bytes[sizeof(OwnWriter)];
  OwnWriter& writer() noexcept { return *reinterpret_cast<OwnWriter*>(bytes); }
};

// What a ring has published and refused so far.
struct Books {
  u64 dropped, commit_overrun, events;
  bool operator==(const Books&) const = default;
};
constexpr u64 not_begun = ~u64{0};

// An open event in a ring of this thread's own: the call that writes it has this word on its stack.
struct Open {
  const u32* mark;
  Books before;  // events is stored last: it is not_begun, or all of this is set
};
constexpr u32 still_open = 0x6E65706F;

// A handler that interrupts an open event writes to another ring: no two events are ever open on one. A handler that leaves its
// event by longjmp damages its own ring at most, and loses only that event.
constexpr u32 most_depth = 8;
struct ThreadRings {
  u32 depth;  // open events
  Open open[most_depth];
  Own* own[most_depth];  // own[d]: the ring of the event at depth d
  u32 nr_left;
  Own* left[4];          // the newest in which an event was left
  Own first;             // the others have a page each, because handlers cannot allocate
};
[[gnu::tls_model("initial-exec")]] constinit thread_local ThreadRings these{};

struct Aside {
  u32 depth;
  Own* own[most_depth];
};
[[gnu::tls_model("initial-exec")]] constinit thread_local Aside aside{};

pthread_key_t end_key;
bool has_end_key = false;

u64 epoch_now() noexcept { return __atomic_load_n(&detail::epoch.now, __ATOMIC_ACQUIRE); }
bool moved(const Own& own) noexcept { return (__atomic_load_n(&own.mapped.ring.control->gate, __ATOMIC_ACQUIRE) & gate_moved) != 0; }

// Zeros, or null if there is no memory.
Own* new_own() noexcept {
  if (!these.first.mapped) return &these.first;
  void* const page = mmap(nullptr, sizeof(Own), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return page != MAP_FAILED ? new (page) Own{} : nullptr;
}
void free_own(Own* own) noexcept {
  if (own == &these.first)
    *own = {};
  else
    munmap(own, sizeof *own);
}

// Only where no event of this thread can be open on it.
void release(Own*& own) noexcept {
  if (own == nullptr) return;
  const u64 retired = with_state(own->live, RingState::retired);
  u64 live = own->live;
  const bool ours = own->tid != 0 && __atomic_compare_exchange_n(&own->in->words.ring(own->number).state, &live, retired, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
  const bool is_useful = ours && own->in == opened_now() && this_thread.borrowed == 0 && !moved(*own);
  if (!is_useful || !retired_rings.put({own->mapped, own->in, own->number, retired})) unmap_ring(own->mapped);
  free_own(own);
  own = nullptr;
}

Books books_of(const Ring& ring) noexcept {
  const Control& c = *ring.control;
  const auto get = [](const u64& word) { return __atomic_load_n(&word, __ATOMIC_RELAXED); };
  Books b{get(c.dropped), get(c.commit_overrun), 0};
  const u32 id = place_of(get(c.commit)).id;
  if (ring.geometry.holds(id)) b.events = get(ring.record(id).base) + committed_of(get(ring.record(id).committed)).events;
  return b;
}

// Ends the event at this depth, whose call is gone: its ring stays as a dead thread leaves it. Signals are off.
void end_left(u32 depth) noexcept {
  Own*& own = these.own[depth];
  const Books& before = these.open[depth].before;
  // Neither published nor counted as refused: then it is lost.
  if (before.events == not_begun || own == nullptr || books_of(own->mapped.ring) == before)
    if (const Opened* const in = own != nullptr ? own->in : opened_now(); in != nullptr)
      __atomic_fetch_add(&in->words.control->refused, u64{1}, __ATOMIC_RELAXED);
  if (own == nullptr || __atomic_load_n(&own->mapped.ring.control->nest, __ATOMIC_RELAXED) == 0) return;
  // Not unmapped at once: where handlers switch stacks behind the kernel's back, its event may come back.
  Own*& place = these.left[these.nr_left++ % std::size(these.left)];
  release(place);
  place = std::exchange(own, nullptr);
}

void release_all() noexcept {
  while (these.depth != 0) end_left(--these.depth);
  for (Own*& own : these.own) release(own);
  for (Own*& own : these.left) release(own);
}

void at_thread_end(void*) {  // later destructors may write: they get a ring once more
  const SignalsOff off;
  const Inside inside;
  release_all();
}

// Has a handler left the call with this mark by longjmp? Then its stack belongs to this call now, or to other code, or is gone;
// or this call stands above it on the same stack: an interrupted call is never below its handler. mine: the mark of the coming
// event.
bool was_left(const u32* mark, const u32* mine) noexcept {
  if (mark == mine || !sys::still_holds(mark, still_open)) return true;
  stack_t alternate{};
  if (sigaltstack(nullptr, &alternate) != 0) return false;
  const auto on_it = [&](const u32* at) {
    const auto offset = reinterpret_cast<uintptr_t>(at) - reinterpret_cast<uintptr_t>(alternate.ss_sp);
    return (alternate.ss_flags & SS_DISABLE) == 0 && offset < alternate.ss_size;
  };
  if (on_it(mark) != on_it(mine)) return on_it(mark);  // an interrupted thread is not on it
  return reinterpret_cast<uintptr_t>(mark) < reinterpret_cast<uintptr_t>(mine);
}

// From the top: an event that was left may stand below a live one. The end of the thread ends those that are not found here.
void end_left_ones(const u32* mine) noexcept {
  const auto top_was_left = [&] { return these.depth != 0 && was_left(these.open[these.depth - 1].mark, mine); };
  while (top_was_left()) {
    const SignalsOff off;
    const Inside inside;
    if (top_was_left()) end_left(--these.depth);  // a handler may have done it already
  }
}

// Notes the ring's owner and shows the ring to others.
void introduce(Own& own, i32 pid) noexcept {
  InstanceControl& c = *own.in->words.control;
  RingEntry& entry = own.in->words.ring(own.number);
  entry.pid = static_cast<u32>(pid);
  entry.tid = static_cast<u32>(own.tid);
  entry.of = own.in->member();
  __atomic_store_n(&entry.sizes, short_sizes(own.mapped.ring.geometry), __ATOMIC_RELAXED);  // others read it before they claim
  entry.tid_start = sys::ticks_since_boot();
  prctl(PR_GET_NAME, entry.task);
  std::memcpy(entry.process, process.comm, sizeof entry.process);
  Control& words = *own.mapped.ring.control;
  words.owner = static_cast<u64>(own.tid);
  words.owner_start = entry.tid_start;
  words.unfenced = process.fenced ? 0 : 1;
  if (own.in->threads == nullptr) save_names(own.in->directory().get(), own.tid, pid, entry.task);
  own.live = pack_state(RingState::live, static_cast<u32>(own.tid)) | state_tag(sys::now_ns());
  __atomic_store_n(&entry.state, own.live, __ATOMIC_SEQ_CST);
  // A controller that switches recording or the mode, or resizes, stores that first and then goes through the live rings:
  // either it has seen this ring, or this thread sees the stored words.
  u64 off;
  u32 mode;
  do {
    off = __atomic_load_n(&c.tracing_off, __ATOMIC_SEQ_CST);
    mode = __atomic_load_n(&c.mode, __ATOMIC_SEQ_CST);
    __atomic_store_n(&words.mode, u64{mode}, __ATOMIC_RELAXED);
    switch_gate(words, off == 0);
  } while (__atomic_load_n(&c.tracing_off, __ATOMIC_SEQ_CST) != off || __atomic_load_n(&c.mode, __ATOMIC_SEQ_CST) != mode);
  if (geometry_of(c) != own.mapped.ring.geometry) __atomic_fetch_or(&words.gate, gate_moved, __ATOMIC_SEQ_CST);
}

bool take_ring() noexcept {
  const u64 epoch = epoch_now();
  Opened* const in = opened_now();
  if (in == nullptr || epoch == 0) return false;  // the first open is not finished
  release(these.own[these.depth]);
  // Otherwise this is a child of a vfork that did not go through the library: the thread is its parent's.
  if (getpid() != process.pid && this_thread.borrowed == 0) return false;
  Own* own = new_own();
  if (own == nullptr) return false;
  in->join();
  own->in = in;
  const auto find = [&] {
    const bool keeps = this_thread.borrowed == 0;
    if (keeps && take_kept_ring(*own)) return true;
    const sys::Fd dir = in->directory();
    return dir && find_ring(dir.get(), *own, keeps);
  };
  if (!find()) {
    free_own(own);
    return false;
  }
  const Numbers me = introduce_thread(*in, epoch);
  own->tid = this_thread.tid = me.tid;
  introduce(*own, me.pid);
  new (own->bytes) OwnWriter(own->mapped.ring, RingClockNow{in->clock.kind, &in->words.control->clock_base_ticks}, bell_of(in->words), Back{{}, &own->backing});
  own->attached_at = epoch;
  these.own[these.depth] = own;
  // A key beyond the first 32 would allocate, perhaps in a handler; in that case /proc tells that the thread has ended.
  if (has_end_key && end_key < 32) pthread_setspecific(end_key, &these);
  return true;
}

// As early as possible: handlers may set only the first 32 keys.
[[gnu::constructor(101)]] void make_end_key() { has_end_key = pthread_key_create(&end_key, at_thread_end) == 0; }

}  // namespace

// The rings are the parent's, and shared: never written to again. An event that is open here, because a handler forked, ends in
// zeros.
void forget_thread_after_fork() noexcept {
  fresh_rings.forget_after_fork();
  retired_rings.forget_after_fork();
  for (u32 depth = 0; depth < most_depth; ++depth) {
    Own*& own = these.own[depth];
    if (own == nullptr) continue;
    own->tid = 0;
    own->attached_at = detail::not_attached;
    if (depth < these.depth)
      forget_ring(own->mapped);
    else
      release(own);
  }
  for (Own*& own : these.left) {
    if (own != nullptr) own->tid = 0;
    release(own);
  }
}

void retire_this_thread() noexcept { at_thread_end(nullptr); }

void lay_own_rings_aside() noexcept {
  const SignalsOff off;
  aside.depth = these.depth;
  std::copy(std::begin(these.own), std::end(these.own), aside.own);
  std::fill(std::begin(these.own), std::end(these.own), nullptr);
  for (Own*& own : these.left) release(own);
  these.depth = 0;
}

void take_up_own_rings() noexcept {
  const SignalsOff off;
  const Inside inside;
  release_all();
  std::copy(std::begin(aside.own), std::end(aside.own), these.own);
  these.depth = aside.depth;
}

bool attach_to_own_ring() noexcept {
  if (these.depth == most_depth) return false;
  const Own* const own = these.own[these.depth];
  return (own != nullptr && own->attached_at == epoch_now() && !moved(*own)) || take_ring();  // a handler may have been faster
}

RingNow own_ring_now() noexcept {
  const Own* const own = these.depth < most_depth ? these.own[these.depth] : nullptr;
  if (own == nullptr || own->attached_at != epoch_now() || moved(*own)) return {};
  const Ring& ring = own->mapped.ring;
  return {own->live | 1, place_of(__atomic_load_n(&ring.control->tail, __ATOMIC_RELAXED)).position, ring.geometry.nr_slots()};
}

RS_NOINLINE Refused write_to_own_ring(const ringside_event& event, i32 as, void* payload, u32 size) noexcept {
  u32 mark;
  if (these.depth != 0) end_left_ones(&mark);
  __atomic_store_n(&mark, still_open, __ATOMIC_RELAXED);  // a call that returns leaves it, but its mark is not noted then
  const u32 depth = these.depth;
  if (depth == most_depth) return Refused::interrupted;
  // The call that this one interrupts may have noted its own event here, and not gone on yet: its values are put back.
  Open& open = these.open[depth];
  const Open interrupted = open;
  open.mark = &mark;
  open.before.events = not_begun;
  Hardware::fence_light();
  these.depth = depth + 1;  // from here on only this call writes to the ring: handlers have another
  Hardware::fence_light();
  Refused why = Refused::no_ring;
  if (Own* const own = these.own[depth]; own != nullptr) {
    const u32 id = detail::put_common(event, as != 0 ? as : this_thread.tid, payload);
    if (own->attached_at == epoch_now()) {  // so id and ring belong to one instance
      const Books before = books_of(own->mapped.ring);
      open.before = {before.dropped, before.commit_overrun, not_begun};
      Hardware::fence_light();
      open.before.events = before.events;
      Hardware::fence_light();
      why = id != 0 ? own->writer().try_write(size, [&](u8* to) { std::memcpy(to, payload, size); }) : Refused::disabled;
    }
  }
  Hardware::fence_light();
  these.depth = depth;
  Hardware::fence_light();
  open = interrupted;
  return why;
}

}  // namespace ringside
