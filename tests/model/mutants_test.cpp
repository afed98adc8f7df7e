// Each order weakened, each planted bug: the models must refute it. A mutant that survives says that the order is a guess or
// that the model is too weak. The line says after how many executions, and with which choices.
#include "ring_model.hpp"

namespace ringside::model::mutants_test {
namespace {

constexpr Order relaxed = Order::relaxed;

const Options old_values{.preemptions = 1, .stale = 1, .seconds = 20};
const Options one_handler{.preemptions = 0, .stale = 0, .signals = 1, .seconds = 20};

template <Orders O>
auto writer_and_reader(Shape shape, std::vector<u32> before, std::vector<u32> writes, u32 reads,
                       std::vector<u32> handlers = {}) {
  return [=](World& world) {
    Model<O> m(world, shape);
    for (u32 size : before) m.write(size);
    if (reads != 0)
      world.spawn("reader", [=] {
        Reader<Explored, O> r(m.b->ring);
        for (u32 i = 0; i < reads; ++i) m.read_and_consume(r);
      });
    world.spawn("writer", [=] {
      for (u32 size : writes) m.write(size);
    });
    m.handlers(world, handlers);
    world.after([=] { m.balance(); });
  };
}

template <Orders O>
auto iterator_beside_writer() {
  return [](World& world) {
    Model<O> m(world, {3});
    m.write(most);
    m.write(most);
    world.spawn("iterator", [=] { m.look_through(1); });
    world.spawn("writer", [=] { m.write(most); });
    world.after([=] { m.balance(); });
  };
}

// The reader gives its page back, the writer enters it; the iterator still copies it as the reader page.
// It was closed without padding, and is entered with more behind it.
template <Orders O>
auto iterator_on_a_page_given_back() {
  return [](World& world) {
    Model<O> m(world, {3});
    m.write(4068);
    m.write(most);
    m.read();
    m.write(most);
    m.write(half);
    world.spawn("iterator", [=] { m.look_through(1); });
    world.spawn("reader", [=] { m.read(); });
    world.spawn("writer", [=] {
      m.write(half);
      m.write(half);
      m.write(most);
    });
    world.after([=] { m.balance(); });
  };
}

template <Orders O>
auto stranger_looks_at_state() {
  return [](World& world) {
    Model<O> m(world, {4});
    for (int i = 0; i < 3; ++i) m.write(most);
    world.spawn("reader", [=] {
      for (int i = 0; i < 3; ++i) m.read();
    });
    world.spawn("stranger", [=] {
      const ReaderState s = Reader<Explored, O>(m.b->ring).state();
      const u64 next = reader_of(s.page).next;
      require(s.read == s.expected && (s.bytes != 0 ? s.read == next : next == 0 || s.read + 1 == next),
              "the state is of one moment");
    });
  };
}

// Each takes the lock once, and reads.
template <Orders O>
auto two_readers() {
  return [](World& world) {
    Model<O> m(world, {3});
    m.write(half);
    m.write(half);
    for (const u64 who : {1, 2})
      world.spawn(who == 1 ? "reader" : "other reader", [=] {
        Reader<Explored, O> r(m.b->ring);
        while (r.try_lock(who) != 0) Explored::pause();
        m.read_and_consume(r);
        r.unlock();
      });
    world.after([=] { m.balance(); });
  };
}

template <Orders O>
auto quiet_writer(u32 handlers) {
  return [=](World& world) {
    Model<O> m(world, {3});
    world.spawn("controller", [=] {
      Control& c = *m.b->ring.control;
      Explored::store(&c.gate, gate_off, Order::release);
      Explored::fence_heavy();
      if (Explored::load(&c.nest, O.quiet_observe) != 0) return;
      Record& rec = m.b->ring.record(1);
      const u64 done = Explored::load(&rec.committed, Order::relaxed);
      if (handlers == 0)
        require(committed_of(done).bytes == reserve_offset(Explored::load(&rec.reserve, Order::relaxed)),
                "all is published and seen");
      Explored::store(&rec.committed, u64{0}, Order::relaxed);
      Explored::load(&c.nest, Order::relaxed);
      Explored::load(&c.nest, Order::relaxed);
      require(Explored::load(&rec.committed, Order::relaxed) == 0, "a quiet writer touches nothing");
    });
    world.spawn("writer", [=] { m.write(half); });
    if (handlers != 0)
      world.signal(
          "writer", [=] { m.write(half); }, handlers);
  };
}

TEST(Mutants, Orders) {
  refute("commit_publish", old_values, writer_and_reader<Orders{.commit_publish = relaxed}>({3}, {}, {half}, 1));
  refute("commit_observe", old_values, writer_and_reader<Orders{.commit_observe = relaxed}>({3}, {}, {half}, 1));
  // The last event of the old sub-buffer must be open while a handler moves on: only then is it not published before.
  refute("advance_publish", {.preemptions = 1, .stale = 1, .signals = 1},
         writer_and_reader<Orders{.advance_publish = relaxed}>({3}, {half}, {half}, 2, {half}));
  refute("advance_observe", old_values, writer_and_reader<Orders{.advance_observe = relaxed}>({3}, {half}, {half, half}, 2));
  refute("enter_publish", old_values, iterator_beside_writer<Orders{.enter_publish = relaxed}>());
  refute("enter_observe", old_values, iterator_beside_writer<Orders{.enter_observe = relaxed}>());
  refute("state_publish", {.preemptions = 1, .stale = 2}, stranger_looks_at_state<Orders{.state_publish = relaxed}>());
  refute("state_observe", {.preemptions = 1, .stale = 2}, stranger_looks_at_state<Orders{.state_observe = relaxed}>());
  refute("quiet_publish", {.preemptions = 2, .stale = 1}, quiet_writer<Orders{.quiet_publish = relaxed}>(0));
  refute("quiet_observe", {.preemptions = 2, .stale = 1}, quiet_writer<Orders{.quiet_observe = relaxed}>(0));
  refute("lock_publish", {.preemptions = 0, .stale = 2}, two_readers<Orders{.lock_publish = relaxed}>());
  refute("slot_observe", {.preemptions = 2, .stale = 1, .seconds = 240},
         iterator_on_a_page_given_back<Orders{.slot_observe = relaxed}>());
}

TEST(Mutants, OfTheWriter) {
  refute("commit_before_payload", {.preemptions = 1, .stale = 0},
         writer_and_reader<Orders{.bug = Bug::commit_before_payload}>({3}, {half}, {half}, 2));
  refute("no_second_look", one_handler, writer_and_reader<Orders{.bug = Bug::no_second_look}>({3}, {}, {half}, 0, {half}));
  refute("lost_overrun", {.preemptions = 0}, writer_and_reader<Orders{.bug = Bug::lost_overrun}>({3}, {most, most}, {most}, 0));
  refute("lap_not_advanced", {.preemptions = 0},
         writer_and_reader<Orders{.bug = Bug::lap_not_advanced}>({3}, {most, most}, {most}, 0));
  refute("missed_moved", {.preemptions = 1, .stale = 0},
         writer_and_reader<Orders{.bug = Bug::missed_moved}>({3}, {most, most}, {most}, 1));
  refute("inferred_reader_page", {.preemptions = 0},
         writer_and_reader<Orders{.bug = Bug::inferred_reader_page}>({3}, {most, most}, {most}, 0));
  refute("overwrite_commit_page", {.preemptions = 0, .stale = 0, .signals = 2},
         writer_and_reader<Orders{.bug = Bug::overwrite_commit_page}>({3}, {}, {most}, 0, {most, most}));
  refute("handler_stays", one_handler, writer_and_reader<Orders{.bug = Bug::handler_stays}>({3}, {half}, {half}, 0, {half}));
  refute("void_store_stays", one_handler,
         writer_and_reader<Orders{.bug = Bug::void_store_stays}>({3}, {half}, {half}, 0, {half}));
  refute("reset_without_check", one_handler,
         writer_and_reader<Orders{.bug = Bug::reset_without_check}>({3}, {most}, {most}, 0, {most}));
  refute("no_second_gate", {.preemptions = 2, .stale = 0, .signals = 1}, quiet_writer<Orders{.bug = Bug::no_second_gate}>(1));
}

TEST(Mutants, OfTheReader) {
  refute("swap_before_intent", {.preemptions = 0, .stale = 0}, [](World& world) {
    constexpr Orders O{.bug = Bug::swap_before_intent};
    Model<O> m(world, {3});
    m.write(most);
    m.write(most);
    world.spawn("reader", [=] {
      Reader<Explored, O> r(m.b->ring);
      r.try_lock(1);
      m.read_and_consume(r);
    });
    world.may_die("reader");
    world.on_death("reader", "second reader", [=] {
      Reader<Explored, O> r(m.b->ring);
      if (const u64 holder = r.try_lock(2)) r.steal(holder, 2);
      m.read_and_consume(r);
    });
    world.after([=] { m.balance(); });
  });
}

// The same set-ups without a mutant: it is the mutant that fails, not the model.
TEST(Mutants, TheOriginalIsProved) {
  constexpr Orders O{};
  prove("one event", old_values, writer_and_reader<O>({3}, {}, {half}, 1));
  prove("the page moves on", old_values, writer_and_reader<O>({3}, {half}, {half, half}, 2));
  prove("iterator", old_values, iterator_beside_writer<O>());
  prove("state", {.preemptions = 1, .stale = 2}, stranger_looks_at_state<O>());
  prove("two readers", {.preemptions = 1, .stale = 2}, two_readers<O>());
  prove("quiet", {.preemptions = 2, .stale = 1}, quiet_writer<O>(0));
  prove("the last event of a sub-buffer", {.preemptions = 1, .stale = 1, .signals = 1},
        writer_and_reader<O>({3}, {half}, {half}, 2, {half}));
  prove("a page given back", {.preemptions = 2, .stale = 0, .seconds = 20}, iterator_on_a_page_given_back<O>());
  prove("quiet with a handler", {.preemptions = 2, .stale = 0, .signals = 1}, quiet_writer<O>(1));
  prove("a taken page", {.preemptions = 1, .stale = 0}, writer_and_reader<O>({3}, {most, most}, {most}, 1));
  prove("full of handlers", {.preemptions = 0, .stale = 0, .signals = 2},
        writer_and_reader<O>({3}, {}, {most}, 0, {most, most}));
}

}  // namespace
}  // namespace ringside::model::mutants_test
