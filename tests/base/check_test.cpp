// Broken invariants end the program with a line that says which and where.
#include <gtest/gtest.h>
#include <ringside/base/check.hpp>

#include "writer/ring_pages.hpp"

namespace ringside::test::check_test {
namespace {

TEST(CheckDeath, SaysWhereAndWhat) {
  RINGSIDE_CHECK(1 + 1 == 2, "not this one");
  EXPECT_DEATH(RINGSIDE_CHECK(1 + 1 == 3, "one and one are three"), "^[^ ]*check_test\\.cpp:[0-9]+: one and one are three\n$");
  EXPECT_EXIT(RINGSIDE_CHECK(false, "words"), testing::KilledBySignal(SIGABRT), "words");
}

TEST(CheckDeath, LongWordsAreCut) {
  static const std::string words(2000, 'x');
  EXPECT_DEATH(RINGSIDE_CHECK(words.empty(), words.c_str()), "check_test\\.cpp:[0-9]+: x{400,480}\n$");
}

TEST(CheckDeath, OfADevBuild) {
  int evaluated = 0;
  RINGSIDE_DEBUG_CHECK(++evaluated != 0, "");
#ifdef NDEBUG
  EXPECT_EQ(evaluated, 0);
#else
  EXPECT_EQ(evaluated, 1);
  EXPECT_DEATH(RINGSIDE_DEBUG_CHECK(false, "only here"), "only here");
#endif
}

// A Memory that checks the ring after each slow step finds what is wrong with it.
TEST(CheckDeath, ABrokenRing) {
  TestRing t(3);
  for (u64 n = 0; n < 3; ++n) ASSERT_TRUE(t.number(n, 2040));
  t.ring.record(0).slot = t.ring.record(1).slot = 0;
  t.ring.record(1).slot = pack_slot(1, 0, slot_id(0, t.ring.record(0).slot));
  EXPECT_DEATH(
      {
        for (u64 n = 0; n < 20; ++n) t.number(n, 2040);
      },
      "ring/check\\.hpp, does not hold: ");
}

#ifndef NDEBUG
TEST(CheckDeath, WhatIsConsumedIsInTheView) {
  TestRing t(3);
  ASSERT_TRUE(t.number(1));
  ASSERT_EQ(t.reader.peek(), Got::data);
  EXPECT_DEATH(t.reader.consume(4000, 1), "what is consumed is in the view");
}
#endif

}  // namespace
}  // namespace ringside::test::check_test
