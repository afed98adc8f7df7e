// How full a ring is, as the kernel counts for buffer_percent: the share of its places that are finished sub-buffers no reader
// has taken, or the sub-buffer that the writer is on. Any process may ask at any time. Cost: a handful of loads.
#pragma once
#include <ringside/base/memory.hpp>
#include <ringside/ring/control.hpp>
#include <ringside/ring/orders.hpp>

namespace ringside {

// percent: 0 to 100. If a reader moves meanwhile, the ring may look fuller than it is, never emptier.
template <Memory M>
bool is_full(const Ring& ring, u64 percent) noexcept {
  const Control& c = *ring.control;
  const u64 commit = place_of(M::load(&c.commit, unordered)).position;
  const ReaderState& at = c.state[M::load(&c.reader_generation, unordered) & 1];
  const u64 next = reader_of(M::load(&at.page, unordered)).next;
  const u64 dirty = commit > next ? commit - next : 0;
  return (dirty < ring.geometry.nr_slots() ? dirty + 1 : ring.geometry.nr_slots()) * 100 >= percent * ring.geometry.nr_slots();
}

}  // namespace ringside
