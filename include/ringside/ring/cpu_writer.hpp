// The writer of the rings of CPUs, for all threads of all processes that map them, and for their signal handlers.
//
//   CpuWriter<RingClockNow, Rseq> w(clock);
//   const Refused why = w.write(rings, area, payload, size);     // rings: where this process has them; area: of rseq
//
// Never waits, allocates or calls the system. An event is written whole or not at all. There is no reservation, so a handler, a
// death or a longjmp comes before an event or after it. The usual event is one sequence (rseq.hpp). For any other, this class
// looks at the ring of the CPU that the thread runs on, works out what to store where, and has a sequence store it if all that
// still holds. If it does not, it looks again, at most `most_tries` times. docs/design/cpu-rings.md describes the words, and
// in which states each may be left.
#pragma once
#include <ringside/ring/append.hpp>
#include <ringside/ring/fullness.hpp>
#include <ringside/ring/orders.hpp>
#include <ringside/ring/published.hpp>
#include <ringside/ring/rseq.hpp>
#include <ringside/ring/writer.hpp>

namespace ringside {

template <RingClock C, class S, Memory M = Hardware, Orders O = Orders{}>
class CpuWriter {
 public:
  static constexpr u32 most_tries = 1000;  // a debugger that steps through a sequence aborts every one
  static constexpr u32 enough_tries = 30;  // something takes the descriptor away each time

  // watched: its clock is read by a system call, so the stopwatch (rseq.hpp) must guard the time.
  explicit CpuWriter(C clock, bool watched = false) noexcept : clock_(clock), watched_(watched) {}

  // Refused::no: it is written. known: 0, or known_size(size).
  template <u32 known = 0>
  RINGSIDE_INLINE Refused write(const CpuRings& rings, i64 area, const void* payload, u32 size) const noexcept {
    return append_usually<S, M, known>(rings, area, payload, size) ? Refused::no : write_slowly(rings, area, payload, size);
  }

  // Also each event by a clock that no instruction reads. The usual one of these needs little stack and few registers.
  [[gnu::noinline]] Refused write_slowly(const CpuRings& rings, i64 area, const void* payload, u32 size) const noexcept {
    if (!clock_.in_sequence()) {
      const Shape shape = shape_of(payload, size);
      if (S::append_timed(area, rings, shape, payload, clock_, watched_) == Sequence::done) {
        ring_bell<M>(rings);
        return Refused::no;
      }
    }
    return write_any(rings, area, payload, size);
  }

 private:
  RINGSIDE_NOINLINE Refused write_any(const CpuRings& rings, i64 area, const void* payload, u32 size) const noexcept {
    const Shape shape = shape_of(payload, size);
    for (u32 tries = most_tries; tries != 0; --tries) {
      const u32 cpu = S::cpu(area);
      if (cpu >= rings.nr) return Refused::no_ring;
      const CpuPlace& place = place_in(rings, cpu);
      const Ring& ring = place.ring;
      if (ring.control == nullptr) return Refused::no_ring;
      if (static_cast<u32>(shape.grow) > ring.geometry.capacity()) return Refused::too_big;
      Seen seen{};
      Refused why = read_words(ring, cpu, seen);
      if (why != Refused::no) return why;
      // A sub-buffer's first event: the thread that entered it has stored only its header.
      if (seen.commit == 0 && place.back != nullptr && !place.back(place, seen.place.id)) return Refused::no_memory;
      const Appended appended = append(ring, area, seen, shape, payload, watched_ || tries < most_tries - enough_tries);
      if (appended == Appended::moved) continue;
      if (appended == Appended::yes) {
        ring_bell<M>(rings);
        return Refused::no;
      }
      why = next_sub_buffer(place, area, seen, rings.bell);
      if (why != Refused::no) return why;
    }
    return Refused::interrupted;
  }

  // The ring at one moment. If tail and commit are the same, nothing has happened since.
  struct Seen {
    u32 cpu;
    u64 tail;
    Place place;
    u64 commit;
    u32 events;
    u64 last;  // time of the newest event
  };

