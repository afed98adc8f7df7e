// Writes events to the open instance: to the ring of the CPU, or to a ring of the thread's own.
#include <errno.h>

#include <bit>
#include <utility>

#include "writer/cpu_rings.hpp"
#include "writer/process.hpp"
#include "sys/side_stack.hpp"
#include "sys/sys.hpp"

namespace ringside {

constinit detail::Epoch detail::epoch = {};  // zeros: pages of a file cannot be wiped

namespace {

using detail::this_thread;
using detail::ThisThread;

void wake(void* context) noexcept {
  auto* control = static_cast<InstanceControl*>(context);
  // `any` may mean a percentage that is not reached: the reader then waits again.
  __atomic_store_n(&control->wait.any, u64{0}, __ATOMIC_RELAXED);
  __atomic_store_n(&control->wait.percent, u64{0}, __ATOMIC_RELAXED);
  __atomic_fetch_add(&control->wait.sequence, 1u, __ATOMIC_SEQ_CST);
  if (const SystemCalls calls; calls) sys::futex_wake_all(&control->wait.sequence);
}

bool refuse_and_count(Refused why = Refused::no_ring) noexcept {
  count_refused(why);
  return false;
}

#if RINGSIDE_RSEQ
// May this thread write to the rings of CPUs? Then it does from now on. False: it may not, or its CPU's ring is not available.
bool attach_to_cpus() noexcept {
  ThisThread& t = this_thread;
  const u64 epoch = __atomic_load_n(&detail::epoch.now, __ATOMIC_ACQUIRE);
  Opened* const in = opened_now();
  if (in == nullptr || in->side == nullptr || epoch == 0) return false;
  const detail::CpuSide* const side = in->side;
  const u32 cpu = Rseq::cpu(side->area);
  // Not registered, or no longer, or a CPU that was not possible at the start: a ring of its own, until that changes.
  if (cpu >= side->rings->nr) return t.on_cpus_at = detail::not_attached, false;
  if (!t.on_cpus()) {
    in->join();
    t.tid = introduce_thread(*in, epoch).tid;
    t.on_cpus_at = epoch;
  }
  return map_cpu_ring(*side, cpu);
}

// The usual first event of a thread: its process has a seat, and its CPU's ring is mapped. Signals stay on. A handler that
// writes attaches the thread, too, with the same numbers; if it leaves by longjmp, the next event finds the thread attached, or
// not yet. If it forks, the child goes on here with its parent's epoch, so it is not attached. A thread that has a number keeps
// it here: that of a child of fork, or of an instance that a handler has opened, is newer.
bool attach_at_once() noexcept {
  ThisThread& t = this_thread;
  const u64 epoch = __atomic_load_n(&detail::epoch.now, __ATOMIC_ACQUIRE);
  Opened* const in = opened_now();
  if (t.inside || t.borrowed != 0 || epoch == 0 || in == nullptr || in->side == nullptr || in->foreign ||
      !is_mapped(*in->side, Rseq::cpu(in->side->area)) || !in->rejoin())
    return false;
  const int saved = errno;
  const SystemCalls calls;
  const i32 tid = calls ? introduce_thread(*in, epoch).tid : sandbox_now() == Sandbox::ready ? introduce_silently(*in) : 0;
  errno = saved;
  if (tid == 0) return false;
  i32 has = 0;
  if (__atomic_compare_exchange_n(&t.tid, &has, tid, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED) || has == tid)
    __atomic_store_n(&t.on_cpus_at, epoch, __ATOMIC_RELEASE);
  return t.on_cpus();
}
#else
bool attach_at_once() noexcept { return false; }
#endif

}  // namespace

void count_refused(Refused why) noexcept {
  const Opened* const in = opened_now();
  if (in == nullptr) return;
  InstanceControl& c = *in->words.control;
  __atomic_fetch_add(is_shut(why) ? &c.refused_off : &c.refused, u64{1}, __ATOMIC_RELAXED);
}

// Signals are off meanwhile, so that no handler meets half a ring.
RINGSIDE_NOINLINE Attached attach(const u32* depth) noexcept {
  ThisThread& t = this_thread;
  if (t.inside || no_system_calls()) return Attached::no;  // inside: an event of the library's own system calls
  // A thread that finds no ring searches again at its 1st, 2nd, 4th, 8th ... and each 1,024th event: the search takes system
  // calls.
  if (const auto now = static_cast<u32>(__atomic_load_n(&detail::epoch.now, __ATOMIC_ACQUIRE)); t.refused_at != now) {
    t.refused_at = now;
    t.refused_in_a_row = 0;
  }
  const u32 before = t.refused_in_a_row;
  if (!t.on_cpus() && before != 0 && !std::has_single_bit(before) && before % 1024 != 0) {
    ++t.refused_in_a_row;
    return Attached::no;
  }
  const int saved = errno;
  Attached done = Attached::no;
  const auto find = [&]() noexcept {
    if (t.borrowed == 0) become_child_if_forked();
#if RINGSIDE_RSEQ
    if (t.borrowed == 0 && attach_to_cpus()) done = Attached::cpus;
#endif
    // A thread that writes to the rings of CPUs gets no ring of its own just because one of those is not available now.
    if (done == Attached::no && !t.on_cpus() && depth != nullptr && attach_to_own_ring(*depth)) done = Attached::own;
  };
  {
    const SignalsOff off;
    const Inside inside(off);
    if (off) (void)sys::on_side_stack(find);
  }
  errno = saved;
  t.refused_in_a_row = done != Attached::no ? 0 : t.refused_in_a_row + 1;
  return done;
}

Doorbell bell_of(const InstanceWords& words) noexcept {
  return Doorbell{&words.control->wait.any, &words.control->wait.percent, wake, words.control};
}

// In a sandbox: only if that takes no system call.
RINGSIDE_INLINE Tried try_own_ring(const ringside_event& event, i32 as, void* payload, u32 size) noexcept {
  if (RINGSIDE_LIKELY(!no_system_calls()) || (sandbox_now() == Sandbox::ready && own_ring_is_ready()))
    return write_to_own_ring(event, as, payload, size);
  if ((__atomic_load_n(&event.id, __ATOMIC_RELAXED) & 0xFFFF) != 0) count_refused();
  return Tried::refused;
}

// Apart from write_slowly, which takes little stack where the thread has a ring of its own.
// just_attached: nothing was tried since.
RINGSIDE_NOINLINE static bool write_to_cpus_in_full(const ringside_event& event, void* payload, u32 size, Refused why, i32 as,
                                                    bool just_attached) noexcept {
  ThisThread& t = this_thread;
  for (int tries = 0; tries < 100; ++tries) {
    if (std::exchange(just_attached, false)) {
    } else if (!t.on_cpus()) {
      const bool attached = attach_at_once();
      if (const Tried own = attached ? Tried::not_here : try_own_ring(event, as, payload, size); own != Tried::not_here)
        return own == Tried::written;
    } else if (wants_ring(why)) {
      if (attach(nullptr) == Attached::no && t.on_cpus()) return refuse_and_count();
    } else {
      return why == Refused::no || (is_uncounted(why) && refuse_and_count(why));
    }
#if RINGSIDE_RSEQ
    why = detail::write_to_cpus<0, detail::Way::slow>(t, event, as, payload, size);
#endif
  }
  return refuse_and_count();  // moved each time
}

bool detail::write_slowly(const ringside_event& event, void* payload, u32 size, Refused why, i32 as) noexcept {
  const bool was_on_cpus = this_thread.on_cpus();
  if (!was_on_cpus && !attach_at_once())
    if (const Tried own = try_own_ring(event, as, payload, size); own != Tried::not_here) return own == Tried::written;
  return write_to_cpus_in_full(event, payload, size, why, as, !was_on_cpus);
}

}  // namespace ringside

