// Rings of CPUs in anonymous shared memory, numbered events whose every byte is known, and a reader that keeps their books.
#pragma once
#include <ringside/abi/event_cursor.hpp>
#include <ringside/ring/check.hpp>
#include <ringside/ring/counters.hpp>
#include <ringside/ring/cpu_writer.hpp>
#include <sched.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "ring_memory.hpp"
#if __has_include(<sys/rseq.h>)
#include <sys/rseq.h>
#define RS_TEST_RSEQ RINGSIDE_RSEQ
#endif

namespace ringside::test {

#if RS_TEST_RSEQ
// Where the thread's area is, and whether there is one.
inline i64 rseq_area() { return __rseq_offset; }
inline bool rseq_registered() { return __rseq_size != 0 && Rseq::cpu(rseq_area()) < 0x80000000u; }
#else
inline bool rseq_registered() { return false; }
inline i64 rseq_area() { return 0; }
#endif

// The clock that the usual sequence reads itself.
struct TickClock {
  bool in_sequence() const noexcept { return true; }
  u64 now() const noexcept {
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
    u64 now;
    asm volatile("isb\n\tmrs %0, cntvct_el0" : "=r"(now));
    return now;
#else
    return 0;
#endif
  }
};

// The counter of the processor, which a sequence reads, or a clock that it is given.
struct EitherClock {
  bool inside;
  bool in_sequence() const noexcept { return inside; }
  u64 now() const noexcept { return inside ? TickClock{}.now() : MonoClock{}.now(); }
};

inline u32 possible_cpus() {
  u32 first = 0, last = 0;
  if (std::FILE* file = std::fopen("/sys/devices/system/cpu/possible", "r")) {
    if (std::fscanf(file, "%u-%u", &first, &last) < 2) last = first;
    std::fclose(file);
  }
  return last + 1;
}
// The CPUs that this thread may run on.
inline std::vector<u32> allowed_cpus() {
  std::vector<u32> cpus;
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof set, &set);
  for (u32 cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  return cpus;
}
inline bool pin(pid_t thread, u32 cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  return sched_setaffinity(thread, sizeof set, &set) == 0;
}

// A process's rings of this number of CPUs, without their places, in `words`.
inline CpuRings& rings_in(std::vector<u64>& words, u32 nr, u32 nr_usual) {
  words.assign(sizeof(CpuRings) / 8 + nr, 0);
  return *new (words.data()) CpuRings{{}, nr_usual, nr, {}};
}
inline void put_place(CpuRings& all, u32 cpu, const CpuPlace& place) {
  const CpuPlace* const at = &place;
  std::memcpy(reinterpret_cast<u8*>(&all) + offsetof(CpuRings, place) + sizeof at * cpu, &at, sizeof at);
}

// One ring for each possible CPU. The addresses are the same in each process that is forked from here.
class CpuRingSet {
 public:
  CpuRingSet(u32 subbuf_size, u32 nr_subbufs, bool discard, bool usual = true)
      : places_(possible_cpus()) {
    CpuRings& all = rings_in(words_, nr(), usual ? nr() : 0);
    for (u32 cpu = 0; cpu < nr(); ++cpu) {
      Ring ring = shared_ring(subbuf_size, nr_subbufs, discard);
      ring.kind = RingKind::cpu;
      ring.control->kind = static_cast<u64>(RingKind::cpu);
      ring.control->gate = gate_cpu_open;
      places_[cpu] = {
          ring.control, ring.subbuf(0), ring.geometry.subbuf_size(), ring.geometry.nr_subbufs(), ring.geometry.capacity(),
          ring};
      put_place(all, cpu, places_[cpu]);
    }
  }
  ~CpuRingSet() {
    for (const CpuPlace& place : places_) unmap(place.ring);
  }
  CpuRingSet(const CpuRingSet&) = delete;
  CpuRingSet& operator=(const CpuRingSet&) = delete;

  const CpuRings& rings() const { return *reinterpret_cast<const CpuRings*>(words_.data()); }
  CpuRings& rings() { return *reinterpret_cast<CpuRings*>(words_.data()); }
  u32 nr() const { return static_cast<u32>(places_.size()); }
  const Ring& operator[](u32 cpu) const { return places_[cpu].ring; }

