// ringside::testing::Capture: what a unit test of a program sees of its events.
#include <gtest/gtest.h>

#include <filesystem>
#include <ringside/log.hpp>
#include <ringside/testing.hpp>
#include <string>
#include <thread>

#include "own_root.hpp"

RINGSIDE_EVENT(capture_test, order, (u32, id), (double, price), (cstring, customer));
RINGSIDE_EVENT(capture_test, refund, (u32, id));

namespace capture_test_of {
namespace {

using ringside::testing::Capture;
using ringside::testing::Captured;

class CaptureTest : public ::testing::Test {
 protected:
  ringside::test::OwnRoot root;
};

TEST_F(CaptureTest, SeesWhatIsWrittenInItsScope) {
  capture_test::order(1, 1, "before");
  std::vector<Captured> kept;
  {
    Capture capture{"capture_test:*"};
    EXPECT_TRUE(capture.events().empty());
    capture_test::order(17, 9.5, "Ada");
    capture_test::refund(17);
    const auto& events = capture.events();
    ASSERT_EQ(events.size(), 2u);
    EXPECT_EQ(events[0].name, "capture_test:order");
    EXPECT_EQ(events[0].number("id"), 17);
    EXPECT_EQ(events[0].real("price"), 9.5);
    EXPECT_EQ(events[0].text("customer"), "Ada");
    EXPECT_EQ(events[0].tid, getpid());
    EXPECT_NE(events[0].line.find("id=17"), std::string::npos) << events[0].line;
    EXPECT_LE(events[0].time, events[1].time);
    EXPECT_THROW(events[0].number("customer"), std::runtime_error);
    EXPECT_THROW(events[0].number("none"), std::runtime_error);
    std::thread([] { capture_test::refund(18); }).join();
    EXPECT_EQ(capture.count("capture_test:refund"), 2u);
    EXPECT_EQ(capture.count("capture_test:nothing"), 0u);
    EXPECT_EQ(capture.lost(), 0u);
    kept = capture.events("capture_test:order");
    capture.clear();
    EXPECT_TRUE(capture.events().empty());
    capture_test::refund(19);
    ASSERT_EQ(capture.events().size(), 1u);
    EXPECT_EQ(capture.events()[0].number("id"), 19);
  }
  capture_test::order(2, 2, "behind");
  ASSERT_EQ(kept.size(), 1u);
  EXPECT_EQ(kept[0].text("customer"), "Ada") << "it outlives its Capture";
  EXPECT_EQ(ringside_instance(), nullptr);
  for (const auto& left : std::filesystem::directory_iterator(root.path()))
    EXPECT_EQ(left.path().filename().string().find("capture-"), std::string::npos) << left.path();
}

TEST_F(CaptureTest, EnablesOnlyWhatItIsAskedFor) {
  for (int n = 0; n < 2; ++n) {
    Capture capture{"capture_test:refund"};
    EXPECT_FALSE(capture_test::order.enabled());
    capture_test::refund(1);
    EXPECT_EQ(capture.events().size(), 1u);
  }
  EXPECT_THROW(Capture{"a\nb"}, std::runtime_error);
}

TEST_F(CaptureTest, AnInstanceThatAProcessOfThisNumberLeftIsNoneOfIts) {
  for (int n = 0; n < 8; ++n) {
    const std::string name = "capture-" + std::to_string(getpid()) + "-" + std::to_string(n);
    ringside_options o{};
    o.name = name.c_str();
    o.events = "other:*";
    ASSERT_EQ(ringside_open_with(&o, sizeof o), 0);
    ringside_close();
  }
  Capture capture{"capture_test:refund"};
  capture_test::refund(1);
  EXPECT_EQ(capture.events().size(), 1u);
}

TEST_F(CaptureTest, SeesMessages) {
  Capture capture{"log:warn"};
  const int size = 5;
  RINGSIDE_LOG(warn, "{} is too small", size);
  RINGSIDE_LOG(info, "{} is fine", size);
  ASSERT_EQ(capture.events().size(), 1u);
  EXPECT_EQ(capture.events()[0].number("size"), 5);
  EXPECT_NE(capture.events()[0].line.find(": 5 is too small"), std::string::npos) << capture.events()[0].line;
}

TEST_F(CaptureTest, WritesToTheInstanceThatIsOpen) {
  ASSERT_EQ(ringside_open("open"), 0);
  capture_test::order(1, 1, "before");
  {
    Capture capture{"capture_test:order"};
    capture_test::order(2, 2, "in it");
    ASSERT_EQ(capture.events().size(), 1u);
    EXPECT_EQ(capture.events()[0].text("customer"), "in it");
  }
  EXPECT_NE(ringside_instance(), nullptr);
  ringside_close();
}

TEST_F(CaptureTest, CountsLosses) {
  ASSERT_EQ(ringside_disable("x"), -ENOENT);
  ringside_options o{};
  o.name = "small";
  o.ring_bytes = 16 << 10;
  o.mode = RINGSIDE_DISCARD;
  ASSERT_EQ(ringside_open_with(&o, sizeof o), 0);
  Capture capture{"capture_test:refund"};
  constexpr unsigned count = 100'000;
  for (unsigned n = 0; n < count; ++n) capture_test::refund(n);
  const size_t seen = capture.events().size();
  EXPECT_GT(capture.lost(), 0u);
  EXPECT_EQ(seen + capture.lost(), count);
  ringside_close();
}

}  // namespace
}  // namespace capture_test_of
