// Each rule of the sequences broken, each order weakened: the models must refute it.
#include "cpu_model.hpp"

namespace ringside::model {
namespace {

constexpr Order relaxed = Order::relaxed;
const Options two{.preemptions = 2, .stale = 0, .seconds = 20};

const CpuPlan plain{.writes = {{half, half}, {half, half}}};
const CpuPlan full{.before = {half, half, half}, .writes = {{half, half}, {half, half}}};
const CpuPlan mixed{.shape = {.subbufs = 4, .counter = true}, .before = {half}, .writes = {{half}, {whole}}};
const CpuPlan read{.before = {half, half, half}, .writes = {{half, half}, {half}}, .reads = 2};
const CpuPlan migrating{.shape = {.cpus = 2, .counter = true}, .migrations = 1, .before = {half}, .writes = {{half}, {half}}};

TEST(CpuMutants, OfTheSequences) {
  refute("cut_off_counts", two, on_cpus<Plant::none, Orders{.bug = Bug::cut_off_counts}>(full));
  refute("no_bytes_check", two, on_cpus<Plant::no_bytes_check>(plain));
  refute("one_time", two, on_cpus<Plant::one_time>(plain));
  refute("other_time", two, on_cpus<Plant::other_time>(plain));
  refute("commit_first", two, on_cpus<Plant::commit_first>(plain));
  refute("commit_before_committed", two, on_cpus<Plant::commit_before_committed>(plain));
  refute("no_tail_check", two, on_cpus<Plant::no_tail_check>(mixed));
  refute("no_commit_check", two, on_cpus<Plant::no_commit_check>(plain));
  refute("no_cpu_check", two, on_cpus<Plant::no_cpu_check>(migrating));
  refute("tail_first", two, on_cpus<Plant::tail_first>(full));
  refute("enter_in_pieces", two, on_cpus<Plant::enter_in_pieces>(full));
  refute("committed_stays", two, on_cpus<Plant::committed_stays>(full));
  refute("no_base", two, on_cpus<Plant::no_base>(full));
  refute("no_final", two, on_cpus<Plant::no_final>(mixed));
  refute("slot_by_store", two, on_cpus<Plant::slot_by_store>(read));
  refute("swap_by_store", two, on_cpus<Plant::swap_by_store>(read));
  refute("no_abort", two, on_cpus<Plant::no_abort>(plain));
  refute("a thread that is not registered and shares an area", two, on_cpus({.deaf = true, .writes = {{half, half}, {half, half}}}));
}

TEST(CpuMutants, TheOriginalIsProved) {
  prove("plain", two, on_cpus(plain));
  prove("full", two, on_cpus(full));
  prove("mixed", two, on_cpus(mixed));
  prove("read", two, on_cpus(read));
  prove("migrating", two, on_cpus(migrating));
}

}  // namespace
}  // namespace ringside::model
