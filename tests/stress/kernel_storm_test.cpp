// The kernel's rings under a storm of events on all CPUs, overwritten: read + lost = the kernel's count of written events. The
// reader pauses for the first third, so that rings are overwritten from end to end before it begins.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <ringside/abi/event_cursor.hpp>
#include <ringside/abi/sub_buffer.hpp>
#include <thread>

#include "kernel/kernel_source.hpp"
#include "kernel/tracefs_instance.hpp"
#include "kernel_can.hpp"
#include "ring_memory.hpp"
#include "sys/sys.hpp"

namespace ringside::kernel_storm_test {
namespace {

struct Setup {
  KernelWay way;
  u64 mib;  // of each ring; 0: 64 KiB, which always has losses
};

class KernelStorm : public testing::TestWithParam<Setup> {};
INSTANTIATE_TEST_SUITE_P(Kernel, KernelStorm,
                         testing::Values(Setup{KernelWay::read, 0}, Setup{KernelWay::map, 0}, Setup{KernelWay::read, 1},
                                         Setup{KernelWay::map, 1}, Setup{KernelWay::read, 64}, Setup{KernelWay::map, 64}),
                         [](const auto& setup) {
                           const u64 mib = setup.param.mib;
                           return to_string(setup.param.way) + (mib == 0 ? "64KiB" : std::to_string(mib) + "MiB");
                         });

TEST_P(KernelStorm, TheBooksBalance) {
  TracefsOptions options;
  options.prefix = "ringside-test-";
  options.buffer_size = GetParam().mib == 0 ? 64 << 10 : GetParam().mib << 20;
  options.clock = ClockKind::mono;
  auto made = TracefsInstance::create(options);
  if (!made) GTEST_SKIP() << made.error().sentence;
  TracefsInstance& mine = *made;
  if (GetParam().way == KernelWay::map && !test::kernel_maps(mine.dir())) GTEST_SKIP() << test::no_mapping;
  must(mine.enable(EventPattern("syscalls:*")));
  must(mine.enable(EventPattern("sched:*")));
  struct Cpu {
    std::unique_ptr<KernelSource> source;
    u64 read = 0, lost = 0, late = 0, last = 0;
  };
  std::vector<Cpu> cpus;
  for (const u32 cpu : mine.cpus()) cpus.push_back({must(open_kernel_ring({mine.dir(), cpu}, ClockInfo{}, GetParam().way))});
  must(mine.tracing(true));

  std::atomic<bool> stop{false};
  std::vector<std::thread> writers;
  for (const u32 cpu : mine.cpus())
    writers.emplace_back([&, cpu] {
      cpu_set_t one;
      CPU_ZERO(&one);
      CPU_SET(cpu, &one);
      sched_setaffinity(0, sizeof one, &one);
      while (!stop) syscall(SYS_getppid);
    });
  const auto take = [](Cpu& cpu) {
    auto view = must(cpu.source->next());
    if (!view) return false;
    cpu.lost += view->lost_before;
    abi::EventCursor c(view->sub_buffer + abi::header_size, view->begin, view->end, view->time);
    while (c.next()) {
      ++cpu.read;
      cpu.late += c.time() < cpu.last;
      cpu.last = c.time();
    }
    EXPECT_EQ(c.malformed(), abi::Malformed::no);
    return true;
  };
  const auto length = static_cast<u64>(test::test_seconds(60) / 6 * 1e9);
  const u64 until = sys::now_ns() + length;
  usleep(static_cast<useconds_t>(length / 3 / 1000));
  while (sys::now_ns() < until) {
    for (Cpu& cpu : cpus) take(cpu);
  }
  must(mine.tracing(false));
  stop = true;
  for (std::thread& writer : writers) writer.join();
  u64 all = 0, lost = 0;
  for (Cpu& cpu : cpus) {
    while (take(cpu)) {
    }
    // An event that was open when tracing was switched off is committed later, as on a processor that its host has stopped.
    int waits = 0;
    for (; cpu.source->counters().unread != 0 && waits < 10'000; ++waits) {
      if (!take(cpu)) usleep(1000);
    }
    if (waits != 0) std::printf("the last events of a CPU came after %d waits\n", waits);
    const Counters c = cpu.source->counters();
    EXPECT_EQ(c.unread, 0u) << c.bytes << " bytes, " << c.commit_overrun << " commit overruns, " << c.dropped << " dropped";
    EXPECT_EQ(cpu.read, c.read);
    EXPECT_EQ(cpu.lost, c.overrun);
    EXPECT_EQ(cpu.read + cpu.lost, c.written);
    EXPECT_EQ(cpu.late, 0u);
    all += c.written;
    lost += cpu.lost;
  }
  EXPECT_GT(all, 10000u);
  if (GetParam().mib == 0) {
    EXPECT_GT(lost, 0u);
  }
  std::printf("%lu events, %lu lost\n", all, lost);
}

}  // namespace
}  // namespace ringside::kernel_storm_test
