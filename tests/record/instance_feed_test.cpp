// Recordings of an instance, one directly after the other.
#include "record/instance_feed.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <ringside/abi/event_cursor.hpp>
#include <ringside/trace.hpp>

#include "own_root.hpp"
#include "source/recording.hpp"

RINGSIDE_EVENT(parts, number, (u64, n));

namespace ringside::test::instance_feed_test {
namespace {

// One stack for all calls.
[[gnu::noinline]] void write_number(u64 n) { ::parts::number(n); }

// Events by name.
std::map<std::string, u64> events_of(const std::string& recording) {
  std::map<std::string, u64> found;
  const auto meta = must(RecordingMeta::read(recording));
  std::map<u16, std::string> names;
  for (const EventInfo& e : meta.events) names[static_cast<u16>(e.id)] = e.name;
  for (const auto& source : must(open_recording(recording, meta)))
    for (auto view = must(source->next()); view; view = must(source->next())) {
      abi::EventCursor events(view->sub_buffer + abi::header_size, view->begin, view->end, view->time);
      while (events.next()) {
        u16 id = 0;
        std::memcpy(&id, events.payload().data, sizeof id);
        ++found[names[id]];
      }
    }
  return found;
}

// A stack that one part has is written anew for the next one, also for an event between the two.
TEST(InstanceFeed, EachPartHasTheStacksOfItsEvents) {
  const OwnRoot root(true);
  InstanceOptions options;
  options.name = "a";
  const auto instance = must(Instance::create(options));
  must(instance->stacks(must(EventPatterns::parse("parts:number")), 64));
  ASSERT_EQ(ringside_open("a"), 0);
  Account accounted;
  for (const std::string part : {"one", "two", "three"}) {
    InstanceFeed feed(*instance);
    feed.go_on_from(accounted);
    const auto run = must(RecordingRun::create(root.path() + "/" + part, instance->clock()));
    must(run->add(feed));
    run->poll();
    if (part == "one") write_number(0);
    feed.hand_over();
    must(run->finish());
    accounted = feed.accounted();
    write_number(1);  // read by the next part, or by none
  }
  for (const std::string part : {"one", "two", "three"}) {
    auto found = events_of(root.path() + "/" + part);
    EXPECT_EQ(found["number"], 1u) << part;
    EXPECT_EQ(found["stack"], 1u) << part;
    EXPECT_GE(found["code_map"], 1u) << part;
  }
}

}  // namespace
}  // namespace ringside::test::instance_feed_test
