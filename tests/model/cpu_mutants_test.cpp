// Each rule of the sequences broken, each order weakened: the models must refute it.
#include "cpu_model.hpp"

namespace ringside::model::cpu_mutants_test {
namespace {

constexpr Order relaxed = Order::relaxed;
const Options two{.preemptions = 2, .stale = 0, .seconds = 20};

const CpuPlan plain{.writes = {{half, half}, {half, half}}};
const CpuPlan full{.before = {half, half, half}, .writes = {{half, half}, {half, half}}};
const CpuPlan mixed{.shape = {.subbufs = 4, .counter = true}, .jumps = 1, .before = {half}, .writes = {{half}, {whole}}};
// Cpu.Reader proves that the original passes it.
const CpuPlan read{.before = {half, half, half}, .writes = {{half, half}, {half}}, .reads = 2};
const CpuPlan migrating{.shape = {.cpus = 2, .counter = true}, .migrations = 1, .before = {half}, .writes = {{half}, {half}}};
const CpuPlan given_back = giving_back();
// By a clock that is read outside of the sequences.
const CpuPlan timed{.shape = {.counter = true}, .before = {half}, .writes = {{half, half}, {half}}};
const CpuPlan first{.shape = {.counter = true}, .writes = {{half}, {half}}};
const CpuPlan interrupted{.shape = {.counter = true}, .before = {small}, .writes = {{small}}, .handlers = {too_big}};
constexpr Options one_signal{.preemptions = 0, .stale = 0, .signals = 1};

void refute(Plant plant, const char* what, const Options& options, const std::function<void(World&)>& setup) {
  cpus.plant = plant;
  model::refute(what, options, setup);
  cpus.plant = Plant::none;
}

TEST(CpuMutants, OfTheSequences) {
  refute("cut_off_counts", two, on_cpus<Orders{.bug = Bug::cut_off_counts}>(full));
  refute(Plant::usual_first, "usual_first", two,
         on_cpus({.shape = {.time = 1000}, .before = {half, half}, .writes = {{half}}}));
  refute(Plant::no_bytes_check, "no_bytes_check", two, on_cpus(plain));
  refute(Plant::one_time, "one_time", two, on_cpus(plain));
  refute(Plant::other_time, "other_time", two, on_cpus(plain));
  refute(Plant::commit_first, "commit_first", two, on_cpus(plain));
  refute(Plant::commit_before_committed, "commit_before_committed", two, on_cpus(plain));
  refute(Plant::no_tail_check, "no_tail_check", two, on_cpus(mixed));
  refute(Plant::no_commit_check, "no_commit_check", two, on_cpus(plain));
  refute(Plant::no_cpu_check, "no_cpu_check", two, on_cpus(migrating));
  refute(Plant::no_gate_check, "no_gate_check", two, shut_gate);
  refute(Plant::tail_first, "tail_first", two, on_cpus(full));
  refute(Plant::enter_in_pieces, "enter_in_pieces", two, on_cpus(full));
  refute(Plant::committed_stays, "committed_stays", two, on_cpus(full));
  refute(Plant::no_base, "no_base", two, on_cpus(full));
  refute(Plant::no_final, "no_final", two, on_cpus(mixed));
  refute(Plant::slot_by_store, "slot_by_store", two, on_cpus(read));
  refute(Plant::swap_by_store, "swap_by_store", two, on_cpus(read));
  refute(Plant::not_entered, "not_entered", two, on_cpus(given_back));
  refute(Plant::swap_by_store, "exchange by store", two, on_cpus(given_back));
  refute(Plant::short_compare, "short_compare", {.preemptions = 0, .stale = 0}, hostile(2, hostile_write));
  refute(Plant::no_abort, "no_abort", two, on_cpus(plain));
  refute("a thread that is not registered and shares an area", two,
         on_cpus({.deaf = true, .writes = {{half, half}, {half, half}}}));
}

TEST(CpuMutants, OfTheGuard) {
  refute(Plant::unguarded, "unguarded", two, on_cpus(timed));
  refute(Plant::unguarded, "unguarded, first event", two, on_cpus(first));
  refute(Plant::unguarded, "unguarded, handler", one_signal, on_cpus(interrupted));
  refute(Plant::armed_late, "armed_late", two, on_cpus(timed));
  refute(Plant::left_armed, "left_armed", one_signal, on_cpus(interrupted));
}

// arm64's orders, and those of the readers. Only old values tell.
const Options old_values{.preemptions = 1, .stale = 1, .seconds = 20};
const CpuPlan beside_reader{.before = {half}, .writes = {{half, half}}, .reads = 2};
const CpuPlan beside_iterator{.before = {half, half, half}, .writes = {{half, half}}, .looks = 2};
constexpr Machine arm64 = Machine::arm64;

TEST(CpuMutants, Orders) {
  refute(Plant::plain_commit, "plain_commit", old_values, on_cpus<Orders{}, arm64>(beside_reader));
  refute(Plant::plain_committed, "plain_committed", {.preemptions = 2, .stale = 2}, counted_is_seen);
  refute(Plant::plain_tail, "plain_tail", old_values, on_cpus<Orders{}, arm64>(beside_reader));
  refute("commit_observe", old_values, on_cpus<Orders{.commit_observe = relaxed}, arm64>(beside_reader));
  refute("commit_observe, of a writer", old_values,
         on_cpus<Orders{.commit_observe = relaxed}, arm64>(flags_beside_a_late_writer));
  refute("advance_observe", old_values, on_cpus<Orders{.advance_observe = relaxed}, arm64>(beside_reader));
  refute("enter_publish", old_values, on_cpus<Orders{.enter_publish = relaxed}, arm64>(beside_iterator));
  refute(Plant::no_wake_fence, "no_wake_fence", {.preemptions = 2, .stale = 2}, sleeper);
  refute("enter_observe", old_values, on_cpus<Orders{.enter_observe = relaxed}, arm64>(beside_iterator));
}

TEST(CpuMutants, TheOriginalIsProved) {
  prove("plain", two, on_cpus(plain));
  prove("full", two, on_cpus(full));
  prove("mixed", two, on_cpus(mixed));
  prove("given back", two, on_cpus(given_back));
  prove("migrating", two, on_cpus(migrating));
  prove("timed", two, on_cpus(timed));
  prove("first", two, on_cpus(first));
  prove("interrupted", one_signal, on_cpus(interrupted));
  prove("old values, reader", old_values, on_cpus<Orders{}, arm64>(beside_reader));
  prove("old values, iterator", old_values, on_cpus<Orders{}, arm64>(beside_iterator));
}

}  // namespace
}  // namespace ringside::model::cpu_mutants_test
