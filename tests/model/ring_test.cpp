// The real writer, its handlers, reader and iterator: searched completely within small bounds, in rings of 2 to 4 slots.
#include "ring_model.hpp"

namespace ringside::model::ring_test {
namespace {

using M = Explored;

struct Plan {
  Shape shape = {};
  std::vector<u32> before = {};  // written before anybody else starts
  u32 read_before = 0;
  std::vector<u32> writes = {};
  std::vector<u32> handlers = {};  // Model::handlers
  u32 reads = 2;
  bool meta = false;
  u32 iterated = 0;  // sub-buffers of an iterator
};

auto run(const Plan& plan) {
  return [=](World& world) {
    Model<> m(world, plan.shape);
    for (u32 size : plan.before) m.write(size);
    for (u32 i = 0; i < plan.read_before; ++i) m.read();
    if (plan.iterated != 0) world.spawn("iterator", [=] { m.look_through(plan.iterated); });
    if (plan.reads != 0)
      world.spawn("reader", [=] {
        for (u32 i = 0; i < plan.reads; ++i) m.read(plan.meta);
      });
    if (!plan.writes.empty())
      world.spawn("writer", [=] {
        for (u32 size : plan.writes) size != 0 ? (void)m.write(size) : m.take_back(half);
      });
    m.handlers(world, plan.handlers);
    world.after([=] { m.balance(); });
  };
}

const Options wide{.preemptions = 2, .stale = 1, .seconds = 20};
const Options narrow{.preemptions = 1, .stale = 1, .signals = 1, .seconds = 20};
const Options deep{.preemptions = 1, .stale = 0, .signals = 2, .seconds = 20};

TEST(Ring, Overwrite) {
  prove("overwrite, 3 sub-buffers, 4 writes", wide, run({.shape = {3}, .writes = {most, most, most, most}}));
  prove("overwrite, 4 sub-buffers, 3 before, 3 writes", wide,
        run({.shape = {4}, .before = {most, most, most}, .writes = {most, most, most}}));
  prove("overwrite, 5 sub-buffers, 4 before, 2 writes", wide,
        run({.shape = {5}, .before = {most, most, most, most}, .writes = {most, most}}));
  prove("overwrite, two events each", wide, run({.shape = {3}, .before = {half, half}, .writes = {half, half, half}}));
  prove("overwrite, no padding", wide, run({.shape = {3}, .before = {whole}, .writes = {whole, whole, whole}}));
}

TEST(Ring, Discard) {
  prove("discard, 3 sub-buffers", wide, run({.shape = {3, true}, .before = {most}, .writes = {most, most, most}}));
  prove("discard, 4 sub-buffers", wide, run({.shape = {4, true}, .before = {most, most}, .writes = {most, most, most}}));
  prove("discard, 5 sub-buffers", wide, run({.shape = {5, true}, .before = {most, most, most, most}, .writes = {most, most}}));
}

TEST(Ring, PartialReaderPage) {
  prove("the reader on the writer's page", wide,
        run({.shape = {3}, .before = {half}, .read_before = 1, .writes = {half, half}, .reads = 3}));
  prove("the same, full ring", wide,
        run({.shape = {3}, .before = {half}, .read_before = 1, .writes = {half, most, most}, .reads = 2}));
}

TEST(Ring, InvariantsAtEachAccess) {
  prove("invariants, overwrite", {.preemptions = 2, .stale = 0},
        run({.shape = {3, false, true}, .writes = {most, most, most}}));
  prove("invariants, handler", {.preemptions = 1, .stale = 0, .signals = 1},
        run({.shape = {3, false, true}, .before = {most}, .writes = {most, most}, .handlers = {most}}));
}

TEST(Ring, OneHandler) {
  prove("a handler anywhere", narrow, run({.shape = {3}, .writes = {half, half, half}, .handlers = {half}, .reads = 1}));
  prove("a handler that moves the page", narrow,
        run({.shape = {3}, .before = {most, most}, .writes = {most}, .handlers = {most}}));
  prove("a handler in discard mode", narrow, run({.shape = {3, true}, .before = {most}, .writes = {most}, .handlers = {most}}));
  prove("a handler that takes back", narrow, run({.shape = {3}, .writes = {half, half}, .handlers = {0}, .reads = 1}));
  prove("a handler in a take back", narrow, run({.shape = {3}, .writes = {half, 0, half}, .handlers = {half}, .reads = 1}));
}

TEST(Ring, TwoHandlers) {
  const Options two{.preemptions = 0, .stale = 0, .signals = 2, .seconds = 20};
  prove("two handlers, nested or not", two,
        run({.shape = {3}, .before = {most}, .writes = {most}, .handlers = {most, half}, .reads = 1}));
  prove("two handlers fill the ring: commit overrun", two,
        run({.shape = {3}, .writes = {most}, .handlers = {most, most}, .reads = 0}));
  prove("two handlers, 4 sub-buffers", two,
        run({.shape = {4}, .before = {most, most, most}, .writes = {most}, .handlers = {most, most}, .reads = 0}));
  prove("two handlers, one takes back", two,
        run({.shape = {3, true}, .before = {half}, .writes = {half}, .handlers = {most, 0}, .reads = 0}));
}

// Everybody reserves by the usual way, a plain store: the sub-buffer has been begun, and there is room.
TEST(Ring, PlainStore) {
  const Options two{.preemptions = 0, .stale = 0, .signals = 2, .seconds = 20};
  const Options three{.preemptions = 0, .stale = 0, .signals = 3, .seconds = 60};
  prove("a handler in a plain store", narrow, run({.shape = {3}, .before = {100}, .writes = {100, 100}, .handlers = {100}}));
  prove("two handlers in a plain store", two,
        run({.shape = {3}, .before = {100}, .writes = {100, 100}, .handlers = {100, 100}}));
  prove("three handlers in a plain store", three,
        run({.shape = {4}, .before = {100}, .writes = {100}, .handlers = {100, 100, 100}, .reads = 0}));
  prove("the last place of a full ring, discard mode", two,
        run({.shape = {3, true}, .before = {most, 100}, .writes = {100, 100}, .handlers = {100, 100}, .reads = 1}));
  prove("the same, three handlers", three,
        run({.shape = {3, true}, .before = {most, 100}, .writes = {100}, .handlers = {100, 100, 100}, .reads = 0}));
  prove("handlers that fill the ring", three,
        run({.shape = {3}, .before = {100}, .writes = {100}, .handlers = {most, most, 100}, .reads = 0}));
  prove("handlers that take back", two,
        run({.shape = {3}, .before = {100}, .writes = {100, 0, 100}, .handlers = {0, 100}, .reads = 0}));
  prove("on the reader page", narrow,
        run({.shape = {3}, .before = {100}, .read_before = 1, .writes = {100, 100}, .handlers = {100}}));
}

TEST(Ring, Iterator) {
  prove("iterator beside an overwriting writer", wide,
        run({.shape = {3}, .before = {most, most}, .writes = {most, most}, .reads = 0, .iterated = 2}));
  prove("iterator beside a reader", wide, run({.shape = {3}, .before = {most, most, most}, .reads = 2, .iterated = 3}));
  prove("iterator on a page that the reader flags", wide,
        run({.shape = {3}, .before = {most, most, most, most, most}, .reads = 1, .meta = true, .iterated = 2}));
  prove("iterator on a reader page that is given back and entered", {.preemptions = 2, .stale = 0, .seconds = 20},
        run({.shape = {3},
             .before = {4068, most, most, half},
             .read_before = 0,
             .writes = {half, half, most},
             .reads = 2,
             .iterated = 1}));
}

// It comes back to a page that was written on since, in its slot or taken by the reader.
TEST(Ring, IteratorComesBack) {
  struct Follow {
    std::vector<u32> before{}, writes{};
    u32 read_before = 0, reads = 0, looks = 2;
    bool meta = false;
    u32 subbufs = 3;
    std::vector<u32> handlers{};
  };
  const auto back = [](const Follow& p) {
    return [=](World& world) {
      Model<> m(world, {p.subbufs});
      for (const u32 size : p.before) m.write(size);
      for (u32 i = 0; i < p.read_before; ++i) m.read();
      world.spawn("iterator", [=] { m.look_through(~0u, p.looks, p.reads == 0 && p.subbufs == 5); });
      if (p.reads != 0)
        world.spawn("reader", [=] {
          for (u32 i = 0; i < p.reads; ++i) m.read(p.meta);
        });
      world.spawn("writer", [=] {
        for (const u32 size : p.writes) m.write(size);
      });
      m.handlers(world, p.handlers);
      world.after([=] { m.balance(); });
    };
  };
  const Options two{.preemptions = 2, .stale = 0, .signals = 0, .seconds = 20},
      stale{.preemptions = 1, .stale = 1, .signals = 0, .seconds = 20};
  prove("appended beside it", {.preemptions = 2, .stale = 1, .signals = 0, .seconds = 20},
        back({.before = {100}, .writes = {100, 100}}));
  prove("appended, and the writer goes on", two,
        back({.before = {half}, .writes = {half, half, half}, .looks = 3, .subbufs = 5}));
  prove("appended, and the reader takes it", stale, back({.before = {100}, .writes = {100, half, half}, .reads = 2}));
  prove("appended to the reader page", two,
        back({.before = {100}, .writes = {100, most}, .read_before = 1, .reads = 2, .looks = 3}));
  prove("once round", two, back({.before = {half}, .writes = {half, most, most, most}, .looks = 3}));
  prove("flags on a page that it follows", two,
        back({.before = {half, half, most, most}, .writes = {100, 100}, .reads = 2, .meta = true}));
  prove("a handler beside it", {.preemptions = 1, .stale = 0, .signals = 1, .seconds = 20},
        back({.before = {half}, .writes = {100, half}, .reads = 1, .handlers = {half}}));
}

TEST(Ring, StateIsOfOneMoment) {
  prove("a stranger looks at the reader's state", {.preemptions = 2, .stale = 2}, [](World& world) {
    Model<> m(world, {4});
    for (int i = 0; i < 3; ++i) m.write(most);
    world.spawn("reader", [=] {
      for (int i = 0; i < 3; ++i) m.read();
    });
    world.spawn("stranger", [=] {
      const ReaderState s = Reader<M>(m.b->ring).state();
      const u64 next = reader_of(s.page).next;
      require(s.read == s.expected && (s.bytes != 0 ? s.read == next : next == 0 || s.read + 1 == next),
              "the state is of one moment");
    });
    world.after([=] { m.balance(); });
  });
}

}  // namespace
}  // namespace ringside::model::ring_test
