#include <gtest/gtest.h>

#include "writer/maker.hpp"

namespace ringside::pages_test {
namespace {

TEST(Pages, ASubBufferIsAPageOfTheKernelOrMore) {
  const u32 sizes[][3] = {{4096, 4096, 4096},   {16384, 4096, 16384},  {16384, 65536, 65536},
                          {65536, 4096, 65536}, {65536, 65536, 65536}, {65536, 262144, 262144}};
  for (const auto& [page, asked, is] : sizes) {
    const auto g = geometry_for(1 << 20, asked, 1, page);
    ASSERT_TRUE(g) << g.error().sentence;
    EXPECT_EQ(g->subbuf_size(), is);
    EXPECT_EQ(g->data_size() % page, 0u);
    EXPECT_EQ(g->offset_of(1) % page, 0u);
    EXPECT_GE(u64{g->nr_slots()} * g->capacity(), u64{1} << 20);
  }
  EXPECT_FALSE(geometry_for(1 << 20, 1000, 1, 16384)) << "no size of a sub-buffer";
}

TEST(Pages, LargerOnesThanTheLargestSubBufferAreRefusedInWords) {
  const auto g = geometry_for(1 << 20, 16384, 1, 1 << 20);
  ASSERT_FALSE(g);
  EXPECT_EQ(g.error().code, std::errc::not_supported);
  EXPECT_NE(g.error().sentence.find("pages of 1048576 bytes"), std::string::npos) << g.error().sentence;
}

}  // namespace
}  // namespace ringside::pages_test
