// How a thread gets a ring of its own. Signals are off.
#pragma once
#include "writer/process.hpp"

namespace ringside {

// A ring that is claimed by this process: it has memory where its next owner writes, and no writer.
struct TakenRing {
  Opened* in;  // its instance; another one may be open by now
  MappedRing mapped;
  u32 number;
  u32 tag;  // of its claims: not 0 in a child of vfork, whose parent goes on when it is killed
  Backing<128> backing;
};

// Takes one of the rings that this process keeps mapped: a retired one that is read, else a fresh one.
bool take_kept_ring(TakenRing& own) noexcept;

// Finds a ring for this thread: a given-back one, a retired one that is read, a new one, or (budget) a retired one that is not
// read. The last check may be long ago: if there is no other ring, those of dead writers are retired first. keep_more: when it
// makes one, it makes more, for the threads to come (kept_rings.hpp).
bool find_ring(int dir, TakenRing& own, bool keep_more) noexcept;

// Gives back what a child of vfork had claimed for this one when it was killed.
void give_back_claims(const TakenRing& own) noexcept;

}  // namespace ringside
