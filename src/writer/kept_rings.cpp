#include "writer/kept_rings.hpp"

namespace ringside {

constinit KeptRings fresh_rings, retired_rings;

bool KeptRings::put(const KeptRing& ring) noexcept {
  for (Entry& entry : entries_) {
    u32 word = free;
    if (!__atomic_compare_exchange_n(&entry.word, &word, in_hand, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) continue;
    entry.ring = ring;
    __atomic_store_n(&entry.word, kept, __ATOMIC_RELEASE);
    return true;
  }
  return false;
}

void KeptRings::forget_after_fork() noexcept {
  for (Entry& entry : entries_) {
    if (entry.word == kept) unmap_ring(entry.ring.mapped);  // in hand at the fork: its mapping stays
    entry.word = free;
  }
}

}  // namespace ringside
