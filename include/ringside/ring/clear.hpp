// Makes a ring new: clears all that its writer and its reader have noted. Sizes, owner, the gate's refusing bits and those in
// `kept`, and the lock stay; so does nest, because it counts a thread that is being refused at the gate. The caller knows that
// the writer is outside (docs/design/ring.md), and holds the reader's lock.
#pragma once
#include <ringside/base/memory_hardware.hpp>
#include <ringside/ring/control.hpp>
#include <ringside/ring/orders.hpp>

namespace ringside {

inline void clear_words(const Ring& ring, u64 kept = 0) noexcept {
  Control& c = *ring.control;
  const auto zero = [](u64* from, u64* to) {
    for (; from != to; ++from) Hardware::store(from, u64{0}, unordered);
  };
  Hardware::store(&c.life, Hardware::load(&c.life, unordered) + 1, unordered);
  Hardware::store(&c.tail, u64{0}, unordered);
  zero(&c.last_time, &c.reader_lock);
  __atomic_fetch_and(&c.gate, gate_off | gate_frozen | gate_moved | kept, gate_publish);  // no position is parked now
  zero(&c.reader_generation, &c.mapped);
  zero(&c.state[0].page, &c.reserved3[0]);
  zero(&ring.record(0).slot, &ring.record(ring.geometry.nr_subbufs()).slot);
}

}  // namespace ringside
