// The consuming reader of a ring: takes the oldest sub-buffer in O(1), racing the writer.
//
//   Reader<> r(ring);
//   while (r.get_reader() == Got::data) walk(r.view());           // counted as read at once, as the kernel's GET_READER does
//   while (r.hand_out(meta) == Got::data) { ...; r.consume(); }   // counted when it is somewhere safe
//   while (r.peek() == Got::data) { ...; r.consume(bytes, events); }   // event by event
//
// One reader at a time: the caller holds reader_lock (try_lock). The lock of a holder that died is taken by steal, which
// finishes its swap. Never blocks; each call is bounded by the number of sub-buffers. Everything that is read from the control
// region is checked against our own geometry: a lie makes the answer Got::corrupt. Not signal-safe against itself.
//
// The swap of the reader page. Words: state[generation & 1] says which page is the reader's, the position after its old one
// (next), and how much of it is consumed. intent is the swap under way. slot[k] says which sub-buffer is at position k +
// lap * n.
//   1. If the reader page has never been in the ring (next == 0), go to 3. Load the commit position (ADVANCE). If it is at or
//      past `next`, the writer has left the reader page: what is loaded of the page from here on is final.
//   2. Look at the page (COMMIT). If it has something new, that is the answer; nothing is swapped. If it has nothing new and
//      the writer is still on it, the answer is: nothing.
//   3. Take position r = next. If the writer has gone round, so that r is n or more below the commit position, begin at the
//      oldest position that can still be there. If r is past the commit position, the answer is: nothing.
//   4. Load slot[r % n]. If it says a later lap, the writer has overwritten r: r + 1, back to 3. If it says an earlier one, or
//      no id of this ring, the words are corrupt.
//   5. If r is the commit position, the writer is on that sub-buffer: take it only if something is published there.
//   6. Store intent = {r + 1, id}. (INTENT)
//   7. CAS slot[r % n] from {lap, id} to {lap + 1, own page}. (SWAP) This one step takes the sub-buffer and leaves our page for
//      the writer's next lap. If it fails, the writer has overwritten r: back to 3.
//   8. Note it: store the state that the generation does not name, then the generation + 1 (STATE).
//   9. Look at the new page as in 1 and 2. If it has only padding, and the writer has left it, go on with r + 1 at 3.
//
// A reader that dies before 7 has changed nothing; an intent whose slot does not hold the reader page is no swap. One that dies
// between 7 and 8 has left slot[r % n].id == the reader page of the state: the repair does 8 for it. Consuming is step 8 alone,
// so a death leaves the old state or the new one.
#pragma once
#include <ringside/base/cxx20.hpp>

#include <ringside/abi/meta_page.hpp>
#include <ringside/base/check.hpp>
#include <ringside/base/memory_hardware.hpp>
#include <ringside/ring/control.hpp>
#include <ringside/ring/orders.hpp>
#include <ringside/ring/published.hpp>
#include <ringside/ring/step.hpp>

namespace ringside {

enum class Got : u8 { nothing, data, corrupt };

// Committed data on the reader page that is not consumed yet.
struct ReaderView {
  u32 id = 0;
  u32 begin = 0, end = 0;  // data offsets
  u32 events = 0;          // between them
  u64 lost_before = 0;     // events lost just before `begin`
  u64 first_index = 0;     // of the event at `begin`
  bool left = false;       // the writer has left it: nothing will be added
};

template <Memory M = Hardware, Orders O = Orders{}>
class Reader {
 public:
  explicit Reader(const Ring& ring) noexcept : ring_(ring) {}

  // 0: locked; else the holder. `who` is not 0.
  u64 try_lock(u64 who) noexcept {
    RINGSIDE_DEBUG_CHECK(who != 0, "the holder of a lock has a name");
    u64 expected = 0;
    return M::cas(&ctl().reader_lock, expected, who) ? 0 : expected;  // pairs: LOCK observes
  }
  // Takes the lock from a holder that is known to be dead, and finishes its swap. False: somebody was faster.
  bool steal(u64 dead, u64 who) noexcept {
    if (!M::cas(&ctl().reader_lock, dead, who)) return false;  // pairs: LOCK observes
    mend();
    return true;
  }
  void unlock() noexcept { M::store(&ctl().reader_lock, u64{0}, O.lock_publish); }

