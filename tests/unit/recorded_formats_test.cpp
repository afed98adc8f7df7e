// The format of an event is on disk before an event of that kind: a recorder may be killed at any moment. Found by the storm of
// edges: "an event of the unknown id 1" in the recording of an external writer.
#include <ringside/remote/process_writer.hpp>

#include "record/instance_feed.hpp"
#include "record/remote_feed.hpp"
#include "unit/instance_fixture.hpp"

namespace ringside::test::recorded_formats_test {
namespace {

struct RecordedFormats : instance_test::InstanceTest {
  const std::string recording = dir + "/recording";
  std::unique_ptr<RecordingRun> run(Feed& feed) const {
    auto made = must(RecordingRun::create(recording, ClockInfo{}));
    must(made->add(feed));
    return made;
  }
  // As a killed recorder leaves it.
  bool is_on_disk(const std::string& name) const {
    const auto events = must(RecordingMeta::read(recording)).events;
    return std::any_of(events.begin(), events.end(), [&](const EventInfo& e) { return e.name == name; });
  }
};

TEST_F(RecordedFormats, OfAnExternalWriter) {
  const std::string socket = dir + "/writer";
  remote::ProcessWriter<> writer({socket, {{1, "app", "tick", "name: tick"}}});
  ASSERT_EQ(writer.error(), 0);
  RemoteFeed::Options options;
  options.socket = socket;
  RemoteFeed feed(options);
  const auto made = run(feed);
  must(feed.attach(*made));
  EXPECT_TRUE(is_on_disk("tick"));
}

TEST_F(RecordedFormats, OfAnEventThatAProgramDeclaresLate) {
  auto instance = make("a");
  ASSERT_EQ(ringside_open("a"), 0);
  InstanceFeed feed(*instance);
  const auto made = run(feed);
  static ringside_event late[10];
  for (ringside_event& event : late) {
    const std::string name = "late" + std::to_string(&event - late);
    event = {"late", strdup(name.c_str()), "", "\"\"", ringside_gate_of("late", name.c_str()), 0, nullptr, nullptr};
    ASSERT_EQ(ringside_register(&event), 0);
    u64 payload = 0;
    ASSERT_TRUE(ringside_write(&event, &payload, sizeof payload));
    const u64 before = made->events();
    made->poll();
    ASSERT_EQ(made->events(), before + 1);
    EXPECT_TRUE(is_on_disk(name));
  }
}

}  // namespace
}  // namespace ringside::test::recorded_formats_test
