// Makes a ring ready for its next owner after its writer's death. All that was committed stays. What was reserved and not
// published is dropped; its size is answered. One process runs this, with no writer, under reader_lock.
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
  const auto get = [](const u64& word) { return M::load(&word, unordered); };
  const Place commit = place_of(get(c.commit)), tail = place_of(get(c.tail));
  if (!g.holds(commit.id) || !g.holds(tail.id) || tail.position < commit.position ||
      tail.position - commit.position > g.nr_slots())
    return {true, 0};
  Recovered done{false, counters<M>(ring).unfinished_bytes};
  Record& rec = ring.record(commit.id);
  const Committed now = committed_of(get(rec.committed));
  if (now.bytes > g.capacity()) return {true, 0};

  // The writer may have died between the CAS of a slot and its count: the indexes show what was overwritten.
  for (u32 k = 0; k < g.nr_slots(); ++k)
    if (!g.holds(slot_id(k, get(ring.record(k).slot)))) return {true, 0};
  M::store(&c.overrun, Reader<M>(ring).overrun_by_index(), unordered);

  const u64 word = get(rec.reserve);
  if (!left_at(get(rec.real_end), commit.position) || tail != commit ||
      closed_commit(get(rec.real_end), g.capacity()) != now.bytes) {
    M::store(&rec.real_end, pack_end(commit.position, now.bytes, false), unordered);
    M::store(&rec.reserve, close_reserve(word), unordered);
  }
  // The next owner comes to these positions again. What the dead one left there must not count as left. What it has counted and
  // reserved there must not pass for what the next owner's handlers do: step c of writer.hpp compares both words. No handler
  // that has reserved there leaves an empty count of this position, or a reserve word that is closed and not marked as left.
  for (u64 position = commit.position + 1; position <= tail.position; ++position) {
    const u32 k = static_cast<u32>(position % g.nr_slots());
    const u32 id = slot_id(k, get(ring.record(k).slot));
    if (!g.holds(id)) return {true, 0};
    M::store(&ring.record(id).real_end, u64{0}, unordered);
    M::store(&ring.record(id).count, pack_count(position, 0), unordered);
    M::store(&ring.record(id).reserve, closed, unordered);
  }
  M::store(&rec.count, pack_count(commit.position, 0), unordered);
  M::store(&ring.header(commit.id).commit, u64{now.bytes}, unordered);
  M::store(&c.tail, pack_place(commit), unordered);
  M::store(&c.nest, u64{0}, Orders{}.quiet_publish);  // pairs: QUIET
  return done;
}

}  // namespace ringside
