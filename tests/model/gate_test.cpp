// The gate: who closes it and then sees nest = 0 behind a heavy fence has the ring for itself.
#include <gtest/gtest.h>

#include "ring_model.hpp"

namespace ringside::model {
namespace {

using E = Explored;

// Explored with the light fences left out: what they are for must break.
struct NoLightFence : Explored {
  static void fence_light() {}
};

// As reset in src/instance: gate off, heavy fence, nest = 0, then all words back to 0 and the gate open again.
template <class M>
auto reset_beside_writer(u32 handlers) {
  return [=](World& world) {
    Model<Orders{}, M> m(world, {.subbufs = 3});
    m.write(most);
    world.spawn("controller", [=] {
      Control& c = *m.b->ring.control;
      E::store(&c.gate, gate_off, Order::release);
      E::fence_heavy();
      if (E::load(&c.nest, Order::acquire) == 0) {
        const Geometry& g = m.b->ring.geometry;
        u64* const words[] = {&c.tail, &c.commit, &c.overrun, &c.dropped};
        // Everything that the writer did is seen: what it published is what it reserved.
        const Place tail = place_of(E::load(&c.tail, Order::relaxed));
        Record& rec = m.b->ring.record(tail.id);
        const u64 reserve = E::load(&rec.reserve, Order::relaxed);
        const Committed done = committed_of(E::load(&rec.committed, Order::relaxed));
        if (handlers == 0 && !is_closed(reserve))
          require(done.bytes == reserve_offset(reserve), "a quiet writer has published all, and the controller sees it");
        for (u64* word : words) E::store(word, u64{0}, Order::relaxed);
        for (u32 id = 0; id < g.nr_subbufs(); ++id) {
          E::store(&m.b->ring.record(id).reserve, u64{0}, Order::relaxed);
          E::store(&m.b->ring.record(id).count, u64{0}, Order::relaxed);
          E::store(&m.b->ring.record(id).committed, u64{0}, Order::relaxed);
          E::store(&m.b->ring.record(id).base, u64{0}, Order::relaxed);
          E::store(&m.b->ring.record(id).slot, u64{0}, Order::relaxed);
          E::store(&m.b->ring.record(id).real_end, u64{0}, Order::relaxed);
        }
        for (u64* word : words) require(*word == 0, "nobody touches a ring that is reset");
        for (u32 id = 0; id < g.nr_subbufs(); ++id)
          require(m.b->ring.record(id).committed == 0 && m.b->ring.record(id).reserve == 0 && m.b->ring.record(id).base == 0,
                  "nobody touches a sub-buffer that is reset");
      }
    });
    world.spawn("writer", [=] {
      m.write(most);
      m.write(most);
    });
    if (handlers != 0) world.signal("writer", [=] { m.write(most); }, handlers);
  };
}

TEST(Gate, ResetHasTheRingForItself) {
  Result r = explore({.preemptions = 2, .stale = 1, .seconds = 5}, reset_beside_writer<Explored>(0));
  EXPECT_TRUE(r.proved()) << r;
  std::cout << r.executions << " executions\n";
}

TEST(Gate, ResetHasTheRingForItselfWithAHandler) {
  Result r = explore({.preemptions = 2, .stale = 0, .signals = 1, .seconds = 10}, reset_beside_writer<Explored>(1));
  EXPECT_TRUE(r.proved()) << r;
  std::cout << r.executions << " executions\n";
}

TEST(Gate, WithoutLightFencesItIsRefuted) {
  Result r = explore({.preemptions = 2, .stale = 1, .seconds = 5}, reset_beside_writer<NoLightFence>(0));
  EXPECT_FALSE(r.passed());
  std::cout << r.executions << " executions: " << r.failure << "\n" ;
}

}  // namespace
}  // namespace ringside::model
