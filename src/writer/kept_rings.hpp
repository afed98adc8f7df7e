// Rings that this process keeps mapped for its next threads, so that a thread's first event makes, opens and maps no files. Two
// kinds, by their word in the ring table:
//
//   fresh     made and claimed by this process (busy); no thread has written to it, and no reader sees it; its first sub-buffer has memory
//   retired   left by a thread of this process: readers read it, and any process may take it meanwhile
//
// Each is in an entry, which is free, kept, or in hand (one thread moves a ring into it or out of it). A thread takes a
// ring out by a compare-and-swap of the entry's word, so a ring is in one hand at a time; no entry is waited for. What an entry
// holds is published with `kept` (release), and taken with `in hand` (acquire). That a ring is still ours to take is not known
// from the entry: its word in the ring table decides, by the compare-and-swap of a claim.
//
// Signals are off in all of these calls, as in the whole slow path: a handler that wrote here would find the entry in hand. The
// child of a fork has the words and the mappings of its parent's rings, and drops them first of all.
#pragma once
#include "writer/process.hpp"

namespace ringside {

struct KeptRing {
  MappedRing mapped;
  Opened* in = nullptr;
  u32 number = 0;
  u64 state = 0;  // RingEntry::state
};

class KeptRings {
 public:
  // False: there is no room; the ring stays the caller's.
  bool put(const KeptRing& ring) noexcept;
  // One that `good` accepts. The others stay, or are dropped if they are of no use any more: `good` says so.
  enum class Use { take, keep, drop };
  template <class Good>
  bool take(KeptRing& out, Good good) noexcept {
    for (Entry& entry : entries_) {
      u32 word = kept;
      if (!__atomic_compare_exchange_n(&entry.word, &word, in_hand, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) continue;
      const Use use = good(entry.ring);
      if (use == Use::take) out = entry.ring;
      if (use == Use::drop) unmap_ring(entry.ring.mapped);
      __atomic_store_n(&entry.word, use == Use::keep ? kept : free, __ATOMIC_RELEASE);
      if (use == Use::take) return true;
    }
    return false;
  }
  void forget_after_fork() noexcept;  // unmaps what it holds: the parent's rings

 private:
  enum : u32 { free, in_hand, kept };
  struct Entry {
    u32 word;
    KeptRing ring;
  };
  Entry entries_[8] = {};
};

extern constinit KeptRings fresh_rings, retired_rings;

}  // namespace ringside
