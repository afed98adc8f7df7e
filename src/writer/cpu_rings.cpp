#include "writer/cpu_rings.hpp"

#include <errno.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <new>

#include <ringside/ring/cpu_writer.hpp>

#include "writer/process.hpp"
#include "writer/ring_file.hpp"
#include "sys/beside.hpp"
#include "sys/sys.hpp"

// Weak: only glibc since 2.35 registers each thread and gives its area.
extern "C" {
[[gnu::weak]] extern const ptrdiff_t __rseq_offset;
[[gnu::weak]] extern const unsigned __rseq_size;
}

namespace ringside {

constinit const detail::CpuSide* detail::cpu_side = nullptr;

namespace {

constexpr u32 most_cpus = 8192;

// All sides that were made.
struct KeptSide : detail::CpuSide {
#if RINGSIDE_RSEQ
  CpuWriter<RingClockNow, Rseq> writer;
#endif
  const KeptSide* older;
};
[[maybe_unused]] constinit const KeptSide* kept_sides = nullptr;

struct MappedPlace : CpuPlace {
  mutable Backing<1900> backing;
};
static_assert(sizeof(MappedPlace) <= page_size);

bool back(const CpuPlace& place, u32 id) noexcept {
  return static_cast<const MappedPlace&>(place).backing.back(place.ring, id);
}

// Takes the place of a ring that is not mapped: its gate is shut.
constinit Control shut_gate{};
constinit const CpuPlace nowhere{&shut_gate, nullptr, 0, 0, 0, {}, nullptr};

#if RINGSIDE_RSEQ
i64 area() noexcept { return __rseq_offset; }
#endif

// Aborts the sequences of all threads of this process. False: the kernel cannot (before 5.10).
bool abort_sequences() noexcept {
  return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_RSEQ, 0, 0) == 0 &&
         syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ, 0, 0) == 0;
}

// Puts zeros in the place of a ring that was moved: its memory is given back, and threads that still read there find the gate
// shut.
void forget(const CpuPlace& place) noexcept {
  if (place.ring.control == nullptr || !abort_sequences()) return;
  // By the system call: a thread that reads there at this moment finds either, and both are right; the thread sanitizer need
  // not judge.
  const auto zeros = [](void* at, u64 size) {
    sys::raw_mmap(at, static_cast<size_t>(size), MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1);
  };
  zeros(place.ring.control, control_size(place.ring.geometry));
  zeros(place.ring.data, place.ring.geometry.data_size());
}

bool is_open(const CpuPlace& place) noexcept {
  if (place.ring.control == nullptr) return false;
  const u64 gate = __atomic_load_n(&place.control->gate, __ATOMIC_ACQUIRE);
  return gate != 0 && (gate & gate_moved) == 0;
}

}  // namespace

bool has_rseq() noexcept {
#if RINGSIDE_RSEQ
  return &__rseq_size != nullptr && &__rseq_offset != nullptr && __rseq_size != 0 && Rseq::cpu(area()) < most_cpus;
#else
  return false;
#endif
}

