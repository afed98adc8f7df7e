#include "clock/clock.hpp"

#include <fcntl.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <charconv>
#include <cstring>

#include "clock/time_namespace.hpp"
#include "clock/tsc.hpp"

namespace ringside {
namespace {

i64 ahead_ns = 0;     // of the kernel's clock; only by atomic operations
bool looked = false;  // the same

u64 mono_ns() noexcept {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<u64>(t.tv_sec) * 1000000000 + static_cast<u64>(t.tv_nsec) -
         static_cast<u64>(__atomic_load_n(&ahead_ns, __ATOMIC_RELAXED));
}

void look_once() noexcept {
  if (!__atomic_load_n(&looked, __ATOMIC_RELAXED)) look_at_time_namespace();
}

// "monotonic    100000         0": seconds, which may be negative, and ns.
i64 offset_in(const char* text) noexcept {
  const char* const line = std::strstr(text, "monotonic");
  if (line == nullptr) return 0;
  i64 numbers[2] = {};
  const char* at = line + std::strlen("monotonic");
  for (i64& number : numbers) {
    while (*at == ' ') ++at;
    const bool negative = *at == '-';
    if (negative) ++at;
    for (; *at >= '0' && *at <= '9'; ++at) number = number * 10 + (*at - '0');
    if (negative) number = -number;
  }
  return numbers[0] * 1000000000 + numbers[1];
}

}  // namespace

TicksAndNs ticks_and_ns() noexcept {
  look_once();
  TicksAndNs best{};
  u64 width = ~u64{0};
  for (int i = 0; i < 32; ++i) {
    const u64 a = read_ticks();
    const u64 ns = mono_ns();
    const u64 b = read_ticks();
    if (b - a >= width) continue;
    width = b - a;
    best = {a + (b - a) / 2, ns};
  }
  return best;
}

const char* to_string(ClockKind kind) noexcept {
  switch (kind) {
    case ClockKind::tsc: return "x86-tsc";
    case ClockKind::mono: return "mono";
    case ClockKind::counter: return "counter";
    case ClockKind::cntvct: return "arm64-cntvct";
  }
  return "?";
}

result<ClockKind> clock_from(const std::string& name) {
  if (name == "tsc" || name == "x86-tsc") return ClockKind::tsc;
  if (name == "mono") return ClockKind::mono;
  if (name == "counter") return ClockKind::counter;
  if (name == "cntvct" || name == "arm64-cntvct") return ClockKind::cntvct;
  return refuse(std::errc::invalid_argument,
                "there is no clock '" + name + "': use tsc (x86-64), cntvct (arm64), mono or counter");
}

ClockKind best_clock() { return tsc_evidence().trusted() ? ClockKind::tsc : ClockKind::mono; }

bool takes_system_call(ClockKind kind) noexcept {
  if (kind != ClockKind::mono) return false;
  if (getauxval(AT_SYSINFO_EHDR) == 0) return true;
  char source[64] = {};
  const int fd = open("/sys/devices/system/clocksource/clocksource0/current_clocksource", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return true;  // unknown
  const ssize_t n = read(fd, source, sizeof source - 1);
  close(fd);
  if (n <= 0) return true;
  source[std::strcspn(source, "\n")] = 0;
  for (const char* known : {"tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter", "riscv_clocksource"})
    if (std::strcmp(source, known) == 0) return false;
  return true;
}

i64 ahead_in_time_namespace(i32 pid) noexcept {
  char path[48] = "/proc/self";
  char* const who = path + std::strlen("/proc/");
  std::strcpy(pid == 0 ? who + std::strlen("self") : std::to_chars(who, path + 24, pid).ptr, "/timens_offsets");
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  char text[256];
  const ssize_t n = read(fd, text, sizeof text - 1);
  close(fd);
  text[n < 0 ? 0 : n] = 0;
  return offset_in(text);
}

// The file shows the namespace of children, which after unshare() is not yet this process's.
void look_at_time_namespace() noexcept {
  __atomic_store_n(&looked, true, __ATOMIC_RELAXED);
  struct stat own {};
  struct stat children {};
  if (stat("/proc/self/ns/time", &own) != 0 || stat("/proc/self/ns/time_for_children", &children) != 0 ||
      own.st_ino != children.st_ino)
    return;
  __atomic_store_n(&ahead_ns, ahead_in_time_namespace(0), __ATOMIC_RELAXED);
}

Calibration::Calibration(ClockKind kind) noexcept : kind_(kind) {
  if (is_instruction(kind)) from_ = ticks_and_ns();
}

ClockInfo Calibration::finish() const noexcept {
  ClockInfo info;
  info.kind = kind_;
  if (!is_instruction(kind_)) return info;
  constexpr u64 enough = 1'000'000;  // ns
  const TicksAndNs from = from_;
  if (const u64 passed = mono_ns() - from.ns; passed < enough) {
    const timespec pause{0, static_cast<long>(enough - passed)};
    nanosleep(&pause, nullptr);
  }
  const TicksAndNs to = ticks_and_ns();
  const double ns_per_tick = static_cast<double>(to.ns - from.ns) / static_cast<double>(to.ticks - from.ticks);
  info.shift = 31;
  while (info.shift > 0 && ns_per_tick * static_cast<double>(u64{1} << info.shift) >= 4294967295.0) --info.shift;
  info.mult = static_cast<u32>(ns_per_tick * static_cast<double>(u64{1} << info.shift) + 0.5);
  // A base whose product with mult has no bits below the shift: (ticks * mult >> shift) plus a constant is then the same time
  // to the nanosecond, for formats that know no base.
  info.base_ticks = from.ticks >> info.shift << info.shift;
  info.base_ns = 0;
  info.base_ns = from.ns - info.to_ns(from.ticks);
  return info;
}

ClockInfo line(u64 from, u64 from_ns, double rate) noexcept {
  ClockInfo info;
  info.shift = 31;
  while (info.shift > 0 && rate * static_cast<double>(u64{1} << info.shift) >= 4294967295.0) --info.shift;
  info.mult = static_cast<u32>(rate * static_cast<double>(u64{1} << info.shift) + 0.5);
  info.base_ticks = from;
  info.base_ns = from_ns;
  return info;
}

ClockInfo refined(const ClockInfo& clock, u64& error_ns) noexcept {
  error_ns = 0;
  if (!is_instruction(clock.kind)) return clock;
  const TicksAndNs now = ticks_and_ns();
  const u64 said = clock.to_ns(now.ticks);
  error_ns = said > now.ns ? said - now.ns : now.ns - said;
  // Within two seconds of the base the old rate is as good; an error of more than a thousandth is not the rate's.
  if (now.ns - clock.base_ns < 2'000'000'000 || error_ns > (now.ns - clock.base_ns) / 1000) return clock;
  ClockInfo better = line(clock.base_ticks, clock.base_ns,
                          static_cast<double>(now.ns - clock.base_ns) / static_cast<double>(now.ticks - clock.base_ticks));
  better.kind = clock.kind;
  return better;
}

u64 now_of(const ClockInfo& clock) noexcept {
  look_once();
  u64 ticks;
  return ticks_of(clock.kind, ticks) ? clock.to_ns(ticks) : mono_ns();
}

u64 RingClockNow::slow() noexcept {
  if (kind == ClockKind::counter) return __atomic_add_fetch(counter, 1, __ATOMIC_RELAXED);
  return mono_ns();
}

}  // namespace ringside