  static Refused read_words(const Ring& ring, u32 cpu, Seen& seen) noexcept {
    const Control& c = *ring.control;
    if (const u64 gate = M::load(&c.gate, unordered); gate != gate_cpu_open)
      return (gate & gate_moved) != 0 || gate == 0 ? Refused::moved
             : (gate & gate_corrupt) != 0          ? Refused::corrupt
             : (gate & gate_masked) != 0           ? Refused::not_wanted
                                                   : Refused::disabled;
    seen.cpu = cpu;
    seen.tail = M::load(&c.commit, O.advance_observe);
    seen.place = place_of(seen.tail);
    if (!ring.geometry.holds(seen.place.id)) return give_up(ring);
    const Record& rec = ring.record(seen.place.id);
    const abi::SubBufferHeader& header = ring.header(seen.place.id);
    seen.commit =
        M::load(&header.commit,
                O.commit_observe);  // it may have the reader's flags; then the tail has moved on, which is seen with them
    if (seen.commit > ring.geometry.capacity() || seen.commit % 4 != 0) {
      // If the tail has moved on, these are the flags of the reader that has the sub-buffer; otherwise it is damage.
      if (M::load(&c.commit, unordered) == seen.tail) return give_up(ring);
      seen.commit = 0;  // no sequence succeeds with this tail
    }
    const u64 committed = M::load(&rec.committed, unordered);
    seen.events = O.bug == Bug::cut_off_counts ? cpu_committed_of(committed).events : events_at(committed, seen.commit);
    seen.last = seen.commit == 0 ? M::load(&header.time_stamp, unordered) : M::load(&times(rec)[seen.events & 1], unordered);
    return Refused::no;
  }

  // What a sequence is to store takes up to 200 bytes of the stack. In functions of their own, these are gone when the kernel is
  // asked for memory.
  enum class Appended { yes, moved, no_room };
  RINGSIDE_NOINLINE Appended append(const Ring& ring, i64 area, const Seen& seen, const Shape& shape,
                                    const void* payload, bool watch) const noexcept {
    Append a;
    const Guard guard = S::arm(area, watch);
    if (!prepare(ring, seen, shape, payload, a)) {
      S::disarm(area);
      return Appended::no_room;
    }
    return S::append(area, a, guard) == Sequence::done ? Appended::yes : Appended::moved;
  }

  // False: there is no room on this sub-buffer.
  bool prepare(const Ring& ring, const Seen& seen, const Shape& shape, const void* payload, Append& a) const noexcept {
    Record& rec = ring.record(seen.place.id);
    abi::SubBufferHeader& header = ring.header(seen.place.id);
    a.cpu = seen.cpu;
    a.control = ring.control;
    a.tail = seen.tail;
    a.commit = &header.commit;
    a.before = seen.commit;
    a.last = seen.last;
    a.given = 0;
    a.time = &times(rec)[(seen.events + 1) & 1];
    a.stamp = a.time;
    a.extend = 0;
    a.delta_mask = ~u64{0};
    a.limit = abi::delta_limit;
    u64 now = clock_.now();
    if (static_cast<i64>(now - seen.last) < 0) {
      now = seen.last;  // a clock that went back counts as stopped
      a.given = now | (now == 0);
      add_shared<M>(ring.control->backwards, 1);
    } else if (!clock_.in_sequence()) {
      a.given = now | (now == 0);
    }
    if (seen.commit == 0) {
      a.stamp = &header.time_stamp;  // and no delta
      a.delta_mask = 0;
      a.limit = u64{1} << 63;
    } else if (now - seen.last >= abi::delta_limit) {
      if (now - seen.last >= u64{1} << 59)
        return false;  // more than an extend can hold; the first event of a sub-buffer needs none
      a.extend = 1;
      a.delta_mask = 0;
      a.limit = u64{1} << 59;
    }
    const u32 extend = a.extend != 0 ? abi::stamp_size : 0;
    const u64 end = seen.commit + extend + static_cast<u32>(shape.grow);
    a.after = end;
    a.at = reinterpret_cast<u8*>(&header) + abi::header_size + seen.commit;
    a.head = shape.head;
    a.tail_bytes = shape.tail_bytes;
    a.to = a.at + extend + shape.payload_at;
    a.from = payload;
    a.size = shape.size;
    a.committed = &rec.committed;
    a.committed_after = pack_cpu_committed({seen.events + 1, static_cast<u32>(end)});
    return end <= ring.geometry.capacity();
  }

