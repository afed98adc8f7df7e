// Switches that stand in memory: from the walk over their ring to the times of each thread's states.
#include "analysis/states.hpp"

#include <random>

#include "bench.hpp"
#include "pages.hpp"
#include "timeline/merge.hpp"

namespace bench {
namespace {

constexpr u32 threads = 200;

// As the kernel has them: 64 bytes with both names.
Pages switches(u64 events) {
  LocalRing ring(65536, static_cast<u32>(events * 72 / 65000 + 2));
  Writer<Given> writer(ring.ring, Given{});
  std::mt19937_64 random(1);
  u32 running = 1;
  for (u64 k = 0; k < events; ++k) {
    writer.clock().time += 500 + random() % 20'000;
    const u32 next = 1 + static_cast<u32>(random() % threads);
    writer.write(64, [&](u8* payload) {
      const u64 common = 1, state = random() % 3;
      __builtin_memset(payload, 0, 64);
      __builtin_memcpy(payload, &common, sizeof common);
      __builtin_memcpy(payload + 24, &running, sizeof running);
      __builtin_memcpy(payload + 32, &state, sizeof state);
      __builtin_memcpy(payload + 56, &next, sizeof next);
    });
    running = next;
  }
  return pages_of(ring);
}

}  // namespace

void states_row() {
  const u64 events = quick ? 200'000 : 1'000'000;
  const auto pages = switches(events);
  Formats formats;
  formats.add(1, "sched", "sched_switch",
              "name: sched_switch\nID: 1\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n"
              "\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n"
              "\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n\tfield:int "
              "common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n"
              "\tfield:pid_t prev_pid;\toffset:24;\tsize:4;\tsigned:1;\n\tfield:long "
              "prev_state;\toffset:32;\tsize:8;\tsigned:1;\n"
              "\tfield:pid_t next_pid;\toffset:56;\tsize:4;\tsigned:1;\n\nprint fmt: \"%d\", REC->next_pid\n");
  const Tasks tasks;
  std::vector<double> rates;
  for (int round = 0; round < (quick ? 7 : 15); ++round) {
    States states = must(States::make(States::of_threads, 100'000, formats, tasks));
    Timeline timeline;
    timeline.add(std::make_unique<PagesSource>(pages));
    RingName ring = timeline.source(0).name();
    ring.kernel = true;
    const u64 start = cpu_ns();
    const auto one = [&](const TraceRecord& record) {
      states.take(record, ring);
      return true;
    };
    while (timeline.next_run(one)) continue;
    const auto ns = static_cast<double>(cpu_ns() - start);
    if (states.switches() != events || states.unseen() != 0) throw std::runtime_error("states: not all switches were counted");
    rates.push_back(static_cast<double>(events) * 1e9 / ns);
  }
  row("analyze.states_switches_per_s", fastest(rates), "1/s",
      bench::text("sched_switch of %u threads in random turns, one CPU, of CPU time", threads));
}

}  // namespace bench
