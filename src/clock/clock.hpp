// The clocks of an instance. tsc: raw ticks of x86, where the processor's counter is invariant and all processors agree;
// cntvct: raw ticks of arm64, where that is so by the architecture; mono: CLOCK_MONOTONIC in ns; counter: each reading of a
// ring adds one, for tests. Ticks are converted by what their instance says, so any processor reads them; only their own one
// writes them.
#pragma once
#include <ringside/base/result.hpp>
#include <ringside/thread.hpp>
#include <string>

namespace ringside {

// d * mult >> shift, for processors without integers of 128 bits.
constexpr u64 scaled(i64 d, u32 mult, u32 shift) noexcept {
  const u64 low = (static_cast<u64>(d) & 0xFFFFFFFF) * mult;
  const i64 high = (d >> 32) * static_cast<i64>(mult) + static_cast<i64>(low >> 32);
  if (shift >= 32) return static_cast<u64>(high >> (shift - 32));
  return static_cast<u64>(high) << (32 - shift) | (low & 0xFFFFFFFF) >> shift;
}

// ns = base_ns + ((ticks - base_ticks) * mult >> shift); identity for mono and counter.
struct ClockInfo {
  ClockKind kind = ClockKind::mono;
  u32 mult = 1, shift = 0;
  u64 base_ticks = 0, base_ns = 0;
  u64 to_ns(u64 ticks) const noexcept {
    const auto d = static_cast<i64>(ticks - base_ticks);
#ifdef __SIZEOF_INT128__
    __extension__ using i128 = __int128;
    return base_ns + static_cast<u64>(static_cast<i64>((i128{d} * mult) >> shift));
#else
    return base_ns + scaled(d, mult, shift);
#endif
  }
};

// to_ns() of ticks that follow one another: the remainder of each is carried to the next, so a step is a product of 64 bits.
// Equal to to_ns(), unless the ticks since the clock's base pass 2^63.
class NsWalk {
 public:
  NsWalk(const ClockInfo& clock, u64 ticks, u64 ns) noexcept  // ns: to_ns(ticks)
      : ns_(ns),
        mult_(clock.mult),
        shift_(clock.shift),
        below_((u64{1} << clock.shift) - 1),
        rest_((ticks - clock.base_ticks) * mult_ & below_) {}
  // delta: ticks since the last, below 2^28. The product is below 2^60, and the shift below 64, so the sum fits.
  u64 step(u32 delta) noexcept {
    rest_ += delta * mult_;
    ns_ += rest_ >> shift_;
    rest_ &= below_;
    return ns_;
  }

 private:
  u64 ns_, mult_;
  u32 shift_;
  u64 below_, rest_;
};

// The clock that shared words describe (an instance's, a server's greeting). An unknown kind is taken for mono.
template <class Words>
ClockInfo clock_in(const Words& words) noexcept {
  const u32 kind = words.clock_kind;
  if (kind > last_clock_kind) return {};
  if (!counts_ticks(static_cast<ClockKind>(kind))) return {.kind = static_cast<ClockKind>(kind)};
  return {static_cast<ClockKind>(kind), words.clock_mult, words.clock_shift & 63, words.clock_base_ticks, words.clock_base_ns};
}

// mono is the kernel's CLOCK_MONOTONIC, as its own events have it. In a time namespace a process's own may be ahead of that,
// and all times here are less that difference. It is looked up when an instance with this clock is opened, in a child, and
// before a reader's first calibration or now_of(). Signal-safe.
void look_at_time_namespace() noexcept;

// Does a program read it by a system call? Where the kernel's clock source has no part in user space (hpet, acpi_pm).
bool takes_system_call(ClockKind kind) noexcept;

const char* to_string(ClockKind kind) noexcept;         // the kernel's names: x86-tsc, mono, counter; arm64-cntvct
result<ClockKind> clock_from(const std::string& name);  // these, tsc and cntvct
ClockKind best_clock();  // tsc where it can be trusted (tsc.hpp), else mono: a clock that the kernel has, too

// Measures the rate of a clock of ticks. What the caller does between the two is part of the measurement: it lasts at least a
// millisecond, after which the error is a few ppm.
struct TicksAndNs {
  u64 ticks, ns;
};
TicksAndNs ticks_and_ns() noexcept;  // at one moment: the tightest of a few tries
class Calibration {
 public:
  explicit Calibration(ClockKind kind) noexcept;
  ClockInfo finish() const noexcept;

 private:
  ClockKind kind_;
  TicksAndNs from_{};
};
inline ClockInfo calibrate(ClockKind kind) noexcept { return Calibration(kind).finish(); }

// The same clock with its rate measured anew, between its base and this moment: the older the base, the better. error_ns: the
// old rate's error at this moment.
ClockInfo refined(const ClockInfo& clock, u64& error_ns) noexcept;
// ns = from_ns + (ticks - from) * rate, a rate near 1: for a clock that counts ns other than CLOCK_MONOTONIC's.
ClockInfo line(u64 from, u64 from_ns, double rate) noexcept;
u64 now_of(const ClockInfo& clock) noexcept;                 // this moment in its ns; for counter: CLOCK_MONOTONIC

}  // namespace ringside
