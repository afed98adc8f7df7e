// The ring of perf_event_open: the records that are in it.
//
//   PerfRecords records(data, size, tail, head);
//   while (const auto r = records.next()) ...       // valid until the next call
//   tail = records.tail();
//
// Records as the events of PerfSampler have them: samples of TID, TIME and CALLCHAIN, and of the user's registers and stack if
// the sampler has them copied; all others with TID and TIME at their end.
// The ring may hold anything: what does not add up ends the walk at its head, and is counted.
#pragma once
#include <optional>
#include <ringside/base/types.hpp>
#include <string_view>
#include <vector>

#include "writer/call_frame.hpp"

namespace ringside {

struct PerfRecord {
  enum class Kind : u8 { other, sample, map, name, fork, exit, lost, throttled };
  Kind kind = Kind::other;
  bool exec = false;              // name: the process executes another program
  i32 pid = 0, tid = 0;           // of the thread; fork: of the new one
  i32 maker = 0;                  // fork: the process that made it
  u64 time = 0;                   // by the sampler's clock; 0: unknown
  Bytes chain{};                  // sample: words, with the kernel's marks between (perf_contexts)
  Registers registers{};          // the user's; pc 0: it has none
  Bytes stack{};                  // from registers.sp on
  u64 start = 0, size = 0, offset = 0;  // map
  u64 inode = 0;      // of the file; 0: unknown, as where the build id is known
  Bytes build_id{};
  std::string_view text{};        // map: the path; name: the thread's
  u64 lost = 0;                   // records that had no room before this one
};

// The addresses that are none: marks in a chain of calls.
inline constexpr u64 perf_contexts = ~u64{0} - 4095;

// Those that a walk needs, as perf_event_attr::sample_regs_user, and their order in a record. 0: none are known for this
// processor.
#if defined(__x86_64__)
inline constexpr u64 perf_registers = u64{1} << 6 | u64{1} << 7 | u64{1} << 8;  // bp, sp, ip
#elif defined(__aarch64__)
inline constexpr u64 perf_registers = u64{1} << 29 | u64{1} << 30 | u64{1} << 31 | u64{1} << 32;  // x29, lr, sp, pc
#else
inline constexpr u64 perf_registers = 0;
#endif

class PerfRecords {
 public:
  // size: a power of two.
  PerfRecords(const u8* data, u64 size, u64 tail, u64 head, bool with_stacks = false);
  std::optional<PerfRecord> next();
  u64 tail() const { return tail_; }
  bool malformed() const { return malformed_; }

 private:
  Bytes piece(u64 size);

  const u8* data_;
  u64 size_, tail_, head_;
  bool with_stacks_, malformed_ = false;
  std::vector<u64> copy_;  // of a record that the ring's end cuts
};

}  // namespace ringside
