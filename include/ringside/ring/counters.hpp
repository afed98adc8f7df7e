// The numbers of a ring, and the identities between them. These are exact at rest, and otherwise off by what is in flight.
//   written = read + unread + overrun            refused = dropped + commit overrun
#pragma once
#include <ringside/ring/reader.hpp>

namespace ringside {

struct RingCounters {
  u64 written, read, overrun, unread, dropped, commit_overrun;
  u64 bytes;             // of unread events, headers and padding included
  u64 unfinished_bytes;  // reserved and not published
  u64 oldest_time;       // time stamp of the oldest sub-buffer with unread events; 0: none
  u64 pages_touched, pages_lost;
};

// Any process may call this at any time. Wait-free unless a reader moves on. Bounded by the number of sub-buffers.
template <Memory M = Hardware>
RingCounters counters(const Ring& ring) noexcept {
  const Control& c = *ring.control;
  const Geometry& g = ring.geometry;
  const Reader<M> reader(ring);
  const auto get = [](const u64& word) { return M::load(&word, unordered); };
  RingCounters n{};
  const ReaderState at = reader.state();
  n.written = reader.written();
  n.read = at.read;
  n.overrun = reader.overrun();
  n.unread = n.written - n.read - n.overrun;
  if (static_cast<i64>(n.unread) < 0) n.unread = 0;  // in flight
  n.dropped = get(c.dropped);
  n.commit_overrun = get(c.commit_overrun);
  const Place commit = place_of(get(c.commit)), tail = place_of(get(c.tail));
  n.pages_touched = ring.kind == RingKind::cpu ? commit.position : get(c.pages_touched);
  n.pages_lost = get(c.pages_lost);

  const ReaderPlace own = reader_of(at.page);
  const auto add_unread = [&](u32 id, u64 from) {
    const Committed now = published_about<M, Orders{}>(ring, id);
    if (now.bytes <= from || now.bytes > g.capacity()) return;
    n.bytes += now.bytes - from;
    if (n.oldest_time == 0 && now.events != 0) n.oldest_time = get(ring.header(id).time_stamp);
  };
  if (own.next != 0 && g.holds(own.id)) add_unread(own.id, at.bytes);
  u64 position = own.next;
  if (position + g.nr_slots() <= commit.position) position = commit.position - g.nr_slots() + 1;
  for (; position <= commit.position; ++position) {
    const u32 k = static_cast<u32>(position % g.nr_slots());
    const u64 slot = get(ring.record(k).slot);
    if (slot_lap(slot) == position / g.nr_slots() && g.holds(slot_id(k, slot))) add_unread(slot_id(k, slot), 0);
  }
  if (ring.kind == RingKind::thread && g.holds(tail.id)) {
    const u64 word = get(ring.record(tail.id).reserve);
    const u64 real_end = get(ring.record(tail.id).real_end);
    const u32 end = left_at(real_end, tail.position) ? closed_commit(real_end, g.capacity()) : reserve_offset(word);
    const u32 done = committed_of(get(ring.record(tail.id).committed)).bytes;
    if (end > done && end <= g.capacity()) n.unfinished_bytes = end - done;
  }
  return n;
}

}  // namespace ringside