  // Refused::no: look again.
  RINGSIDE_NOINLINE static Refused next_sub_buffer(const CpuPlace& here, i64 area, const Seen& seen,
                                                   const Doorbell& bell) noexcept {
    const Ring& ring = here.ring;
    const Geometry& g = ring.geometry;
    Control& c = *ring.control;
    const u64 position = seen.place.position + 1;
    const u32 k = static_cast<u32>(position % g.nr_slots());
    const u64 lap = position / g.nr_slots();
    u64 slot = M::load(&ring.record(k).slot, O.slot_observe);  // pairs: SWAP
    const u32 id = slot_id(k, slot);
    if (M::load(&c.commit, unordered) != seen.tail || S::cpu(area) != seen.cpu) return Refused::no;
    if (!g.holds(id) || id == seen.place.id) return give_up(ring);
    if (slot_lap(slot) != lap) {
      if (slot_lap(slot) + 1 != lap) return give_up(ring);
      if ((M::load(&c.mode, unordered) & 1) != 0) {
        // Counted by a sequence, so never in a ring that was moved aside meanwhile.
        return S::refuse(area, Refuse{seen.cpu, &c, seen.tail, &c.dropped}) == Sequence::done ? Refused::full : Refused::no;
      }
    }
    const u64 punched = M::load(&c.punched, unordered);
    if (here.back != nullptr && !here.back(here, id)) return Refused::no_memory;
    // If the thread dies after this, or migrates, the place is marked for the next one.
    if (slot_lap(slot) != lap || !slot_entered(slot)) {
      if (!M::cas(&ring.record(k).slot, slot, pack_slot(k, lap, id) | entered_bit)) return Refused::no;
    }
    fence_of<M, O.enter_publish>();  // pairs: ENTER
    if (M::load(&c.punched, unordered) != punched)
      return Refused::no;  // the place is marked by now, but its memory may be gone
    enter(ring, area, seen, {position, id}, bell);
    return Refused::no;
  }

  RINGSIDE_NOINLINE static void enter(const Ring& ring, i64 area, const Seen& seen, const Place& next, const Doorbell& bell) noexcept {
    const Geometry& g = ring.geometry;
    Control& c = *ring.control;
    const u32 id = next.id;
    Record &old = ring.record(seen.place.id), &fresh = ring.record(id);
    const auto at = static_cast<u32>(seen.commit);
    const u32 left = g.capacity() - at;
    u32 nowhere;
    auto* const pad = reinterpret_cast<u32*>(ring.subbuf(seen.place.id) + abi::header_size + at);
    Enter e;
    e.cpu = seen.cpu;
    e.control = &c;
    e.tail = seen.tail;
    e.next_tail = pack_place(next);
    e.commit = &ring.header(seen.place.id).commit;
    e.before = seen.commit;
    e.committed = &old.committed;
    e.committed_final = pack_cpu_committed({seen.events, at});
    e.real_end = &old.real_end;
    e.end = pack_end(seen.place.position, at, true);
    e.pad0 = left >= 4 ? pad : &nowhere;
    e.pad1 = left >= 8 ? pad + 1 : &nowhere;
    e.padding = abi::event_word(abi::type_padding, left >= 8 ? 1 : 0) | u64{left - 4} << 32;
    e.fresh = &fresh;
    e.base = M::load(&old.base, unordered) + seen.events;
    e.header = &ring.header(id);
    e.last = seen.last;
    if (S::enter(area, e) == Sequence::done) {
      M::fence_light();  // pairs: WAKE
      if (const u64 percent = M::load(bell.percent, unordered); percent != 0 && is_full<M>(ring, percent - 1))
        bell.ring(bell.context);
    }
  }

  RINGSIDE_NOINLINE static Refused give_up(const Ring& ring) noexcept {
    Control& c = *ring.control;
    M::store(&c.corrupt, u64{1}, unordered);
    u64 gate = M::load(&c.gate, unordered);
    while ((gate & gate_corrupt) == 0 && !M::cas(&c.gate, gate, gate | gate_corrupt)) M::pause();
    return Refused::corrupt;
  }

  [[no_unique_address]] mutable C clock_;
  const bool watched_;
};

}  // namespace ringside
