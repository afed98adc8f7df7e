#include "writer/kept_rings.hpp"

namespace ringside {

constinit KeptRings fresh_rings, retired_rings;

bool KeptRings::put(const KeptRing& ring) noexcept {
  for (Slot& slot : slots_) {
    u32 word = free;
    if (!__atomic_compare_exchange_n(&slot.word, &word, in_hand, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) continue;
    slot.ring = ring;
    __atomic_store_n(&slot.word, kept, __ATOMIC_RELEASE);
    return true;
  }
  return false;
}

void KeptRings::forget_after_fork() noexcept {
  for (Slot& slot : slots_) {
    if (slot.word == kept) unmap_ring(slot.ring.mapped);  // in hand at the fork: its mapping stays
    slot.word = free;
  }
}

}  // namespace ringside
