// The gate: a controller that closes it and then sees nest = 0 behind a heavy fence has the ring for itself.
#include "ring_model.hpp"

namespace ringside::model::gate_test {
namespace {

using E = Explored;

// Explored with the light fences left out: what they are for must break.
struct NoLightFence : Explored {
  static void fence_light() {}
};

// As reset in src/instance: gate off, heavy fence, nest = 0, then all words back to 0 and the gate open again.
template <class M>
auto reset_beside_writer(u32 handlers, bool nest_too = false, bool given_up = false) {
  return [=](World& world) {
    Model<Orders{}, M> m(world, {.subbufs = 3});
    m.write(most);
    world.spawn("controller", [=] {
      Control& c = *m.b->ring.control;
      if (given_up) E::store(&c.gate, gate_moved, Order::release);
      E::store(&c.gate, gate_off | (given_up ? gate_moved : 0), Order::release);
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
        if (nest_too) E::store(&c.nest, u64{0}, Order::relaxed);
        for (u32 id = 0; id < g.nr_subbufs(); ++id) {
          E::store(&m.b->ring.record(id).reserve, u64{0}, Order::relaxed);
          E::store(&m.b->ring.record(id).count, u64{0}, Order::relaxed);
          E::store(&m.b->ring.record(id).committed, u64{0}, Order::relaxed);
          E::store(&m.b->ring.record(id).base, u64{0}, Order::relaxed);
          E::store(&m.b->ring.record(id).slot, u64{0}, Order::relaxed);
          E::store(&m.b->ring.record(id).real_end, u64{0}, Order::relaxed);
        }
        for (u64* word : words) require(E::load(word, Order::relaxed) == 0, "nobody touches a ring that is reset");
        for (u32 id = 0; id < g.nr_subbufs(); ++id) {
          const Record& at = m.b->ring.record(id);
          for (const u64* word : {&at.committed, &at.reserve, &at.base})
            require(E::load(word, Order::relaxed) == 0, "nobody touches a sub-buffer that is reset");
        }
      }
    });
    world.spawn("writer", [=] {
      m.write(most);
      m.write(most);
    });
    if (handlers != 0)
      world.signal(
          "writer", [=] { m.write(most); }, handlers);
    world.after([=] { require(m.b->ring.control->nest == 0, "nest is 0 when nobody writes"); });
  };
}

// After a reset the gate opens, and a writer that finds it open goes on in the new ring.
template <Orders O>
auto reset_and_go_on(u32 handlers, bool publishes = true) {
  return [=](World& world) {
    Model<O> m(world, {.subbufs = 5});  // so that nothing is overwritten
    u64* const before = world.make<u64>();
    bool* const reset = world.make<bool>();
    m.write(half);
    world.spawn("controller", [=] {
      const Ring& ring = m.b->ring;
      Control& c = *ring.control;
      E::store(&c.gate, gate_off, Order::release);
      E::fence_heavy();
      if (E::load(&c.nest, Order::acquire) == 0) {
        const auto zero = [](u64* from, u64* to) {
          for (; from != to; ++from) E::store(from, u64{0}, Order::relaxed);
        };
        if (publishes) m.writer().publish_left();
        *reset = true;
        E::store(&c.tail, u64{0}, Order::relaxed);
        zero(&c.last_time, &c.commit_overrun);
        for (u32 id = 0; id < ring.geometry.nr_subbufs(); ++id) {
          *before += committed_of(E::load(&ring.record(id).committed, Order::relaxed)).events;
          zero(&ring.record(id).slot, &ring.record(id + 1).slot);
        }
      }
      E::store(&c.gate, u64{0}, Order::release);
    });
    world.spawn("writer", [=] {
      m.write(half);
      m.write(half);
    });
    world.signal("writer", [=] { m.write(half); }, handlers);
    world.after([=] {
      Reader<E, O> r(m.b->ring);
      while (m.read_and_consume(r)) {
      }
      u64 written = 0;
      for (u32 i = 1; i <= m.b->events; ++i) written += m.b->fate[i] == Fate::written;
      // Without a reset, what a handler has left at the closed gate waits for the next event.
      if (handlers != 0 && !*reset) return;
      require(*before + m.b->read == written, "each event stood in the ring before the reset, or is read after it");
      require(counters<E>(m.b->ring).written == m.b->read, "the new ring's counters begin with 0");
      if (const char* what = broken<E>(m.b->ring)) fail("does not hold: %s", what);
    });
  };
}

TEST(Gate, AWriterGoesOnAfterAReset) {
  prove("a reset and the writer's next events", {.preemptions = 2, .stale = 2}, reset_and_go_on<Orders{}>(0));
  prove("the same with a handler", {.preemptions = 2, .stale = 0, .signals = 1}, reset_and_go_on<Orders{}>(1));
  refute("what a handler has left is not published", {.preemptions = 2, .stale = 0, .signals = 1},
         reset_and_go_on<Orders{}>(1, false));
  refute("gate_observe", {.preemptions = 2, .stale = 2}, reset_and_go_on<Orders{.gate_observe = Order::relaxed}>(0));
}

TEST(Gate, ResetHasTheRingForItself) {
  prove("reset beside a writer", {.preemptions = 2, .stale = 1}, reset_beside_writer<Explored>(0));
  prove("the same with a handler", {.preemptions = 2, .stale = 0, .signals = 1}, reset_beside_writer<Explored>(1));
  prove("a ring that was given up", {.preemptions = 2, .stale = 0, .signals = 1},
        reset_beside_writer<Explored>(1, false, true));
  refute("without light fences", {.preemptions = 2, .stale = 1}, reset_beside_writer<NoLightFence>(0));
  refute("a reset that clears nest", {.preemptions = 2, .stale = 0}, reset_beside_writer<Explored>(0, true));
}

// ---- give up: the thread gets another ring, and comes back to this one no more
// -----------------------------------------------

template <Orders O>
auto give_up_beside_writer(u32 handlers, bool parked) {
  return [=](World& world) {
    Model<O> m(world, {3});
    m.write(100);
    m.read();
    if (parked) E::store(&m.b->ring.control->gate, gate_park(place_of(m.b->ring.control->commit).position), Order::release);
    world.spawn("controller", [=] {
      u64 gate = E::load(&m.b->ring.control->gate, Order::relaxed);
      while (!E::cas(&m.b->ring.control->gate, gate, gate | gate_moved)) {
      }
    });
    world.spawn("writer", [=] {
      m.write(100);
      m.write(100);
    });
    world.signal("writer", [=] { m.write(100); }, handlers);
    world.after([=] {
      u32 written = 0;
      for (u32 i = 1; i <= m.b->events; ++i) written += m.b->fate[i] == Fate::written;
      require(counters<E>(m.b->ring).written == written, "what was written before a ring is given up can be read");
      require(m.b->ring.control->nest == 0, "nobody is left inside");
    });
  };
}

TEST(Gate, GiveUp) {
  for (const bool parked : {false, true}) {
    prove("a ring is given up", {.preemptions = 1, .stale = 0, .signals = 1}, give_up_beside_writer<Orders{}>(1, parked));
    prove("between two handlers", {.preemptions = 1, .stale = 0, .signals = 2, .seconds = 20},
          give_up_beside_writer<Orders{}>(2, parked));
  }
  refute("what a handler left stays", {.preemptions = 1, .stale = 0, .signals = 1},
         give_up_beside_writer<Orders{.bug = Bug::moved_keeps_out}>(1, false));
}

// ---- park: the memory of a sub-buffer that is read to its end goes, while its writer sleeps ---------------------------------

// The steps of RingView::park; punching the hole is a store of zeros. `look_at_reserve`: also asks whether anything is reserved
// and not published: a handler may have left something for the writer's second look.
template <class M>
void park(const Model<Orders{}, M>& m, bool look_at_reserve) {
  const Ring& ring = m.b->ring;
  Control& c = *ring.control;
  Reader<E> reader(ring);
  const ReaderState at = reader.state();
  const ReaderPlace own = reader_of(at.page);
  const Place commit = place_of(E::load(&c.commit, Order::acquire));
  if (own.next != commit.position + 1 || own.id != commit.id) return;
  const u64 value = gate_park(commit.position);
  Record& rec = ring.record(own.id);
  const u64 committed = E::load(&rec.committed, Order::acquire);
  const auto quiet = [&] {
    u64 open = 0;
    if (!E::cas(&c.gate, open, value) && open != value) return false;
    E::fence_heavy();
    return E::load(&c.nest, Order::acquire) == 0;
  };
  if (committed_of(committed).bytes == at.bytes && quiet() && E::load(&rec.committed, Order::acquire) == committed &&
      place_of(E::load(&c.tail, Order::acquire)) == commit &&
      (!look_at_reserve || reserve_offset(E::load(&rec.reserve, Order::relaxed)) == at.bytes)) {
    E::store(&ring.header(own.id).time_stamp, u64{0}, Order::relaxed);
    for (u32 event = 0; event < 416; event += 104)
      for (u32 word : {0u, 4u, 100u})
        E::store(reinterpret_cast<u32*>(ring.subbuf(own.id) + 16 + event + word), 0u, Order::relaxed);
    return;
  }
  u64 parked = value;
  E::cas(&c.gate, parked, 0);
}

template <class M>
auto park_beside_writer(u32 handlers, bool look_at_reserve) {
  return [=](World& world) {
    Model<Orders{}, M> m(world, {3});
    m.write(100);
    m.read();
    world.spawn("consumer", [=] {
      if (handlers != 0) m.read();
      park(m, look_at_reserve);
      m.read();
    });
    world.spawn("writer", [=] {
      m.write(100);
      m.write(100);
    });
    if (handlers != 0) world.signal("writer", [=] { m.write(100); });
    world.after([=] { m.balance(); });
  };
}

TEST(Gate, Park) {
  prove("park beside a writer", {.preemptions = 2, .stale = 1}, park_beside_writer<Explored>(0, false));
  prove("park beside a handler", {.preemptions = 1, .stale = 1, .signals = 1}, park_beside_writer<Explored>(1, true));
  refute("without light fences", {.preemptions = 2, .stale = 1}, park_beside_writer<NoLightFence>(0, false));
  refute("without a check of the reserve word", {.preemptions = 1, .stale = 0, .signals = 1, .seconds = 20},
         park_beside_writer<Explored>(1, false));
}

// ---- wake -------------------------------------------------------------------------------------------------------------------

struct Bell {
  u64* waits;
  u64* rung;
};

// The waiter says that it waits, fences, looks and then sleeps; the writer commits and looks whether somebody waits.
template <class M>
auto sleeper(bool percent, bool handler, bool heavy = true) {
  return [=](World& world) {
    auto* bell = world.make<Bell>();
    bell->waits = world.make<u64>();
    bell->rung = world.make<u64>();
    auto* asleep = world.make<bool>();
    Doorbell door{&nobody_waits, &nobody_waits,
                  [](void* p) noexcept { E::store(static_cast<Bell*>(p)->rung, u64{1}, Order::release); }, bell};
    (percent ? door.percent : door.any) = bell->waits;
    Model<Orders{}, M> m(world, {3}, door);
    if (percent) m.write(most);
    world.spawn("waiter", [=] {
      E::store(bell->waits, u64{1}, Order::relaxed);
      if (heavy) E::fence_heavy();
      Control& c = *m.b->ring.control;
      const bool news = percent ? place_of(E::load(&c.commit, Order::acquire)).position != 0
                                : committed_of(E::load(&m.b->ring.record(1).committed, Order::acquire)).events != 0;
      *asleep = !news;
    });
    world.spawn("writer", [=] { m.write(percent ? most : 100); });
    if (handler) world.signal("writer", [=] { m.write(100); });
    world.after([=] { require(!*asleep || *bell->rung == 1, "nobody sleeps on an event that is there"); });
  };
}

TEST(Gate, Wake) {
  prove("a sleeper and a commit", {.preemptions = 2, .stale = 2}, sleeper<Explored>(false, false));
  prove("a sleeper and a handler", {.preemptions = 2, .stale = 1, .signals = 1, .seconds = 20}, sleeper<Explored>(false, true));
  prove("a sleeper on a percentage", {.preemptions = 2, .stale = 2}, sleeper<Explored>(true, false));
  refute("without light fences", {.preemptions = 2, .stale = 2}, sleeper<NoLightFence>(false, false));
  refute("a percentage without light fences", {.preemptions = 2, .stale = 2}, sleeper<NoLightFence>(true, false));
  refute("without the heavy fence", {.preemptions = 2, .stale = 2}, sleeper<Explored>(false, false, false));
}

}  // namespace
}  // namespace ringside::model::gate_test