 private:
  std::vector<CpuPlace> places_;
  std::vector<u64> words_;
};

// An event names its writer, its number among those of this writer, its length, and the bytes that follow.
struct Numbered {
  u32 who, size;
  u64 sequence, check;
};
inline constexpr u32 numbered_most = 700;
inline u64 numbered_mix(u32 who, u64 sequence) {
  u64 x = (sequence + 1) * 0x9E3779B97F4A7C15u + who * 0xD1B54A32D192ED03u;
  x ^= x >> 29;
  return x * 0xBF58476D1CE4E5B9u;
}
inline constexpr u32 numbered_usual = 28;  // each fourth one's size, which is known when it is compiled
inline u32 numbered_size(u64 mix) {
  const u32 more = static_cast<u32>(mix >> 40);
  if (more % 4 == 1) return numbered_usual;
  return static_cast<u32>(sizeof(Numbered)) + (more % 16 == 0 ? more / 16 % (numbered_most - 24) : more / 16 % 100);
}
// Safe in a signal handler. to: numbered_most bytes.
inline u32 make_numbered(u8* to, u32 who, u64 sequence) {
  const u64 mix = numbered_mix(who, sequence);
  const Numbered n{who, numbered_size(mix), sequence, mix};
  std::memcpy(to, &n, sizeof n);
  for (u32 i = sizeof n; i < n.size; ++i) to[i] = static_cast<u8>(mix >> (i % 7 * 8)) ^ static_cast<u8>(i);
  return n.size;
}
template <class W>
RINGSIDE_INLINE Refused write_numbered(const W& writer, const CpuRings& rings, const void* payload, u32 size) {
  return size == numbered_usual ? writer.template write<numbered_usual>(rings, rseq_area(), payload, size)
                                : writer.write(rings, rseq_area(), payload, size);
}
// False: some byte is not what was written, padding behind the payload included.
inline bool is_numbered(const u8* from, u32 room, Numbered& n) {
  if (room < sizeof n) return false;
  std::memcpy(&n, from, sizeof n);
  const u64 mix = numbered_mix(n.who, n.sequence);
  if (n.check != mix || n.size != numbered_size(mix)) return false;
  const u32 data_size = abi::event_size(n.size);
  if (room != data_size - abi::payload_offset(data_size)) return false;
  for (u32 i = sizeof n; i < room; ++i)
    if (from[i] != (i < n.size ? static_cast<u8>(mix >> (i % 7 * 8)) ^ static_cast<u8>(i) : 0)) return false;
  return true;
}

// What all readers have found of one writer. With nothing lost: `count` events, whose numbers add up to 0 + 1 + ... + count
// - 1.
struct Tally {
  u64 count, sum;
  bool whole() const { return sum == (count & 1 ? count * ((count - 1) / 2) : count / 2 * (count - 1)); }
};

// Reads one ring, looks at each byte, and notes what does not fit. Its results may lie in memory that others see.
class BookReader {
 public:
  struct Books {
    u64 events, lost, bad, backwards, views;
    u64 latest;        // of the clock, by which an event came later than somebody was told that there is nothing
    char what[200];    // the first thing that was wrong
  };

  BookReader(const Ring& ring, u32 writers, Tally* tallies, Books& books, EitherClock clock = {true})
      : reader_(ring), tallies_(tallies), books_(books), next_(writers), clock_(clock) {}

  Got read() {
    const u64 asked = clock_.now();
    const Got got = reader_.get_reader();
    if (got == Got::corrupt) wrong("the reader says corrupt");
    if (got == Got::nothing) asked_ = asked;
    if (got != Got::data) return got;
    ++books_.views;
    const ReaderView& v = reader_.view();
    books_.lost += v.lost_before;
    if (v.begin == 0) {
      time_ = reader_.ring().header(v.id).time_stamp;
      if (time_ < last_) ++books_.backwards;
    }
    abi::EventCursor c(reader_.data(), v.begin, v.end, time_);
    u64 events = 0;
    while (c.next()) {
      ++events;
      Numbered n{};
      if (!is_numbered(c.payload().data, c.payload().size, n)) {
        wrong("an event is torn");
        continue;
      }
      if (n.who >= next_.size()) {
        wrong("an event of nobody");
        continue;
      }
      if (n.sequence < next_[n.who]) wrong("a writer's events are out of order");
      next_[n.who] = n.sequence + 1;
      ++tallies_[n.who].count;
      tallies_[n.who].sum += n.sequence;
      if (c.time() < last_) ++books_.backwards;
      if (c.time() < from_) wrong("an event is older than the moment before which it was not there");
      last_ = c.time();
      if (asked_ > last_ && asked_ - last_ > books_.latest) books_.latest = asked_ - last_;
    }
    time_ = c.time();
    if (c.malformed() != abi::Malformed::no) wrong(abi::to_string(c.malformed()));
    if (events != v.events) wrong("the view's number of events is not that of its bytes");
    books_.events += events;
    return got;
  }
  // What is read from now on has this time or a later one.
  void expect_from(u64 time) { from_ = time; }
  // Until there is nothing more, or something is wrong.
  void read_all() {
    while (books_.bad == 0 && read() == Got::data) {
    }
  }
  const Ring& ring() const { return reader_.ring(); }

 private:
  void wrong(const char* what) {
    if (books_.bad++ == 0) {
      const ReaderView& v = reader_.view();
      std::snprintf(books_.what, sizeof books_.what, "%s (sub-buffer %u, bytes %u to %u, %u events, index %llu, left %d)", what,
                    v.id, v.begin, v.end, v.events, static_cast<unsigned long long>(v.first_index), v.left);
    }
  }

  Reader<> reader_;
  Tally* tallies_;
  Books& books_;
  std::vector<u64> next_;
  const EitherClock clock_;
  u64 time_ = 0, last_ = 0, asked_ = 0, from_ = 0;
};

}  // namespace ringside::test
