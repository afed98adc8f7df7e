#include "kernel/exit_numbers.hpp"

#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>

#include "kernel/tracefs_instance.hpp"
#include "writer/cpu_rings.hpp"

namespace ringside {
namespace {

constexpr u64 ring_bytes = 1 << 18;

// A sample: header; pid, tid; size of the event's own bytes, and these: type (2), flags (2), the kernel's number (4), ...
struct Sample {
  perf_event_header header;
  i32 pid, tid;
  u32 size;
  u16 type;
  u8 flags, preempt_count;
  i32 kernel;
};
static_assert(sizeof(Sample) == 28);

}  // namespace

void ExitNumbers::open() {
  const auto event = kernel_event({"sched", "sched_process_exit"});
  if (!event) return;
  perf_event_attr attributes{};
  attributes.size = sizeof attributes;
  attributes.type = PERF_TYPE_TRACEPOINT;
  attributes.config = event->id;
  attributes.sample_period = 1;
  attributes.sample_type = PERF_SAMPLE_TID | PERF_SAMPLE_RAW;
  const auto page = static_cast<u64>(sysconf(_SC_PAGESIZE));
  for (u32 cpu = 0; cpu < possible_cpus(); ++cpu) {
    Ring ring;
    ring.event = sys::Fd(
        static_cast<int>(syscall(SYS_perf_event_open, &attributes, -1, static_cast<int>(cpu), -1, PERF_FLAG_FD_CLOEXEC)));
    if (!ring.event) continue;
    auto region = sys::Region::map(ring.event.get(), page + ring_bytes, true, "the ring of threads that end");
    if (!region) continue;
    ring.region = std::move(*region);
    rings_.push_back(std::move(ring));
  }
}

void ExitNumbers::take(const std::function<void(i32 kernel, i32 pid, i32 tid)>& use) {
  for (Ring& ring : rings_) {
    auto& numbers = *reinterpret_cast<perf_event_mmap_page*>(ring.region.data());
    const u8* const data = ring.region.data() + (ring.region.size() - ring_bytes);
    const u64 head = __atomic_load_n(&numbers.data_head, __ATOMIC_ACQUIRE);
    for (u64 at = numbers.data_tail; head - at >= sizeof(perf_event_header);) {
      Sample sample{};  // it may go round the ring's end
      const u64 from = at % ring_bytes, first = std::min<u64>(sizeof sample, ring_bytes - from);
      std::memcpy(&sample, data + from, first);
      std::memcpy(reinterpret_cast<u8*>(&sample) + first, data, sizeof sample - first);
      if (sample.header.size < sizeof sample.header || sample.header.size > head - at) break;
      if (sample.header.type == PERF_RECORD_SAMPLE && sample.header.size >= sizeof sample && sample.tid > 0)
        use(sample.kernel, sample.pid, sample.tid);
      at += sample.header.size;
    }
    __atomic_store_n(&numbers.data_tail, head, __ATOMIC_RELEASE);
  }
}

}  // namespace ringside
