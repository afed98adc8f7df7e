// Threads that share the rings of CPUs, under every schedule, migration, signal and death.
#include "cpu_model.hpp"

namespace ringside::model {
namespace {

constexpr Options sc(u32 preemptions) { return {.preemptions = preemptions, .stale = 0}; }

TEST(Cpu, TwoThreads) {
  prove("2 threads", sc(3), on_cpus({.writes = {{half, half}, {half, half}}}));
  prove("2 threads, full", sc(3), on_cpus({.before = {half, half, half, half}, .writes = {{half, half}, {half, half}}}));
  prove("2 threads, discard", sc(3), on_cpus({.shape = {.discard = true}, .before = {half, half}, .writes = {{half, half}, {half, half}}}));
  prove("events of several sizes", sc(3), on_cpus({.before = {half}, .writes = {{half, small}, {whole}}}));
  prove("one event fills a sub-buffer", sc(3), on_cpus({.before = {whole}, .writes = {{whole}, {whole}}}));
  prove("invariants at each access", sc(2), on_cpus({.shape = {.checked = true}, .before = {half}, .writes = {{half, half}, {most, half}}}));
  prove("3 threads", sc(3), on_cpus({.before = {half, half, half}, .writes = {{half}, {half}, {half}}}));
  prove("the clock is read outside", sc(3), on_cpus({.shape = {.counter = true}, .before = {half}, .writes = {{half, small}, {half}}}));
}

TEST(Cpu, Clock) {
  prove("the clock jumps", sc(2), on_cpus({.jumps = 1, .before = {half, half}, .writes = {{half, half}, {half}}}));
  prove("the clock jumps twice", sc(1), on_cpus({.jumps = 2, .before = {half}, .writes = {{half, small}, {half}}}));
  prove("a clock that is read outside jumps", sc(2), on_cpus({.shape = {.counter = true}, .jumps = 1, .before = {half, half}, .writes = {{half, half}, {half}}}));
  prove("the clock is young", sc(1), on_cpus({.shape = {.time = 1000}, .before = {half, half}, .writes = {{half, half}, {half}}}));
}

TEST(Cpu, Reader) {
  prove("reader", sc(2), on_cpus({.before = {half, half, half}, .writes = {{half, half}, {half}}, .reads = 2}));
  prove("reader that flags", sc(2), on_cpus({.before = {most, most, most}, .writes = {{half, half}, {half}}, .reads = 2, .meta = true}));
  prove("reader, discard", sc(2), on_cpus({.shape = {.discard = true}, .before = {most, half}, .writes = {{half, half}, {half}}, .reads = 2}));
  prove("reader on the page of the tail", sc(2), on_cpus({.before = {small}, .read_before = 1, .writes = {{half, half}, {half}}, .reads = 2}));
  prove("invariants at each access", sc(1), on_cpus({.shape = {.checked = true}, .before = {half, half, half}, .writes = {{half, half}, {half}}, .reads = 2}));
}

TEST(Cpu, Migration) {
  prove("migration", sc(2), on_cpus({.shape = {.cpus = 2}, .on = {0, 1}, .migrations = 1, .before = {half}, .writes = {{whole, half}, {half}}}));
  prove("2 migrations", sc(1), on_cpus({.shape = {.cpus = 2}, .on = {0, 1}, .migrations = 2, .before = {half}, .writes = {{whole, half}, {half}}}));
  prove("migration beside a reader", sc(1), on_cpus({.shape = {.cpus = 2}, .on = {0, 1}, .migrations = 1, .before = {most, half}, .writes = {{whole, half}, {half}}, .reads = 2}));
}

TEST(Cpu, Signal) {
  prove("a handler", {.preemptions = 0, .stale = 0, .signals = 2}, on_cpus({.before = {half, half, half}, .writes = {{half, half}}, .handlers = {half, most}}));
  prove("a handler beside a thread", {.preemptions = 1, .stale = 0, .signals = 1}, on_cpus({.before = {half, half, half}, .writes = {{half, half}, {half}}, .handlers = {half}}));
  prove("a handler beside a reader", {.preemptions = 1, .stale = 0, .signals = 1}, on_cpus({.before = {half, half, half}, .writes = {{half, half}}, .handlers = {half}, .reads = 1}));
}

TEST(Cpu, Death) {
  prove("death", sc(2), on_cpus({.before = {half, half, half}, .writes = {{half, half}, {half, half}}, .deaths = true}));
  prove("2 deaths", {.preemptions = 1, .stale = 0, .deaths = 2}, on_cpus({.before = {half, half, half}, .writes = {{half}, {most}, {half}}, .deaths = true}));
  prove("death, discard", sc(2), on_cpus({.shape = {.discard = true}, .before = {half, half}, .writes = {{half, half}, {half, half}}, .deaths = true}));
  prove("death beside a reader", sc(1), on_cpus({.before = {half, half, half}, .writes = {{half, half}, {half}}, .reads = 2, .deaths = true}));
  prove("death in a handler", {.preemptions = 1, .stale = 0, .signals = 1}, on_cpus({.before = {half, half, half}, .writes = {{half}, {half}}, .handlers = {half}, .deaths = true}));
}

TEST(Cpu, Iterator) {
  prove("iterator", sc(2), on_cpus({.before = {half, half, half}, .writes = {{half}, {whole}}, .looks = 2}));
  prove("iterator beside a reader", sc(1), on_cpus({.before = {half, half, half}, .writes = {{half}, {whole}}, .reads = 2, .looks = 3}));
}

}  // namespace
}  // namespace ringside::model
