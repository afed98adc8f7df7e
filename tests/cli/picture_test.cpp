// Bars, sparklines and heat maps. Compiled in: the binary's sources are no library.
#include "../src/watch/picture.cpp"  // NOLINT

#include <gtest/gtest.h>

#include "cli/table.hpp"

namespace ringside::cli::picture_test {
namespace {

TEST(Pictures, BarsToAnEighth) {
  EXPECT_EQ(bar(0, 4, Glyphs::unicode), "    ");
  EXPECT_EQ(bar(1, 4, Glyphs::unicode), "████");
  EXPECT_EQ(bar(7, 4, Glyphs::unicode), "████");
  EXPECT_EQ(bar(0.5, 4, Glyphs::unicode), "██  ");
  EXPECT_EQ(bar(0.28125, 4, Glyphs::unicode), "█▏  ");
  EXPECT_EQ(bar(1e-9, 4, Glyphs::unicode), "▏   ");
  EXPECT_EQ(bar(0.5, 4, Glyphs::ascii), "##  ");
  EXPECT_EQ(bar(1e-9, 4, Glyphs::ascii), "#   ");
  EXPECT_EQ(bar(std::nan(""), 4, Glyphs::ascii), "    ");
}

TEST(Pictures, Sparklines) {
  EXPECT_EQ(sparkline({0, 1, 4, 8}, Glyphs::unicode), " ▁▄█");
  EXPECT_EQ(sparkline({0, 8}, Glyphs::ascii), " #");
  EXPECT_EQ(sparkline({4, 100}, Glyphs::unicode, 8), "▄█");
  EXPECT_EQ(sparkline({0, std::nan(""), -1}, Glyphs::unicode), "   ");
  EXPECT_EQ(sparkline({}, Glyphs::unicode), "");
}

TEST(Pictures, ShadesByTheLogarithm) {
  EXPECT_EQ(shade(0, 1000, Glyphs::unicode), " ");
  EXPECT_EQ(shade(1, 1000, Glyphs::unicode), "░");
  EXPECT_EQ(shade(1000, 1000, Glyphs::unicode), "█");
  EXPECT_EQ(shade(1, 1, Glyphs::ascii), "@");
  EXPECT_EQ(shade(1, 1000, Glyphs::ascii), ".");
}

TEST(Pictures, TimesByPowersOfTwo) {
  Histogram h;
  h.add(1100, 3);
  h.add(1500, 1);
  h.add(5000, 2);
  EXPECT_EQ(time_bars(h, 50, Glyphs::ascii),
            " 1.02 us -  2.05 us  ##########################  4\n"
            " 2.05 us -   4.1 us                              0\n"
            "  4.1 us -  8.19 us  #############               2\n");
  EXPECT_EQ(time_bars(Histogram(), 50, Glyphs::ascii), "");
}

TEST(Pictures, HeatMapsFitAndCountEverything) {
  HeatMap heat;
  for (u64 t = 0; t < 1000; ++t) heat.add(t * 1'000'000, 1000 + t);
  heat.add(999'000'000, 3'000'000);
  const std::string picture = heat_map(heat, 40, Glyphs::ascii);
  size_t lines = 0;
  for (size_t at = 0; at < picture.size(); ++lines) {
    const size_t end = picture.find('\n', at);
    EXPECT_LE(end - at, 60u) << picture;
    at = end + 1;
  }
  EXPECT_EQ(lines, 13u + 2) << picture;  // 2^9 to 2^21, the times, the legend
  EXPECT_NE(picture.find("0.000 s"), std::string::npos) << picture;
  EXPECT_EQ(heat_map(HeatMap(), 40, Glyphs::ascii), "");
  const std::string low = heat_map(heat, 40, Glyphs::ascii, TimeUnit::ns, 3);
  EXPECT_NE(low.find("<"), std::string::npos) << low;
}

}  // namespace
}  // namespace ringside::cli::picture_test
