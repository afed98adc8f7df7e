// Samples of CPU time by the kernel: perf_event_open on each CPU, for the whole machine or some processes and what they start.
// Each ring has the samples with their chains of calls, and what names them: maps of code, names of threads, forks. Copies of
// stacks would leave no room for these: beside them each CPU has a second ring for what names them.
//
//   auto sampler = must(PerfSampler::open({.hz = 999}));
//   for (PerfSampler::Ring& ring : sampler->rings()) { auto records = ring.records(); ...; ring.consume(records); }
//
// What is counted is the processor's cycles, and the time of the CPU where a machine has no such counter.
#pragma once
#include <time.h>

#include <memory>
#include <string>
#include <vector>

#include "kernel/perf_ring.hpp"
#include "source/source.hpp"
#include "sys/sys.hpp"

struct perf_event_attr;

namespace ringside {

class PerfSampler {
 public:
  struct Options {
    u64 hz = 999;  // 0: no samples, only what names addresses and threads
    u32 depth = 64;
    std::vector<i32> pids{};        // none: the whole machine
    u64 ring_size = 1 << 20;        // at most
    u32 stack_bytes = 0;  // of the user's stack, copied with its registers into each sample; 0: its chain by frame pointers
    clockid_t clock = CLOCK_MONOTONIC;
  };
  class Ring {
   public:
    u32 cpu() const { return cpu_; }
    PerfRecords records() const;
    void consume(const PerfRecords& seen);  // their room is the kernel's again
    u64 lost() const;                       // samples that had no room, as the kernel counts them
   private:
    friend class PerfSampler;
    u32 cpu_ = 0;
    bool with_stacks_ = false;
    sys::Region region_;  // a page of numbers, then the ring
    std::vector<sys::Fd> events_;
  };
  // EACCES, EPERM: without the right; the sentence says which one is missing.
  static result<std::unique_ptr<PerfSampler>> open(const Options& options);
  result<void> on(bool is = true);
  // Those of samples, then those of names alone: read in this order, each sample finds the names before it.
  std::vector<Ring>& rings() { return rings_; }
  bool sees_kernel() const { return kernel_; }
  // False: threads outside of this PID namespace have the number 0.
  bool sees_others() const { return sees_others_; }
  const char* counts() const { return cycles_ ? "cycles" : "cpu-clock"; }
  u32 depth() const { return depth_; }

 private:
  result<void> add_rings(perf_event_attr& attributes, const Options& options, const std::vector<i32>& threads, u32 cpus,
                         u64 ring_size);

  std::vector<Ring> rings_;
  bool kernel_ = true, cycles_ = true, sees_others_ = true;
  u32 depth_ = 0;
};

}  // namespace ringside
