// A ring of a thread's own: found in one thread-local load, made at the thread's first event. Where an instance has no rings of CPUs, or
// this thread cannot write to them.
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>

#include "instance/process.hpp"
#include "instance/ring_entry.hpp"
#include "sys/sys.hpp"

namespace ringside {

namespace {

using detail::this_thread;
using detail::ThisThread;

// A ring that this thread has taken, and its writer. Both stay until the thread ends, also when it has got another ring since: a
// handler does that, and what it interrupted may stand before its event or behind it, on the ring that was.
struct Hold {
  Hold* older;
  MappedRing mapped;
  InstanceWords words;  // of its instance; another one may be open by now
  u32 number;
  i32 tid;  // whose it is; 0 in a child: nobody's
  alignas(ThisThread::Writer) unsigned char writer[sizeof(ThisThread::Writer)];
};

struct ThreadRing {
  Hold* newest;
  Hold first;             // the others have a page each, because handlers cannot allocate
  MappedRing child_copy;  // during a fork in the middle of an event
};
[[gnu::tls_model("initial-exec")]] constinit thread_local ThreadRing this_ring{};

pthread_key_t end_key;
bool has_end_key = false;

bool in_event() noexcept {
  const Hold* const own = this_ring.newest;
  return own != nullptr && __atomic_load_n(&own->mapped.ring.control->nest, __ATOMIC_RELAXED) != 0;
}
bool moved() noexcept {
  const Hold* const own = this_ring.newest;
  return own != nullptr && (__atomic_load_n(&own->mapped.ring.control->gate, __ATOMIC_ACQUIRE) & gate_moved) != 0;
}

// Zeros, or null if there is no memory.
Hold* new_hold() noexcept {
  if (!this_ring.first.mapped) return &this_ring.first;
  void* const page = mmap(nullptr, sizeof(Hold), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return page != MAP_FAILED ? new (page) Hold{} : nullptr;
}
void free_hold(Hold* hold) noexcept {
  if (hold == &this_ring.first)
    *hold = {};
  else
    munmap(hold, sizeof *hold);
}

// Only where no event of this thread can be on its way.
void release(Hold& hold) noexcept {
  unmap_ring(hold.mapped);
  const auto tid = static_cast<u32>(hold.tid);
  u64 live = pack_state(RingState::live, tid);
  if (tid != 0)
    __atomic_compare_exchange_n(&hold.words.ring(hold.number).state, &live, pack_state(RingState::retired, tid), false,
                                __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
  free_hold(&hold);
}

void at_thread_end(void*) {
  const SignalsOff off;
  const Inside inside;
  this_thread.attached_at = detail::not_attached;  // later destructors may write: they get a ring once more
  this_thread.writer = nullptr;
  while (Hold* const one = this_ring.newest) {
    this_ring.newest = one->older;
    release(*one);
  }
}

bool all_read(const Ring& ring) noexcept {
  const RingCounters n = counters<>(ring);
  return n.unread == 0;
}

// Takes ring `n` if its entry is in `state`; busy on success.
bool claim(RingEntry& entry, u64 state, i32 tid) noexcept {
  const u64 claimed = claim_of(static_cast<u32>(tid), state_of(state) == RingState::retired);
  return __atomic_compare_exchange_n(&entry.state, &state, claimed, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

// Makes a ring that somebody left good for a new owner: its writer may have died in it, or it was given up. False: not now.
bool repair(const Ring& ring) noexcept {
  Control& c = *ring.control;
  if (__atomic_load_n(&c.nest, __ATOMIC_ACQUIRE) != 0) {
    Reader<> reader(ring);
    if (reader.try_lock(lock_word(process.pid)) != 0) return false;  // recover wants no reader beside it
    if (recover<>(ring).corrupt) c.corrupt = 1;
    reader.unlock();
  }
  __atomic_fetch_and(&c.gate, ~gate_moved, __ATOMIC_SEQ_CST);
  return c.corrupt == 0;
}

enum class Taken { no, yes, hopeless };

// Takes ring `n`, which nobody has, if it may be taken. It is looked at before it is claimed, because nobody sees a claimed ring.
// hopeless: it cannot be mapped, and a new one could not either.
Taken take(int dir, Hold& own, u32 n, const Geometry& geometry, bool unread_too) noexcept {
  RingEntry& entry = own.words.ring(n);
  const u64 state = __atomic_load_n(&entry.state, __ATOMIC_ACQUIRE);
  const auto fits = [&] { return ring_geometry(dir, n, geometry) == geometry; };  // else of other sizes, or damaged
  if (!fits()) return Taken::no;
  if (state_of(state) == RingState::retired && !unread_too && !seems_read(dir, n)) return Taken::no;
  own.mapped = map_ring(dir, n, geometry);
  if (!own.mapped) return Taken::hopeless;
  const Ring& ring = own.mapped.ring;
  const auto good = [&] {
    return ring.control->corrupt == 0 && (state_of(state) == RingState::empty || unread_too || all_read(ring));
  };
  if (good() && claim(entry, state, own.tid)) {
    if (fits() && good() && repair(ring)) {
      label_ring(ring);
      own.number = n;
      return Taken::yes;
    }
    __atomic_store_n(&entry.state, state, __ATOMIC_RELEASE);
  }
  unmap_ring(own.mapped);
  return Taken::no;
}

bool make(int dir, Hold& own, const Geometry& geometry) noexcept {
  const u64 n = __atomic_fetch_add(&own.words.control->nr_rings, u64{1}, __ATOMIC_ACQ_REL);
  if (n >= most_rings) return false;
  own.number = static_cast<u32>(n);
  RingEntry& entry = own.words.ring(own.number);
  __atomic_store_n(&entry.state, claim_of(static_cast<u32>(own.tid), false), __ATOMIC_RELEASE);
  own.mapped = map_ring(dir, own.number, geometry);
  if (own.mapped)
    label_ring(own.mapped.ring);
  else
    __atomic_store_n(&entry.state, pack_state(RingState::empty, 0), __ATOMIC_RELEASE);
  return static_cast<bool>(own.mapped);
}

// Has the budget room for one more ring, even if all made since the last look became full? Rings are sparse: only what they hold
// counts, which is looked at when it matters.
bool affordable(int dir, InstanceControl& c, u64 made, u64 size) noexcept {
  const auto room = [&] {
    const u64 taken = __atomic_load_n(&c.measured_bytes, __ATOMIC_RELAXED), then = __atomic_load_n(&c.measured_rings, __ATOMIC_RELAXED);
    return taken + (made + 1 - std::min(then, made)) * size <= c.budget;
  };
  if (room()) return true;
  u64 bytes = 0;
  for (u32 n = 0; n < made; ++n) bytes += resident_bytes(dir, n);
  __atomic_store_n(&c.measured_bytes, bytes, __ATOMIC_RELAXED);
  __atomic_store_n(&c.measured_rings, made, __ATOMIC_RELAXED);
  return room();
}

// A ring for this thread: a given-back one, a retired one that is read, a new one, or (budget) a retired one that is not read.
bool find_ring(int dir, Hold& own) noexcept {
  InstanceControl& c = *own.words.control;
  const u64 made = std::min<u64>(__atomic_load_n(&c.nr_rings, __ATOMIC_ACQUIRE), most_rings);
  const Geometry geometry = geometry_of(c);
  if (!geometry.valid()) return false;
  for (const bool unread_too : {false, true}) {
    int looks = 16;  // each costs system calls
    for (u32 n = 0; n < made; ++n) {
      const u64 word = __atomic_load_n(&own.words.ring(n).state, __ATOMIC_ACQUIRE);
      const RingState state = state_of(word);
      if ((state != RingState::retired || names_cpu(word)) && state != RingState::empty) continue;
      if (state == RingState::retired && __atomic_load_n(&own.words.ring(n).sizes, __ATOMIC_RELAXED) != short_sizes(geometry)) continue;
      if (state == RingState::retired && !unread_too && --looks < 0) continue;
      const Taken taken = take(dir, own, n, geometry, unread_too);
      if (taken != Taken::no) return taken == Taken::yes;
    }
    if (!unread_too && made < most_rings && affordable(dir, c, made, geometry.data_size())) return make(dir, own, geometry);
  }
  return false;
}

// Says whose the ring is and lets others see it.
void introduce(int dir, const Hold& own, i32 pid) noexcept {
  InstanceControl& c = *own.words.control;
  RingEntry& entry = own.words.ring(own.number);
  entry.pid = static_cast<u32>(pid);
  entry.tid = static_cast<u32>(own.tid);
  entry.image = process.image;
  __atomic_store_n(&entry.sizes, short_sizes(own.mapped.ring.geometry), __ATOMIC_RELAXED);  // others look before they claim
  entry.tid_start = sys::own_start_time();
  prctl(PR_GET_NAME, entry.task);
  std::memcpy(entry.process, process.comm, sizeof entry.process);
  Control& words = *own.mapped.ring.control;
  words.owner = static_cast<u64>(own.tid);
  words.owner_start = entry.tid_start;
  words.unfenced = process.fenced ? 0 : 1;
  save_names(dir, own.tid, pid, entry.task);
  __atomic_store_n(&entry.state, pack_state(RingState::live, static_cast<u32>(own.tid)), __ATOMIC_SEQ_CST);
  // Whoever switches recording or the mode, or resizes, stores that first and then goes through the live rings: he has seen this one, or it sees
  // what he stored.
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
  ThisThread& t = this_thread;
  const u64 epoch = __atomic_load_n(&detail::epoch.now, __ATOMIC_ACQUIRE);
  const InstanceWords words = open_words();
  if (words.control == nullptr || in_event()) return false;  // an open event ends on the ring that it began on
  t.attached_at = detail::not_attached;
  // Else a child of a vfork that nobody told us of: the thread is its parent's.
  const sys::Fd dir = getpid() == process.pid || t.borrowed != 0 ? open_directory() : sys::Fd();
  Hold* const own = dir ? new_hold() : nullptr;
  if (own == nullptr) return false;
  own->words = words;
  const Numbers me = introduce_thread(words, false);
  own->tid = t.tid = me.tid;
  if (!find_ring(dir.get(), *own)) {
    free_hold(own);
    return false;
  }
  introduce(dir.get(), *own, me.pid);
  t.writer = new (own->writer)
      ThisThread::Writer(own->mapped.ring, RingClockNow{process.clock.kind, &words.control->clock_base_ticks},
                         bell_of(words));
  own->older = this_ring.newest;
  this_ring.newest = own;
  // A key beyond the first 32 would allocate, perhaps in a handler; then /proc tells that the thread has ended.
  if (has_end_key && end_key < 32) pthread_setspecific(end_key, &t);
  t.attached_at = epoch;
  return true;
}

// As early as can be: the first 32 keys are the ones that handlers may set.
[[gnu::constructor(101)]] void make_end_key() { has_end_key = pthread_key_create(&end_key, at_thread_end) == 0; }

}  // namespace

void copy_open_events() noexcept {
  if (in_event()) this_ring.child_copy = copy_ring(this_ring.newest->mapped);
}
void drop_copy() noexcept { unmap_ring(this_ring.child_copy); }

// The rings are the parent's, and shared: never written to again. An event that was open at the fork ends in a copy, which takes no
// others: its gate is closed. One that was about to begin finds zeros.
void forget_thread_after_fork(u64 epoch) noexcept {
  for (Hold* one = this_ring.newest; one != nullptr; one = one->older) one->tid = 0;
  if (this_ring.newest == nullptr) return;
  Hold& own = *this_ring.newest;
  if (!this_ring.child_copy && in_event()) this_ring.child_copy = copy_ring(own.mapped);
  if (this_ring.child_copy) {
    move_ring(this_ring.child_copy, own.mapped);
    own.mapped.ring.control->gate = gate_moved;
    this_thread.attached_at = epoch;
  } else {
    forget_ring(own.mapped);
    this_thread.attached_at = detail::not_attached;
  }
}

void retire_this_thread() noexcept { at_thread_end(nullptr); }

const void* newest_own_ring() noexcept { return this_ring.newest; }

void release_own_rings_above(const void* newest) noexcept {
  if (this_ring.newest == newest) return;
  const SignalsOff off;
  const Inside inside;
  while (this_ring.newest != nullptr && this_ring.newest != newest) {
    Hold* const one = this_ring.newest;
    this_ring.newest = one->older;
    release(*one);
  }
}

bool attach_to_own_ring() noexcept {
  return (this_thread.attached() && !moved()) || take_ring();  // a handler may have been faster
}

}  // namespace ringside
