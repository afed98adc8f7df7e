// Each rule of the sequences broken, each order weakened: the models must refute it.
#include "cpu_model.hpp"

namespace ringside::model::cpu_mutants_test {
namespace {

constexpr Order relaxed = Order::relaxed;
const Options two{.preemptions = 2, .stale = 0, .seconds = 20};

const CpuPlan plain{.writes = {{half, half}, {half, half}}};
const CpuPlan full{.before = {half, half, half}, .writes = {{half, half}, {half, half}}};
const CpuPlan mixed{.shape = {.subbufs = 4, .counter = true}, .before = {half}, .writes = {{half}, {whole}}};
// Cpu.Reader proves that the original passes it.
const CpuPlan read{.before = {half, half, half}, .writes = {{half, half}, {half}}, .reads = 2};
const CpuPlan migrating{.shape = {.cpus = 2, .counter = true}, .migrations = 1, .before = {half}, .writes = {{half}, {half}}};
const CpuPlan given_back = giving_back();

TEST(CpuMutants, OfTheSequences) {
  refute("cut_off_counts", two, on_cpus<Plant::none, Orders{.bug = Bug::cut_off_counts}>(full));
  refute("usual_first", two,
         on_cpus<Plant::usual_first>({.shape = {.time = 1000}, .before = {half, half}, .writes = {{half}}}));
  refute("no_bytes_check", two, on_cpus<Plant::no_bytes_check>(plain));
  refute("one_time", two, on_cpus<Plant::one_time>(plain));
  refute("other_time", two, on_cpus<Plant::other_time>(plain));
  refute("commit_first", two, on_cpus<Plant::commit_first>(plain));
  refute("commit_before_committed", two, on_cpus<Plant::commit_before_committed>(plain));
  refute("no_tail_check", two, on_cpus<Plant::no_tail_check>(mixed));
  refute("no_commit_check", two, on_cpus<Plant::no_commit_check>(plain));
  refute("no_cpu_check", two, on_cpus<Plant::no_cpu_check>(migrating));
  refute("no_gate_check", two, shut_gate<Plant::no_gate_check>);
  refute("tail_first", two, on_cpus<Plant::tail_first>(full));
  refute("enter_in_pieces", two, on_cpus<Plant::enter_in_pieces>(full));
  refute("committed_stays", two, on_cpus<Plant::committed_stays>(full));
  refute("no_base", two, on_cpus<Plant::no_base>(full));
  refute("no_final", two, on_cpus<Plant::no_final>(mixed));
  refute("slot_by_store", two, on_cpus<Plant::slot_by_store>(read));
  refute("swap_by_store", two, on_cpus<Plant::swap_by_store>(read));
  refute("not_entered", two, on_cpus<Plant::not_entered>(given_back));
  refute("exchange by store", two, on_cpus<Plant::swap_by_store>(given_back));
  refute("short_compare", {.preemptions = 0, .stale = 0},
         hostile<Plant::short_compare>(2, hostile_write<Plant::short_compare>));
  refute("no_abort", two, on_cpus<Plant::no_abort>(plain));
  refute("a thread that is not registered and shares an area", two,
         on_cpus({.deaf = true, .writes = {{half, half}, {half, half}}}));
}

// arm64's orders, and those of the readers. Only old values tell.
const Options old_values{.preemptions = 1, .stale = 1, .seconds = 20};
const CpuPlan beside_reader{.before = {half}, .writes = {{half, half}}, .reads = 2};
const CpuPlan beside_iterator{.before = {half, half, half}, .writes = {{half, half}}, .looks = 2};
constexpr Machine arm64 = Machine::arm64;

TEST(CpuMutants, Orders) {
  refute("plain_commit", old_values, on_cpus<Plant::plain_commit, Orders{}, arm64>(beside_reader));
  refute("plain_committed", {.preemptions = 2, .stale = 2}, counted_is_seen<Plant::plain_committed>);
  refute("plain_tail", old_values, on_cpus<Plant::plain_tail, Orders{}, arm64>(beside_reader));
  refute("commit_observe", old_values, on_cpus<Plant::none, Orders{.commit_observe = relaxed}, arm64>(beside_reader));
  refute("commit_observe, of a writer", old_values,
         on_cpus<Plant::none, Orders{.commit_observe = relaxed}, arm64>(flags_beside_a_late_writer));
  refute("advance_observe", old_values, on_cpus<Plant::none, Orders{.advance_observe = relaxed}, arm64>(beside_reader));
  refute("enter_publish", old_values, on_cpus<Plant::none, Orders{.enter_publish = relaxed}, arm64>(beside_iterator));
  refute("no_wake_fence", {.preemptions = 2, .stale = 2}, sleeper<Plant::no_wake_fence>);
  refute("enter_observe", old_values, on_cpus<Plant::none, Orders{.enter_observe = relaxed}, arm64>(beside_iterator));
}

TEST(CpuMutants, TheOriginalIsProved) {
  prove("plain", two, on_cpus(plain));
  prove("full", two, on_cpus(full));
  prove("mixed", two, on_cpus(mixed));
  prove("given back", two, on_cpus(given_back));
  prove("migrating", two, on_cpus(migrating));
  prove("old values, reader", old_values, on_cpus<Plant::none, Orders{}, arm64>(beside_reader));
  prove("old values, iterator", old_values, on_cpus<Plant::none, Orders{}, arm64>(beside_iterator));
}

}  // namespace
}  // namespace ringside::model::cpu_mutants_test
