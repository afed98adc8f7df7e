// What holds of a ring between any two accesses of anybody: for tests, and for a ring that is in doubt. Answers the first
// sentence that does not hold, or nullptr. It loads many words, so it is right only if none of them moves meanwhile: in a ring
// at rest, one that a single thread has to itself, or under the explorer. Bounded by the number of sub-buffers; allocates
// nothing.
#pragma once
#include <ringside/ring/reader.hpp>

namespace ringside {

// What must not go back from one check to the next.
struct Watched {
  u64 tail = 0, commit = 0, generation = 0;
};

template <Memory M = Hardware>
const char* broken(const Ring& ring, Watched* before = nullptr) noexcept {
  const Control& c = *ring.control;
  const Geometry& g = ring.geometry;
  const auto get = [](const u64& word) { return M::load(&word, unordered); };
  const Place commit = place_of(get(c.commit)), tail = ring.kind == RingKind::cpu ? commit : place_of(get(c.tail));
  if (!g.holds(tail.id) || !g.holds(commit.id)) return "tail and commit are on sub-buffers of this ring";
  if (commit.position > tail.position) return "commit is not beyond the tail";
  if (tail.position - commit.position > g.nr_slots()) return "the tail is at most a lap beyond commit";

  // The reader page. Between the swap and its note, the intent says which it is.
  const ReaderState& at = c.state[get(c.reader_generation) & 1];
  ReaderPlace own = reader_of(get(at.page));
  if (!g.holds(own.id)) return "the reader page is a sub-buffer of this ring";
  if (ReaderPlace wanted; Reader<M>(ring).swapped(own, wanted)) own = wanted;
  if (own.next > commit.position + 1) return "the reader takes nothing beyond commit";

  // Each sub-buffer is in one place.
  for (u32 k = 0; k < g.nr_slots(); ++k) {
    const u64 slot = get(ring.record(k).slot);
    const u32 id = slot_id(k, slot);
    const u64 position = slot_lap(slot) * g.nr_slots() + k;
    if (!g.holds(id)) return "a slot holds a sub-buffer of this ring";
    if (id == own.id) return "the reader page is not in the ring";
    for (u32 other = 0; other < k; ++other)
      if (slot_id(other, get(ring.record(other).slot)) == id) return "no sub-buffer is in two slots";
    if (position + g.nr_slots() <= commit.position) return "no slot is a lap late";
    if (position > tail.position + g.nr_slots()) return "no slot is more than a lap ahead";
    if (position > commit.position && position <= tail.position && position + g.nr_slots() <= own.next)
      return "what is not committed is not taken";
  }

  const Record& rec = ring.record(commit.id);
  const Committed done = published_about<M, Orders{}>(ring, commit.id);
  const u64 word = get(rec.reserve);
  if (done.bytes > g.capacity()) return "committed bytes fit in the sub-buffer";
  if (ring.kind == RingKind::thread && commit == tail && !is_closed(word) && !left_at(get(rec.real_end), tail.position) &&
      done.bytes > reserve_offset(word))
    return "nothing is committed that is not reserved";
  if (before != nullptr) {
    if (tail.position < before->tail || commit.position < before->commit || get(c.reader_generation) < before->generation)
      return "no position goes back";
    *before = {tail.position, commit.position, get(c.reader_generation)};
  }
  return nullptr;
}

}  // namespace ringside
