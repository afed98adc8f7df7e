// Rings of one thread, one per depth of nested handlers, each made at the first event there. For instances without rings of
// CPUs, and for threads that cannot write to those.
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <new>
#include <ringside/base/sanitizers.hpp>
#include <utility>

#include "writer/find_ring.hpp"
#include "writer/kept_rings.hpp"
#include "writer/process.hpp"
#include "writer/members.hpp"
#include "writer/unwind.hpp"
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
  u64 published, refused;  // the ring's count after the last call: a larger count includes an event that was left
  void note() noexcept;
  alignas(OwnWriter) unsigned char bytes[sizeof(OwnWriter)];
  OwnWriter& writer() noexcept { return *reinterpret_cast<OwnWriter*>(bytes); }
};

// The call that writes the topmost open event: the address of a word on its stack, and in the low bits the number of open
// events. 0: none is open. One word, because each store before the clock is read delays the reading.
using Top = uintptr_t;
constexpr Top depth_bits = 15;
u32 depth_of(Top top) noexcept { return static_cast<u32>(top & depth_bits); }
const u32* mark_of(Top top) noexcept { return reinterpret_cast<const u32*>(top & ~depth_bits); }
constexpr u32 still_open = 0x6E65706F;

// An event at one depth. counted: Own::published or Own::refused includes it, or it is counted without a ring.
enum class Event : u32 { none, begun, counted };

// A handler that interrupts an open event writes to another ring: no two events are ever open on one. A handler that leaves its
// event by longjmp damages its own ring at most, and loses only that event.
//
// A call begins and ends by a plain store of `top`, which may take back what handlers have stored there since it loaded the
// word. These handlers have come back, so each event that they began and did not end was left. events[] shows which:
// events[depth] is stored only while `top` names its call, or a call in a handler of that call. So a call that has stored
// `top`, at its begin and at its end, ends the events that it finds from its own depth on, or above it.
constexpr u32 most_depth = 8;
struct ThreadRings {
  Top top;
  Top below[most_depth];  // below[d]: `top` before the call at depth d began; 0 at depth 0
  Event events[most_depth + 1];  // the last one is none
  Own* own[most_depth];  // own[d]: the ring of the event at depth d
  u32 nr_left;
  u32 undecided;         // how often no walk could find out whether the topmost event was left:
  Top undecided_top;     // the one of this call, after this number of events
  u64 undecided_behind;
  Own* left[4];          // the newest in which an event was left
  struct {  // of the parent, while a child of vfork runs
    Top top;
    Top below[most_depth];
    Event events[most_depth];
    Own* own[most_depth];
  } aside;
  Own first;             // the others have a page each, because handlers cannot allocate
};
// This thread's: false before its first event in a ring of its own.
constexpr struct {
  ThreadRings* get() const noexcept { return static_cast<ThreadRings*>(this_thread.rings); }
  ThreadRings* operator->() const noexcept { return get(); }
  explicit operator bool() const noexcept { return this_thread.rings != nullptr; }
} these;

pthread_key_t end_key;
bool has_end_key = false;

u64 epoch_now() noexcept { return __atomic_load_n(&detail::epoch.now, __ATOMIC_ACQUIRE); }
bool moved(const Own& own) noexcept {
  return (__atomic_load_n(&own.mapped.ring.control->gate, __ATOMIC_ACQUIRE) & gate_moved) != 0;
}

