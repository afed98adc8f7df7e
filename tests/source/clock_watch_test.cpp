#include "source/clock_watch.hpp"

#include <gtest/gtest.h>

namespace ringside::clock_watch_test {
namespace {

constexpr u64 second = 1'000'000'000;
constexpr ClockKind ticking = is_instruction(ClockKind::tsc) ? ClockKind::tsc : ClockKind::cntvct;

// Ticks of 1 ns that begin at 0.
TEST(ClockWatch, TellsOfAJumpOnce) {
  if (!is_instruction(ticking)) GTEST_SKIP() << "no instruction of this processor reads a clock";
  ClockWatch watch({.kind = ticking});
  EXPECT_TRUE(watch.is_due(1));
  EXPECT_EQ(watch.look({second, second}), std::nullopt);
  EXPECT_FALSE(watch.is_due(2 * second - 1));
  EXPECT_TRUE(watch.is_due(2 * second));
  EXPECT_EQ(watch.look({2 * second + 500'000, 2 * second}), std::nullopt) << "slewed";
  const auto ahead = watch.look({7 * second, 3 * second});
  ASSERT_TRUE(ahead);
  EXPECT_NE(ahead->find("went ahead by 3.99"), std::string::npos) << *ahead;
  EXPECT_EQ(watch.look({8 * second, 4 * second}), std::nullopt);
  const auto behind = watch.look({9 * second, 6 * second});
  ASSERT_TRUE(behind);
  EXPECT_NE(behind->find("fell back by 1.000 s"), std::string::npos) << *behind;
}

TEST(ClockWatch, LooksAfterARecorderThatStoodStill) {
  if (!is_instruction(ticking)) GTEST_SKIP() << "no instruction of this processor reads a clock";
  ClockWatch watch({.kind = ticking});
  (void)watch.look({second, second});
  EXPECT_EQ(watch.look({1000 * second + 900'000'000, 1000 * second}), std::nullopt) << "900 ppm";
  EXPECT_TRUE(watch.look({2000 * second + 4000'000'000, 2000 * second})) << "3,100 ppm: a wrong rate";
}

TEST(ClockWatch, LeavesOtherClocksAlone) {
  EXPECT_FALSE(ClockWatch({.kind = ClockKind::mono}).is_due(5 * second));
  EXPECT_FALSE(ClockWatch({.kind = ClockKind::counter}).is_due(5 * second));
}

}  // namespace
}  // namespace ringside::clock_watch_test