  // Finds data not yet consumed, taking the next sub-buffer if need be. Consumes nothing.
  Got peek() noexcept { return find(false); }

  // Counts the view as read.
  void consume() noexcept {
    const ReaderView found = view_;
    consume(found.end - found.begin, found.events);
    view_ = found;
  }
  // Counts `bytes` and `events` of the view as read; 0 < bytes <= end - begin.
  void consume(u32 bytes, u32 events) noexcept {
    RINGSIDE_DEBUG_CHECK(bytes <= view_.end - view_.begin && events <= view_.events, "what is consumed is in the view");
    ReaderState at = state();
    at.bytes += bytes;
    at.events += events;
    at.read += events;
    at.lost += view_.lost_before;
    at.expected = view_.first_index + events;
    move_on(at);
    view_.begin += bytes;
    view_.events -= events;
    view_.first_index += events;
    view_.lost_before = 0;
  }

  // The kernel's GET_READER: either catches up on the reader page or swaps once. Counts all that it finds as read, also if that
  // is only the padding after the last event (a view of no events). With `meta` it sets the missed-events flags on a
  // sub-buffer that the writer has left, and updates the meta-page.
  Got get_reader(bool meta = true) noexcept {
    const Got got = hand_out(meta);
    if (got == Got::data) consume();
    if (meta) update_meta();
    return got;
  }
  // The same, but nothing is counted as read before consume(), and the meta-page stays as it is. A reader that dies in between
  // leaves the view to the next one.
  Got hand_out(bool meta) noexcept {
    const Got got = find(true);
    if (got == Got::data && meta && view_.lost_before != 0 && view_.left && view_.begin == 0) flag_missed();
    return got;
  }

  // For a CPU's ring: reads away all that is there, and counts from there on. Writers go on meanwhile. The caller holds the
  // lock.
  void restart() noexcept {
    const u64 until = index();
    for (u32 budget = 2 * ring_.geometry.nr_subbufs() + 2; budget != 0 && state().expected < until; --budget)
      if (get_reader(false) != Got::data) break;
    ReaderState at = state();
    at.read = at.lost = 0;
    move_on(at);
    M::store(&ctl().first_index, at.expected, unordered);
    for (u64* word : {&ctl().dropped, &ctl().backwards, &ctl().pages_lost}) M::store(word, u64{0}, unordered);
  }

  // For a CPU's ring with a spare sub-buffer: gives back the memory of each written sub-buffer that lies in a free place, by
  // exchanging the spare one for it. punch(id) turns the one that came out into zeros. Answers how many. The caller holds the
  // lock, and nobody maps the ring.
  template <class Punch>
  u32 give_back(Punch punch) noexcept {
    const Geometry& g = ring_.geometry;
    if (!is_of_cpu<O>(ring_) || g.first_spare() >= g.nr_subbufs() || !g.holds(spare())) return 0;
    u32 given = 0;
    const u64 tail = observe_commit().position;
    for (u64 position = tail + 1; position < tail + g.nr_slots(); ++position) {
      const u32 k = static_cast<u32>(position % g.nr_slots());
      u64 slot = M::load(&ring_.record(k).slot, O.slot_observe);
      const u32 id = slot_id(k, slot);
      if (slot_lap(slot) != position / g.nr_slots() || slot_entered(slot) || !g.holds(id) ||
          get(ring_.record(id).real_end) == 0)
        continue;
      const u32 own = spare();
      M::store(&ring_.record(own).real_end, u64{0}, unordered);  // it is empty
      M::store(&ctl().exchange, pack_exchange(k, id), O.intent_publish);
      if (M::cas(&ring_.record(k).slot, slot, pack_slot(k, slot_lap(slot), own))) {  // pairs: SWAP publishes
        set_spare(id);
        punch(id);
        ++given;
      }
      M::store(&ctl().exchange, u64{0}, O.intent_publish);
    }
    return given;
  }

  const ReaderView& view() const noexcept { return view_; }
  const Ring& ring() const noexcept { return ring_; }
  const u8* data() const noexcept { return ring_.subbuf(view_.id) + abi::header_size; }

