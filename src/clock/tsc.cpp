#include "clock/tsc.hpp"

#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <ringside/base/ticks.hpp>
#include <sstream>

#include "sys/beside.hpp"
#include "sys/sys.hpp"

namespace ringside {
namespace {

bool has_word(const std::string& text, const char* word) {
  std::istringstream in(text);
  for (std::string one; in >> one;)
    if (one == word) return true;
  return false;
}

#if defined(__x86_64__)
// Two processors take turns, as the kernel's own test (arch/x86/kernel/tsc_sync.c) has it: each reads the other's last reading,
// then the counter, which must not be less.
struct Table {
  alignas(64) u64 last;
  alignas(64) u64 most_back;
};

u64 ordered_ticks() noexcept {
  __builtin_ia32_lfence();
  return read_ticks();
}

// Answers this reading; met: was the last one another's?
u64 take_turn(Table& table, u64 own, bool& met) noexcept {
  u64 seen = __atomic_load_n(&table.last, __ATOMIC_ACQUIRE);
  const u64 now = ordered_ticks();
  met = seen != own;
  if (static_cast<i64>(now - seen) < 0) {
    u64 most = __atomic_load_n(&table.most_back, __ATOMIC_RELAXED);
    while (seen - now > most &&
           !__atomic_compare_exchange_n(&table.most_back, &most, seen - now, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
    return own;
  }
  return __atomic_compare_exchange_n(&table.last, &seen, now, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED) ? now : own;
}

void take_turns(const sys::BesideHere& here, void* memory) noexcept {
  u64 own = 0;
  bool met;
  while (here.wanted())
    for (int i = 0; i < 1000; ++i) own = take_turn(*static_cast<Table*>(memory), own, met);
}

bool pin(pid_t thread, int cpu) noexcept {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(cpu, &one);
  return sched_setaffinity(thread, sizeof one, &one) == 0;
}
#endif

}  // namespace

KernelOnTsc kernel_on_tsc(const std::string& current, const std::string& available) {
  if (has_word(current, "tsc")) return KernelOnTsc::uses;
  if (has_word(available, "tsc")) return KernelOnTsc::accepts;
  for (const char* source : {"kvm-clock", "hyperv_clocksource_tsc_page", "xen"})
    if (has_word(current, source)) return KernelOnTsc::hypervisors;
  return KernelOnTsc::rejects;
}

bool has_invariant_flags(const std::string& cpuinfo) {
  const size_t begin = cpuinfo.find("\nflags");
  const std::string flags = begin == std::string::npos ? "" : cpuinfo.substr(begin, cpuinfo.find('\n', begin + 1) - begin);
  return has_word(flags, "constant_tsc") && has_word(flags, "nonstop_tsc");
}

void test_for_warps(TscEvidence& evidence) noexcept {
#if defined(__x86_64__)
  constexpr u64 enough = 5000;  // meetings of two processors
  cpu_set_t before;
  if (sched_getaffinity(0, sizeof before, &before) != 0) return;
  void* const memory = mmap(nullptr, sizeof(Table), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return;
  Table& table = *static_cast<Table*>(memory);
  int first = 0;
  while (first < CPU_SETSIZE && !CPU_ISSET(first, &before)) ++first;
  bool all_met = pin(0, first);
  {
    const sys::Beside beside(take_turns, memory);
    const u64 own_end = sys::thread_ns() + 300'000'000, deadline = sys::now_ns() + 3'000'000'000;
    const auto in_time = [&] { return sys::thread_ns() < own_end && sys::now_ns() < deadline; };
    for (int cpu = first + 1; cpu < CPU_SETSIZE && beside.pid() > 0; ++cpu) {
      if (!CPU_ISSET(cpu, &before)) continue;
      u64 meetings = 0, own = 0;
      for (bool met = false; pin(beside.pid(), cpu) && meetings < enough && in_time();)
        for (int i = 0; i < 100; ++i) {
          own = take_turn(table, own, met);
          meetings += met;
        }
      evidence.meetings += meetings;
      all_met &= meetings >= enough;
    }
    all_met &= beside.pid() > 0;
  }
  evidence.most_back = __atomic_load_n(&table.most_back, __ATOMIC_RELAXED);
  // A thread that may not run on all processors has not seen them all.
  const auto online = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  if (evidence.most_back != 0)
    evidence.warps = Warps::found;
  else if (all_met && CPU_COUNT(&before) >= online)
    evidence.warps = Warps::none;
  munmap(memory, sizeof(Table));
  sched_setaffinity(0, sizeof before, &before);
#else
  (void)evidence;
#endif
}

const TscEvidence& tsc_evidence() {
  static const TscEvidence evidence = [] {
    TscEvidence found;
    if (!is_instruction(ClockKind::tsc)) return found;
    const auto file = [](const std::string& path) { return sys::read_file(path.c_str()).value_or(""); };
    const std::string sources = "/sys/devices/system/clocksource/clocksource0/";
    found.invariant = has_invariant_flags(file("/proc/cpuinfo"));
    found.kernel = kernel_on_tsc(file(sources + "current_clocksource"), file(sources + "available_clocksource"));
    if (found.invariant && found.kernel != KernelOnTsc::uses) test_for_warps(found);
    return found;
  }();
  return evidence;
}

}  // namespace ringside
