// After a writer's death: makes the ring ready for its next owner. All that was committed stays; what was reserved and not
// published is dropped, and its size answered. Run by one process, with no writer, under reader_lock.
#pragma once
#include <ringside/ring/counters.hpp>

namespace ringside {

struct Recovered {
  bool corrupt = false;      // the words contradict each other: the ring must not be written again
  u64 unfinished_bytes = 0;  // reserved, never committed
};

template <Memory M = Hardware>
Recovered recover(const Ring& ring) noexcept {
  Control& c = *ring.control;
  const Geometry& g = ring.geometry;
  const auto get = [](const u64& word) { return M::load(&word, Order::relaxed); };
  const Place commit = place_of(get(c.commit)), tail = place_of(get(c.tail));
  if (!g.holds(commit.id) || !g.holds(tail.id) || tail.position < commit.position ||
      tail.position - commit.position > g.nr_slots())
    return {true, 0};
  Recovered done{false, counters<M>(ring).unfinished_bytes};
  Record& rec = ring.record(commit.id);
  const Committed now = committed_of(get(rec.committed));
  if (now.bytes > g.capacity()) return {true, 0};

  // The writer may have died between the slot and the counter: the indices know what was overwritten.
  const Reader<M> reader(ring);
  const ReaderState at = reader.state();
  u64 position = reader_of(at.page).next;
  u64 oldest = reader.written();
  if (position + g.nr_slots() <= commit.position) position = commit.position - g.nr_slots() + 1;
  for (; position <= commit.position; ++position) {
    const u32 k = static_cast<u32>(position % g.nr_slots());
    const u64 slot = get(ring.record(k).slot);
    if (!g.holds(slot_id(k, slot))) return {true, 0};
    if (slot_lap(slot) != position / g.nr_slots()) continue;
    oldest = get(ring.record(slot_id(k, slot)).base);
    break;
  }
  const ReaderPlace own = reader_of(at.page);
  u64 behind_reader = at.expected;  // index behind all that ever was on a reader page
  if (own.next != 0 && at.bytes != Reader<M>::taken_away && g.holds(own.id))
    behind_reader = get(ring.record(own.id).base) + committed_of(get(ring.record(own.id).committed)).events;
  const u64 first = own.next != 0 && at.bytes != Reader<M>::taken_away && g.holds(own.id)
                        ? get(ring.record(own.id).base) + at.events
                        : at.expected;
  const u64 lost_at_page = first > at.expected ? first - at.expected : 0;
  M::store(&c.overrun, at.lost + lost_at_page + (oldest > behind_reader ? oldest - behind_reader : 0), Order::relaxed);

  const u64 word = get(rec.reserve);
  if (!left_at(get(rec.real_end), commit.position) || tail != commit ||
      closed_commit(get(rec.real_end), g.capacity()) != now.bytes) {
    M::store(&rec.real_end, pack_end(commit.position, now.bytes, false), Order::relaxed);
    M::store(&rec.reserve, close_reserve(word), Order::relaxed);
  }
  // The next owner comes to these positions once more: what the dead one left there is not left then.
  for (position = commit.position + 1; position <= tail.position; ++position) {
    const u32 k = static_cast<u32>(position % g.nr_slots());
    const u32 id = slot_id(k, get(ring.record(k).slot));
    if (!g.holds(id)) return {true, 0};
    M::store(&ring.record(id).real_end, u64{0}, Order::relaxed);
  }
  M::store(&rec.count, pack_count(commit.position, 0), Order::relaxed);
  M::store(&ring.header(commit.id).commit, u64{now.bytes}, Order::relaxed);
  M::store(&c.tail, pack_place(commit), Order::relaxed);
  M::store(&c.nest, u64{0}, Order::release);
  return done;
}

}  // namespace ringside