  // Fills in the meta-page, as at the first mapping. The caller holds the lock.
  void update_meta() noexcept {
    auto& meta = *reinterpret_cast<abi::MetaPage*>(ring_.data);
    const ReaderState at = state();
    const ReaderPlace own = reader_of(at.page);
    // A page that was never in the ring is empty, whatever it held before a reset: mappers go by its commit.
    if (own.next == 0 && ring_.geometry.holds(own.id))
      M::store(&ring_.header(own.id).commit, u64{0}, unordered);
    M::store(&meta.meta_page_size, ring_.geometry.subbuf_size(), unordered);
    M::store(&meta.meta_struct_len, u32{sizeof(abi::MetaPage)}, unordered);
    M::store(&meta.subbuf_size, ring_.geometry.subbuf_size(), unordered);
    M::store(&meta.nr_subbufs, ring_.geometry.nr_subbufs(), unordered);
    M::store(&meta.reader.read, static_cast<u32>(at.bytes), unordered);
    M::store(&meta.entries, written(), unordered);
    M::store(&meta.overrun, overrun(), unordered);
    M::store(&meta.read, at.read, unordered);
    M::store(&meta.reader.id, own.id, O.place_publish);  // pairs: PLACE
  }

  // Index of the next event to be committed.
  u64 index() const noexcept {
    for (u32 budget = 8;; --budget) {  // of a CPU's ring the words move on meanwhile
      const Place commit = observe_commit();
      if (!ring_.geometry.holds(commit.id)) return 0;
      const u64 base = get(ring_.record(commit.id).base);
      const u64 index = base + published_about<M, O>(ring_, commit.id).events;
      if (!is_of_cpu<O>(ring_) || budget == 0 || observe_commit() == commit) return index;
    }
  }
  // Events committed since the last reset.
  u64 written() const noexcept { return index() - get(ctl().first_index); }

  // Events overwritten since the last reset. Writers of a CPU's ring count none: the indexes show them.
  u64 overrun() const noexcept { return !is_of_cpu<O>(ring_) ? get(ctl().overrun) : overrun_by_index(); }
  u64 overrun_by_index() const noexcept {
    const Geometry& g = ring_.geometry;
    const ReaderState at = state();
    const ReaderPlace own = reader_of(at.page);
    const Place commit = observe_commit();
    u64 oldest = index();
    u64 position = own.next;
    if (position + g.nr_slots() <= commit.position) position = commit.position - g.nr_slots() + 1;
    for (; position <= commit.position; ++position) {
      const u32 k = static_cast<u32>(position % g.nr_slots());
      const u64 slot = get(ring_.record(k).slot);
      if (!g.holds(slot_id(k, slot))) break;
      if (slot_lap(slot) != position / g.nr_slots()) continue;
      oldest = get(ring_.record(slot_id(k, slot)).base);
      break;
    }
    // Index of the reader page's first unread event, and of the first one after the page.
    u64 first = at.expected, behind = at.expected;
    if (own.next != 0 && g.holds(own.id)) {
      const u64 base = get(ring_.record(own.id).base);
      first = base + at.events;
      behind = base + (commit.position >= own.next ? left_events(own.id) : published_about<M, O>(ring_, own.id).events);
    }
    return at.lost + (first > at.expected ? first - at.expected : 0) + (oldest > behind ? oldest - behind : 0);
  }

  // How far the reader has read: the state of one moment, also without the lock.
  ReaderState state() const noexcept {
    ReaderState copy{};
    for (u32 budget = 1000; budget != 0; --budget) {  // it ends early unless the reader moves on all the time
      const u64 generation = M::load(&ctl().reader_generation, O.state_observe);  // pairs: STATE
      const ReaderState& from = ctl().state[generation & 1];
      copy = {get(from.page), get(from.bytes), get(from.events), get(from.expected), get(from.read), get(from.lost)};
      fence_of<M, O.state_observe>();  // pairs: STATE
      if (get(ctl().reader_generation) == generation) break;
    }
    return copy;
  }

