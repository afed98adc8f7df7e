// Which stack held a lock or ended a wait.
#include "analysis/lock_holders.hpp"

#include <gtest/gtest.h>

#include "cli/hand_made.hpp"

namespace ringside::lock_holders_test {
namespace {

using test::Payload;

struct Holders : testing::Test {
  static constexpr i32 timed_out = 110;
  Formats formats;
  Tasks tasks;
  LockHolders holders{formats, tasks};
  RingName ring{0, 70, 71, "app", "app", false, ""};

  void SetUp() override {
    const auto at = [](const char* type, int offset, int size) {
      return std::string("\tfield:") + type + ";\toffset:" + std::to_string(offset) + ";\tsize:" + std::to_string(size) +
             ";\tsigned:0;\n";
    };
    const std::string end = at("u64 wait_ns", 24, 8) + at("s32 ret", 32, 4);
    formats.add(1, "libc", "cond_wait",
                test::format(1, "cond_wait", at("void * cond", 8, 8) + at("void * mutex", 16, 8) + end, R"("x")"));
    formats.add(2, "libc", "cond_signal", test::format(2, "cond_signal", at("void * cond", 8, 8), R"("x")"));
    formats.add(3, "libc", "sem_wait", test::format(3, "sem_wait", at("void * sem", 8, 8) + end, R"("x")"));
    formats.add(4, "libc", "sem_post", test::format(4, "sem_post", at("void * sem", 8, 8), R"("x")"));
    formats.add(5, "libc", "mutex_lock", test::format(5, "mutex_lock", at("void * mutex", 8, 8) + end, R"("x")"));
    tasks.add(ring);
  }
  std::optional<LockHolders::Wait> take(u64 time, u32 stack, const Payload& payload) {
    TraceRecord record;
    record.time = time;
    record.stack = stack;
    record.payload = payload;
    record.ids = ring.ids();
    return holders.take(record, ring);
  }
  void signal(u64 time, u32 stack) { EXPECT_FALSE(take(time, stack, Payload(2, 71).put(u64{0xC0}))); }
  void post(u64 time, u32 stack) { EXPECT_FALSE(take(time, stack, Payload(4, 71).put(u64{0x50}))); }
  u32 waker(u16 id, u64 at, u64 time, u64 ns, i32 ret) {
    const auto wait = take(time, 9, Payload(id, 71).put(at).put(u64{0xA0}).put(ns).put(ret));
    EXPECT_TRUE(wait && wait->woken && wait->ns == ns);
    return wait ? wait->other : 0;
  }
  u32 of_condition(u64 time, u64 ns, i32 ret = 0) { return waker(1, 0xC0, time, ns, ret); }
  u32 of_semaphore(u64 time, u64 ns, i32 ret = 0) { return waker(3, 0x50, time, ns, ret); }
};

TEST_F(Holders, AWaitThatTimedOutWasNotEndedByASignal) {
  signal(1000, 5);
  EXPECT_EQ(of_condition(5000, 3000, timed_out), 0u);
  signal(5500, 6);
  EXPECT_EQ(of_condition(6000, 900, timed_out), 0u);
  post(6100, 7);
  EXPECT_EQ(of_semaphore(7000, 500, timed_out), 0u);
}

// A semaphore keeps a post for later; a condition keeps no signal.
TEST_F(Holders, ASignalFromBeforeAWaitDidNotEndIt) {
  signal(1000, 5);
  EXPECT_EQ(of_condition(5000, 3000), 0u);
  signal(5500, 6);
  EXPECT_EQ(of_condition(6000, 900), 6u);
  EXPECT_EQ(of_condition(5600, 10'000), 6u);  // longer than the trace
  post(6100, 7);
  EXPECT_EQ(of_semaphore(7000, 500), 7u);
}

// A wait that timed out has locked its mutex again, and holds it.
TEST_F(Holders, AnyWaitForAConditionHoldsItsMutexThen) {
  (void)of_condition(6000, 900, timed_out);
  const auto wait = take(7000, 3, Payload(5, 72).put(u64{0xA0}).put(u64{0}).put(u64{10}).put(i32{0}));
  ASSERT_TRUE(wait);
  EXPECT_FALSE(wait->woken);
  EXPECT_EQ(wait->other, 9u);
}

}  // namespace
}  // namespace ringside::lock_holders_test
