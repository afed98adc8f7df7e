// The live kernel's rings as sources: per_cpu/cpuN/trace_pipe_raw of a tracefs instance, one ring per CPU.
//
//   auto source = must(open_kernel_ring({"/sys/kernel/tracing/instances/x", 0}, clock, KernelWay::read));
//   while (auto view = must(source->next())) walk(*view);
//
// Two ways to the same events; both consume, and both count losses by the missed-events flags of the sub-buffers:
//   read  read() of whole sub-buffers into one buffer that stays in the cache. The kernel hands a finished sub-buffer over by
//         swapping it out, so this is the fast way; it copies an unfinished one event by event.
//   map   the ring's own memory (Linux 6.10). GET_READER walks the sub-buffer in the kernel to count its events, about 5 us
//         for 4 KiB, but nothing is copied and unfinished sub-buffers cost no more than finished ones.
// A KernelChoice selects the way: by default read() for bulk, the mapping for a consumer that takes every event as it comes.
// A CPU that was offline when the instance was made has no ring yet: it yields nothing until it is online.
// A source belongs to one thread. Several consumers of one CPU compete for its events.
#pragma once
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "source/source.hpp"

namespace ringside {

enum class KernelWay { read, map };
const char* to_string(KernelWay way) noexcept;

struct KernelChoice {
  KernelWay better = KernelWay::read;  // for this job, if it is possible; else the other
  std::optional<KernelWay> forced;     // this one or an error
};

struct KernelRing {
  std::string dir;  // the instance's, e.g. /sys/kernel/tracing/instances/x
  u32 cpu = 0;
};

// A live ring that can be slept on.
class KernelSource : public Source {
 public:
  // Waits until there is something to read (by the instance's buffer_percent); false: timed out. EINTR is an error.
  virtual result<bool> wait(std::chrono::nanoseconds timeout) = 0;
  virtual int fd() const = 0;  // for poll(); POLLERR: the CPU has no ring yet
  virtual KernelWay way() const = 0;
};

// Refused: no privileges, no such CPU; map on a kernel before 6.10 (ENODEV) or while a snapshot is in use (EBUSY).
result<std::unique_ptr<KernelSource>> open_kernel_ring(const KernelRing& ring, const ClockInfo& clock, KernelWay way);

// The rings of all these CPUs of an instance.
struct KernelRings {
  std::vector<std::unique_ptr<KernelSource>> sources;  // in the order of the CPUs
  std::string notice;                                  // not empty: the reason why they are not read in the better way
};
result<KernelRings> open_kernel_rings(const std::string& dir, const std::vector<u32>& cpus, const ClockInfo& clock,
                                      const KernelChoice& choice);

// A process that has an instance's ring open at this moment, as far as /proc shows it to this process.
struct KernelConsumer {
  u32 cpu = 0;
  i32 pid = 0;
  std::string task;
  KernelWay way = KernelWay::read;  // read includes splice()
};
std::vector<KernelConsumer> kernel_consumers(const std::string& dir);

// per_cpu/cpuN/stats and the ring's sizes.
result<Counters> kernel_counters(const KernelRing& ring);

// What a directory holds, in order, without names that begin with a dot; nothing if it cannot be read.
std::vector<std::string> names_in(const std::string& dir);
// The numbers among them: the processes of /proc, the threads of /proc/PID/task.
std::vector<i32> numbers_in(const std::string& dir);
// The CPUs that have a ring in the instance, ascending; empty: it is no instance.
std::vector<u32> kernel_cpus(const std::string& instance_dir);

}  // namespace ringside
