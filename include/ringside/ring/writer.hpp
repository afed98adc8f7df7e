// The writer of a ring: one thread and its signal handlers.
//
//   Writer<> w(ring, clock);
//   if (Reservation s = w.reserve(16)) { memcpy(s.payload, ...); w.commit(s); }
//
// reserve, commit, discard: safe in signal handlers at any depth, never block, never allocate, make no system call, have no
// lock prefix (but one locked CAS for each sub-buffer that is overwritten). The code that reserved an event commits or discards
// it, handlers before the code that they interrupted. Cost: about 2 ns on top of reading the clock. Not for two threads. A
// thread and its handlers share one object, because it holds words that they share; it lives as long as the thread has the
// ring.
//
// The algorithm. The letters are in the code, and in docs/design/ring.md. "Handler" means a signal handler of this
// thread that writes; it may come between any two instructions and nest to any depth, and has ended when the interrupted code
// goes on.
//
// To reserve, the usual way (reserve_usually): nothing is open, and all that was reserved is published.
//   1. A  nest = 1. After a light fence, load the gate: if it is not open, go on in full.
//   2. B  Load the reserve word and `committed` of the record that here_ names. Their offsets must be equal and not 0.
//   3. C  Read the clock. There must be room, the delta must fit an event's header, and last_time must be near.
//   4. D  Store the reserve word: a plain store. A handler that came between B and D and reserved has not done so on this
//         sub-buffer: it found here_ at the tail's record with all published (about_to_store), closed the sub-buffer, set here_
//         to nowhere_ and moved the tail. So look at here_ again. Unchanged: the room is ours. Changed: the store fell on a
//         closed sub-buffer and is void; go on in full. A void store may stay in a reserve word; whether a sub-buffer was left
//         is therefore asked of real_end, which carries the position.
//   5. E  Write the event's header. The caller writes the payload.
//
// To reserve in full (reserve_slowly): handlers, the first event of a sub-buffer, a long delta, a clock that went back, no
// room.
//   1. A  nest + 1, unless step 1 above has done it; an outermost reserve sets here_ to nowhere_. Then the gate (pass_gate).
//   2. B  Load the tail and the reserve word of its sub-buffer.
//   3. C  Read the clock. A reading below the last time counts as equal to it. A long delta needs a time extend in front.
//   4.    If there is no room, or if this is a handler and the interrupted code may be about to store (about_to_store), leave
//         the sub-buffer (below) and go back to 2, or refuse.
//   5. D  Local CAS of the reserve word. It fails if a handler has reserved since B: go back to 2 with a new time. So time and
//         space stay in one order.
//   6. E  Write the time extend and the header. The caller writes the payload.
//
// To commit. Only the outermost event publishes.
//   1.    A nested event, or one that was reserved in full, adds 1 to its record's count. A nested one then ends with nest - 1.
//   2.    The outermost one moves the commit position to the tail (advance): it publishes each sub-buffer on the way, stores the
//         base of the next one, then the commit position.
//   3. F  It publishes the tail's sub-buffer: the header's commit, then `committed`. An event that was reserved the usual way
//         goes straight to here, since nothing else can be unpublished.
//   4. G  nest = 0.
//   5.    It looks at the reserve word again (in full: at the tail, too). If it has moved, a handler came after F and before G:
//         it found nest > 0 and left its event to be published. Go back to 2 with nest = 1, through the gate (enter_again).
//   6.    It rings the bell if somebody waits.
//
// To leave a sub-buffer (move_tail): handlers may run all of it in between; a late local CAS then fails, and the rest says the
// same again.
//   1. a  Close it by a local CAS of its reserve word; the winner pads it and stores real_end.
//   2. b  Look at the slot of the next position. If it says that position, the place is free. If it says the position one lap
//         before, the place is unread: refuse if it is not committed (commit overrun) or in discard mode; otherwise a locked
//         CAS takes it from the reader, and its events count as overrun. A CAS that fails has lost to the reader: look again.
//         Any other value is damage. A release fence follows (ENTER).
//   3. c  Ready the new sub-buffer: header's commit, committed, count, reserve word.
//   4. d  Move the tail by a local CAS.
#pragma once
#include <ringside/base/cxx20.hpp>

