#include <gtest/gtest.h>
#include <unistd.h>

#include "writer/maker.hpp"

namespace ringside::pages_test {
namespace {

TEST(Pages, OtherSizesAreRefusedInWords) {
  EXPECT_TRUE(pages_fit(4096));
  for (const u64 size : {u64{16384}, u64{65536}}) {
    const auto fit = pages_fit(size);
    ASSERT_FALSE(fit);
    EXPECT_EQ(fit.error().code, std::errc::not_supported);
    EXPECT_NE(fit.error().sentence.find("pages of " + std::to_string(size) + " bytes"), std::string::npos)
        << fit.error().sentence;
  }
}

}  // namespace
}  // namespace ringside::pages_test
