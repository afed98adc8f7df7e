#include "kernel/perf_sampler.hpp"

#include <linux/perf_event.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "kernel/kernel_source.hpp"
#include "sys/sys.hpp"
#include "sys/try.hpp"
#include "writer/cpu_rings.hpp"

namespace ringside {
namespace {

const u64 page = static_cast<u64>(sysconf(_SC_PAGESIZE)), smallest_ring = 16 * page;

u64 setting(const char* name, u64 otherwise) {
  const auto text = sys::read_file(std::string("/proc/sys/kernel/") + name);
  return text ? std::strtoull(text->c_str(), nullptr, 10) : otherwise;
}

sys::Fd open_event(perf_event_attr& attributes, i32 tid, u32 cpu) {
  return sys::Fd(
      static_cast<int>(syscall(SYS_perf_event_open, &attributes, tid, static_cast<int>(cpu), -1, PERF_FLAG_FD_CLOEXEC)));
}

// All threads of a process on each CPU: more descriptors than the usual limit.
void allow_descriptors(u64 more) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= more) return;
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, more);
  (void)setrlimit(RLIMIT_NOFILE, &limit);
}

tl::unexpected<Error> refused(int error, const PerfSampler::Options& options) {
  const std::string level = std::to_string(static_cast<i64>(setting("perf_event_paranoid", 2)));
  if (error == EACCES || error == EPERM)
    return fail(error, std::string("cannot sample ") + (options.pids.empty() ? "the whole machine" : "these processes") +
                           " by perf_event_open: kernel.perf_event_paranoid is " + level + "; run it " + sys::as_root() +
                           ", or let root allow it: sysctl kernel.perf_event_paranoid=" + (options.pids.empty() ? "-1" : "1") +
                           ". Samples of a command need no right: ringside record --sample " + std::to_string(options.hz) +
                           " COMMAND");
  if (error == EINVAL && options.hz > setting("perf_event_max_sample_rate", ~u64{0}))
    return fail(error, "cannot sample " + std::to_string(options.hz) +
                           " times a second: kernel.perf_event_max_sample_rate is " +
                           std::to_string(setting("perf_event_max_sample_rate", 0)) + "; ask for fewer, or " + sys::as_root() +
                           ": sysctl kernel.perf_event_max_sample_rate=" + std::to_string(options.hz));
  if (error == EMFILE)
    return fail(error,
                "cannot sample these processes: each thread takes a descriptor on each CPU; ulimit -n raises their number, -a "
                "takes one for each CPU");
  if (error == ENOSYS) return fail(error, "cannot sample by perf_event_open: this kernel was built without it");
  return fail(error, "cannot sample by perf_event_open");
}

bool sees_all_numbers(const PerfSampler::Options& options) { return !options.pids.empty() || sys::pids_are_the_kernels(); }

// The same event without samples.
perf_event_attr of_names(perf_event_attr names) {
  names.type = PERF_TYPE_SOFTWARE;
  names.config = PERF_COUNT_SW_DUMMY;
  names.freq = 0;
  names.sample_freq = names.sample_regs_user = names.sample_stack_user = names.sample_max_stack = 0;
  names.sample_type = PERF_SAMPLE_TID | PERF_SAMPLE_TIME;
  names.exclude_callchain_user = 0;
  names.mmap = names.mmap2 = names.build_id = names.comm = names.comm_exec = names.task = 1;
  return names;
}

}  // namespace

result<std::unique_ptr<PerfSampler>> PerfSampler::open(const Options& options) {
  perf_event_attr attributes{};
  attributes.size = sizeof attributes;
  // From inside a PID namespace, threads outside of it and the idle CPU have the same number in samples of cycles.
  const bool sees_others = sees_all_numbers(options);
  attributes.type = sees_others ? PERF_TYPE_HARDWARE : PERF_TYPE_SOFTWARE;
  attributes.config = sees_others ? u64{PERF_COUNT_HW_CPU_CYCLES} : u64{PERF_COUNT_SW_CPU_CLOCK};
  attributes.freq = 1;
  attributes.sample_freq = options.hz;
  attributes.sample_type = PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_CALLCHAIN;
  attributes.read_format = PERF_FORMAT_LOST;
  attributes.disabled = 1;
  attributes.inherit = options.pids.empty() ? 0 : 1;
  attributes.exclude_idle = 1;
  attributes.exclude_hv = 1;
  attributes.sample_id_all = 1;
  attributes.mmap = attributes.mmap2 = attributes.build_id = 1;
  attributes.comm = attributes.comm_exec = attributes.task = 1;
  attributes.use_clockid = 1;
  attributes.clockid = options.clock;
  attributes.watermark = 1;
  if (options.stack_bytes != 0) {
    if (perf_registers == 0)
      return refuse(std::errc::not_supported, "the walk by tables knows no registers of this processor: use --call-graph fp");
    attributes.sample_type |= PERF_SAMPLE_REGS_USER | PERF_SAMPLE_STACK_USER;
    attributes.sample_regs_user = perf_registers;
    attributes.sample_stack_user = options.stack_bytes;
    attributes.exclude_callchain_user = 1;
    attributes.mmap = attributes.mmap2 = attributes.build_id = attributes.comm = attributes.comm_exec = attributes.task = 0;
  }
  attributes.sample_max_stack = static_cast<u16>(std::min<u64>(options.depth, setting("perf_event_max_stack", 127)));
  if (options.hz == 0) attributes = of_names(attributes);

  auto sampler = std::make_unique<PerfSampler>();
  sampler->depth_ = attributes.sample_max_stack;
  sampler->sees_others_ = sees_others;
  std::vector<i32> threads;
  for (const i32 pid : options.pids) {
    const std::vector<i32> more = numbers_in("/proc/" + std::to_string(pid) + "/task");
    threads.insert(threads.end(), more.begin(), more.end());
  }
  if (options.pids.empty()) threads.push_back(-1);
  if (threads.empty()) return refuse(std::errc::no_such_process, "the processes to sample have ended");
  const u32 cpus = possible_cpus();
  allow_descriptors(threads.size() * cpus + 256);
  RS_TRY(sampler->add_rings(attributes, options, threads, cpus, options.ring_size));
  sampler->kernel_ = attributes.exclude_kernel == 0;
  sampler->cycles_ = attributes.type == PERF_TYPE_HARDWARE;
  if (options.stack_bytes != 0) {
    perf_event_attr names = of_names(attributes);
    RS_TRY(sampler->add_rings(names, options, threads, cpus, std::min<u64>(options.ring_size, 1 << 20)));
  }
  return sampler;
}

