// What the benchmarks share: the table they fill, and rings of their own.
#pragma once
#include <ringside/ring/recover.hpp>
#include <ringside/ring/writer.hpp>
#include <ringside/trace.hpp>

#include <optional>
#include <string>
#include <vector>

#include "instance/instance.hpp"

RINGSIDE_EVENT(bench, pair, (u64, a), (u64, b));
RINGSIDE_EVENT(bench, never, (u64, a));

namespace bench {
void write_probed(ringside::u64 n);        // bench:pair and bench:never with RINGSIDE_USDT
void never_write_probed(ringside::u64 n);
}  // namespace bench

namespace bench {

using namespace ringside;

extern bool quick;

// A row of the table and of bench.json. Without a value: `detail` says why.
void row(const std::string& name, std::optional<double> value, const std::string& unit, const std::string& detail);

// Each file's rows. `instance` is open for writing in this process, and its ring 0 is this thread's.
void time_rows();
void start_rows();
int run_start(const char* name);  // one of their programs: a new instance of this name; writes its figures to stdout
void scale_row();
void cpu_rows();
void reader_rows();
void live_rows();
void wait_rows(Instance& instance);
void memory_rows(Instance& instance);
void remote_rows();
void guest_rows();
void mount_rows(Instance& instance);
void analyze_rows();
void slice_rows();
void jobs_rows();
void compress_rows();
void ship_rows();
void stack_rows();
void latency_row();  // one of them
void states_row();   // another one
void command_rows(Instance& instance);
void unwind_rows();
void format_rows();
void face_rows();
void log_rows();
int run_storm(u64 calls, const char* out);  // the load of one of them, as a program; writes its CPU seconds to `out`

double median(std::vector<double> values);
// Of rounds that do the same work on the same memory: whatever else the machine does only ever slows them.
double fastest(const std::vector<double>& rates);
double quantile(std::vector<double> values, double q);
[[gnu::format(printf, 1, 2)]] std::string text(const char* format, ...);
void pin(int cpu);

struct Tsc {
  bool at_once(u64& ticks) noexcept { return RingClockNow{ClockKind::tsc, nullptr}.at_once(ticks); }
  u64 now() noexcept { return RingClockNow{ClockKind::tsc, nullptr}.now(); }
};
struct Count {
  u64 n = 0;
  u64 now() noexcept { return ++n; }
};

// A ring in memory of its own, all of it there from the start.
struct LocalRing {
  Ring ring;
  LocalRing(u32 subbuf_size, u32 nr, bool discard = false);
  ~LocalRing();
  LocalRing(const LocalRing&) = delete;
  LocalRing& operator=(const LocalRing&) = delete;
};

// An event of 16 bytes, field by field as a call site does it.
template <class W>
RINGSIDE_INLINE bool write_pair(W& writer, u64 a, u64 b) {
  return writer.write(16, [&](u8* payload) {
    __builtin_memcpy(payload, &a, sizeof a);
    __builtin_memcpy(payload + 8, &b, sizeof b);
  });
}

}  // namespace bench