#include <ringside/base/check.hpp>
#include <ringside/base/memory_hardware.hpp>
#include <ringside/ring/control.hpp>
#include <ringside/ring/doorbell.hpp>
#include <ringside/ring/fullness.hpp>
#include <ringside/ring/orders.hpp>
#include <ringside/ring/step.hpp>

namespace ringside {

// A reservation, whose payload has the size that was asked for. False, with a reason, if it was refused.
struct Reservation {
  u8* payload = nullptr;
  Record* record = nullptr;  // of its sub-buffer
  u8* sub_buffer = nullptr;
  u64 before = 0, after = 0;  // the reserve word around this event
  u32 offset = 0;             // data offset of the event's header word, which comes after a time extend
  u32 size = 0;               // of the event on the sub-buffer
  u64 done = 0;               // reserved the usual way: the `committed` word that publishes it; else 0
  Refused why = Refused::no;
  explicit operator bool() const noexcept { return payload != nullptr; }
};

template <class C>
concept RingClock = requires(C& c) {
  { c.now() }
  noexcept->detail::IsU64;
};

// What the writer says to a reader that does not see the control region (remote/remote_writer.hpp). This one says nothing,
// because all readers see it. Called by the code that updates the corresponding word; handlers may re-enter.
struct ShowNothing {
  static constexpr bool has_bell = true;              // somebody may wait for the Doorbell
  static constexpr u64 gate_open = 0;                 // the gate's value while nobody has closed it
  static constexpr bool counts_too_big = false;       // an event that can never fit counts as refused
  static void committed(u32) noexcept {}              // that number of events more, after their bytes
  static void overwrote(u32) noexcept {}              // a sub-buffer with that number of events
  static void touched() noexcept {}                   // the tail has moved
  static void clearing(u32) noexcept {}               // sub-buffer `id` is about to get another lap's events; nobody reads it
  static void entered(u32, u64, u64) noexcept {}      // `id` is at `position`, its first event's index is `base`
};

template <RingClock C, Memory M = Hardware, Orders O = Orders{}, class Show = ShowNothing>
class Writer {
 public:
  Writer(const Ring& ring, C clock, const Doorbell& bell = {}, Show show = {}) noexcept
      : ring_(ring), clock_(clock), show_(show), bell_(bell), quarters_(ring.geometry.capacity() / 4) {
    RINGSIDE_DEBUG_CHECK(ring.geometry.valid(), "a writer's ring has sizes");
  }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  // size: 0 to geometry.largest_payload() bytes.
  [[nodiscard]] Reservation reserve(u32 size) noexcept {
    Reservation slot;
    (void)reserve(size, slot);
    return slot;
  }
  // The same, into a slot that the caller keeps in memory. False: refused.
  [[nodiscard]] RINGSIDE_INLINE bool reserve(u32 size, Reservation& slot) noexcept {
    const u64 nest = M::load(&ctl().nest, unordered);
    return (nest == 0 && !too_big(size) && reserve_usually(ctl(), size, slot)) || reserve_slowly(size, nest, slot);
  }

  RINGSIDE_INLINE void commit(const Reservation& slot) noexcept {
    RINGSIDE_DEBUG_CHECK(slot.payload != nullptr, "only a reserved event is committed");
    if (slot.done != 0) [[likely]]
      return publish(ctl(), slot);
    commit_slowly(slot);
  }

  // For code that has closed the gate and found the writer quiet after fence_heavy. Publishes what a handler has left to the
  // event that it interrupted, if that one's second look found the gate closed.
  RINGSIDE_NOINLINE void publish_left() noexcept {
    u64 word;
    const u64 commit = M::load(&ctl().commit, unordered), tail = M::load(&ctl().tail, unordered);
    const u64 behind = place_of(tail).position - place_of(commit).position;  // a lap at most, whatever a peer has stored
    if (unpublished() && behind <= ring_.geometry.nr_slots()) (void)publish_to(commit, tail, word);
  }