#if RINGSIDE_RSEQ
// From Linux 6.12 on, a thread with a shorter slice preempts others when it wakes up; before, and where it is refused, it waits
// for the end of their slice at most.
static bool has_short_slices() noexcept {
  utsname kernel{};
  if (uname(&kernel) != 0) return false;
  char* minor = nullptr;
  const unsigned long major = std::strtoul(kernel.release, &minor, 10);
  return major > 6 || (major == 6 && *minor == '.' && std::strtoul(minor + 1, nullptr, 10) >= 12);
}
static void ask_for_short_slices() noexcept {
  if (sched_getscheduler(0) != SCHED_OTHER) return;
  struct {
    u32 size, policy;
    u64 flags;
    i32 nice;
    u32 priority;
    u64 runtime, deadline, period;
  } const attributes{48, SCHED_OTHER, 0, static_cast<i32>(getpriority(PRIO_PROCESS, 0)), 0, 100'000, 0, 0};
  syscall(SYS_sched_setattr, 0, &attributes, 0);
}

// What runs beside this thread, on its CPU.
struct Other {
  u32 ran;
  bool short_slices;
};

static void run_other(const sys::BesideHere& here, void* memory) noexcept {
  Other& other = *static_cast<Other*>(memory);
  if (other.short_slices) ask_for_short_slices();
  const timespec nap{0, 50'000};
  for (int n = 0; n < 200'000 && here.wanted(); ++n) {
    __atomic_fetch_add(&other.ran, 1u, __ATOMIC_RELAXED);
    syscall(SYS_nanosleep, &nap, nullptr);
  }
}
#endif

bool kernel_aborts() noexcept {
#if RINGSIDE_RSEQ
  cpu_set_t before, here;
  if (sched_getaffinity(0, sizeof before, &before) != 0) return false;
  const u32 cpu = Rseq::cpu(area());
  CPU_ZERO(&here);
  CPU_SET(cpu, &here);
  if (sched_setaffinity(0, sizeof here, &here) != 0) return false;
  void* const memory = mmap(nullptr, sizeof(Other), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  bool aborted = false;
  if (memory != MAP_FAILED) {
    auto* const other = static_cast<Other*>(memory);
    other->short_slices = has_short_slices();
    const sys::Beside beside(run_other, memory);
    const u32* const ran = &other->ran;
    // A second of this thread's own time, because on a busy machine it may run for only a small part of a second.
    const u64 own_end = sys::thread_ns() + 1'000'000'000, deadline = sys::now_ns() + 10'000'000'000;
    const auto in_time = [&] { return beside.pid() > 0 && sys::thread_ns() < own_end && sys::now_ns() < deadline; };
    while (__atomic_load_n(ran, __ATOMIC_RELAXED) == 0 && in_time()) sched_yield();  // it would wait for the end of this slice
    for (bool unnoticed = false; !aborted && !unnoticed && in_time();) {
      u32 seen = 0;  // noted by the sequence itself: on a busy machine the child may run just before that
      const Sequence end = Rseq::spin(area(), ran, seen, 1u << 22);
      if (end == Sequence::moved) unnoticed = true;  // it ran meanwhile, and this thread went on
      if (end == Sequence::aborted)
        aborted = seen != 0 && __atomic_load_n(ran, __ATOMIC_RELAXED) != seen && Rseq::cpu(area()) == cpu;
    }
  }
  if (memory != MAP_FAILED) munmap(memory, sizeof(Other));
  sched_setaffinity(0, sizeof before, &before);
  return aborted;
#else
  return false;
#endif
}

u32 possible_cpus() noexcept {
  u32 last = 0;
  if (auto text = sys::read_file("/sys/devices/system/cpu/possible")) {  // "0-3", "0,2-5"
    const size_t digits = text->find_last_of("-,");
    last = static_cast<u32>(std::strtoul(text->c_str() + (digits == std::string::npos ? 0 : digits + 1), nullptr, 10));
  } else if (const long n = sysconf(_SC_NPROCESSORS_CONF); n > 0) {
    last = static_cast<u32>(n) - 1;
  }
  return std::min(last + 1, most_cpus);
}

RingsBecause why_not_cpu_rings() noexcept {
  if (!has_rseq() || sys::boot_hash() == 0) return RingsBecause::no_rseq;
  return kernel_aborts() ? RingsBecause::can : RingsBecause::no_abort;
}

const char* to_string(RingsBecause because) noexcept {
  switch (because) {
    case RingsBecause::asked: return "as its maker asked";
    case RingsBecause::can: return "as this machine has restartable sequences";
    case RingsBecause::no_rseq: return "as the C library or the kernel has no restartable sequences";
    case RingsBecause::no_abort: return "as the kernel did not abort a restartable sequence";
    case RingsBecause::budget: return "as rings of all CPUs are more than its memory allows";
  }
  return "for a reason that is not known here";
}

#if RINGSIDE_RSEQ
Refused detail::append_slowly(const CpuSide& side, const void* payload, u32 size) noexcept {
  return static_cast<const KeptSide&>(side).writer.write_slowly(*side.rings, side.area, payload, size);
}
#endif

const detail::CpuSide* open_cpu_side([[maybe_unused]] const Opened& in) noexcept {
#if RINGSIDE_RSEQ
  const InstanceWords& words = in.words;
  const u32 nr = words.cpu_rings();
  if (nr == 0 || nr > most_cpus || !has_rseq() || words.control->boot != sys::boot_hash()) return nullptr;
  const RingClockNow clock{in.clock.kind, &words.control->clock_base_ticks};
  auto* const rings = static_cast<CpuRings*>(std::calloc(1, sizeof(CpuRings) + nr * sizeof(CpuPlace*)));
  if (rings == nullptr) return nullptr;
  new (rings) CpuRings{bell_of(words), 0, 0, {}};
  rings->nr = nr;
  rings->nr_usual = clock.in_sequence() ? rings->nr : 0;
  for (u32 cpu = 0; cpu < nr; ++cpu) rings->place[cpu] = &nowhere;
  auto* const kept = new (std::nothrow) KeptSide{{rings, area(), &in}, CpuWriter<RingClockNow, Rseq>(clock, takes_system_call(clock.kind)), kept_sides};
  if (kept == nullptr) return nullptr;
  kept_sides = kept;
  const detail::CpuSide* const side = kept;
  cpu_set_t mine;
  if (sched_getaffinity(0, sizeof mine, &mine) != 0) CPU_ZERO(&mine);
  for (u32 cpu = 0; cpu < nr && cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &mine)) map_cpu_ring(*side, cpu);
  return side;
#else
  return nullptr;
#endif
}

bool is_mapped(const detail::CpuSide& side, u32 cpu) noexcept {
  return cpu < side.rings->nr && is_open(place_in(*side.rings, cpu));
}

bool map_cpu_ring(const detail::CpuSide& side, u32 cpu) noexcept {
  if (cpu >= side.rings->nr) return false;
  const CpuPlace* was = &place_in(*side.rings, cpu);
  if (is_open(*was)) return true;  // another thread was faster
  const sys::Fd dir = side.in->directory();
  MappedRing mapped = dir ? map_whole_ring(dir.get(), cpu) : MappedRing{};
  if (!mapped) return false;
  // The writer that entered the tail's sub-buffer has provided its memory; in a new ring no writer has.
  const u32 tail = place_of(__atomic_load_n(&mapped.ring.control->commit, __ATOMIC_ACQUIRE)).id;
  if (!mapped.ring.geometry.holds(tail) || !sys::populate(mapped.ring.subbuf(tail), abi::header_size)) {
    unmap_ring(mapped);
    return false;
  }
  void* const page = mmap(nullptr, sizeof(MappedPlace), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page != MAP_FAILED && mapped.ring.kind == RingKind::cpu) {
    const Geometry& g = mapped.ring.geometry;
    const auto* const place = new (page) MappedPlace{
        {mapped.ring.control, mapped.ring.subbuf(0), g.subbuf_size(), g.nr_subbufs(), g.capacity(), mapped.ring, back}, {}};
    RINGSIDE_CHECK(place->control == place->ring.control && place->capacity == g.capacity(),
                   "a ring is shown with its addresses");  // pairs: MAP publishes
    const CpuPlace* now = was;
    if (__atomic_compare_exchange_n(&side.rings->place[cpu], &now, place, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
      forget(*was);
      return true;
    }
    was = now;
  }
  if (page != MAP_FAILED) munmap(page, sizeof(MappedPlace));
  unmap_ring(mapped);  // no other thread has seen it
  return is_open(*was);
}

int back_cpu_rings(const detail::CpuSide& side, u64 most) noexcept {
  u64 bytes = 0;
  for (u32 cpu = 0; cpu < side.rings->nr; ++cpu) {
    if (!map_cpu_ring(side, cpu)) return errno != 0 ? errno : ENOMEM;
    bytes += place_in(*side.rings, cpu).ring.geometry.data_size();
  }
  if (bytes > most) return ENOSPC;
  for (u32 cpu = 0; cpu < side.rings->nr; ++cpu) {
    const auto& place = static_cast<const MappedPlace&>(place_in(*side.rings, cpu));
    if (!place.backing.back_all(place.ring)) return ENOMEM;
  }
  return 0;
}

}  // namespace ringside
