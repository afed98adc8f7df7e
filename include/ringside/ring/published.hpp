// What is published of a sub-buffer. The one place that knows both kinds of rings.
//
// The ring of a thread publishes by `committed`, one word of events and bytes / 4. The ring of a CPU publishes by the header's
// `commit` alone, because a sequence may be cut off between any two stores. There `committed` is stored before `commit`, for
// the event that is about to be published; it counts one event too many unless its bytes equal `commit`. For a sub-buffer that
// was left it is exact. It holds bytes, not bytes / 4, which saves each writer a shift.
#pragma once
#include <ringside/abi/event_header.hpp>
#include <ringside/abi/sub_buffer.hpp>
#include <ringside/base/memory.hpp>
#include <ringside/ring/control.hpp>
#include <ringside/ring/orders.hpp>

namespace ringside {

constexpr u64 pack_cpu_committed(Committed c) noexcept { return u64{c.events} << 32 | c.bytes; }
constexpr Committed cpu_committed_of(u64 word) noexcept { return {static_cast<u32>(word >> 32), static_cast<u32>(word)}; }

// Events before `commit`. committed: loaded while `commit` had that value.
constexpr u32 events_at(u64 committed, u64 commit) noexcept {
  const Committed c = cpu_committed_of(committed);
  return c.bytes == commit ? c.events : c.events - 1;
}

template <Orders O>
RINGSIDE_INLINE bool is_of_cpu(const Ring& ring) noexcept {
  return O.rings_of_cpus && ring.kind == RingKind::cpu;
}

// The times of the last two events of a sub-buffer in a CPU's ring, indexed by the parity of the event's number.
RINGSIDE_INLINE u64* times(Record& rec) noexcept { return &rec.reserve; }
RINGSIDE_INLINE const u64* times(const Record& rec) noexcept { return &rec.reserve; }

// An addition that other CPUs do not lose.
template <Memory M>
RINGSIDE_INLINE void add_shared(u64& word, u64 more) noexcept {
  u64 now = M::load(&word, unordered);
  while (!M::cas(&word, now, now + more)) {
  }
}

// The number of data events between two offsets of a sub-buffer. The count ends at anything that is no event.
template <Memory M>
u32 count_events(const Ring& ring, u32 id, u32 begin, u32 end) noexcept {
  u32 events = 0;
  const u8* const data = ring.subbuf(id) + abi::header_size;
  for (u32 at = begin; at < end && end - at >= 4;) {
    const u32 word = M::load(reinterpret_cast<const u32*>(data + at), unordered), type = abi::word_type(word);
    u32 size = abi::stamp_size;
    if (type - 1 < abi::type_data_max) {
      size = 4 + type * 4;
    } else if (type == 0 || type == abi::type_padding) {
      if (end - at < 8 || (type != 0 && abi::word_delta(word) == 0)) break;
      const u32 more = M::load(reinterpret_cast<const u32*>(data + at + 4), unordered);
      if (more < 4 || more > end - at - 4) break;
      size = 4 + more;
    }
    events += type <= abi::type_data_max;
    at += size;
  }
  return events;
}

// What is published of sub-buffer `id`. from: that many events before that many bytes are known already. left: the writer
// has left it, so its padding counts. Bounded by the sub-buffer. The answer is not checked.
template <Memory M, Orders O>
Committed published(const Ring& ring, u32 id, bool left, Committed from) noexcept {
  const Record& rec = ring.record(id);
  if (!is_of_cpu<O>(ring)) return committed_of(M::load(&rec.committed, O.commit_observe));  // pairs: COMMIT
  if (left) {
    const Committed now = cpu_committed_of(M::load(&rec.committed, O.commit_observe));
    const u64 end = M::load(&rec.real_end, unordered);
    return {now.events, now.bytes <= ring.geometry.capacity() && (end & abi::commit_mask) == now.bytes
                            ? closed_commit(end, ring.geometry.capacity())
                            : now.bytes};
  }
  const u32 bytes = abi::commit_size(M::load(&ring.header(id).commit, O.commit_observe));  // pairs: COMMIT
  if (bytes > ring.geometry.capacity() || bytes < from.bytes) return {from.events, bytes};
  return {from.events + count_events<M>(ring, id, from.bytes, bytes), bytes};
}

// The same in a few loads, for numbers where the events are not looked at. Exact at rest; otherwise at most what is published
// by the time of the answer.
template <Memory M, Orders O>
Committed published_about(const Ring& ring, u32 id) noexcept {
  const Record& rec = ring.record(id);
  if (!is_of_cpu<O>(ring)) return committed_of(M::load(&rec.committed, O.commit_observe));  // pairs: COMMIT
  Committed now{};
  for (int tries = 0; tries < 4; ++tries) {
    const u32 commit = abi::commit_size(M::load(&ring.header(id).commit, O.commit_observe));
    const u64 committed = M::load(&rec.committed, O.commit_observe);
    now = {cpu_committed_of(committed).events - (committed != 0 ? 1 : 0), commit};
    if (abi::commit_size(M::load(&ring.header(id).commit, unordered)) == commit) return {events_at(committed, commit), commit};
  }
  return now;
}

}  // namespace ringside