  // Finishes the swap of a reader that died: the slot itself shows whether it happened.
  void mend() noexcept {
    ReaderState at = state();
    ReaderPlace wanted;
    if (swapped(reader_of(at.page), wanted) && ring_.geometry.holds(wanted.id)) settle(at, wanted);
    // The same for an exchange of the spare sub-buffer.
    const u64 exchange = get(ctl().exchange);
    const Place place = exchange_of(exchange);
    if (exchange == 0 || !is_of_cpu<O>(ring_) || place.position >= ring_.geometry.nr_slots() || !ring_.geometry.holds(place.id))
      return;
    const auto k = static_cast<u32>(place.position);
    if (slot_id(k, M::load(&ring_.record(k).slot, O.slot_observe)) == spare()) set_spare(place.id);
    M::store(&ctl().exchange, u64{0}, O.intent_publish);
  }

  // Has the holder of this reader page given it to the ring, and not noted that yet? Then `wanted` is the page that it took.
  bool swapped(ReaderPlace own, ReaderPlace& wanted) const noexcept {
    wanted = reader_of(M::load(&ctl().intent, O.intent_observe));
    if (wanted.next <= own.next || !ring_.geometry.holds(own.id)) return false;
    const u32 k = static_cast<u32>((wanted.next - 1) % ring_.geometry.nr_slots());
    return slot_id(k, M::load(&ring_.record(k).slot, O.slot_observe)) == own.id;
  }

 private:
  Control& ctl() const noexcept { return *ring_.control; }
  static u64 get(const u64& word) noexcept { return M::load(&word, unordered); }
  static void put(u64& word, u64 value) noexcept { M::store(&word, value, unordered); }
  Place observe_commit() const noexcept { return place_of(M::load(&ctl().commit, O.advance_observe)); }  // pairs: ADVANCE

  // The sub-buffer that has no place, in a CPU's ring that has one.
  u32 spare() const noexcept { return static_cast<u32>(get(ctl().spare)) ^ ring_.geometry.first_spare(); }
  void set_spare(u32 id) noexcept { M::store(&ctl().spare, u64{id ^ ring_.geometry.first_spare()}, O.intent_publish); }

  u32 left_events(u32 id) const noexcept { return published<M, O>(ring_, id, true, {}).events; }

  void move_on(const ReaderState& next) noexcept {
    const u64 generation = get(ctl().reader_generation) + 1;
    ReaderState& to = ctl().state[generation & 1];
    fence_of<M, O.state_publish>();  // pairs: STATE
    put(to.page, next.page);
    put(to.bytes, next.bytes);
    put(to.events, next.events);
    put(to.expected, next.expected);
    put(to.read, next.read);
    put(to.lost, next.lost);
    M::store(&ctl().reader_generation, generation, O.state_publish);  // pairs: STATE
  }

  Got find(bool padding) noexcept {
    const ReaderState at = state();
    const ReaderPlace own = reader_of(at.page);
    if (!ring_.geometry.holds(own.id)) return Got::corrupt;
    if (own.next != 0) {
      // Load commit first: if it is past our page, what is loaded of the page afterwards is final.
      const bool left = observe_commit().position >= own.next;
      const Got got = find_from(at, left, padding);
      if (got != Got::nothing || !left) return got;
    }
    return swap(at, padding);
  }

  // Is there new data on the reader page? To GET_READER padding alone is new data, as in the kernel, while some event is
  // unread. The index shows that, because no counter can run ahead of it.
  Got find_from(const ReaderState& at, bool left, bool padding) noexcept {
    const u32 id = reader_of(at.page).id;
    const Record& rec = ring_.record(id);
    const Committed now = published<M, O>(ring_, id, left, {static_cast<u32>(at.events), static_cast<u32>(at.bytes)});
    if (now.bytes > ring_.geometry.capacity() || now.bytes % 4 != 0 || at.bytes % 4 != 0 || now.bytes < at.bytes ||
        now.events < at.events)
      return Got::corrupt;
    const u64 first = get(rec.base) + at.events;
    view_ = {id,
             static_cast<u32>(at.bytes),
             now.bytes,
             now.events - static_cast<u32>(at.events),
             first > at.expected ? first - at.expected : 0,
             first,
             left};
    RINGSIDE_DEBUG_CHECK(view_.begin <= view_.end && view_.end <= ring_.geometry.capacity(), "a view is inside its sub-buffer");
    if (now.bytes == at.bytes) return Got::nothing;
    // Writers of a CPU's ring leave a sub-buffer without its padding in commit: mappers see it from here on.
    if (left && is_of_cpu<O>(ring_) && abi::commit_size(M::load(&ring_.header(id).commit, unordered)) < now.bytes)
      M::store(&ring_.header(id).commit, u64{now.bytes}, unordered);
    if (view_.events != 0) return Got::data;
    return (padding ? index() != at.expected : !left) ? Got::data : Got::nothing;
  }

