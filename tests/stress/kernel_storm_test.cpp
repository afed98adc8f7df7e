// The kernel's rings under a storm of events on all CPUs, rings far too small: read + lost = what the kernel says it wrote.
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <ringside/abi/event_cursor.hpp>
#include <ringside/abi/sub_buffer.hpp>
#include <thread>

#include "kernel/kernel_source.hpp"
#include "kernel/tracefs_instance.hpp"
#include "ring_memory.hpp"
#include "sys/sys.hpp"

namespace ringside {
namespace {

class KernelStorm : public testing::TestWithParam<KernelWay> {};
INSTANTIATE_TEST_SUITE_P(Kernel, KernelStorm, testing::Values(KernelWay::read, KernelWay::map),
                         [](const auto& way) { return to_string(way.param); });

TEST_P(KernelStorm, TheBooksBalance) {
  TracefsOptions options;
  options.prefix = "ringside-test-";
  options.buffer_size = 64 * 1024;
  options.clock = ClockKind::mono;
  auto made = TracefsInstance::create(options);
  if (!made) GTEST_SKIP() << made.error().sentence;
  TracefsInstance& mine = *made;
  must(mine.enable("syscalls:*"));
  must(mine.enable("sched:*"));
  struct Cpu {
    std::unique_ptr<KernelSource> source;
    u64 read = 0, lost = 0, late = 0, last = 0;
  };
  std::vector<Cpu> cpus;
  for (const u32 cpu : mine.cpus()) cpus.push_back({must(open_kernel_ring({mine.dir(), cpu}, ClockInfo{}, GetParam()))});
  must(mine.tracing(true));

  std::atomic<bool> stop{false};
  std::vector<std::thread> writers;
  for (u32 i = 0; i < mine.cpus().size(); ++i)
    writers.emplace_back([&] {
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
  const u64 until = sys::now_ns() + static_cast<u64>(test::test_seconds(60) / 12 * 1e9);
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
    const Counters c = cpu.source->counters();
    EXPECT_EQ(c.unread, 0u);
    EXPECT_EQ(cpu.read, c.read);
    EXPECT_EQ(cpu.lost, c.overrun);
    EXPECT_EQ(cpu.read + cpu.lost, c.written);
    EXPECT_EQ(cpu.late, 0u);
    all += c.written;
    lost += cpu.lost;
  }
  EXPECT_GT(all, 10000u);
  std::printf("%lu events, %lu lost\n", all, lost);
}

}  // namespace
}  // namespace ringside
