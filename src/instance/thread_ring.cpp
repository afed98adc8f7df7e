// The writing side of an instance in this process: one ring per thread, found in one thread-local load, made at the thread's
// first event. Implements the C interface of ringside.h but for registration (registry.cpp).
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <new>

#include "instance/process.hpp"
#include "sys/sys.hpp"

namespace ringside {

constinit detail::Epoch detail::epoch{2};
constinit thread_local detail::ThisThread detail::this_thread{};

namespace {

using detail::this_thread;
using detail::ThisThread;

struct ThreadRing {
  MappedRing mapped;
  u32 number;
};
[[gnu::tls_model("initial-exec")]] constinit thread_local ThreadRing this_ring{};

// A thread that found no ring tries again after 1, 3, 7, ... 1,023 events: each try costs many system calls.
[[gnu::tls_model("initial-exec")]] constinit thread_local u32 patience = 0, skips = 0;

pthread_key_t end_key;
bool has_end_key = false;

void wake(void* context) noexcept {
  auto* control = static_cast<InstanceControl*>(context);
  // `any` may stand for a percentage that is not reached: the reader then waits again.
  __atomic_store_n(&control->wait.any, u64{0}, __ATOMIC_RELAXED);
  __atomic_store_n(&control->wait.percent, u64{0}, __ATOMIC_RELAXED);
  __atomic_fetch_add(&control->wait.sequence, 1u, __ATOMIC_SEQ_CST);
  sys::futex_wake_all(&control->wait.sequence);
}

void retire() noexcept {
  RingEntry& entry = process.words.ring(this_ring.number);
  const auto tid = static_cast<u32>(this_thread.tid);
  u64 live = pack_state(RingState::live, tid);
  unmap_ring(this_ring.mapped);
  __atomic_compare_exchange_n(&entry.state, &live, pack_state(RingState::retired, tid), false,
                              __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

void at_thread_end(void*) {
  ThisThread& t = this_thread;
  if (t.attached_at == ThisThread::never) return;
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  if (t.attached()) retire();
  t.attached_at = ThisThread::never;  // later destructors may write: they get a ring once more
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
}

// Takes ring `n` if its entry is in `state`; busy on success.
bool claim(u32 n, u64 state, u32 tid) noexcept {
  return __atomic_compare_exchange_n(&process.words.ring(n).state, &state, pack_state(RingState::busy, tid), false,
                                     __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

bool all_read(const Ring& ring) noexcept {
  const RingCounters n = counters<>(ring);
  return n.unread == 0;
}

// A ring for this thread: a given-back one, a retired one that is read, a new one, or (budget) a retired one that is not read.
bool find_ring(int dir, ThreadRing& own, u32 tid) noexcept {
  InstanceControl& c = *process.words.control;
  const u64 made = __atomic_load_n(&c.nr_rings, __ATOMIC_ACQUIRE);
  const Geometry geometry = geometry_of(c);
  if (!geometry.valid()) return false;
  const u64 limit = c.budget / geometry.data_size();
  for (int pass = 0; pass < 2; ++pass) {
    const bool take_unread = pass == 1;
    int looks = 16;  // each unread one costs two mappings
    for (u64 i = 0; i < made; ++i) {
      const u32 n = static_cast<u32>(i);
      const u64 state = __atomic_load_n(&process.words.ring(n).state, __ATOMIC_ACQUIRE);
      const RingState kind = state_of(state);
      if (kind != RingState::retired && kind != RingState::empty) continue;
      if (kind == RingState::retired && !take_unread && --looks < 0) continue;
      if (!claim(n, state, tid)) continue;
      errno = 0;
      const bool fits = ring_geometry(dir, n, geometry) == geometry || (kind == RingState::empty && errno == ENOENT);
      own.mapped = fits ? attach_ring(dir, n, geometry) : MappedRing{};
      own.number = n;
      if (!own.mapped) {  // of other sizes, or damaged
        __atomic_store_n(&process.words.ring(n).state, state, __ATOMIC_RELEASE);
        if (fits) return false;  // no memory, no rights: a new one would fail as well, and use up a number
        continue;
      }
      const Control& words = *own.mapped.ring.control;
      if (words.corrupt == 0 && (kind == RingState::empty || take_unread || all_read(own.mapped.ring))) {
        if (words.nest != 0 && recover<>(own.mapped.ring).corrupt) own.mapped.ring.control->corrupt = 1;
        if (words.corrupt == 0) return true;
      }
      unmap_ring(own.mapped);
      __atomic_store_n(&process.words.ring(n).state, state, __ATOMIC_RELEASE);
    }
    if (made >= most_rings || made >= limit) continue;
    const u64 n = __atomic_fetch_add(&c.nr_rings, u64{1}, __ATOMIC_ACQ_REL);
    if (n >= most_rings) break;
    own.number = static_cast<u32>(n);
    __atomic_store_n(&process.words.ring(own.number).state, pack_state(RingState::busy, tid), __ATOMIC_RELEASE);
    own.mapped = attach_ring(dir, own.number, geometry);
    if (own.mapped) return true;
    __atomic_store_n(&process.words.ring(own.number).state, pack_state(RingState::empty, 0), __ATOMIC_RELEASE);
    return false;
  }
  return false;
}

// The slow path of a thread's first event. Signals are off meanwhile, so that no handler meets half a ring.
RS_NOINLINE bool attach() noexcept {
  ThisThread& t = this_thread;
  const bool skip = skips != 0;
  if (skip) --skips;
  if (skip || t.inside) {  // inside: our own system calls, traced
    if (process.words.control != nullptr) __atomic_fetch_add(&process.words.control->refused, u64{1}, __ATOMIC_RELAXED);
    return false;
  }
  const int saved = errno;
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  t.inside = true;
  if (__atomic_load_n(&detail::epoch.now, __ATOMIC_ACQUIRE) == 0) become_child();
  t.attached_at = ThisThread::never;
  bool done = false;
  if (process.words.control != nullptr) {
    const bool ours = getpid() == process.pid;  // not in a vfork's child, where the thread is its parent's
    const sys::Fd dir = ours ? open_directory() : sys::Fd();
    ThreadRing& own = this_ring;
    t.tid = sys::gettid();
    own.mapped = {};
    const u64 epoch = __atomic_load_n(&detail::epoch.now, __ATOMIC_ACQUIRE);
    const u64 start = dir ? sys::start_time(process.pid, t.tid) : 0;  // 0: others could not see that we live
    done = start != 0 && find_ring(dir.get(), own, static_cast<u32>(t.tid));
    if (done) {
      InstanceControl& c = *process.words.control;
      RingEntry& entry = process.words.ring(own.number);
      entry.pid = static_cast<u32>(process.pid);
      entry.tid = static_cast<u32>(t.tid);
      entry.image = process.image;
      entry.tid_start = start;
      sys::comm_of(process.pid, t.tid, entry.task);
      std::memcpy(entry.process, process.comm, sizeof entry.process);
      Control& words = *own.mapped.ring.control;
      words.owner = static_cast<u64>(t.tid);
      words.owner_start = entry.tid_start;
      words.mode = c.mode;
      if (__atomic_load_n(&c.tracing_off, __ATOMIC_ACQUIRE) != 0) words.gate = gate_off;
      const ClockInfo& clock = process.clock;
      new (t.storage) ThisThread::Writer(own.mapped.ring, RingClockNow{clock.kind, &c.clock_base_ticks},
                                     Doorbell{&c.wait.any, &c.wait.percent, wake, &c});
      save_names(dir.get(), t.tid, process.pid, entry.task);
      __atomic_store_n(&entry.state, pack_state(RingState::live, static_cast<u32>(t.tid)), __ATOMIC_RELEASE);
      if (has_end_key) pthread_setspecific(end_key, &t);
      t.attached_at = epoch;
      patience = 0;
    } else {
      if (ours) skips = patience = patience >= 1023 ? patience : patience * 2 + 1;
      __atomic_fetch_add(&process.words.control->refused, u64{1}, __ATOMIC_RELAXED);
    }
  }
  t.inside = false;
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
  errno = saved;
  return done;
}

}  // namespace

void next_epoch() noexcept {
  const u64 now = __atomic_load_n(&detail::epoch.now, __ATOMIC_ACQUIRE);
  __atomic_store_n(&detail::epoch.now, (now < ThisThread::never ? ThisThread::never : now) + 1, __ATOMIC_RELEASE);
}

void become_child() noexcept {
  ThisThread& t = this_thread;
  if (t.attached_at != ThisThread::never) unmap_ring(this_ring.mapped);  // the parent's, shared: never write to it
  t.attached_at = ThisThread::never;
  skips = patience = 0;
  if (process.words.control != nullptr) process.pid = pid_in(*process.words.control);
  sys::register_fence();
  next_epoch();
}

void retire_this_thread() noexcept {
  ThisThread& t = this_thread;
  if (t.attached()) retire();
  t.attached_at = ThisThread::never;
}

// After a resize: gives up the ring of the old sizes, unless an event is open on it.
[[gnu::noinline, gnu::cold]] static bool leave_moved_ring() noexcept {
  ThisThread& t = this_thread;
  const Control& words = *this_ring.mapped.ring.control;
  if (__atomic_load_n(&words.gate, __ATOMIC_ACQUIRE) != gate_moved || words.nest != 0) return false;
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  retire();
  t.attached_at = ThisThread::never;
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
  return true;
}

// Once, before any thread attaches. Without MADV_WIPEONFORK (Linux 4.14) the fork handlers remain.
static void watch_for_forks() noexcept {
  const u64 now = detail::epoch.now;
  constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
  if (mmap(&detail::epoch, sizeof detail::epoch, PROT_READ | PROT_WRITE, flags, -1, 0) == MAP_FAILED) return;
  madvise(&detail::epoch, sizeof detail::epoch, MADV_WIPEONFORK);
  __atomic_store_n(&detail::epoch.now, now, __ATOMIC_RELEASE);
}

void prepare_threads() noexcept {
  if (has_end_key) return;
  watch_for_forks();
  has_end_key = pthread_key_create(&end_key, at_thread_end) == 0;
}

}  // namespace ringside

using namespace ringside;

// A ringside_slot is a Slot, kept by the caller.
static_assert(sizeof(ringside_slot) == sizeof(Slot) && alignof(ringside_slot) == alignof(Slot));
static_assert(offsetof(ringside_slot, payload) == offsetof(Slot, payload));

// Not initialised: reserve writes all of it.
static Slot& slot_in(ringside_slot* where) noexcept { return *std::launder(reinterpret_cast<Slot*>(where)); }

bool detail::begin_slowly(const ringside_event& event, u32 size, Slot& slot, bool attached, u64 nest) noexcept {
  ThisThread& t = this_thread;
  if (!attached) {
    slot = {};
    if (!attach() || !t.writer().reserve(size, slot)) return false;
  } else if (!t.writer().reserve_after_all(size, nest, slot)) {
    if (slot.why != Refused::disabled || !leave_moved_ring() || !attach()) return false;
    if (!t.writer().reserve(size, slot)) return false;
  }
  t.put_common(event, slot.payload);
  return true;
}

void detail::end_slowly(const Slot& slot) noexcept { this_thread.writer().commit(slot); }

extern "C" bool ringside_begin(ringside_event* event, uint32_t payload_size, ringside_slot* where) {
  ThisThread& t = this_thread;
  Slot& slot = slot_in(where);
  u64 nest = 0;
  const bool attached = t.attached();
  if (!attached || !t.writer().reserve_at_once(payload_size, nest, slot)) [[unlikely]]
    return detail::begin_slowly(*event, payload_size, slot, attached, nest);
  t.put_common(*event, slot.payload);
  return true;
}

extern "C" void ringside_end(ringside_slot* slot) {
  if (slot->payload != nullptr) this_thread.writer().commit(slot_in(slot));
}

extern "C" void ringside_discard(ringside_slot* slot) {
  if (slot->payload != nullptr) this_thread.writer().discard(slot_in(slot));
}