// Zeros, or null if there is no memory.
Own* new_own() noexcept {
  if (!these->first.mapped) return &these->first;
  void* const page = mmap(nullptr, sizeof(Own), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return page != MAP_FAILED ? new (page) Own{} : nullptr;
}
void free_own(Own* own) noexcept {
  if (own == &these->first)
    *own = {};
  else
    munmap(own, sizeof *own);
}

// Only where no event of this thread can be open on it.
void release(Own*& own) noexcept {
  if (own == nullptr) return;
  const u64 retired = with_state(own->live, RingState::retired);
  u64 live = own->live;
  const bool ours = own->tid != 0 && __atomic_compare_exchange_n(&own->in->words.ring(own->number).state, &live, retired, false,
                                                                 __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
  if (!ours && own->tag != 0) give_back_claims(*own);
  const bool is_useful = ours && own->in == opened_now() && this_thread.borrowed == 0 && !moved(*own);
  if (!is_useful || !retired_rings.put({own->mapped, own->in, own->number, retired})) unmap_ring(own->mapped);
  free_own(own);
  own = nullptr;
}

u64 published_in(const Ring& ring) noexcept {
  const u32 id = place_of(__atomic_load_n(&ring.control->commit, __ATOMIC_RELAXED)).id;
  if (!ring.geometry.holds(id)) return 0;
  const Record& record = ring.record(id);
  return __atomic_load_n(&record.base, __ATOMIC_RELAXED) +
         committed_of(__atomic_load_n(&record.committed, __ATOMIC_RELAXED)).events;
}
u64 refused_by(const Ring& ring) noexcept {
  return __atomic_load_n(&ring.control->dropped, __ATOMIC_RELAXED) +
         __atomic_load_n(&ring.control->commit_overrun, __ATOMIC_RELAXED);
}

void Own::note() noexcept {
  published = published_in(mapped.ring);
  refused = refused_by(mapped.ring);
}
// A controller may have reset the ring since.
bool grew(u64 now, u64 noted) noexcept { return now < noted ? now != 0 : now > noted; }

// Ends the event at this depth, whose call is gone: its ring stays as after a thread's death. Signals are off.
void end_left(u32 depth) noexcept {
  Own*& own = these->own[depth];
  const bool attached = own != nullptr && own->attached_at != detail::not_attached;
  const bool counted =
      these->events[depth] != Event::begun ||
      (attached && (grew(published_in(own->mapped.ring), own->published) || grew(refused_by(own->mapped.ring), own->refused)));
  these->events[depth] = Event::none;
  if (attached) own->note();  // the ring may stay
  if (!counted)
    if (const Opened* const in = own != nullptr ? own->in : opened_now(); in != nullptr)
      __atomic_fetch_add(&in->words.control->refused, u64{1}, __ATOMIC_RELAXED);
  if (!attached || __atomic_load_n(&own->mapped.ring.control->nest, __ATOMIC_RELAXED) == 0) return;
  // Not unmapped at once: where handlers switch stacks without the kernel, its event may come back.
  Own*& place = these->left[these->nr_left++ % std::size(these->left)];
  release(place);
  place = std::exchange(own, nullptr);
}

// Ends all events at this depth and above: no call is open there. Signals are off. In a child of a fork that ran no handlers
// they are its parent's, as the rings are: nothing of them is ended or released before that is known.
void end_all_left(u32 depth) noexcept {
  if (this_thread.borrowed == 0) become_child_if_forked();
  for (u32 above = most_depth; above-- > depth;)
    if (these->events[above] != Event::none) end_left(above);
}

void release_all() noexcept {
  if (!these) return;
  end_all_left(0);
  these->top = 0;
  for (Own*& own : these->own) release(own);
  for (Own*& own : these->left) release(own);
}

void end_thread(bool for_ever) noexcept {
  const SignalsOff off;
  if (!off) return;
  const Inside inside(off);
  release_all();
  if (for_ever && these) sys::raw_munmap(std::exchange(this_thread.rings, nullptr), sizeof(ThreadRings));
}
void at_thread_end(void*) { end_thread(true); }  // later destructors may write: they get a ring once more

// False: there is no memory.
[[gnu::noinline]] bool make_thread_rings() noexcept {
  const SignalsOff off;
  if (!off) return false;
  if (these) return true;  // a handler has made them
  const int saved = errno;
  void* const at = sys::raw_mmap(nullptr, sizeof(ThreadRings), MAP_PRIVATE | MAP_ANONYMOUS, -1);
  errno = saved;
  if (at == MAP_FAILED) return false;
  this_thread.rings = new (at) ThreadRings{};
  return true;
}

// Whether the call of the topmost event was left: its stack may belong to other code now, or be gone. Where code without tables
// hides the callers, an event is open until other code has its stack; after some questions, and where no depth is left,
// addresses decide.
bool was_left(Top top, uintptr_t mine) noexcept {
  const u32* const mark = mark_of(top);
  const auto at = reinterpret_cast<uintptr_t>(mark);
  if (!sys::still_holds(mark, still_open)) return true;
  if (!sys::was_left(at, mine)) return false;
  const Running running = is_interrupted_at(at);
  if (running != Running::unknown) return running == Running::no;
  const Own* const own = these->own[depth_of(top) - 1];
  const u64 behind = own != nullptr ? own->published + own->refused : 0;
  if (these->undecided_top != top || these->undecided_behind != behind) these->undecided = 0;
  these->undecided_top = top;
  these->undecided_behind = behind;
  if (++these->undecided < most_undecided && depth_of(top) < most_depth) return false;
  these->undecided = 0;
  return true;
}

// From the top: an event that was left may lie below a live one. The end of the thread ends those that are not found here.
RINGSIDE_NOINLINE void end_left_ones(uintptr_t mine) noexcept {
  for (Top top = these->top; top != 0 && was_left(top, mine); top = these->top) {
    const SignalsOff off;
    const Inside inside(off);
    if (these->top != top) continue;  // a handler has done it already
    const u32 depth = depth_of(top) - 1;
    end_all_left(depth);
    these->top = these->below[depth];
  }
}

RINGSIDE_NOINLINE void end_above(u32 depth) noexcept {
  const SignalsOff off;
  const Inside inside(off);
  end_all_left(depth);
}

// Notes the ring's owner and shows the ring to others.
void introduce(Own& own, const Numbers& me) noexcept {
  InstanceControl& c = *own.in->words.control;
  RingEntry& entry = own.in->words.ring(own.number);
  entry.pid = static_cast<u32>(me.pid);
  entry.tid = static_cast<u32>(own.tid);
  entry.of = own.in->member();
  __atomic_store_n(&entry.sizes, short_sizes(own.mapped.ring.geometry), __ATOMIC_RELAXED);  // others read it before they claim
  entry.tid_start = sys::ticks_since_boot();
  std::memcpy(entry.task, me.task, sizeof entry.task);
  std::memcpy(entry.process, process.comm, sizeof entry.process);
  Control& words = *own.mapped.ring.control;
  words.owner = static_cast<u64>(own.tid);
  words.owner_start = entry.tid_start;
  words.unfenced = process.fenced ? 0 : 1;
  if (!own.in->has_threads) save_names(own.in->directory().get(), own.tid, me.pid, entry.task);
  own.live = pack_state(RingState::live, static_cast<u32>(own.tid)) | state_tag(sys::now_ns());
  __atomic_store_n(&entry.state, own.live, __ATOMIC_SEQ_CST);
  // A controller that switches recording or the mode, or resizes, stores that first and then goes through the live rings:
  // either it has seen this ring, or this thread sees the stored words.
  u64 gate;
  u32 mode;
  do {
    gate = gate_wanted(c);
    mode = __atomic_load_n(&c.mode, __ATOMIC_SEQ_CST);
    __atomic_store_n(&words.mode, u64{mode}, __ATOMIC_RELAXED);
    switch_gate(words, gate);
  } while (gate_wanted(c) != gate || __atomic_load_n(&c.mode, __ATOMIC_SEQ_CST) != mode);
  if (geometry_of(c) != own.mapped.ring.geometry) __atomic_fetch_or(&words.gate, gate_moved, __ATOMIC_SEQ_CST);
}

}  // namespace

bool attach_to_own_ring(u32 depth) noexcept {
  const u64 epoch = epoch_now();
  Opened* const in = opened_now();
  if (in == nullptr || epoch == 0) return false;  // the first open is not finished
  release(these->own[depth]);
  // Otherwise this is a child of a vfork that did not go through the library: the thread is its parent's.
  if (getpid() != process.pid && this_thread.borrowed == 0) return false;
  Own* own = new_own();
  if (own == nullptr) return false;
  const bool keeps = this_thread.borrowed == 0;
  own->in = in;
  own->attached_at = detail::not_attached;
  own->tag = keeps ? 0 : static_cast<u32>(sys::gettid());
  Hardware::fence_light();
  these->own[depth] = own;  // whatever it has by then, the parent of a vfork gives it back if the child is killed
  in->join();
  const auto find = [&] {
    if (keeps && take_kept_ring(*own)) return true;
    const sys::Fd dir = in->directory();
    return dir && find_ring(dir.get(), *own, keeps);
  };
  if (!find()) {
    release(these->own[depth]);
    return false;
  }
  const Numbers me = introduce_thread(*in, epoch);
  own->tid = this_thread.tid = me.tid;
  introduce(*own, me);
  new (own->bytes) OwnWriter(own->mapped.ring, RingClockNow{in->clock.kind, &in->words.control->clock_base_ticks},
                             bell_of(in->words), Back{{}, &own->backing});
  own->note();
  these->events[depth] = Event::begun;  // a child of a fork finds its parent's events counted, but this one is its own
  Hardware::fence_light();
  own->attached_at = epoch;
  // A key beyond the first 32 would allocate, perhaps in a handler; in that case /proc shows that the thread has ended.
  if (has_end_key && end_key < 32) pthread_setspecific(end_key, these.get());
  return true;
}

namespace {

// As early as possible: handlers may set only the first 32 keys.
[[gnu::constructor(101)]] void make_end_key() { has_end_key = pthread_key_create(&end_key, at_thread_end) == 0; }

}  // namespace

// The rings are the parent's, and shared: never written to again. An event that is open here, because a handler forked, ends in
// zeros.
void forget_thread_after_fork() noexcept {
  fresh_rings.forget_after_fork();
  retired_rings.forget_after_fork();
  if (!these) return;
  const u32 open = depth_of(these->top);
  for (u32 depth = 0; depth < most_depth; ++depth) {
    if (these->events[depth] != Event::none) these->events[depth] = Event::counted;  // by the parent
    Own*& own = these->own[depth];
    if (own == nullptr) continue;
    own->tid = 0;
    own->attached_at = detail::not_attached;
    if (depth < open)
      forget_ring(own->mapped);
    else
      release(own);
  }
  for (Own*& own : these->left) {
    if (own != nullptr) own->tid = 0;
    release(own);
  }
}

void retire_this_thread() noexcept { end_thread(false); }

void lay_own_rings_aside(const SignalsOff& off) noexcept {
  const Inside inside(off);
  become_child_if_forked();  // or these rings are another process's
  if (!these) return;
  these->aside.top = these->top;
  std::copy(std::begin(these->below), std::end(these->below), these->aside.below);
  std::copy_n(these->events, most_depth, these->aside.events);
  std::copy(std::begin(these->own), std::end(these->own), these->aside.own);
  std::fill(std::begin(these->own), std::end(these->own), nullptr);
  for (Own*& own : these->left) release(own);
  std::fill_n(these->events, most_depth, Event::none);
  these->top = 0;
}

void take_up_own_rings(const SignalsOff& off) noexcept {
  const Inside inside(off);
  if (off) release_all();  // else the child's stay mapped, and claimed by a process that is gone
  if (!these) return;
  std::copy(std::begin(these->aside.below), std::end(these->aside.below), these->below);
  std::copy_n(these->aside.events, most_depth, these->events);
  std::copy(std::begin(these->aside.own), std::end(these->aside.own), these->own);
  these->top = these->aside.top;
}

RingNow own_ring_now() noexcept {
  if (!these) return {};
  const u32 depth = depth_of(these->top);
  const Own* const own = depth < most_depth ? these->own[depth] : nullptr;
  if (own == nullptr || own->attached_at != epoch_now() || moved(*own)) return {};
  const Ring& ring = own->mapped.ring;
  return {own->live | 1, place_of(__atomic_load_n(&ring.control->tail, __ATOMIC_RELAXED)).position, ring.geometry.nr_slots()};
}

// The address sanitizer gives the locals of the functions that it checks places outside the stack (use after return).
#if RINGSIDE_ASAN
#define REAL_STACK [[gnu::no_sanitize_address]]
#define CHECKED  // a call: the sanitizer does not check code that is inlined into a function without its checks
#else
#define REAL_STACK
#define CHECKED RINGSIDE_INLINE
#endif

namespace {

// Usual sizes without a call or a loop.
RINGSIDE_INLINE void copy_payload(u8* to, const void* payload, u32 size) noexcept {
  switch (size) {
    case 16: std::memcpy(to, payload, 16); break;
    case 24: std::memcpy(to, payload, 24); break;
    case 32: std::memcpy(to, payload, 32); break;
    default: std::memcpy(to, payload, size);
  }
}

// mark: a word of the caller's frame.
CHECKED Tried write_marked(u32& mark, const ringside_event& event, i32 as, void* payload, u32 size) noexcept {
  if (RINGSIDE_UNLIKELY(!these) && !make_thread_rings()) {
    count_refused();
    return Tried::refused;
  }
  if (these->top != 0) end_left_ones(reinterpret_cast<uintptr_t>(&mark));
  __atomic_store_n(&mark, still_open, __ATOMIC_RELAXED);  // a call that returns leaves it, but its mark is not noted then
  const Top interrupted = these->top;
  const u32 depth = depth_of(interrupted);
  if (depth == most_depth) {
    count_refused();
    return Tried::refused;
  }
  if (depth != 0) these->below[depth] = interrupted;
  Hardware::fence_light();
  these->top =
      reinterpret_cast<Top>(&mark) | (depth + 1);  // from here on only this call writes to the ring: handlers have another
  Hardware::fence_light();
  Event& now = these->events[depth];
  if (RINGSIDE_UNLIKELY(now != Event::none || these->events[depth + 1] != Event::none))
    end_above(depth);  // left since `top` was loaded
  now = Event::begun;
  Hardware::fence_light();
  Refused why;
  Attached attached = Attached::own;
  for (int tries = 0; attached == Attached::own; ++tries) {
    why = Refused::no_ring;
    if (Own* const own = these->own[depth]; own != nullptr) {
      const u32 id = detail::put_common(event, as != 0 ? as : this_thread.tid, payload);
      if (own->attached_at == epoch_now()) {  // so id and ring belong to one instance
        why = id != 0 ? own->writer().try_write(size, [&](u8* to) { copy_payload(to, payload, size); }) : Refused::not_wanted;
        Hardware::fence_light();
        // Whether a handler leaves this call before these stores or after them, end_left() finds the event counted.
        if (why == Refused::no) {
          now = Event::counted;
          Hardware::fence_light();
          own->published = published_in(own->mapped.ring);
        } else if (why == Refused::full || why == Refused::commit_overrun) {
          now = Event::counted;
          Hardware::fence_light();
          own->refused = refused_by(own->mapped.ring);
        }
      }
    }
    if (RINGSIDE_LIKELY(!is_uncounted(why)) || is_shut(why)) break;
    // The event stays open while its thread attaches: a handler may leave it as soon as signals are on again.
    attached = wants_ring(why) && tries < 100 ? attach(&depth) : Attached::no;
    if (attached == Attached::no) {
      const SignalsOff off;
      if ((__atomic_load_n(&event.id, __ATOMIC_RELAXED) & 0xFFFF) != 0) count_refused();
      now = Event::counted;
    }
  }
  Hardware::fence_light();
  now = Event::none;
  Hardware::fence_light();
  these->top = interrupted;
  Hardware::fence_light();
  // Left inside of a handler that came back.
  if (RINGSIDE_UNLIKELY(these->events[depth + 1] != Event::none)) end_above(depth + 1);
  // At a shut gate nothing of the event was begun: a handler that leaves this call comes before the event, or after its count.
  if (RINGSIDE_UNLIKELY(is_shut(why))) count_refused(why);
  return attached == Attached::cpus ? Tried::not_here : why == Refused::no ? Tried::written : Tried::refused;
}

}  // namespace

// The mark shows by its address who called whom. Every event of such a thread comes here, so it is not RINGSIDE_NOINLINE, which
// is of cold code.
REAL_STACK [[gnu::noinline]] Tried write_to_own_ring(const ringside_event& event, i32 as, void* payload, u32 size) noexcept {
  alignas(depth_bits + 1) u32 mark;
  return write_marked(mark, event, as, payload, size);
}

int back_own_ring(u64 most) noexcept {
  static constinit ringside_event none{};  // no instance knows it: it attaches the thread, and is not written
  u64 common = 0;
  (void)write_to_own_ring(none, 0, &common, sizeof common);
  if (!own_ring_is_ready()) return ENOMEM;
  Own& own = *these->own[0];
  if (own.mapped.ring.geometry.data_size() > most) return ENOSPC;
  return own.backing.back_all(own.mapped.ring) ? 0 : ENOMEM;
}

// Only where no event is open: whether it was left takes system calls to find out.
bool own_ring_is_ready() noexcept {
  const Own* const own = these ? these->own[0] : nullptr;
  return own != nullptr && these->top == 0 && this_thread.borrowed == 0 && own->attached_at == epoch_now() && !moved(*own);
}

}  // namespace ringside
