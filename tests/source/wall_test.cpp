// Times of day: as text, from text, and of a recording.
#include "source/wall.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <time.h>

#include "consumer/window.hpp"

namespace ringside::wall_test {
namespace {

constexpr i64 second = 1'000'000'000, hour = 3600 * second;

// In a zone of its own: an hour east of UTC, without summer time.
struct Wall : testing::Test {
  std::string before;
  void SetUp() override {
    if (const char* zone = getenv("TZ")) before = zone;
    setenv("TZ", "XXX-1", 1);
    tzset();
  }
  void TearDown() override {
    before.empty() ? unsetenv("TZ") : setenv("TZ", before.c_str(), 1);
    tzset();
  }
  static constexpr i64 noon = 1'790'000'000 * second - 1'790'000'000 % 86400 * second + 12 * hour;  // by UTC
};

TEST_F(Wall, AsText) {
  EXPECT_EQ(wall_text(5), "1970-01-01T01:00:00.000000005+01:00");
  EXPECT_EQ(wall_text(86399 * second + 999'999'999), "1970-01-02T00:59:59.999999999+01:00");
  EXPECT_EQ(wall_text(-1), "1970-01-01T00:59:59.999999999+01:00");
}

TEST_F(Wall, FromText) {
  for (const i64 ns : {noon, noon + 123'456'789, noon - 13 * hour}) {
    const WallTime back = must(parse_wall(wall_text(ns)));
    EXPECT_TRUE(back.has_date);
    EXPECT_EQ(back.ns, ns) << wall_text(ns);
  }
  EXPECT_EQ(must(parse_wall("14:05:02.5")).ns, 14 * hour + 302 * second + second / 2);
  EXPECT_FALSE(must(parse_wall("14:05")).has_date);
  EXPECT_EQ(must(parse_wall("1970-01-01 01:00:01")).ns, second);
  EXPECT_EQ(must(parse_wall("1970-01-01T00:00:01Z")).ns, second);
  EXPECT_EQ(must(parse_wall("1970-01-01T00:00:00-02:00")).ns, 2 * hour);
  for (const char* text : {"", "25:00", "14:5", "14:05:02.5x", "1970-13-01", "1970-01-01T", "1970-01-01T10:00:00+1", "12.5s"})
    EXPECT_FALSE(parse_wall(text)) << text;
}

TEST_F(Wall, TheDayIsThatOfTheTrace) {
  const i64 begin = noon - hour;  // 12:00 here
  EXPECT_EQ(wall_on_day_of(12 * hour + second, begin), begin + second);
  EXPECT_EQ(wall_on_day_of(11 * hour, begin), begin - hour);  // it begins later: nothing is there
  EXPECT_EQ(wall_on_day_of(23 * hour, begin), begin + 11 * hour);
  EXPECT_EQ(wall_on_day_of(10 * second, begin + 11 * hour + hour / 2), begin + 12 * hour + 10 * second);  // after midnight
}

TEST_F(Wall, ARangeOfATrace) {
  const WallClock wall{noon, 0};  // the trace's 0 is 13:00 here
  Window window;
  must(window.parse_time("13:00:05.5..+10s"));
  EXPECT_TRUE(window.asks_day());
  window.resolve(wall, second);
  EXPECT_EQ(window.from.ns, 5 * u64{second} + second / 2);
  EXPECT_EQ(window.until.ns, 15 * u64{second} + second / 2);
  EXPECT_FALSE(window.until.relative);
  Window dated;
  must(dated.parse_time("..1970-01-01T00:00:00Z"));
  dated.resolve(wall, second);
  EXPECT_EQ(dated.until.ns, 0u);
  Window plain;
  must(plain.parse_time("12.5s..+1s"));
  EXPECT_FALSE(plain.asks_day());
}

}  // namespace
}  // namespace ringside::wall_test
