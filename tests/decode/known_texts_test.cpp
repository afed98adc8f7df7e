#include "decode/known_texts.hpp"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

namespace ringside::known_texts_test {
namespace {

std::string text_of(const CopiedText& text) { return std::string(text.view()); }

TEST(KnownTexts, AreThoseOfTheirValues) {
  KnownTexts<6> texts;
  EXPECT_EQ(texts.find(0), nullptr);
  texts.add(0, "none");
  texts.add(7, std::string(2000, 'x'));  // too long
  ASSERT_NE(texts.find(0), nullptr);
  EXPECT_EQ(text_of(*texts.find(0)), "none");
  EXPECT_EQ(texts.find(7), nullptr);
  for (u64 value = 1; value < 1000; ++value) texts.add(value, std::to_string(value));
  u64 known = 0;
  for (u64 value = 1; value < 1000; ++value) {
    const CopiedText* const text = texts.find(value);
    if (text == nullptr) continue;
    EXPECT_EQ(text_of(*text), std::to_string(value));
    ++known;
  }
  EXPECT_LT(known, 64u);  // one place is taken by 0
  EXPECT_GT(known, 30u);
}

TEST(KnownTexts, ManyThreadsAddAndFind) {
  KnownTexts<6> texts;
  std::vector<std::thread> threads;
  for (u64 n = 0; n < 4; ++n) {
    threads.emplace_back([&, n] {
      for (u64 i = 0; i < 20'000; ++i) {
        const u64 value = (i * 31 + n) % 200;
        const CopiedText* const text = texts.find(value);
        if (text == nullptr) {
          texts.add(value, std::to_string(value));
          continue;
        }
        ASSERT_EQ(text_of(*text), std::to_string(value));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace ringside::known_texts_test
