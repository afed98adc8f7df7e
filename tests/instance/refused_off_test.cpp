// Events that come while recording is off are counted as such, in both kinds of rings; those that nobody wants are not.
#include <gtest/gtest.h>
#include <ringside/ringside.h>

#include <ringside/trace.hpp>

#include "instance/instance.hpp"
#include "own_root.hpp"
#include "record/instance_feed.hpp"
#include "record/recording_run.hpp"
#include "sys/beneath.hpp"

RINGSIDE_EVENT(off, one, (u64, n));
RINGSIDE_EVENT(off, unwanted, (u64, n));

namespace ringside::refused_off_test {
namespace {

class RefusedOff : public testing::TestWithParam<Rings> {
 protected:
  void SetUp() override {
    InstanceOptions options;
    options.name = "off";
    options.rings = GetParam();
    auto made = Instance::create(options);
    if (!made && GetParam() == Rings::cpu) GTEST_SKIP() << made.error().sentence;
    ASSERT_TRUE(made) << made.error().sentence;
    instance = std::move(*made);
    ASSERT_EQ(ringside_open("off"), 0);
    ASSERT_TRUE(instance->enable("off:unwanted", false));
  }
  u64 unread() { return instance->unread(); }
  // The account of a recording of now.
  Account record(const std::string& name) {
    auto run = RecordingRun::create(root.path() + "/" + name, instance->clock());
    InstanceFeed feed(*instance);
    EXPECT_TRUE((*run)->add(feed));
    EXPECT_TRUE((*run)->finish());
    return (*run)->account();
  }
  test::OwnRoot root;
  std::unique_ptr<Instance> instance;
};

void write(int count) {
  for (int n = 0; n < count; ++n) {
    ::off::one(static_cast<u64>(n));
    ::off::unwanted(static_cast<u64>(n));
  }
}

TEST_P(RefusedOff, AreCountedAndToldOnce) {
  write(10);
  ASSERT_TRUE(instance->tracing(false));
  write(1000);
  EXPECT_EQ(instance->refused_off(), 1000u);
  EXPECT_EQ(instance->refused(), 1000u);
  ASSERT_TRUE(instance->tracing(true));
  write(10);
  EXPECT_EQ(unread(), 20u);
  const Account first = record("first");
  EXPECT_EQ(first.refused.sum(), 1000u);
  EXPECT_EQ(first.refused[Refusal::off], 1000u);
  EXPECT_TRUE(first.proved());
  EXPECT_TRUE(record("second").none_lost()) << "they are told";
  ASSERT_TRUE(instance->reset());
  EXPECT_EQ(instance->refused(), 0u);
}

// Its events are nowhere, and nobody knows their number.
TEST_P(RefusedOff, AProcessThatIsNotTracedIsADoubt) {
  {
    InstanceFeed feed(*instance);
    auto run = must(RecordingRun::create(root.path() + "/r", instance->clock()));
    must(run->add(feed));
    instance->words().control->without_clock = 1;
    must(run->finish());
    ASSERT_EQ(run->account().doubts.size(), 1u);
    EXPECT_FALSE(run->account().exact());
  }
  EXPECT_TRUE(record("second").exact()) << "it was before";
}

// A thread's first event comes while recording is off.
TEST_P(RefusedOff, TheFirstEvent) {
  ASSERT_TRUE(instance->tracing(false));
  write(3);
  EXPECT_EQ(instance->refused_off(), 3u);
  EXPECT_EQ(unread(), 0u);
}

// A CPU that is left out is a choice of events, as that of their names: nothing is refused.
TEST_P(RefusedOff, ACpuThatIsLeftOutLosesNothing) {
  if (instance->cpu_rings() == 0) GTEST_SKIP() << "rings of threads have no mask";
  ASSERT_TRUE(instance->set_cpumask({}));
  write(100);
  EXPECT_EQ(instance->refused(), 0u);
  EXPECT_EQ(unread(), 0u);
  ASSERT_TRUE(instance->tracing(false));
  write(100);
  EXPECT_EQ(instance->refused(), 0u) << "it is left out in any case";
  ASSERT_TRUE(instance->set_cpumask({~u64{0}, ~u64{0}, ~u64{0}, ~u64{0}, ~u64{0}, ~u64{0}, ~u64{0}, ~u64{0}, ~u64{0}, ~u64{0},
                                     ~u64{0}, ~u64{0}, ~u64{0}, ~u64{0}, ~u64{0}, ~u64{0}}));
  write(100);
  EXPECT_EQ(instance->refused_off(), 100u);
  ASSERT_TRUE(instance->tracing(true));
  write(100);
  EXPECT_EQ(unread(), 100u);
}

INSTANTIATE_TEST_SUITE_P(Rings, RefusedOff, testing::Values(Rings::cpu, Rings::thread),
                         [](const auto& tested) { return tested.param == Rings::cpu ? "cpu" : "thread"; });

}  // namespace
}  // namespace ringside::refused_off_test