  // Takes the event back. True: its space is free again. False: it became padding, because something was reserved after it.
  bool discard(const Reservation& slot) noexcept {
    RINGSIDE_DEBUG_CHECK(slot.payload != nullptr, "only a reserved event is discarded");
    const bool freed = M::cas_local(&slot.record->reserve, slot.after, slot.before);
    if (!freed) {
      u8* const event = slot.sub_buffer + abi::header_size + slot.offset;
      const u32 delta = abi::word_delta(M::load(reinterpret_cast<const u32*>(event), unordered));
      put(event + 4, slot.size - 4);
      put(event, abi::event_word(abi::type_padding, delta != 0 ? delta : 1));
    }
    end();
    return freed;
  }

  // Writes an event by one call. False: refused; try_write says why. fill(u8*) stores the payload; it is inlined twice.
  template <class Fill>
  RINGSIDE_INLINE bool write(u32 size, Fill fill) noexcept {
    return try_write(size, fill) == Refused::no;
  }
  template <class Fill>
  RINGSIDE_INLINE Refused try_write(u32 size, Fill fill) noexcept {
    Control& c = ctl();
    Reservation slot;
    const u64 nest = M::load(&c.nest, unordered);
    if (nest == 0 && !too_big(size) && reserve_usually(c, size, slot)) [[likely]] {
      fill(slot.payload);
      publish(c, slot);
      return Refused::no;
    }
    Reservation slow;
    if (!reserve_slowly(size, nest, slow)) return slow.why;
    fill(slow.payload);
    commit_slowly(slow);
    return Refused::no;
  }
  RINGSIDE_INLINE bool write(const void* payload, u32 size) noexcept {
    return write(size, [&](u8* to) {
      if (size != 0) __builtin_memcpy(to, payload, size);  // an empty payload may be null
    });
  }

  const Ring& ring() const noexcept { return ring_; }
  C& clock() noexcept { return clock_; }

 private:
  RINGSIDE_INLINE Control& ctl() const noexcept { return *ring_.control; }
  RINGSIDE_INLINE static void put(u8* at, u32 value) noexcept { M::store(reinterpret_cast<u32*>(at), value, unordered); }
  RINGSIDE_INLINE bool too_big(u32 size) const noexcept {
    constexpr u32 always_fits = abi::largest_payload(abi::smallest_subbuf - abi::header_size);
    return !(__builtin_constant_p(size) && size <= always_fits) && size > ring_.geometry.largest_payload();
  }
  static bool refuse(Reservation& slot, Refused why) noexcept {
    slot.why = why;
    return false;
  }
  // The usual way, by a plain store. False: nest is 1, and nothing is reserved.
  RINGSIDE_INLINE bool reserve_usually(Control& c, u32 size, Reservation& slot) noexcept {
    /*A*/ M::store(&c.nest, u64{1}, unordered);
    M::fence_light();  // pairs: GATE
    if (M::load(&c.gate, O.gate_observe) != Show::gate_open) [[unlikely]]  // pairs: GATE
      return false;
    /*B*/ Record* const rec = pointer<Record>(M::load(&here_, unordered));
    u8* const subbuf = pointer<u8>(M::load(&here_data_, unordered));
    const u64 word = M::load(&rec->reserve, unordered);
    M::program_order();  // a handler that comes after the first load must not be seen by the second one alone
    const u64 committed = M::load(&rec->committed, unordered);
    const u32 data_size = abi::event_size(size);
    /*C*/ u64 now;
    if (!read_clock_at_once(now)) [[unlikely]]
      return false;
    const u64 quarter = word & closed, end = quarter + data_size / 4;
    const u64 next = (now << 16) + end;
    const u64 grown = next - word;  // delta << 16 | data_size / 4; far beyond the limit if the clock went back
    if (quarter == 0 || static_cast<u32>(committed) != static_cast<u32>(quarter) || end > quarters_ ||
        grown >= abi::delta_limit << 16 || now >= M::load(&deadline_, unordered)) [[unlikely]]
      return false;
    /*D*/ M::store(&rec->reserve, next, unordered);
    M::fence_light();
    if (M::load(&here_, unordered) != address(rec) && O.bug != Bug::void_store_stays) [[unlikely]]
      return false;
    slot.record = rec;  // field by field: a whole Reservation would be built on the stack and copied
    slot.sub_buffer = subbuf;
    slot.before = word;
    slot.after = next;
    slot.offset = static_cast<u32>(quarter) * 4;
    slot.size = data_size;
    slot.done = committed + pack_committed({1, data_size});
    slot.why = Refused::no;
    /*E*/ fill(slot, size, static_cast<u32>(grown >> 16));
    return true;
  }