// An event for each of these threads on each CPU, and a ring for each CPU.
result<void> PerfSampler::add_rings(perf_event_attr& attributes, const Options& options, const std::vector<i32>& threads,
                                    u32 cpus, u64 ring_size) {
  const u64 most = std::bit_floor(std::max(ring_size, smallest_ring));
  const size_t before = rings_.size();
  attributes.wakeup_watermark = static_cast<u32>(most / 4);
  // What this kernel or machine lacks is left out, one after the other.
  const auto open_one = [&](i32 tid, u32 cpu, bool early) {
    for (;;) {
      sys::Fd fd = open_event(attributes, tid, cpu);
      const int error = errno;
      if (fd) return fd;
      if (early && attributes.type == PERF_TYPE_HARDWARE && (error == ENOENT || error == EOPNOTSUPP || error == ENODEV)) {
        attributes.type = PERF_TYPE_SOFTWARE;
        attributes.config = PERF_COUNT_SW_CPU_CLOCK;
      } else if (early && attributes.exclude_kernel == 0 && !options.pids.empty() && (error == EACCES || error == EPERM)) {
        attributes.exclude_kernel = 1;
      } else if (early && attributes.build_id != 0 && error == EINVAL) {
        attributes.build_id = 0;  // before Linux 5.12
      } else if (early && attributes.read_format != 0 && error == EINVAL) {
        attributes.read_format = 0;  // before 6.0
        attributes.build_id = attributes.mmap2;
      } else {
        errno = error;
        return fd;
      }
    }
  };
  for (u32 cpu = 0; cpu < cpus; ++cpu) {
    Ring ring;
    ring.cpu_ = cpu;
    ring.with_stacks_ = options.stack_bytes != 0;
    for (const i32 tid : threads) {
      sys::Fd fd = open_one(tid, cpu, rings_.size() == before && ring.events_.empty());
      if (!fd && errno == ESRCH) continue;                // it has ended
      if (!fd && errno == ENODEV) break;                  // this CPU is offline
      if (!fd) return refused(errno, options);
      if (!ring.events_.empty()) {
        if (ioctl(fd.get(), PERF_EVENT_IOC_SET_OUTPUT, ring.events_.front().get()) != 0)
          return fail(errno, "cannot put the samples of thread " + std::to_string(tid) + " into the ring of CPU " +
                                 std::to_string(cpu));
        ring.events_.push_back(std::move(fd));
        continue;
      }
      for (u64 size = most;; size /= 2) {
        auto region = sys::Region::map(fd.get(), page + size, true, "the ring of perf's samples");
        if (!region && size > smallest_ring &&
            (region.error().code == std::errc::operation_not_permitted || region.error().code == std::errc::not_enough_memory))
          continue;
        if (!region) return tl::unexpected<Error>(region.error());
        ring.region_ = std::move(*region);
        break;
      }
      ring.events_.push_back(std::move(fd));
    }
    if (!ring.events_.empty()) rings_.push_back(std::move(ring));
  }
  if (rings_.size() == before) return refuse(std::errc::no_such_process, "the processes to sample have ended");
  return {};
}

result<void> PerfSampler::on(bool is) {
  for (const Ring& ring : rings_) {
    for (const sys::Fd& event : ring.events_) {
      if (ioctl(event.get(), is ? PERF_EVENT_IOC_ENABLE : PERF_EVENT_IOC_DISABLE, 0) != 0)
        return fail(errno,
                    std::string("cannot turn ") + (is ? "on" : "off") + " the samples of CPU " + std::to_string(ring.cpu_));
    }
  }
  return {};
}

PerfRecords PerfSampler::Ring::records() const {
  const auto& numbers = *reinterpret_cast<const perf_event_mmap_page*>(region_.data());
  const u64 head = __atomic_load_n(&numbers.data_head, __ATOMIC_ACQUIRE);
  return {region_.data() + page, region_.size() - page, numbers.data_tail, head, with_stacks_};
}

void PerfSampler::Ring::consume(const PerfRecords& seen) {
  __atomic_store_n(&reinterpret_cast<perf_event_mmap_page*>(region_.data())->data_tail, seen.tail(), __ATOMIC_RELEASE);
}

u64 PerfSampler::Ring::lost() const {
  u64 sum = 0;
  for (const sys::Fd& event : events_) {
    u64 values[2] = {};  // the count, and the lost samples
    if (read(event.get(), values, sizeof values) == sizeof values) sum += values[1];
  }
  return sum;
}

}  // namespace ringside