  Got swap(ReaderState at, bool padding) noexcept {
    const Geometry& g = ring_.geometry;
    u64 position = reader_of(at.page).next;
    for (u32 budget = 4 * g.nr_subbufs() + 64; budget != 0; --budget) {  // laps of a writer that is faster
      const Place commit = observe_commit();
      if (position + g.nr_slots() <= commit.position) position = commit.position - g.nr_slots() + 1;
      if (position > commit.position) return Got::nothing;
      const u32 k = static_cast<u32>(position % g.nr_slots());
      const u64 lap = position / g.nr_slots();
      u64 slot = M::load(&ring_.record(k).slot, O.slot_observe);
      const u32 id = slot_id(k, slot);
      if (!g.holds(id) || slot_lap(slot) < lap) return Got::corrupt;
      if (slot_lap(slot) != lap) {
        ++position;  // overwritten
        continue;
      }
      if (position == commit.position) {  // the writer is on it
        if (published_about<M, O>(ring_, id).bytes == 0) return Got::nothing;
      }
      const ReaderPlace wanted{position + 1, id};
      if constexpr (O.bug != Bug::swap_before_intent) M::store(&ctl().intent, pack_reader(wanted), O.intent_publish);
      if (!M::cas(&ring_.record(k).slot, slot, pack_slot(k, lap + 1, reader_of(at.page).id)))
        continue;  // pairs: SWAP publishes
      if constexpr (O.bug == Bug::swap_before_intent) M::store(&ctl().intent, pack_reader(wanted), O.intent_publish);
      settle(at, wanted);
      const bool left = observe_commit().position > position;
      const Got got = find_from(at, left, padding);
      if (got != Got::nothing || !left) return got;
      position = wanted.next;  // only padding or discarded events on it
    }
    return Got::nothing;
  }

  // The swap has happened: notes it.
  void settle(ReaderState& at, ReaderPlace now) noexcept {
    RINGSIDE_DEBUG_CHECK(ring_.geometry.holds(now.id), "the reader page is a sub-buffer of this ring");
    at.page = pack_reader(now);
    at.bytes = at.events = 0;
    move_on(at);
    after_step<M>(ring_);
  }

  // Makes the page what the kernel hands out after a loss: without its padding, with flags and, where it fits, the count.
  void flag_missed() noexcept {
    const u64 end = get(ring_.record(view_.id).real_end) & abi::commit_mask;
    const u32 data = static_cast<u32>(end < view_.end ? end : view_.end) & ~3u;
    if (is_of_cpu<O>(ring_))
      M::store(&ring_.record(view_.id).real_end, get(ring_.record(view_.id).real_end) | unpadded, unordered);
    // Before the padding is written over: an iterator that copies the page looks here again.
    if (!is_of_cpu<O>(ring_))
      M::store(&ring_.record(view_.id).committed, pack_committed({view_.events, data}), unordered);
    else
      M::store(&ring_.header(view_.id).commit, u64{data}, unordered);
    fence_of<M, O.enter_publish>();  // pairs: ENTER
    u64 commit = data + abi::missed_events;
    if (ring_.geometry.capacity() - data >= 8) {
      commit += abi::missed_stored;
      auto* count = reinterpret_cast<u32*>(ring_.subbuf(view_.id) + abi::header_size + data);
      M::store(count, static_cast<u32>(view_.lost_before), unordered);
      M::store(count + 1, static_cast<u32>(view_.lost_before >> 32), unordered);
    }
    M::store(&ring_.header(view_.id).commit, commit, O.commit_publish);  // pairs: COMMIT
    view_.end = data;
  }

  Ring ring_;
  ReaderView view_;
};

}  // namespace ringside