  // A clock may have at_once(u64&), which is false if reading it takes a call. The usual way contains no call.
  RINGSIDE_INLINE bool read_clock_at_once(u64& now) noexcept {
    if constexpr (requires { clock_.at_once(now); }) return clock_.at_once(now);
    now = clock_.now();
    return true;
  }

  // Commits an event that was reserved the usual way. The second look publishes what handlers have put after it.
  RINGSIDE_INLINE void publish(Control& c, const Reservation& slot) noexcept {
    /*F*/ M::store(&header(slot).commit, u64{slot.offset} + slot.size, O.commit_publish);  // pairs: COMMIT
    M::store(&slot.record->committed, slot.done, O.commit_publish);                        // pairs: COMMIT
    show_.committed(1);
    M::fence_light();
    /*G*/ M::store(&c.nest, u64{0}, O.quiet_publish);  // pairs: QUIET
    M::fence_light();
    if (M::load(&slot.record->reserve, unordered) != slot.after && O.bug != Bug::no_second_look) [[unlikely]]
      return check_again();
    ring_bell();
  }
  RINGSIDE_INLINE void ring_bell() noexcept {
    if constexpr (Show::has_bell) {
      if (M::load(bell_.any, unordered) != 0) [[unlikely]]
        bell_.ring(bell_.context);
    }
  }

  static u64 address(const void* p) noexcept { return reinterpret_cast<u64>(p); }
  template <class T>
  RINGSIDE_INLINE static T* pointer(u64 word) noexcept {
    return reinterpret_cast<T*>(word);
  }
  static abi::SubBufferHeader& header(const Reservation& slot) noexcept {
    return *reinterpret_cast<abi::SubBufferHeader*>(slot.sub_buffer);
  }

  // Reserves in full. nest: its value before reserve_usually; if that was 0, it is 1 by now, unless the event never fits.
  [[gnu::noinline]] bool reserve_slowly(u32 size, u64 nest, Reservation& slot) noexcept {
    slot = {};
    const bool fits = !too_big(size);
    if (!Show::counts_too_big && !fits) return refuse(slot, Refused::too_big);
    const u32 data_size = abi::event_size(size);
    /*A*/ M::store(&ctl().nest, nest + 1, unordered);
    if (nest == 0) M::store(&here_, address(&nowhere_), unordered);
    M::fence_light();  // pairs: GATE
    if (u64 gate = M::load(&ctl().gate, O.gate_observe); gate != Show::gate_open && (Show::gate_open != 0 || !pass_gate(gate)))
      return leave_closed(slot, gate);
    // Counted within `nest`: once the writer is quiet, the count is final.
    if (!fits) return leave(slot, drop(Refused::too_big));
    for (;;) {
      /*B*/ const u64 tail = M::load(&ctl().tail, unordered);
      const Place place = place_of(tail);
      const u32 id = place.id;
      if (!ring_.geometry.holds(id)) return leave(slot, give_up());
      Record& rec = ring_.record(id);
      const u64 word = M::load(&rec.reserve, unordered);
      const u32 at = is_left(rec, place) ? ring_.geometry.capacity() : reserve_offset(word);
      /*C*/ u64 now = clock_.now();
      const u64 last = reserve_time(word, M::load(&ctl().last_time, unordered));
      u64 delta = now - last;
      if (static_cast<i64>(delta) < 0) {
        M::add_local(&ctl().backwards, 1);
        now = last;
        delta = 0;
      }
      if (at == 0) delta = 0;
      const u32 stamp = delta >= abi::delta_limit ? abi::stamp_size : 0;
      if (at + stamp + data_size > ring_.geometry.capacity() || (nest != 0 && about_to_store(rec, word))) {
        const Refused why = move_tail(tail, word);
        if (why != Refused::no) return leave(slot, why);
        continue;
      }
      const u64 next = pack_reserve(now, at + stamp + data_size);
      /*D*/ if (!M::cas_local(&rec.reserve, word, next))
        continue;
      M::store(&ctl().last_time, now, unordered);
      M::store(&deadline_, now + last_time_reach, unordered);
      if (nest == 0) {
        M::store(&here_data_, address(ring_.subbuf(id)), unordered);
        M::store(&here_, address(&rec), unordered);
      }
      /*E*/ slot = {nullptr, &rec, ring_.subbuf(id), word, next, at + stamp, data_size, 0, Refused::no};
      if (at == 0) M::store(&header(slot).time_stamp, now, unordered);
      if (stamp != 0) {
        u8* const extend = slot.sub_buffer + abi::header_size + at;
        put(extend, abi::event_word(abi::type_time_extend, static_cast<u32>(delta & (abi::delta_limit - 1))));
        put(extend + 4, static_cast<u32>(delta >> abi::delta_bits));
        delta = 0;
      }
      fill(slot, size, static_cast<u32>(delta));
      return true;
    }
  }

