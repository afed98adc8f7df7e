// Threads that share the rings of CPUs, under every schedule, migration, signal and death.
#include "cpu_model.hpp"

namespace ringside::model::cpu_test {
namespace {

constexpr Options sc(u32 preemptions) { return {.preemptions = preemptions, .stale = 0}; }

TEST(Cpu, TwoThreads) {
  prove("2 threads", sc(3), on_cpus({.writes = {{half, half}, {half, half}}}));
  prove("2 threads, full", sc(3), on_cpus({.before = {half, half, half, half}, .writes = {{half, half}, {half}}}));
  prove("2 threads, discard", sc(3),
        on_cpus({.shape = {.discard = true}, .before = {half, half, half}, .writes = {{half, half}, {half}}}));
  prove("events of several sizes", sc(3), on_cpus({.before = {half}, .writes = {{half, small}, {whole}}}));
  prove("one event fills a sub-buffer", sc(3), on_cpus({.before = {whole}, .writes = {{whole}, {whole}}}));
  prove("invariants at each access", sc(2),
        on_cpus({.shape = {.checked = true}, .before = {half}, .writes = {{half, half}, {most, half}}}));
  prove("3 threads", sc(2), on_cpus({.before = {half, half, half}, .writes = {{half}, {half}, {half}}}));
  prove("the clock is read outside", sc(3),
        on_cpus({.shape = {.counter = true}, .before = {half}, .writes = {{half, small}, {half}}}));
}

TEST(Cpu, Clock) {
  prove("the clock jumps", sc(2), on_cpus({.jumps = 1, .before = {half, half}, .writes = {{half, half}, {half}}}));
  prove("the clock jumps twice", sc(1), on_cpus({.jumps = 2, .before = {half}, .writes = {{half, small}, {half}}}));
  prove("a clock that is read outside jumps", sc(2),
        on_cpus({.shape = {.counter = true}, .jumps = 1, .before = {half, half}, .writes = {{half, half}, {half}}}));
  prove("the clock is young", sc(1),
        on_cpus({.shape = {.time = 1000}, .before = {half, half}, .writes = {{half, half}, {half}}}));
}

TEST(Cpu, ClockOutside) {
  const CpuShape outside{.counter = true};
  prove("2 threads, full", sc(2), on_cpus({.shape = outside, .before = {half, half, half, half}, .writes = {{half, half}, {half}}}));
  prove("discard", sc(3),
        on_cpus({.shape = {.discard = true, .counter = true}, .before = {half, half, half}, .writes = {{half, half}, {half}}}));
  prove("handlers", {.preemptions = 0, .stale = 0, .signals = 2},
        on_cpus({.shape = outside, .before = {half, small}, .writes = {{small, half}}, .handlers = {small, too_big}}));
  prove("a handler beside a thread", {.preemptions = 1, .stale = 0, .signals = 1},
        on_cpus({.shape = outside, .before = {half, small}, .writes = {{small, half}, {small}}, .handlers = {half}}));
  prove("migration", sc(1),
        on_cpus({.shape = {.cpus = 2, .counter = true}, .migrations = 1, .before = {half, half}, .writes = {{half}, {half}}}));
  prove("deaths", sc(1), on_cpus({.shape = outside, .before = {half, small}, .writes = {{small, half}, {half}}, .deaths = true}));
  prove("reader", sc(2), on_cpus({.shape = outside, .before = {half, half}, .writes = {{half, half}, {half}}, .reads = 2}));
  prove("by the stopwatch", sc(2),
        on_cpus({.shape = {.counter = true, .watched = true}, .before = {half, small}, .writes = {{small, half}, {half}}}));
  prove("old values", {.preemptions = 1, .stale = 1},
        on_cpus<Orders{}, Machine::arm64>({.shape = outside, .before = {half, half}, .writes = {{half, half}, {half}}, .reads = 2}));
}

TEST(Cpu, Reader) {
  prove("reader", sc(2), on_cpus({.before = {half, half, half}, .writes = {{half, half}, {half}}, .reads = 2}));
  prove("reader that flags", sc(2),
        on_cpus({.before = {whole, whole, half}, .writes = {{half, half}}, .reads = 2, .meta = true}));
  prove("reader, discard", sc(2),
        on_cpus({.shape = {.discard = true}, .before = {whole, half}, .writes = {{half}, {half}}, .reads = 2}));
  prove("reader on the page of the tail", sc(2),
        on_cpus({.before = {small}, .read_before = 1, .writes = {{half, half}, {half}}, .reads = 2}));
  prove("invariants at each access", sc(1),
        on_cpus({.shape = {.checked = true}, .before = {half, half, half}, .writes = {{half, half}, {half}}, .reads = 2}));
}

TEST(Cpu, Migration) {
  prove("migration", sc(2),
        on_cpus({.shape = {.cpus = 2}, .migrations = 1, .before = {half, half, half}, .writes = {{half}, {half}}}));
  prove("migration to a CPU that is busy", sc(2),
        on_cpus({.shape = {.cpus = 2}, .on = {0, 1}, .migrations = 1, .before = {half}, .writes = {{whole}, {half}}}));
  prove("2 migrations", sc(1),
        on_cpus({.shape = {.cpus = 2}, .on = {0, 1}, .migrations = 2, .before = {half}, .writes = {{half}, {half}}}));
  prove("migration beside a reader", sc(1),
        on_cpus({.shape = {.cpus = 2},
                 .on = {0, 1},
                 .migrations = 1,
                 .before = {whole, half},
                 .writes = {{half, half}, {half}},
                 .reads = 1}));
}

TEST(Cpu, Signal) {
  prove("a handler", {.preemptions = 0, .stale = 0, .signals = 2},
        on_cpus({.before = {half, half, half}, .writes = {{half, half}}, .handlers = {half, most}}));
  prove("a handler beside a thread", {.preemptions = 1, .stale = 0, .signals = 1},
        on_cpus({.before = {half, half, half}, .writes = {{half, half}, {half}}, .handlers = {half}}));
  prove("a handler beside a reader", {.preemptions = 1, .stale = 0, .signals = 1},
        on_cpus({.before = {half, half, half}, .writes = {{half, half}}, .handlers = {half}, .reads = 1}));
}

TEST(Cpu, Death) {
  prove("death", sc(2), on_cpus({.before = {half, half, half}, .writes = {{half, half}, {half}}, .deaths = true}));
  prove("2 deaths", {.preemptions = 1, .stale = 0, .deaths = 2},
        on_cpus({.before = {half, half, half}, .writes = {{half}, {whole}}, .deaths = true}));
  prove("death, discard", sc(2),
        on_cpus({.shape = {.discard = true}, .before = {half, half}, .writes = {{half, half}, {half}}, .deaths = true}));
  prove("death beside a reader", sc(1),
        on_cpus({.before = {half, half, half}, .writes = {{half, half}, {half}}, .reads = 2, .deaths = true}));
  prove("death in a handler", {.preemptions = 1, .stale = 0, .signals = 1},
        on_cpus({.before = {half, half, half}, .writes = {{half}, {half}}, .handlers = {half}, .deaths = true}));
}

TEST(Cpu, Iterator) {
  prove("iterator", sc(2), on_cpus({.before = {half, half, half}, .writes = {{half}, {whole}}, .looks = 2}));
  prove("iterator beside a reader that flags", sc(2),
        on_cpus({.before = {whole, whole, half, half, half}, .writes = {{half}}, .reads = 1, .meta = true, .looks = 2}));
  prove("iterator beside a reader", sc(1),
        on_cpus({.before = {half, half, half}, .writes = {{half}, {whole}}, .reads = 2, .looks = 3}));
}

TEST(Cpu, ReaderDies) {
  prove("reader dies", sc(1),
        on_cpus({.before = {half, half, half}, .writes = {{half, half}}, .reads = 2, .reader_dies = true}));
  prove("reader dies, discard", sc(1),
        on_cpus(
            {.shape = {.discard = true}, .before = {whole, half}, .writes = {{half, half}}, .reads = 2, .reader_dies = true}));
}

TEST(Cpu, Restart) {
  prove("restart", sc(2), on_cpus({.before = {half, half, half}, .writes = {{half, half}}, .reads = 1, .restart = true}));
  prove("restart, discard", sc(2),
        on_cpus({.shape = {.discard = true}, .before = {half, half, half}, .writes = {{half, half}}, .restart = true}));
}

TEST(Cpu, GiveBack) {
  CpuPlan plan = giving_back();
  prove("give back", sc(2), on_cpus(plan));
  plan.reader_dies = true;
  prove("reader dies while it gives back", sc(1), on_cpus(plan));
  plan = giving_back();
  plan.writes = {{whole, whole}, {half}};
  prove("give back beside 2 threads", sc(2), on_cpus(plan));
  plan = giving_back();
  plan.looks = 2;
  prove("give back beside an iterator", sc(1), on_cpus(plan));
  plan = giving_back();
  plan.reads = 1;
  prove("read and give back", sc(2), on_cpus(plan));
  prove("old values", {.preemptions = 1, .stale = 1}, on_cpus<Orders{}, Machine::arm64>(plan));
}

TEST(Cpu, Wake) { prove("a sleeper hears of an event", {.preemptions = 2, .stale = 2}, sleeper); }

TEST(Cpu, OldValues) {
  constexpr Machine arm64 = Machine::arm64;
  const Options old{.preemptions = 1, .stale = 1}, two{.preemptions = 2, .stale = 1};
  prove("old values, reader", two,
        on_cpus<Orders{}, arm64>({.before = {half, half}, .writes = {{half}, {half}}, .reads = 1}));
  prove("old values, full", old,
        on_cpus<Orders{}, arm64>({.before = {half, half, half}, .writes = {{half, half}, {half}}, .reads = 2}));
  prove("old values, x86", old, on_cpus({.before = {half, half, half}, .writes = {{half, half}, {half}}, .reads = 2}));
  prove("old values, iterator", two,
        on_cpus<Orders{}, arm64>({.before = {half, half, half}, .writes = {{half, half}}, .looks = 2}));
  prove("old values, iterator and a reader that flags", old,
        on_cpus<Orders{}, arm64>(
            {.before = {whole, whole, half, half, half}, .writes = {{half}}, .reads = 1, .meta = true, .looks = 2}));
  prove(
      "old values, iterator and reader", old,
      on_cpus<Orders{}, arm64>({.before = {half, half, half}, .writes = {{half, half}}, .reads = 2, .looks = 2}));
  prove("old values, migration", old,
        on_cpus<Orders{}, arm64>(
            {.shape = {.cpus = 2}, .migrations = 1, .before = {half}, .writes = {{half, half}, {half}}}));
  prove("old values, flags on a page that a writer looks at", old,
        on_cpus<Orders{}, arm64>(flags_beside_a_late_writer));
  prove("old values, discard", old,
        on_cpus<Orders{}, arm64>(
            {.shape = {.discard = true}, .before = {half, half, half}, .writes = {{half, half}}, .reads = 2}));
  prove("old values, death", old,
        on_cpus<Orders{}, arm64>(
            {.before = {half, half, half}, .writes = {{half}, {half}}, .reads = 1, .deaths = true}));
  prove("what is counted can be seen", {.preemptions = 2, .stale = 2}, counted_is_seen);
}

TEST(Cpu, Refusals) {
  prove("a thread that is not registered", sc(0), [](World& world) {
    CpuModel<> m(world, {});
    const u32 a = m.thread("a", 0, [=](u32 me) { require(m.write(me, half) == Refused::no_ring, "there is no ring for it"); });
    cpus.threads[a].registered = false;
    world.after([=] { m.balance(); });
  });
  prove("a thread whose every sequence is cut off", sc(0), [](World& world) {
    CpuModel<> m(world, {});
    m.fill(0, {half});
    const u32 a = m.thread("a", 0, [=](u32 me) { require(m.write(me, half) == Refused::interrupted, "it gives up"); });
    cpus.threads[a].stepped = true;
    world.after([=] { m.balance(); });
  });
}

// Whose gate is shut between look and sequence.
TEST(Cpu, Gate) {
  prove("at most one event per CPU follows the gate", sc(2), shut_gate);
}

// ---- damage ----------------------------------------------------------------------------------------------------------------

const Options hostile_options{.preemptions = 0, .stale = 0, .max_steps = 30000};

TEST(CpuMalice, Writer) {
  prove("hostile words against a writer", hostile_options, hostile(1, hostile_write));
  prove("2 hostile words against a writer", hostile_options, hostile(2, hostile_write));
}

TEST(CpuMalice, Reader) {
  prove("hostile words against a reader", hostile_options, hostile(1, [](const CpuModel<>& m, u32) {
          CpuModel<>::R r(m.ring(0));
          for (int i = 0; i < 3; ++i) {
            const Got got = r.get_reader(true);
            const ReaderView v = r.view();
            if (got == Got::data)
              require(v.id < 4 && v.begin <= v.end && v.end <= 4080 && v.begin % 4 == 0, "a view is inside its sub-buffer");
          }
        }));
  prove("hostile words against restart and give back", hostile_options, hostile(1, [](const CpuModel<>& m, u32) {
          CpuModel<>::R r(m.ring(0));
          r.mend();
          r.restart();
          m.give_back(r, 0);
        }));
}

TEST(CpuMalice, Iterator) {
  prove("hostile words against an iterator", hostile_options, hostile(1, [](const CpuModel<>& m, u32) {
          alignas(8) u8 buffer[4096];
          Iterator<CpuModel<>::M> it(m.ring(0), buffer);
          for (int i = 0; i < 4; ++i)
            if (it.next() == Got::data)
              require(it.view().id < 4 && it.view().begin <= it.view().end && it.view().end <= 4080 && it.view().begin % 4 == 0,
                      "a view is inside its sub-buffer");
          counters<CpuModel<>::M>(m.ring(0));
        }));
}

// At rest, each word that a writer must not follow: it says so, and so does who comes next.
TEST(CpuMalice, Corrupt) {
  const auto corrupt = [](const char* what, u32 size, void (*damage)(const Ring&, u32 id)) {
    prove(what, sc(0), [=](World& world) {
      CpuModel<> m(world, {});
      m.fill(0, {half, half, half});
      damage(m.ring(0), place_of(m.ring(0).control->commit).id);
      m.thread("a", 0, [=](u32 me) {
        require(m.write(me, size) == Refused::corrupt, "the writer says so");
        require(m.write(me, small) == Refused::corrupt, "and the next one");
        require((m.ring(0).control->gate & gate_corrupt) != 0, "the gate is shut");
      });
    });
  };
  corrupt("id out of range", half, [](const Ring& r, u32) { r.control->commit |= 0xFF0; });
  corrupt("commit out of range", half, [](const Ring& r, u32 id) { r.header(id).commit = 4084; });
  corrupt("commit odd", half, [](const Ring& r, u32 id) {
    r.header(id).commit = 4;
    r.header(id).commit = 2030;
  });
  corrupt("commit large", half, [](const Ring& r, u32 id) { r.header(id).commit = 0xFFFFFFF0; });
  corrupt("slot out of range", whole, [](const Ring& r, u32) { r.record(0).slot = pack_slot(0, 0, 77); });
  corrupt("slot of the tail", whole, [](const Ring& r, u32 id) { r.record(0).slot = pack_slot(0, 0, id); });
  corrupt("slot of another lap", whole, [](const Ring& r, u32) { r.record(0).slot = pack_slot(0, 7, 1); });
}

}  // namespace
}  // namespace ringside::model::cpu_test
