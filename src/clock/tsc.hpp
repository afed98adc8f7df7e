// Is x86's time stamp counter one clock for all processors of this machine? By evidence: the processor's flags, the kernel's
// opinion, and a test. A kernel that found the counters of its processors apart leaves the flags as they are.
#pragma once
#include <ringside/base/types.hpp>
#include <string>

namespace ringside {

enum class KernelOnTsc : u8 {
  uses,        // as its own clock, which it watches
  accepts,     // its clock source is another one, but it lists this one
  hypervisors, // does not list it; its clock source is the hypervisor's, which is made of this counter
  rejects,     // does not list it
};
enum class Warps : u8 {
  not_tested,   // not needed, or the processors did not meet
  none,
  found,        // a reading that was taken after another one, on another processor, was less
};

struct TscEvidence {
  bool invariant = false;  // constant rate, runs in idle states: the processor's flags
  KernelOnTsc kernel = KernelOnTsc::rejects;
  Warps warps = Warps::not_tested;
  u64 meetings = 0;        // readings that followed one of another processor
  u64 most_back = 0;       // ticks
  // May it be chosen by somebody who asks for it? By default?
  bool usable() const noexcept { return invariant && warps != Warps::found; }
  bool trusted() const noexcept {
    return usable() && (kernel == KernelOnTsc::uses || kernel == KernelOnTsc::accepts ||
                        (kernel == KernelOnTsc::hypervisors && warps == Warps::none));
  }
};

// What the kernel says, from its files current_clocksource and available_clocksource.
KernelOnTsc kernel_on_tsc(const std::string& current, const std::string& available);
// Has a line "flags" of cpuinfo both?
bool has_invariant_flags(const std::string& cpuinfo);

// This machine's. The test runs where the kernel does not use the counter itself, once in a process: some milliseconds for each
// processor that this thread may run on.
const TscEvidence& tsc_evidence();
// The test alone: every processor against the first. It takes at most 300 ms of this thread's time, and three seconds.
void test_for_warps(TscEvidence& evidence) noexcept;

}  // namespace ringside