  // In a handler: may the interrupted code be about to store this reserve word? It may if here_ names this record and nothing
  // on it is unpublished, while nest counts an open event: that one is between B and D, or has just published.
  bool about_to_store(const Record& rec, u64 word) const noexcept {
    return O.bug != Bug::handler_stays && M::load(&here_, unordered) == address(&rec) && reserve_offset(word) != 0 &&
           reserve_offset(word) == committed_of(M::load(&rec.committed, unordered)).bytes;
  }
  // The reserve word does not show it: a void store may be in it.
  static bool is_left(const Record& rec, Place at) noexcept {
    return left_at(M::load(&rec.real_end, unordered), at.position);
  }

  // From now on nobody reserves on this sub-buffer. False: a handler was faster.
  bool close(Record& rec, Place at, u64 word, bool padded) noexcept {
    const bool overtakes = about_to_store(rec, word);
    if (!M::cas_local(&rec.reserve, word, close_reserve(word))) return false;
    if (padded) pad(at.id, reserve_offset(word));
    M::store(&rec.real_end, pack_end(at.position, reserve_offset(word), padded), unordered);
    if (overtakes) M::store(&here_, address(&nowhere_), unordered);
    return true;
  }

  // Writes the header of a reserved event, and zeros where rounding added bytes, so that no stale bytes are shown.
  RINGSIDE_INLINE void fill(Reservation& slot, u32 size, u32 delta) noexcept {
    const u32 header = abi::payload_offset(slot.size);
    u8* const event = slot.sub_buffer + abi::header_size + slot.offset;
    put(event, abi::event_word(header == 4 ? (slot.size - 4) / 4 : 0, delta));
    if (header == 8) put(event + 4, slot.size - 4);
    if (slot.size - header != size) {
      put(event + slot.size - 4, 0);
      if (slot.size - header > size + 4) put(event + slot.size - 8, 0);
    }
    slot.payload = event + header;
    if constexpr (O.bug == Bug::commit_before_payload)
      M::store(&slot.record->committed, M::load(&slot.record->committed, unordered) + pack_committed({1, slot.size}),
               O.commit_publish);
  }

  [[gnu::noinline]] void commit_slowly(const Reservation& slot) noexcept {
    M::add_local(&slot.record->count, 1);
    end();
  }
  // After nest = 0: a handler has reserved, and perhaps left its event to be published.
  RINGSIDE_NOINLINE void check_again() noexcept {
    if (enter_again()) return end();
    ring_bell();
  }

