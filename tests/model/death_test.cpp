// The writer or the reader dies before any of its accesses; somebody else goes on with the ring.
#include "ring_model.hpp"

namespace ringside::model::death_test {
namespace {

using M = Explored;

void lock(Reader<M>& r, u64 who) {
  while (r.try_lock(who) != 0) M::pause();
}

// recover under the reader's lock, then two events more.
void next_owner(const Model<>& m, u32 writes) {
  Books& b = *m.b;
  b.depth = 0;
  for (u32 i = 1; i <= b.events; ++i)
    if (b.fate[i] == Fate::written && !b.promised[i]) b.fate[i] = Fate::begun;  // of a handler in what died
  Reader<M> r(b.ring);
  lock(r, 7);
  const Recovered done = recover<M>(b.ring);
  r.unlock();
  require(!done.corrupt, "a ring whose writer died can be recovered");
  m.new_writer();
  for (u32 i = 0; i < writes; ++i) m.write(most);
}

struct Plan {
  Shape shape = {};
  std::vector<u32> before = {};
  u32 read_before = 0;
  std::vector<u32> writes = {};
  std::vector<u32> handlers = {};
  u32 reads = 1;
  u32 afterwards = 2;
  u32 next_handler = 0;  // the size of an event by a handler of the next owner; 0: no handler comes
};

auto writer_dies(const Plan& plan) {
  return [=](World& world) {
    Model<> m(world, plan.shape);
    for (u32 size : plan.before) m.write(size);
    for (u32 i = 0; i < plan.read_before; ++i) m.read();
    world.spawn("writer", [=] {
      for (u32 size : plan.writes) m.write(size);
    });
    world.may_die("writer");
    m.handlers(world, plan.handlers);
    world.on_death("writer", "next owner", [=] { next_owner(m, plan.afterwards); });
    if (plan.next_handler != 0)
      world.signal("next owner", [=] {
        if (m.b->owner == 1) m.write(plan.next_handler);
      });
    if (plan.reads != 0)
      world.spawn("reader", [=] {
        Reader<M> r(m.b->ring);
        lock(r, 9);
        for (u32 i = 0; i < plan.reads; ++i) m.read(r);
        r.unlock();
      });
    world.after([=, &world] { m.balance(world.died("writer")); });
  };
}

TEST(Death, WriterThenRecover) {
  const Options o{.preemptions = 1, .stale = 0, .signals = 1, .seconds = 20};
  prove("writer dies, nobody reads", o,
        writer_dies({.shape = {3}, .before = {most, most}, .writes = {most, most}, .reads = 0, .afterwards = 3}));
  prove("writer dies beside a reader", o, writer_dies({.shape = {3}, .before = {most}, .writes = {most, most}}));
  prove("the same, 4 sub-buffers, full", o, writer_dies({.shape = {4}, .before = {most, most, most}, .writes = {most, most}}));
  prove("the same, discard mode", o, writer_dies({.shape = {3, true}, .before = {most}, .writes = {most, most}}));
  prove("on the reader page", o,
        writer_dies({.shape = {3}, .before = {half}, .read_before = 1, .writes = {half, half}, .reads = 2}));
  prove("with old values", {.preemptions = 1, .stale = 1, .seconds = 20},
        writer_dies({.shape = {3}, .before = {most}, .writes = {most, most}}));
}

TEST(Death, WriterInAPlainStore) {
  const Options one{.preemptions = 1, .stale = 0, .signals = 1, .seconds = 20},
      none{.preemptions = 0, .stale = 0, .signals = 1, .seconds = 20};
  prove("writer dies in a plain store", one,
        writer_dies({.shape = {3}, .before = {100}, .writes = {100}, .handlers = {100}}));
  prove("the same, on the reader page", one,
        writer_dies({.shape = {3}, .before = {100}, .read_before = 1, .writes = {100}, .handlers = {100}}));
  prove("with another event behind it", none,
        writer_dies({.shape = {3}, .before = {100}, .writes = {100, 100}, .handlers = {100}}));
  prove("the same, on the reader page", none,
        writer_dies({.shape = {3}, .before = {100}, .read_before = 1, .writes = {100, 100}, .handlers = {100}}));
  const Options two{.preemptions = 0, .stale = 0, .signals = 2, .seconds = 20};
  prove("with two handlers, discard mode", two,
        writer_dies({.shape = {3, true}, .before = {most, 100}, .writes = {100}, .handlers = {100, 100}}));
}

TEST(Death, WriterInAHandler) {
  const Options o{.preemptions = 0, .stale = 0, .signals = 2, .seconds = 20};
  prove("writer dies with a handler", o,
        writer_dies({.shape = {3}, .before = {most, most}, .writes = {most}, .handlers = {most}, .reads = 1}));
  prove("writer dies in a full ring", o,
        writer_dies({.shape = {3}, .before = {most}, .writes = {half}, .handlers = {most, most}, .reads = 0, .afterwards = 1}));
}

// What the dead one's handlers have counted on a sub-buffer must not pass for the count of the next owner's handlers there.
TEST(Death, WriterInAHandlerThenTheNextOnes) {
  const Options o{.preemptions = 0, .stale = 0, .signals = 2, .seconds = 20};
  prove("writer dies with a handler, the next owner has one, too", o,
        writer_dies({.shape = {3},
                     .before = {whole},
                     .writes = {100},
                     .handlers = {100},
                     .reads = 0,
                     .afterwards = 1,
                     .next_handler = 100}));
}

// The same for the dead one's reserve word: a clock that stands still, or is behind the dead one's, gives the next owner's
// events equal times.
TEST(Death, WriterThenTheNextOneAtTheSameTime) {
  const Options o{.preemptions = 0, .stale = 0, .signals = 2, .seconds = 20};
  prove("writer dies, the next owner writes at the same time", o,
        writer_dies({.shape = {.same_time = true},
                     .before = {whole},
                     .writes = {100},
                     .reads = 0,
                     .afterwards = 1,
                     .next_handler = 100}));
}

using Consume = Model<>::Consume;

auto reader_dies(Shape shape, std::vector<u32> before, std::vector<u32> writes, u32 reads, Consume way = Consume::peek) {
  return [=](World& world) {
    Model<> m(world, shape);
    for (u32 size : before) m.write(size);
    world.spawn("reader", [=] {
      Reader<M> r(m.b->ring);
      lock(r, 1);
      for (u32 i = 0; i < reads; ++i) m.read_and_consume(r, way);
      r.unlock();
    });
    world.may_die("reader");
    world.on_death("reader", "second reader", [=] {
      Reader<M> r(m.b->ring);
      if (const u64 holder = r.try_lock(2)) require(r.steal(holder, 2), "nobody else steals");
      m.read_and_consume(r, way);
      r.unlock();
    });
    if (!writes.empty())
      world.spawn("writer", [=] {
        for (u32 size : writes) m.write(size);
      });
    world.after([=] {
      Reader<M>(m.b->ring).mend();
      m.balance();
    });
  };
}

TEST(Death, ReaderThenSteal) {
  const Options o{.preemptions = 1, .stale = 1, .seconds = 20};
  prove("reader dies beside a writer", o, reader_dies({3}, {most, most}, {most}, 2));
  prove("the same, 4 sub-buffers", o, reader_dies({4}, {most, most, most}, {most}, 2));
  prove("the same, discard mode", o, reader_dies({3, true}, {most, most}, {most, most}, 2));
  prove("invariants at each access", {.preemptions = 1, .stale = 0, .seconds = 20},
        reader_dies({3, false, true}, {most, most}, {most, most}, 2));
}

// An event that was handed out and not consumed is the next reader's; a consumed one is not.
TEST(Death, ReaderBetweenItsEvents) {
  const Options o{.preemptions = 1, .stale = 1, .seconds = 20};
  prove("reader dies between two events", o, reader_dies({3}, {half, half}, {half}, 2, Consume::by_event));
  prove("the same, overwritten", o, reader_dies({3}, {half, half, most}, {half, most}, 1, Consume::by_event));
  prove("reader dies with a sub-buffer handed out", o, reader_dies({3}, {most, most}, {most}, 2, Consume::hand_out));
  prove("the same, behind a loss", o, reader_dies({3}, {most, most, most, most}, {most}, 1, Consume::hand_out));
}

}  // namespace
}  // namespace ringside::model::death_test
