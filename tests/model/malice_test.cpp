// A peer stores what it likes into any shared word. Everybody ends within its budget, and stays inside the two regions: the
// guard of each model fails an access elsewhere.
#include "ring_model.hpp"

namespace ringside::model::malice_test {
namespace {

// Explored, with a check of each address.
struct Guarded : Explored {
  inline static const Ring* ring = nullptr;
  inline static const void* own = nullptr;  // the writer itself
  inline static u64 own_size = 0;

  static void inside(const void* p, size_t size) {
    const auto at = reinterpret_cast<u64>(p);
    const auto within = [&](const void* region, u64 bytes) { return at >= u64(region) && at + size <= u64(region) + bytes; };
    if (!within(ring->control, control_size(ring->geometry)) && !within(ring->data, ring->geometry.data_size()) &&
        p != &nobody_waits && !within(own, own_size))
      fail("an access outside the ring");
  }
  template <class T>
  static T load(const T* p, Order o) {
    inside(p, sizeof(T));
    return Explored::load(p, o);
  }
  template <class T>
  static void store(T* p, T v, Order o) {
    inside(p, sizeof(T));
    Explored::store(p, v, o);
  }
  static bool cas(u64* p, u64& expected, u64 desired) {
    inside(p, 8);
    return Explored::cas(p, expected, desired);
  }
  static bool cas_local(u64* p, u64 expected, u64 desired) {
    inside(p, 8);
    return Explored::cas_local(p, expected, desired);
  }
  static void add_local(u64* p, u64 delta) {
    inside(p, 8);
    Explored::add_local(p, delta);
  }
  static void copy_in(void* to, const void* from, size_t size) {
    inside(from, size);
    Explored::copy_in(to, from, size);
  }
};

using Malicious = Model<Orders{}, Guarded>;

constexpr u64 all = ~u64{0};

// Each word of the ring, each of the values, at each access of `run`.
auto hostile(u32 strikes, void (*run)(const Malicious&)) {
  return [=](World& world) {
    static Ring where;  // a copy that nobody strikes
    Malicious m(world, {3});
    where = m.b->ring;
    Guarded::ring = &where;
    Guarded::own = &m.writer(), Guarded::own_size = sizeof m.writer();
    for (u32 i = 0; i < 3; ++i) m.write(most);
    Reader<Guarded> r(where);
    if (r.get_reader(false) == Got::data) {
    }
    m.write(most);
    Control& c = *where.control;
    ReaderState& state = c.state[c.reader_generation & 1];
    const Place tail = place_of(c.tail);
    Record& rec = where.record(tail.id);
    Record& other = where.record((tail.id + 1) % 3);
    world.malice(
        {&c.tail,        &c.commit,     &c.last_time,    &c.nest,   &c.intent,     &c.reader_generation,  &state.page,
         &state.bytes,   &state.events, &state.expected, &c.gate,   &c.mode,       &where.record(0).slot, &where.record(1).slot,
         &rec.reserve,   &rec.count,    &rec.committed,  &rec.base, &rec.real_end, &other.committed,      &other.reserve,
         &other.real_end},
        {0, all, all - 1, 0xFFFFF, 0x1000FFFFF, u64{1} << 20, u64{1} << 63, 0x3FFC, 0xFFF0, (u64{1} << 20) + 3, 2, 0x7FFFFFFF},
        strikes);
    world.spawn("victim", [=] { run(m); });
  };
}

const Options quick{.preemptions = 0, .stale = 0, .max_steps = 5000, .seconds = 20};

TEST(Malice, Reader) {
  const auto read = [](const Malicious& m) {
    Reader<Guarded> r(*Guarded::ring);
    (void)m;
    for (int i = 0; i < 3; ++i) {
      const Got got = r.get_reader(true);
      const ReaderView v = r.view();
      if (got == Got::data)
        require(v.id < 3 && v.begin <= v.end && v.end <= 4080 && v.begin % 4 == 0, "a view is inside its sub-buffer");
    }
  };
  prove("hostile words against a reader", quick, hostile(1, read));
}

TEST(Malice, Mend) {
  const auto read = [](const Malicious&) {
    Reader<Guarded> r(*Guarded::ring);
    r.mend();
    r.peek();
  };
  prove("hostile words against the repair", quick, hostile(1, read));
}

TEST(Malice, Iterator) {
  const auto look = [](const Malicious&) {
    alignas(8) u8 buffer[4096];
    Iterator<Guarded> it(*Guarded::ring, buffer);
    for (int i = 0; i < 4; ++i) {
      const Got got = it.next();
      if (got == Got::data)
        require(it.view().id < 3 && it.view().begin <= it.view().end && it.view().end <= 4080 && it.view().begin % 4 == 0,
                "a view is inside its sub-buffer");
    }
  };
  prove("hostile words against an iterator", quick, hostile(1, look));
}

TEST(Malice, CountersAndRecover) {
  prove("hostile words against counters", quick, hostile(1, [](const Malicious&) { counters<Guarded>(*Guarded::ring); }));
  prove("hostile words against recover", quick, hostile(1, [](const Malicious&) { recover<Guarded>(*Guarded::ring); }));
}

TEST(Malice, PublishLeft) {
  const auto publish = [](const Malicious& m) { m.writer().publish_left(); };
  prove("hostile words against code that publishes what was left", quick, hostile(1, publish));
}

TEST(Malice, Writer) {
  const auto write = [](const Malicious& m) {
    auto& w = m.writer();
    for (u32 size : {half, half, most})
      if (const Reservation s = w.reserve(size)) {
        require(s.payload >= Guarded::ring->data + 4096 &&
                    s.payload + size <= Guarded::ring->data + Guarded::ring->geometry.data_size(),
                "a payload is inside the data region");
        w.commit(s);
      }
    if (const Reservation s = w.reserve(half)) w.discard(s);
  };
  prove("hostile words against the writer", quick, hostile(1, write));
}

}  // namespace
}  // namespace ringside::model::malice_test