  RINGSIDE_NOINLINE bool leave(Reservation& slot, Refused why) noexcept {
    end();
    return refuse(slot, why);
  }
  // The gate is closed. The code that closed it may have taken the ring for itself, so nothing but nest is touched.
  RINGSIDE_NOINLINE bool leave_closed(Reservation& slot, u64 gate) noexcept {
    Refused why = (gate & gate_moved) != 0 ? Refused::moved : (gate & gate_off) != 0 ? Refused::disabled : Refused::frozen;
    if (Show::gate_open != 0 && (gate & Show::gate_open) == 0) {
      why = Refused::no_ring;
      M::add_local(&ctl().dropped, 1);
    }
    const u64 nest = M::load(&ctl().nest, unordered);
    if (nest != 1) {
      M::store(&ctl().nest, nest - 1, unordered);
      return refuse(slot, why);
    }
    M::store(&ctl().nest, u64{0}, O.quiet_publish);  // pairs: QUIET
    M::fence_light();
    // A handler that found the gate open may have left an event to be published.
    if (!keeps_out(M::load(&ctl().gate, unordered)) && enter_again()) end();
    return refuse(slot, why);
  }
  static bool keeps_out(u64 gate) noexcept {
    constexpr u64 closing = O.bug == Bug::moved_keeps_out ? gate_off | gate_frozen | gate_moved : gate_off | gate_frozen;
    return (gate & (closing | Show::gate_open)) != Show::gate_open;  // not open: a child of fork, without the region
  }
  // nest was 0 for a moment, and a controller may have seen that, so this goes through the gate, as A does. A ring is not
  // parked while something on it is reserved and not published, so that may be published at a parked gate. On a ring that is
  // given up it must be, because no later event would do it. At a gate that is off it waits for publish_left, or for the next
  // event.
  RINGSIDE_NOINLINE bool enter_again() noexcept {
    u64 gate;
    do {
      M::store(&ctl().nest, u64{1}, unordered);
      M::fence_light();
      gate = M::load(&ctl().gate, O.gate_observe);
      if (gate == Show::gate_open || (!keeps_out(gate) && unpublished()) || O.bug == Bug::no_second_gate) return true;
      M::store(&ctl().nest, u64{0}, O.quiet_publish);  // pairs: QUIET
      M::fence_light();
    } while (!keeps_out(gate) && unpublished());  // a handler came in between
    return false;
  }
  bool unpublished() const noexcept {
    const u64 tail = M::load(&ctl().tail, unordered);
    if (M::load(&ctl().commit, unordered) != tail || !ring_.geometry.holds(place_of(tail).id)) return true;
    const Record& rec = ring_.record(place_of(tail).id);
    return reserve_offset(M::load(&rec.reserve, unordered)) != committed_of(M::load(&rec.committed, unordered)).bytes;
  }
  Refused drop(Refused why) noexcept {
    M::add_local(&ctl().dropped, 1);
    return why;
  }
  RINGSIDE_NOINLINE Refused give_up() noexcept {
    M::store(&ctl().corrupt, u64{1}, unordered);
    return Refused::corrupt;
  }

  // A controller has closed the gate: off, frozen, moved, or "leave this position". False: `gate` says why.
  RINGSIDE_NOINLINE bool pass_gate(u64& gate) noexcept {
    if (gate_refuses(gate)) return false;
    const u64 tail = M::load(&ctl().tail, unordered);
    const Place place = place_of(tail);
    if (gate_park(place.position) == gate && ring_.geometry.holds(place.id)) {
      // All of the sub-buffer has been read, and its memory given back: close it as it is, without padding.
      Record& rec = ring_.record(place.id);
      const u64 word = M::load(&rec.reserve, unordered);
      if (!is_closed(word) && !is_left(rec, place)) close(rec, place, word, false);
    }
    M::cas(&ctl().gate, gate, 0);
    return !gate_refuses(gate);
  }

