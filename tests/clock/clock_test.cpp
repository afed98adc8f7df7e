#include "clock/clock.hpp"

#include <gtest/gtest.h>

#include <random>

namespace ringside::clock_test {
namespace {

// Every product by hand: what the two halves of 64 bits must give.
TEST(ClockScale, TheProductIsExact) {
  EXPECT_EQ(scaled(0, ~u32{0}, 31), 0u);
  EXPECT_EQ(scaled(1000, u32{1} << 31, 31), 1000u);
  EXPECT_EQ(static_cast<i64>(scaled(-1000, u32{1} << 31, 31)), -1000);
  EXPECT_EQ(static_cast<i64>(scaled(-1, 1, 31)), -1) << "rounded down";
  EXPECT_EQ(static_cast<i64>(scaled(-1, 1, 63)), -1);
  EXPECT_EQ(scaled(i64{1} << 62, 3, 2), u64{3} << 60);
  EXPECT_EQ(scaled(i64{1} << 62, u32{1} << 31, 63), u64{1} << 30);
  EXPECT_EQ(scaled(i64{1} << 62, u32{1} << 31, 32), u64{1} << 61);
}

#ifdef __SIZEOF_INT128__
TEST(ClockScale, AsWith128Bits) {
  __extension__ using i128 = __int128;
  std::mt19937_64 random(1);
  for (int i = 0; i < 100000; ++i) {
    const auto d = static_cast<i64>(random()) >> (random() % 64);
    const auto mult = static_cast<u32>(random());
    const auto shift = static_cast<u32>(random() % 64);
    ASSERT_EQ(scaled(d, mult, shift), static_cast<u64>(static_cast<i64>((i128{d} * mult) >> shift)))
        << d << " * " << mult << " >> " << shift;
  }
}
#endif

// Step by step, with any rate: also before the clock's base, and with the largest step and rate.
TEST(NsWalk, EveryStepIsWhatTheClockSays) {
  std::mt19937_64 random(2);
  for (int i = 0; i < 2000; ++i) {
    const ClockInfo clock{ClockKind::tsc, i == 0 ? ~u32{0} : static_cast<u32>(random()) >> (random() % 32),
                          i == 0 ? 63 : static_cast<u32>(random() % 64), random() >> 2, random()};
    u64 ticks = clock.base_ticks + (random() >> 2 >> (random() % 62)) - (random() >> 2 >> (random() % 62));
    NsWalk walk(clock, ticks, clock.to_ns(ticks));
    for (int n = 0; n < 200; ++n) {
      const u32 delta = i == 0 ? (1u << 27) - 1 : static_cast<u32>(random() % (u64{1} << (random() % 28)));
      ASSERT_EQ(walk.step(delta), clock.to_ns(ticks += delta)) << clock.mult << " >> " << clock.shift << ", step " << n;
    }
  }
}

}  // namespace
}  // namespace ringside::clock_test
