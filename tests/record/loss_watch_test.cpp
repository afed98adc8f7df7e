#include "record/loss_watch.hpp"

#include <gtest/gtest.h>

namespace ringside::loss_watch_test {
namespace {

constexpr u64 second = 1'000'000'000;

TEST(LossWatch, TellsAtOnceAndThenOnceAMinute) {
  LossWatch watch;
  EXPECT_TRUE(watch.is_due(0));
  EXPECT_EQ(watch.look(1, 0, 100, "; so"), std::nullopt);
  EXPECT_FALSE(watch.is_due(second));
  EXPECT_TRUE(watch.is_due(1 + second));
  EXPECT_EQ(watch.look(2 * second, 5, 95, "; so"), "5 events are lost already (5 %); so");
  EXPECT_EQ(watch.look(60 * second, 500, 500, "; so"), std::nullopt);
  EXPECT_EQ(watch.look(62 * second, 500, 500, "; so"), "500 events are lost by now (50 %); so");
  EXPECT_EQ(watch.look(200 * second, 500, 5000, "; so"), std::nullopt) << "nothing more was lost";
  EXPECT_EQ(watch.look(300 * second, 998, 2, ""), "998 events are lost by now (100 %)");
}

TEST(LossWatch, APartOfARotatedRecordingCountsAnew) {
  LossWatch watch;
  EXPECT_NE(watch.look(0, 5, 95, ""), std::nullopt);
  watch.begin_part();
  EXPECT_EQ(watch.look(30 * second, 3, 97, ""), std::nullopt) << "within the minute";
  EXPECT_EQ(watch.look(61 * second, 4, 96, ""), "4 events are lost already (4 %)");
}

}  // namespace
}  // namespace ringside::loss_watch_test