  // Leaves a full sub-buffer. Refused::no: look again, because this call or a handler has moved the tail, or a CAS failed.
  RINGSIDE_NOINLINE Refused move_tail(u64 tail, u64 word) noexcept {
    const Geometry& g = ring_.geometry;
    const Place from = place_of(tail);
    Record& old = ring_.record(from.id);
    /*a*/ if (!is_closed(word) && !is_left(old, from)) {
      if (reserve_offset(word) > g.capacity()) return give_up();  // this writer stores no such offset
      if (!close(old, from, word, true)) return Refused::no;
    }
    /*b*/ const u64 position = from.position + 1;
    const u32 k = static_cast<u32>(position % g.nr_slots());
    const u64 lap = position / g.nr_slots();
    u64 slot = M::load(&ring_.record(k).slot, O.slot_observe);  // pairs: SWAP
    const u32 id = slot_id(k, slot);
    if (M::load(&ctl().tail, unordered) != tail) return Refused::no;
    if (!g.holds(id)) return give_up();
    // Does it have memory, so that no store faults? Asked where Show knows.
    if constexpr (requires { show_.back(ring_, id); }) {
      if (!show_.back(ring_, id)) return Refused::no_memory;
    }
    if (slot_lap(slot) != lap && O.bug != Bug::inferred_reader_page) {
      if (slot_lap(slot) + 1 != lap) return give_up();
      const u64 commit = place_of(M::load(&ctl().commit, unordered)).position;
      if (position - g.nr_slots() >= commit && O.bug != Bug::overwrite_commit_page) {
        M::add_local(&ctl().commit_overrun, 1);
        return Refused::commit_overrun;
      }
      if ((M::load(&ctl().mode, unordered) & 1) != 0) return drop(Refused::full);
      const u32 events = committed_of(M::load(&ring_.record(id).committed, unordered)).events;
      if (O.bug != Bug::lap_not_advanced && !M::cas(&ring_.record(k).slot, slot, pack_slot(k, lap, id)) &&
          O.bug != Bug::missed_moved)
        return Refused::no;
      if constexpr (O.bug != Bug::lost_overrun) M::add_local(&ctl().overrun, events);
      M::add_local(&ctl().pages_lost, 1);
      show_.overwrote(events);
    }
    fence_of<M, O.enter_publish>();  // pairs: ENTER
    /*c*/ Record& rec = ring_.record(id);
    const u64 reserve = M::load(&rec.reserve, unordered);
    const u64 count = M::load(&rec.count, unordered);
    const u64 time = M::load(&old.reserve, unordered) >> 16;
    if (M::load(&ctl().tail, unordered) != tail && O.bug != Bug::reset_without_check) return Refused::no;
    M::store(&ring_.header(id).commit, u64{0}, unordered);
    show_.clearing(id);
    M::store(&rec.committed, u64{0}, unordered);
    M::cas_local(&rec.count, count, pack_count(position, 0));
    if constexpr (O.bug == Bug::reset_without_check)
      M::store(&rec.reserve, pack_reserve(time, 0), unordered);
    else
      M::cas_local(&rec.reserve, reserve, pack_reserve(time, 0));
    /*d*/ if (M::cas_local(&ctl().tail, tail, pack_place({position, id}))) {
      M::add_local(&ctl().pages_touched, 1);
      show_.touched();
    }
    after_step<M>(ring_);
    return Refused::no;
  }

  void pad(u32 id, u32 at) noexcept {
    RINGSIDE_DEBUG_CHECK(at <= ring_.geometry.capacity(), "padding begins inside its sub-buffer");
    const u32 left = ring_.geometry.capacity() - at;
    u8* const event = ring_.subbuf(id) + abi::header_size + at;
    if (left >= 4) put(event, abi::event_word(abi::type_padding, left >= 8 ? 1 : 0));
    if (left >= 8) put(event + 4, left - 4);
  }

  // Ends what reserve began. The outermost event publishes for all that were nested in it.
  [[gnu::noinline]] void end() noexcept {
    const u64 nest = M::load(&ctl().nest, unordered);
    if (nest != 1) [[unlikely]] {
      M::store(&ctl().nest, nest - 1, unordered);
      return;
    }
    for (;;) {
      const u64 tail = M::load(&ctl().tail, unordered);
      u64 word;
      if (!publish_to(M::load(&ctl().commit, unordered), tail, word)) [[unlikely]] {
        M::store(&ctl().nest, u64{0}, O.quiet_publish);
        return;
      }
      M::fence_light();
      /*G*/ M::store(&ctl().nest, u64{0}, O.quiet_publish);  // pairs: QUIET
      M::fence_light();
      if constexpr (O.bug == Bug::no_second_look) break;
      if (M::load(&ring_.record(place_of(tail).id).reserve, unordered) == word && M::load(&ctl().tail, unordered) == tail)
          [[likely]]
        break;
      if (!enter_again()) break;
    }
    ring_bell();
  }