using namespace ringside;

// known: the size, or 0. Each size has its own function, so that none saves registers that only another one needs.
template <u32 known>
RINGSIDE_NOINLINE static bool write_sized(const ringside_event& event, void* payload, u32 size) noexcept {
  return detail::write_event<known>(detail::this_thread, event, payload, known != 0 ? known : size);
}

extern "C" bool ringside_write(ringside_event* event, void* payload, uint32_t size) {
  switch (size) {  // common sizes are copied without a loop
    case 8: return write_sized<8>(*event, payload, size);
    case 16: return write_sized<16>(*event, payload, size);
    case 24: return write_sized<24>(*event, payload, size);
    case 32: return write_sized<32>(*event, payload, size);
    case 40: return write_sized<40>(*event, payload, size);
    case 48: return write_sized<48>(*event, payload, size);
    default: break;
  }
  if (RINGSIDE_UNLIKELY(size < RINGSIDE_COMMON_SIZE || size > RINGSIDE_PAYLOAD_MAX)) return refuse_and_count();
  return write_sized<0>(*event, payload, size);
}

// A size has its own way, so that the words go from registers into the ring. The functions before it have no frame: where
// a walk goes by frame pointers, the caller's is still there for write_words_with_stack.
template <class... Word>
[[gnu::noinline, gnu::aligned(64)]] static bool write_words(ringside_event* event, u32 size, Word... word) noexcept {
  constexpr u32 most = 8 + 8 * sizeof...(word);
  if (RINGSIDE_UNLIKELY(!ringside_wanted(event))) return false;
  u64 payload[] = {0, word...};
  if (RINGSIDE_LIKELY(size == most)) return detail::write_event<most>(detail::this_thread, *event, payload, most);
  return ringside_write(event, payload, size);
}

extern "C" bool ringside_write_word(ringside_event* event, uint32_t size, uint64_t first) {
  if (has_stack(*event)) return write_words_with_stack(event, __builtin_return_address(0), size, first, 0, 0);
  return write_words(event, size, first);
}
extern "C" bool ringside_write_2_words(ringside_event* event, uint32_t size, uint64_t first, uint64_t second) {
  if (has_stack(*event)) return write_words_with_stack(event, __builtin_return_address(0), size, first, second, 0);
  return write_words(event, size, first, second);
}
extern "C" bool ringside_write_3_words(ringside_event* event, uint32_t size, uint64_t first, uint64_t second, uint64_t third) {
  if (has_stack(*event)) return write_words_with_stack(event, __builtin_return_address(0), size, first, second, third);
  return write_words(event, size, first, second, third);
}
