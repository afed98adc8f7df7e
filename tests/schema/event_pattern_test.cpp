#include "schema/event_pattern.hpp"

#include <gtest/gtest.h>

namespace ringside::event_pattern_test {
namespace {

bool means(std::string_view list, std::string_view system, std::string_view name) {
  return EventPatterns::parse(list).value().matches(system, name);
}

TEST(EventPattern, SystemAndEvent) {
  EXPECT_TRUE(means("sched:sched_switch", "sched", "sched_switch"));
  EXPECT_FALSE(means("sched:sched_switch", "sched", "sched_wakeup"));
  EXPECT_TRUE(means("sched:*_switch", "sched", "sched_switch"));
  EXPECT_TRUE(means("s*:", "sched", "sched_switch"));
  EXPECT_TRUE(means(":sched_switch", "sched", "sched_switch"));
  EXPECT_FALSE(means(":sched_switch", "sched_switch", "other"));
  EXPECT_TRUE(means("*:*", "any", "thing"));
}

TEST(EventPattern, AWordIsASystemOrAnEvent) {
  EXPECT_TRUE(means("sched", "sched", "sched_switch"));
  EXPECT_TRUE(means("sched_switch", "sched", "sched_switch"));
  EXPECT_TRUE(means("libc", "libc", "malloc"));
  EXPECT_TRUE(means("m*", "libc", "malloc"));
  EXPECT_FALSE(means("switch", "sched", "sched_switch"));
}

// These lines are read by programs that were built before words were patterns.
TEST(EventPattern, PatternsInFull) {
  using Lines = std::vector<std::string>;
  EXPECT_EQ(EventPattern("net").in_full(), (Lines{"net:*", "*:net"}));
  EXPECT_EQ(EventPattern("net:in*").in_full(), Lines{"net:in*"});
  EXPECT_EQ(EventPattern("net:").in_full(), Lines{"net:*"});
  EXPECT_EQ(EventPattern("*").in_full(), Lines{"*:*"});
}

TEST(EventPattern, Lists) {
  EXPECT_TRUE(means("libc,sched:sched_switch", "libc", "malloc"));
  EXPECT_TRUE(means("libc,sched:sched_switch", "sched", "sched_switch"));
  EXPECT_FALSE(means("libc,sched:sched_switch", "sched", "sched_wakeup"));
  EXPECT_EQ(EventPatterns::parse(std::vector<std::string>{"a,b", "c:d"}).value().size(), 3u);
}

TEST(EventPattern, InvalidPatternsAreRefused) {
  for (const char* text : {"", ",", "a,", "!a", "a b", "a\nb", "a/b"}) {
    const auto parsed = EventPatterns::parse(text);
    ASSERT_FALSE(parsed) << text;
    EXPECT_NE(parsed.error().sentence.find("is no event pattern"), std::string::npos);
  }
}

// A user who means "all events of my program" does not want two thousand kernel events.
TEST(EventPattern, PatternsThatMayNameKernelEvents) {
  for (const char* text : {"sched", "sched:*", "sched_switch", "s*:x"})
    EXPECT_TRUE(EventPattern(text).may_name_kernel()) << text;
  for (const char* text : {"*", "*:*", "?*:read", ":read", "*:"}) EXPECT_FALSE(EventPattern(text).may_name_kernel()) << text;
}

TEST(EventPattern, ChoosesAmongASystem) {
  for (const char* text : {"libc", "libc:malloc", "l*", "l*:m*"}) EXPECT_TRUE(EventPattern(text).chooses_among("libc")) << text;
  for (const char* text : {"sched", "sched:*", "app:*"}) EXPECT_FALSE(EventPattern(text).chooses_among("libc")) << text;
}

}  // namespace
}  // namespace ringside::event_pattern_test