  // Publishes all that is reserved. word: the tail's reserve word then. False: damage.
  RINGSIDE_INLINE bool publish_to(u64 commit, u64 tail, u64& word) noexcept {
    if (commit != tail) [[unlikely]]
      advance(commit, tail);
    const Place place = place_of(tail);
    if (!ring_.geometry.holds(place.id)) [[unlikely]] {
      give_up();
      return false;
    }
    word = publish_one(place);
    return true;
  }

  // F: publishes all of a sub-buffer, up to the reserve word that it answers.
  u64 publish_one(Place at) noexcept {
    Record& rec = ring_.record(at.id);
    for (;;) {
      const u64 word = M::load(&rec.reserve, unordered);
      const u32 more = count_of(M::load(&rec.count, unordered));
      const u64 real_end = M::load(&rec.real_end, unordered);
      if (M::load(&rec.reserve, unordered) != word) [[unlikely]]
        continue;  // a handler came: bytes and count must be of one moment
      const u64 before = M::load(&rec.committed, unordered);
      const u32 events = committed_of(before).events + more;
      const u32 bytes =
          left_at(real_end, at.position) ? closed_commit(real_end, ring_.geometry.capacity()) : reserve_offset(word);
      // Nothing is new. Then nothing is stored, because the memory of a parked sub-buffer is gone.
      if (before == pack_committed({events, bytes}) && more == 0) return word;
      M::store(&ring_.header(at.id).commit, u64{bytes}, O.commit_publish);          // pairs: COMMIT
      M::store(&rec.committed, pack_committed({events, bytes}), O.commit_publish);  // pairs: COMMIT
      M::add_local(&rec.count, u64{0} - more);
      show_.committed(more);
      return word;
    }
  }

  // Moves the commit position up to the tail, over sub-buffers that are all finished.
  RINGSIDE_NOINLINE void advance(u64 commit, u64 tail) noexcept {
    const Geometry& g = ring_.geometry;
    Place at = place_of(commit);
    const u64 last = place_of(tail).position;
    while (at.position < last && g.holds(at.id)) {
      publish_one(at);
      const Record& rec = ring_.record(at.id);
      const u64 base = M::load(&rec.base, unordered) + committed_of(M::load(&rec.committed, unordered)).events;
      const u64 position = at.position + 1;
      const u32 k = static_cast<u32>(position % g.nr_slots());
      const u64 slot = M::load(&ring_.record(k).slot, unordered);
      at = {position, slot_id(k, slot)};
      if (slot_lap(slot) != position / g.nr_slots() || !g.holds(at.id)) {
        give_up();
        return;
      }
      M::store(&ring_.record(at.id).base, base, unordered);
      show_.entered(at.id, position, base);
      M::store(&ctl().commit, pack_place(at), O.advance_publish);  // pairs: ADVANCE
    }
    after_step<M>(ring_);
    if constexpr (Show::has_bell) {
      M::fence_light();  // pairs: WAKE
      if (const u64 percent = M::load(bell_.percent, unordered)) {
        if (is_full<M>(ring_, percent - 1)) bell_.ring(bell_.context);
      }
    }
  }

  static constexpr u64 last_time_reach = u64{1} << 46;

  Ring ring_;
  [[no_unique_address]] C clock_;
  [[no_unique_address]] Show show_;
  Doorbell bell_;
  // Where the usual way reserves: record and bytes of the sub-buffer of the last event that an outermost reserve put there in
  // full. Private to this process, shared with handlers. Any address that was ever stored here may be used, because a record
  // that is no longer the tail's is closed.
  Record nowhere_{.slot = 0, .reserve = closed, .count = 0, .committed = 0, .base = 0, .real_end = 0};
  u64 here_ = address(&nowhere_), here_data_ = 0;
  u64 deadline_ = 0;  // before this time, last_time gives the upper bits of a reserve word's time
  u64 quarters_;      // capacity / 4
};

}  // namespace ringside
